"""Builds a running engine from the state of a store."""

from dataclasses import replace
from itertools import accumulate, groupby
from operator import le

from vibemq.engine import lifetime
from vibemq.engine.handlers.cursors.holds import take_up
from vibemq.engine.handlers.cursors.ranges import leap
from vibemq.engine.handlers.fan_out import add_group, begin_by_end, delete_group, open_waiting_group, wait_for_next
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue
from vibemq.engine.queue.ready import NORMAL
from vibemq.engine.queue.sizes import Sizes
from vibemq.engine.stage_names import is_delay_mark, is_stage
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.extras.columns import short_ids
from vibemq.model.extras.dedup_table import DEDUP_SEQUENCE_BITS, DEDUP_SEQUENCE_MASK
from vibemq.model.instants import Instants
from vibemq.model.options import Durability
from vibemq.model.records import Attempts, TransactionsForgotten
from vibemq.model.runs import END, RunSet
from vibemq.model.selector import Selector
from vibemq.model.stored import Chunk, StoredGroup, StoredQueue, StoredState, importer_of
from vibemq.model.upcoming import Upcoming

_FIRST = Attempts()


def restore(state: EngineState, step: Step, stored: StoredState) -> None:
    """Take over a stored state. What was pending is back at its place: a crash is no consumer's fault."""
    state.next_queue_id = stored.next_queue_id
    state.next_dead_id = state.first_new_dead_id = stored.next_dead_id
    state.dead_total = stored.dead_count
    state.jobs.restore(stored.jobs)
    for stored_queue in stored.queues.values():
        if stored_queue.deleted:
            # Only its dead letters are left, and the store has them.
            continue
        queue = _queue(stored_queue, step.now)
        state.register(queue, _registry(state, queue.name))
        for stored_group in stored_queue.groups.values():
            _group(state, step, queue, stored_queue, stored_group)
        queue.next_group_id = stored_queue.next_group_id
        _resolve_passing(step, queue)
        leap(queue)
        if state.queues.get(queue.name) is queue:
            lifetime.begin(state, queue, step.now)
            lifetime.doom_at_start(state, queue)
        if not _is_idle(queue):
            state.arm(queue, step.now)
    orphans: list[str] = []
    for app, kept in sorted(stored.transactions.items(), key=lambda item: item[1].decided_at):
        importer = importer_of(app)
        if importer is not None and importer[0] not in state.queues_by_id:
            # The broker ended while the imports of a deleted queue were forgotten, or never forgot them.
            orphans.append(app)
            continue
        state.keep_transaction(app, replace(kept, stages=list(kept.stages)))
    if orphans:
        step.note(TransactionsForgotten(orphans), Durability.ASYNC)


def _registry(state: EngineState, name: str) -> dict[str, Queue]:
    if not is_stage(name):
        return state.queues
    return state.delay_marks if is_delay_mark(name) else state.stages


def _is_idle(queue: Queue) -> bool:
    """Whether nothing of it can be due: most of many queues are empty, and are not looked at again."""
    return not (
        queue.expires
        or queue.dedup
        or queue.log
        or queue.alarms
        or any(group.unsettled or group.cursor is not None for group in queue.groups.values())
    )


def _queue(stored: StoredQueue, now: int) -> Queue:
    queue = Queue(stored.queue_id, stored.name, stored.options, min(stored.created_at, now), stored.incarnation)
    queue.next_sequence = stored.next_sequence
    queue.attended = stored.attended
    if stored.has("chunks"):
        queue.sizes = Sizes()
        queue.sizes.restore(_in_order(stored.chunks, now))
    queue.dead = stored.letters
    if queue.levels is not None:
        queue.levels.update((level, RunSet(members.runs())) for level, members in stored.priorities.items())
        queue.levels.pop(NORMAL, None)
    if stored.has("expires"):
        queue.set_expiries(stored.expires)
    if stored.has("delayed"):
        queue.delayed = stored.delayed.copy()
        queue.upcoming = Upcoming()
    oldest = now - queue.options.dedup_window_ms
    dedup = stored.dedup.oldest_first() if stored.has("dedup") else ()
    for published_at, together in groupby(
        sorted(dedup, key=_published_at), lambda known: known[1] >> DEDUP_SEQUENCE_BITS
    ):
        if published_at >= oldest:
            ids, places = zip(*together, strict=True)
            # Earlier versions have stored long ones as they came.
            queue.remember(short_ids(ids), [known & DEDUP_SEQUENCE_MASK for known in places], min(published_at, now))
    # Nothing of a transient queue is left, and its sequences have jumped.
    if queue.log is not None and stored.next_sequence > 1 and not queue.transient:
        queue.log.add(1, stored.next_sequence - 1)
        for run in stored.dropped.runs():
            queue.log.remove(*run)
    return queue


