"""From what a store knows to a running engine."""

from vibemq.engine.handlers.cursors import leap, take_up
from vibemq.engine.handlers.fan_out import delete_group, open_waiting_group, rename_group
from vibemq.engine.handlers.transactions import is_stage
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue
from vibemq.engine.queue.ready import NORMAL
from vibemq.engine.state import State, Transaction
from vibemq.engine.step import Turn
from vibemq.model.options import Durability
from vibemq.model.records import Attempts
from vibemq.model.runs import RunSet
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState


def restore(state: State, turn: Turn, stored: StoredState) -> None:
    """Take over a stored state. What was pending is back at its place: a crash is no consumer's fault."""
    state.next_queue_id = stored.next_queue_id
    state.next_dead_id = state.first_new_dead_id = stored.next_dead_id
    state.dead_total = stored.dead_count
    for stored_queue in stored.queues.values():
        if stored_queue.deleted:
            state.graves[stored_queue.queue_id] = len(stored_queue.dead)
            continue
        queue = _queue(stored_queue, turn.now)
        registry = state.stages if is_stage(queue.name) else state.queues
        state.register(queue, registry)
        for stored_group in stored_queue.groups.values():
            _group(state, turn, queue, stored_queue, stored_group)
        queue.next_group_id = stored_queue.next_group_id
        _resolve_passing(turn, queue)
        leap(queue)
        state.arm(queue, turn.now)
    for app, kept in stored.transactions.items():
        state.transactions[app] = Transaction(
            kept.version, kept.decided_at, list(kept.stages), kept.tag, kept.owner, kept.skipped_from
        )


def _queue(stored: StoredQueue, now: int) -> Queue:
    queue = Queue(stored.queue_id, stored.name, stored.options, stored.created_at, stored.incarnation)
    queue.next_sequence = stored.next_sequence
    queue.sizes.restore(stored.chunks)
    queue.dead = len(stored.dead)
    if queue.levels is not None:
        queue.levels.update((level, RunSet(members.runs())) for level, members in stored.priorities.items())
        queue.levels.pop(NORMAL, None)
    for sequence, expires_at in stored.expires.items():
        queue.set_expiry(sequence, expires_at)
    queue.delayed = dict(stored.delayed)
    oldest = now - queue.options.dedup_window_ms
    young = {key: known for key, known in stored.dedup.items() if known[1] >= oldest}
    queue.dedup = young
    queue.dedup_order.extend(sorted((published_at, key) for key, (_, published_at) in young.items()))
    # Nothing of a transient queue is left, and its sequences have jumped.
    if queue.log is not None and stored.next_sequence > 1 and not queue.transient:
        queue.log.add(1, stored.next_sequence - 1)
        for run in stored.dropped.runs():
            queue.log.remove(*run)
    return queue


def _group(state: State, turn: Turn, queue: Queue, stored_queue: StoredQueue, stored: StoredGroup) -> None:
    queue.next_group_id = stored.group_id
    group = queue.new_group(stored.name, durable=stored.durable, start=max(stored.head, stored_queue.next_sequence))
    group.epoch = stored.epoch
    group.owner = stored.owner
    unsettled = _unsettled(stored_queue, stored)
    group.tally.entered = len(unsettled)
    for run in unsettled.runs():
        group.ready.add(*run)
    pending = RunSet(part for run in stored.pending.runs() for part in unsettled.overlap(*run))
    for sequence in pending:
        group.attempts[sequence] = stored.attempts.get(sequence, Attempts())
        _delay(state, turn, queue, group, sequence, group.attempts[sequence].due_at)
    for sequence, deliver_at in queue.delayed.items():
        if sequence in unsettled and sequence not in pending:
            _delay(state, turn, queue, group, sequence, deliver_at)
    if stored.cursor is not None:
        take_up(state, turn, queue, group, Cursor.of(stored.cursor))


def _unsettled(queue: StoredQueue, group: StoredGroup) -> RunSet:
    unsettled = RunSet()
    if group.head < queue.next_sequence:
        unsettled.add(group.head, queue.next_sequence - 1)
    for run in group.taken.runs():
        unsettled.remove(*run)
    for run in group.pending.runs():
        unsettled.add(*run)
    for run in queue.dropped.runs():
        unsettled.remove(*run)
    return unsettled


def _delay(state: State, turn: Turn, queue: Queue, group: Group, sequence: int, due: int) -> None:
    if due > turn.now:
        group.ready.remove(sequence, sequence)
        group.later.add(sequence, due)
        state.arm(queue, due)


def _resolve_passing(turn: Turn, queue: Queue) -> None:
    """Groups of subscribers that are gone end; the last one of a fan-out queue waits for the next subscriber."""
    passing = sorted((g for g in queue.groups.values() if not g.durable), key=lambda g: (g.unsettled, -g.group_id))
    for group in passing:
        if len(queue.groups) > 1:
            delete_group(turn, queue, group, Durability.ASYNC)
        else:
            rename_group(turn, queue, group, WAITING_NAME, durable=True, need=Durability.ASYNC)
    if not queue.groups or (not queue.options.is_fan_out and WAITING_NAME not in queue.groups):
        open_waiting_group(turn, queue, Durability.STRONG)
