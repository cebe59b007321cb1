"""How a message leaves a group otherwise than by settlement: into the DLQ, or dropped and counted.

Every function here is told runs that are in no place of the group any more (neither ready, nor later, nor held).
"""

from collections.abc import Iterable

from vibemq.engine.handlers.jobs.deaths import note_deaths
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.requests.failing import fail_redirected, fail_requests, fail_sequences
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy, light
from vibemq.engine.waiting import PER_UNIT
from vibemq.model.options import Durability
from vibemq.model.records import ALL_GROUPS, Attempts, DeadFacts, DeadLettered, DeadRemoved, Dropped, Reason
from vibemq.model.runs import Run, RunSet, run_count, runs_of, without

_NEVER_OUT = Attempts(acquired=0)
_FAILED = frozenset((Reason.REJECTED, Reason.MAX_ATTEMPTS))
"""A consumer has had the message: it has not gone without a verdict."""
_IDS_AHEAD = 1_000
"""Ids of transient letters that one record speaks for."""


def remove_from_group(
    state: EngineState,
    step: Step,
    queue: Queue,
    group: Group,
    runs: list[Run],
    reason: Reason,
    *,
    error: str = "",
    lost: bool = True,
) -> None:
    """The group's policy for messages it gives up: the DLQ when the queue has one.

    Args:
        lost: a cursor was to read them; not so when it was their sender who let them expire.
    """
    if not runs:
        return
    if lost:
        lose(step, queue, group, runs)
    if queue.options.dead_letter:
        if reason is Reason.EXPIRED:
            group.counters.expired_dead += run_count(runs)
        bury(state, step, queue, group, _each(runs), reason, error=error, acquired=0)
    else:
        discard(step, queue, group, runs, reason, error)


def turn_down(state: EngineState, step: Step, queue: Queue, group: Group, runs: list[Run], error: str) -> None:
    """What a reader rejects: into the DLQ when the queue has one, as handed out once."""
    if queue.options.dead_letter:
        bury(state, step, queue, group, _each(runs), Reason.REJECTED, error=error, acquired=1)
    else:
        discard_failed(state, step, queue, group, runs, Reason.REJECTED, error)


def lose(step: Step, queue: Queue, group: Group, runs: list[Run]) -> None:
    """A cursor is told of what it will never read; its owner decides what that means."""
    cursor = group.cursor
    if cursor is not None and cursor.lose(runs):
        step.note_cursor(queue, group, light(queue))


def bury(
    state: EngineState,
    step: Step,
    queue: Queue,
    group: Group,
    sequences: Iterable[int],
    reason: Reason,
    *,
    error: str,
    acquired: int,
) -> None:
    """Move messages into the DLQ. `acquired`: hand-outs of those without a history."""
    plain = Attempts(acquired=acquired)
    doomed = list(sequences)
    letters = []
    for dead_id, sequence in enumerate(doomed, _new_ids(state, step, queue, len(doomed))):
        history = group.attempts.pop(sequence, plain)
        letters.append(_letter(dead_id, sequence, reason, error or history.error, history, step.now))
    if queue.requests:
        fail_sequences(queue, group, doomed, reason, error)
    group.counters.dead += len(letters)
    step.note(DeadLettered(queue.queue_id, group.group_id, letters), heavy(queue))
    if state.jobs.made:
        note_deaths(state, step, queue, runs_of(doomed))
    step.free(queue)


def bury_unseen(state: EngineState, step: Step, queue: Queue, runs: list[Run]) -> None:
    """Overflow that goes into the DLQ instead of every group."""
    first = _new_ids(state, step, queue, run_count(runs))
    letters = [_letter(i, s, Reason.OVERFLOW, "", _NEVER_OUT, step.now) for i, s in enumerate(_each(runs), first)]
    if queue.requests:
        fail_redirected(queue, runs)
    step.note(DeadLettered(queue.queue_id, ALL_GROUPS, letters), heavy(queue))
    if queue.log is not None:
        # To a restart the log has whatever has not left it. Behind the letters, which keep their rows.
        step.note(Dropped(queue.queue_id, runs, Reason.OVERFLOW), heavy(queue))