def _in_order(chunks: list[Chunk], now: int) -> list[Chunk]:
    """Nothing was published after now, nor before what stands in front of it: what says so saw a wrong clock. Where
    that was ahead of now, the next message tells at what time it was. What is earlier than the message before it counts
    as that old, so that nothing goes before its time: either clock may have been the wrong one."""
    instants = [chunk.published_at for chunk in chunks]
    if all(map(le, instants, [*instants[1:], now])):
        return chunks
    known: list[int] = []
    for instant in reversed(instants):
        known.append(instant if instant <= now else known[-1] if known else now)
    corrected = accumulate(reversed(known), max)
    return [
        chunk if chunk.published_at == instant else replace(chunk, published_at=instant)
        for chunk, instant in zip(chunks, corrected, strict=True)
    ]


def _due_from(history: Attempts, now: int) -> Attempts:
    """A retry that was due some time after a failure in the future is due that time after now."""
    ahead = history.last_failed_at - now
    return history._replace(due_at=history.due_at - ahead) if ahead > 0 and history.due_at else history


def _published_at(known: tuple[bytes, int]) -> tuple[int, bytes]:
    return known[1] >> DEDUP_SEQUENCE_BITS, known[0]


def _group(state: EngineState, step: Step, queue: Queue, stored_queue: StoredQueue, stored: StoredGroup) -> None:
    queue.next_group_id = stored.group_id
    start = max(stored.head, stored_queue.next_sequence)
    group = add_group(state, queue, stored.name, durable=stored.durable, start=start)
    group.epoch = stored.epoch
    group.owner = stored.owner
    if stored.where:
        group.filter_by(Selector.parse(stored.where))
        step.touch(queue, group)
    unsettled = _unsettled(stored_queue, stored)
    if unsettled:
        group.count_in(len(unsettled))
        for run in unsettled.runs():
            group.ready.add(*run)
        _put_later(state, step, queue, group, unsettled, stored)
    if stored.cursor is not None:
        cursor = Cursor.of(stored.cursor)
        for number, plan in stored.plans.items() if stored.has("plans") else ():
            cursor.plans.add(number, plan)
            state.batches_at = max(state.batches_at, plan.made_at, plan.empty_at)
        take_up(state, step, queue, group, cursor, stored_queue.dead)


def _unsettled(queue: StoredQueue, group: StoredGroup) -> RunSet:
    unsettled = RunSet()
    if group.head >= queue.next_sequence and not group.has("pending"):
        return unsettled
    if group.head < queue.next_sequence:
        unsettled.add(group.head, queue.next_sequence - 1)
    for run in group.taken.runs():
        unsettled.remove(*run)
    for run in group.pending.runs():
        unsettled.add(*run)
    for run in queue.dropped.runs():
        unsettled.remove(*run)
    return unsettled


def _put_later(
    state: EngineState, step: Step, queue: Queue, group: Group, unsettled: RunSet, stored: StoredGroup
) -> None:
    """Take out of `ready` what waits for an instant, and what was published with a delay and never handed out."""
    pending = RunSet(part for run in stored.pending.runs() for part in unsettled.overlap(*run))
    due = Instants()
    for sequence in pending:
        history = _due_from(stored.attempts.get(sequence, _FIRST), step.now)
        group.remember(sequence, history)
        if history.due_at > step.now:
            due[sequence] = history.due_at
    scheduled = _scheduled(queue, unsettled, pending)
    for run in [*due.runs(), *scheduled.runs()]:
        group.ready.remove(*run)
    group.postpone_all(due)
    group.schedule_all(scheduled, queue.delayed)
    group.scheduled.advance(step.now)
    at = group.next_due()
    if at < END:
        state.arm_part(queue, group, max(at, step.now))


def _scheduled(queue: Queue, unsettled: RunSet, pending: RunSet) -> Instants:
    """What was published with a delay, as far as the group has never handed it out."""
    if not queue.delayed:
        return Instants()
    due = queue.delayed.copy()
    held = RunSet(due.runs())
    for run in unsettled.runs():
        held.remove(*run)
    for run in pending.runs():
        held.add(*run)
    for first, last in held.runs():
        for sequence in due.within(first, last):
            del due[sequence]
    return due


def _resolve_passing(step: Step, queue: Queue) -> None:
    """Groups of subscribers that are gone end; the last one of a fan-out queue waits for the next subscriber."""
    passing = sorted((g for g in queue.groups.values() if not g.durable), key=lambda g: (g.unsettled, -g.group_id))
    for group in passing:
        if len(queue.groups) > 1:
            delete_group(step, queue, group, Durability.ASYNC)
        else:
            wait_for_next(step, queue, group)
    waiting = queue.groups.get(WAITING_NAME)
    if waiting is not None and queue.options.is_fan_out:
        # Earlier versions have left it where its last subscriber was to begin.
        begin_by_end(step, queue, waiting)
    if not queue.groups or (not queue.options.is_fan_out and WAITING_NAME not in queue.groups):
        open_waiting_group(step, queue, Durability.STRONG)