def _new_ids(state: EngineState, step: Step, queue: Queue, count: int) -> int:
    """The first of so many. Letters of transient queues are not kept, but jobs and readers go by their ids: so the disk
    is told, ahead of them, of an id behind theirs that no letter has."""
    first = state.new_dead_ids(queue, count)
    if queue.transient and state.dead_id_told < state.next_dead_id:
        if step.durability > Durability.TRANSIENT:
            tell_ids(state, step)
        else:
            # Its publishes are confirmed at once: a full disk must not take them back for want of this record.
            state.dead_ids_due = True
            state.arm(queue, step.now)
    return first


def tell_ids(state: EngineState, step: Step) -> None:
    """Have the disk told of an id behind all that were given."""
    state.dead_ids_due = False
    if state.dead_id_told < state.next_dead_id:
        state.dead_id_told = state.next_dead_id + _IDS_AHEAD
        step.note(DeadRemoved([state.dead_id_told]), Durability.ASYNC)


def _letter(dead_id: int, sequence: int, reason: Reason, error: str, history: Attempts, now: int) -> DeadFacts:
    return DeadFacts(
        dead_id=dead_id,
        sequence=sequence,
        reason=reason,
        error=error,
        acquired=history.acquired,
        failed=history.failed,
        first_failed_at=history.first_failed_at,
        dead_at=now,
    )


def discard(step: Step, queue: Queue, group: Group, runs: list[Run], reason: Reason, error: str = "") -> None:
    """Drop messages from one group. They leave the store only if no other group and no log wants them."""
    group.forget_history(runs)
    if queue.requests:
        fail_requests(queue, runs, reason, error, group=group)
    count = run_count(runs)
    if reason is Reason.EXPIRED:
        group.counters.expired += count
    else:
        group.counters.dropped += count
    if queue.only_group:
        if reason not in _FAILED:
            step.give_up(queue, runs)
        step.note(Dropped(queue.queue_id, runs, reason), heavy(queue))
    else:
        step.note_settled(queue, group, runs)
    step.free(queue)


def discard_failed(
    state: EngineState, step: Step, queue: Queue, group: Group, runs: list[Run], reason: Reason, error: str
) -> None:
    """The same for what a consumer has failed with: to jobs it died, though no letter of it is kept."""
    discard(step, queue, group, runs, reason, error)
    if state.jobs.made:
        note_deaths(state, step, queue, runs)


def drop_waiting(step: Step, queue: Queue, runs: list[Run], reason: Reason) -> RunSet:
    """Drop messages from every group where they wait, and from the log; return which these are.

    What is in flight somewhere stays with its holder, and in the store until it is settled.
    """
    gone = [(group, taken) for group in queue.groups.values() if (taken := take_waiting(group, runs))]
    held = held_among(queue, runs)
    touched = RunSet(_merged([run for _, taken in gone for run in taken] + unlog(queue, runs, held)))
    if not touched:
        return touched
    kept = RunSet(part for run in touched.runs() for part in held.overlap(*run))
    if queue.queue_id in step.watched:
        step.give_up(queue, without(_merged([run for _, taken in gone for run in taken]), kept.runs()))
    for group, taken in gone:
        group.forget_history(taken)
        group.counters.dropped += run_count(taken)
        lose(step, queue, group, taken)
        if kept and (settled := [part for run in taken for part in kept.overlap(*run)]):
            step.note_settled(queue, group, settled)
    dropped = touched.copy()
    for run in kept.runs():
        touched.remove(*run)
    if queue.requests:
        fail_requests(queue, touched.runs(), reason)
    if touched:
        step.note(Dropped(queue.queue_id, touched.runs(), reason), heavy(queue))
    step.free(queue)
    return dropped


def drop_from(step: Step, queue: Queue, group: Group, runs: list[Run]) -> list[Run]:
    """The same of one group alone, one of several; nothing is said of requests, or of the log."""
    taken = take_waiting(group, runs)
    if taken:
        group.forget_history(taken)
        group.counters.dropped += run_count(taken)
        lose(step, queue, group, taken)
        step.note_settled(queue, group, taken)
        step.free(queue)
    return taken


def held_among(queue: Queue, runs: list[Run]) -> RunSet:
    """What consumers or cursors hold between the first of the runs and the last."""
    groups = [group for group in queue.groups.values() if group.in_flight]
    if not groups:
        return RunSet()
    span = [(min(first for first, _ in runs), max(last for _, last in runs))]
    return RunSet(run for group in groups for run in group.held_within(span))


def waiting_among(queue: Queue, runs: list[Run], held: RunSet) -> RunSet:
    """What `drop_waiting` would drop of the runs. `held`: what is held among them."""
    waiting = RunSet()
    for first, last in runs:
        for group in queue.groups.values():
            waiting.add_all(group.waiting_within(first, last))
        if queue.log is not None:
            logged = RunSet(queue.log.overlap(first, last))
            for run in held.overlap(first, last):
                logged.remove(*run)
            waiting.add_all(logged.runs())
    return waiting


def visible_runs(queue: Queue, runs: list[Run]) -> list[Run]:
    """The runs without what is on its way to the disk, or was never published."""
    end = queue.unseen[0].first if queue.unseen else queue.next_sequence
    return [(first, min(last, end - 1)) for first, last in runs if first < end]


def cut_step(queue: Queue, first: int, last: int, most: int) -> tuple[int, int]:
    """(stop, cost): how far of [first, last] about `most` runs reach, of all that waits, is held, or is in the log."""
    share = max(1, most // max(1, len(queue.groups)))
    cost = 0
    for group in queue.groups.values():
        last, waiting = group.cut_waiting(first, last, share)
        last, held = group.cut_held(first, last, share) if group.in_flight else (last, 0)
        cost += waiting + held
    if queue.log is not None:
        last, logged = queue.log.cut_runs(first, last, most)
        cost += logged
    if queue.requests:
        last, number = queue.requests.cut(first, last, PER_UNIT * most)
        cost += number // PER_UNIT
    return last, cost


def drop_logged(step: Step, queue: Queue, runs: list[Run], reason: Reason) -> None:
    """Drop messages from the log and from every group, held ones too."""
    for group in queue.groups.values():
        waiting = take_waiting(group, runs)
        held = [part for first, last in runs for part in group.take_held(first, last)] if group.in_flight else []
        if held:
            step.touch(queue, group)
        group.forget_history(waiting + held)
        group.counters.dropped += run_count(waiting) + run_count(held)
        lose(step, queue, group, waiting)
        step.give_up(queue, waiting + held)
    unlog(queue, runs, RunSet())
    if queue.requests:
        fail_requests(queue, runs, reason)
    step.note(Dropped(queue.queue_id, runs, reason), heavy(queue))
    step.free(queue)


def take_waiting(group: Group, runs: list[Run]) -> list[Run]:
    """Out of the group; the caller says what becomes of it."""
    return _merged([taken for first, last in runs for taken in group.take_waiting(first, last)])


def unlog(queue: Queue, runs: list[Run], held: RunSet) -> list[Run]:
    """Take the runs out of the log, but for what is held."""
    if queue.log is None:
        return []
    found = RunSet(part for first, last in runs for part in queue.log.overlap(first, last))
    for run in held.runs():
        found.remove(*run)
    for run in found.runs():
        queue.log.remove(*run)
    return found.runs()


def _merged(runs: list[Run]) -> list[Run]:
    merged: list[Run] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _each(runs: list[Run]) -> Iterable[int]:
    for first, last in runs:
        yield from range(first, last + 1)
