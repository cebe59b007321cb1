"""What a reader or an operator asks of a cursor: to take it over, to acknowledge, to reject, to quarantine."""

from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from vibemq.engine.handlers.cursors.holds import settle
from vibemq.engine.handlers.cursors.lookup import check_epoch, check_expired, cursor_of, find_cursor, missing
from vibemq.engine.handlers.cursors.plans import forget_plans
from vibemq.engine.handlers.cursors.ranges import describe, described_anew, tail_of
from vibemq.engine.handlers.dead_lettering import turn_down
from vibemq.engine.handlers.fan_out import (
    check_group_name,
    check_owner,
    claim,
    durable_need,
    group_for,
    head_of,
    move_group,
    to_adopt,
    where_moved,
    where_new,
)
from vibemq.engine.handlers.jobs.deaths import note_tried
from vibemq.engine.handlers.queues import find, find_same
from vibemq.engine.handlers.transactions import has_delays_on_their_way
from vibemq.engine.pacing import STEP_UNITS, Slices, pieces
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group, GroupCounters
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy, light
from vibemq.errors import GroupHasProgress, InvalidOptions
from vibemq.model.commands import Begin, CommitCursor, JoinCursor, Quarantine, RejectAt, StartAt
from vibemq.model.effects import CursorInfo, Rejected
from vibemq.model.extras.columns import columns_of
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.runs import END, RunSet, run_count, runs_of

OWNER_MAX = 256
RUNS_MAX = 10_000
"""Most runs of one Quarantine."""
EPOCHS_OF_A_GROUP = 1 << 20


def join(state: EngineState, step: Step, command: JoinCursor) -> None:
    queue = find_same(state, command.queue, command.incarnation)
    group = queue.groups.get(command.group)
    limits = _limits(command)
    _check_join(state, step, queue, group, command)
    if command.dry_run:
        step.answer(command, replace(_would_be(queue, group, command, step.now), **limits))
        return
    if group is None:
        group, _ = group_for(state, step, queue, command.group, command.start, command.start_sequence)
        group.cursor = Cursor(head_of(queue, group))
        state.totals.cursors_made += 1
        # A reader of a group of this name that was deleted must not pass for this one's: ids are never used again.
        group.epoch += group.group_id * EPOCHS_OF_A_GROUP
    cursor = cursor_of(queue, group)
    if command.take_over:
        _begin_anew(state, step, queue, group, cursor, command)
        claim(step, queue, group, command.user)
        group.epoch += 1
        cursor.joins += 1
        cursor.begun = command.begin is not None
        cursor.owner = command.owner[:OWNER_MAX]
    for name, value in limits.items():
        setattr(cursor, name, value)
    step.note_cursor(queue, group, durable_need(queue))
    state.arm_part(queue, group, step.now)
    step.answer_standing(command, describe(queue, group, cursor), durable_need(queue))


def _limits(command: JoinCursor) -> dict[str, Any]:
    """Those that are set. Raises InvalidOptions."""
    given = ((name, getattr(command, name)) for name in ("hold_ms", "max_lag_ms", "max_lag_bytes"))
    limits = {name: value for name, value in given if value is not None}
    for name, value in limits.items():
        if not 0 <= value <= NUMBER_MAX:
            raise InvalidOptions(f"{name} is {value}; it must be from 0 to {NUMBER_MAX}")
    return limits


def _check_join(state: EngineState, step: Step, queue: Queue, group: Group | None, command: JoinCursor) -> None:
    """Raises what refuses it."""
    if group is None:
        if not (command.take_over and command.create):
            raise missing(queue, command.group)
        _check_no_delays(state, queue, check_group_name(command.group), step.now)
        return
    check_owner(queue, group, command.user, manage=command.manage)
    cursor = cursor_of(queue, group)
    if command.take_over:
        check_expired(queue, group, cursor)
        _check_begin(queue, group, cursor, command)


def _would_be(queue: Queue, group: Group | None, command: JoinCursor, now: int) -> CursorInfo:
    """The cursor as a dry run tells of it, with its present epoch; one that is missing has none yet."""
    if group is None:
        info = _would_be_made(queue, command, now)
    else:
        cursor = cursor_of(queue, group)
        info = describe(queue, group, cursor)
        if not command.take_over:
            return info
        if _starts_over(group, cursor, command):
            where = where_moved(queue, group, StartAt.SEQUENCE, cursor.head, now)
            info = described_anew(queue, info, *where)
        elif command.begin is not None:
            kept = 0 if _forgets_plans(group, cursor, command) else info.plans
            info = replace(info, moved=cursor.moved and not _heeds(group, cursor, command), plans=kept)
    return replace(info, joins=info.joins + 1, owner=command.owner[:OWNER_MAX], user=info.user or command.user)


def _would_be_made(queue: Queue, command: JoinCursor, now: int) -> CursorInfo:
    adopted = to_adopt(queue)
    counters = GroupCounters() if adopted is None else adopted.counters
    nothing = CursorInfo(
        command.group,
        queue.queue_id,
        queue.incarnation,
        tail=tail_of(queue),
        expired_messages=counters.expired + counters.expired_dead,
    )
    return described_anew(queue, nothing, *where_new(queue, command.start, command.start_sequence, now))


def _check_no_delays(state: EngineState, queue: Queue, name: str, now: int) -> None:
    """A cursor reads by sequence: it would read a delayed message before it is due, or pass it over."""
    on_their_way = [*(added.extras for added in queue.unseen), *(parked.extras for parked in queue.parked)]
    waiting = any(columns_of(extras).delayed_after(now) for extras in on_their_way if extras)
    if queue.delayed and not waiting:
        waiting = any(group.scheduled.next_from(now + 1) < END for group in queue.groups.values())
    if waiting or has_delays_on_their_way(state, queue.name):
        raise InvalidOptions(
            f"queue {queue.name!r} has delayed messages, and the cursor {name!r} would read them before they are due; "
            "make the cursor when they are delivered, or read another queue"
        )


def _begin_anew(
    state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, command: JoinCursor
) -> None:
    """For a reader that has no position of its own, on a cursor that was moved. Once: from here on it is not moved.

    A decision for this epoch is heeded by a cursor that was not moved, too: of a reader's queues another one may have
    been, and this one may keep the plans of all.
    """
    if _starts_over(group, cursor, command):
        move_group(state, step, queue, group, StartAt.SEQUENCE, cursor.head, durable_need(queue))
        cursor.start_over(head_of(queue, group))
        return
    forgets = _forgets_plans(group, cursor, command)
    if _heeds(group, cursor, command):
        cursor.moved = False
    if forgets:
        forget_plans(state, step, queue, group, cursor, cursor.plans.next_number, durable_need(queue), newest=True)


def _heeds(group: Group, cursor: Cursor, command: JoinCursor) -> bool:
    """Whether there is a decision, which counts."""
    if command.begin is None:
        return False
    return cursor.moved or (_is_decided(group, command) and command.begin_epoch is not None)


def _starts_over(group: Group, cursor: Cursor, command: JoinCursor) -> bool:
    may = _heeds(group, cursor, command) and command.begin is Begin.REPLAY
    return may and (cursor.moved or cursor.head < cursor.committed)


def _forgets_plans(group: Group, cursor: Cursor, command: JoinCursor) -> bool:
    """Of a cursor that does not start over."""
    if command.begin is None or _heeds(group, cursor, command):
        return command.begin is not None
    # No batch of the reader before had rows, and this one counts its batches from 0 again.
    newest = cursor.plans.newest()
    return newest is not None and not newest.has_rows


def _is_decided(group: Group, command: JoinCursor) -> bool:
    # Every join and seek raises the epoch: a decision for this one has not been heeded yet.
    return command.begin is not Begin.REFUSE and command.begin_epoch in (None, group.epoch)


def _check_begin(queue: Queue, group: Group, cursor: Cursor, command: JoinCursor) -> None:
    """Raises GroupHasProgress."""
    if command.begin is None or not cursor.moved or _is_decided(group, command):
        return
    stale = command.begin_epoch not in (None, group.epoch)
    why = f"; the decision was for epoch {command.begin_epoch}, and this is {group.epoch}" if stale else ""
    raise GroupHasProgress(
        f"group {group.name!r} of queue {queue.name!r} has acknowledged messages up to {cursor.committed} for a "
        "reader that knew its position; one that does not must say whether it continues there or reads again "
        f"from {cursor.head}, the earliest that is held{why}"
    )


def commit(state: EngineState, step: Step, command: CommitCursor) -> Slices:
    """The cursor moves at once. What lies below it leaves the group in slices; a restart does the same."""
    queue, group, cursor = _of_owner(state, command)
    check_epoch(queue, group, cursor, command.epoch)
    below = max(cursor.committed, min(command.sequence, tail_of(queue)))
    plans = 0 if command.plan is None else cursor.plans.before(command.plan)
    first = not cursor.moved and (below > cursor.committed or _goes_on(cursor, command))
    if first and below == cursor.committed:
        cursor.moved = True
        step.note_cursor(queue, group, durable_need(queue))
    if below > cursor.committed or plans > cursor.plans_done:
        _acknowledge(state, step, queue, group, cursor, below, plans)
        while not _let_go(state, step, queue, group, cursor):
            step = yield
            if queue.deleted or queue.groups.get(group.name) is not group:
                break
    step.answer_standing(command, describe(queue, group, cursor), durable_need(queue) if first else light(queue))


def _goes_on(cursor: Cursor, command: CommitCursor) -> bool:
    """Whether a reader with a position goes on where the group was sought to: that nobody has read it counts no more,
    and who loses the position afterwards is asked what it wants."""
    return not cursor.begun and command.sequence == cursor.committed


def _of_owner(state: EngineState, command: CommitCursor | RejectAt | Quarantine) -> tuple[Queue, Group, Cursor]:
    """The cursor, if the command's user may change it."""
    queue, group, cursor = find_cursor(state, command.queue, command.group, command.incarnation)
    check_owner(queue, group, command.user, manage=command.manage)
    check_expired(queue, group, cursor)
    return queue, group, cursor


def _acknowledge(
    state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, below: int, plans: int
) -> None:
    """`plans`: below this number what they cover is acknowledged as well."""
    need = light(queue) if cursor.moved else durable_need(queue)
    if below > cursor.committed:
        cursor.committed = below
        cursor.moved = True
        cursor.joins = 0
    cursor.plans_done = max(cursor.plans_done, plans)
    if cursor.hold_ms:
        cursor.hold(step.now)
    else:
        cursor.release(cursor.head)
        forget_plans(state, step, queue, group, cursor, cursor.plans_done, light(queue))
    cursor.forget_runs()
    step.note_cursor(queue, group, need)


def _let_go(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor) -> bool:
    """Take what is acknowledged out of what waits, as much as one step can; whether that is all."""
    last = cursor.committed - 1
    stop, cost = group.cut_waiting(min(group.lowest_waiting(), last), last, STEP_UNITS)
    runs = group.take_waiting(1, stop)
    step.work += cost
    if state.jobs.awaiting_ack:
        note_tried(state, step, queue, runs)
    if cursor.hold_ms:
        group.in_flight += run_count(runs)
        group.counters.ahead += run_count(runs)
        cursor.keep(runs)
        state.arm_part(queue, group, cursor.next_release())
    else:
        settle(step, queue, group, runs)
    step.free(queue)
    return group.lowest_waiting() > last


def reject(state: EngineState, step: Step, command: RejectAt) -> Slices:
    count = acknowledged = 0
    rejects = iter(command.rejects)
    queue = find(state, command.queue)
    while True:
        queue, group, cursor = _of_owner(state, command)
        if command.epoch is not None:
            check_epoch(queue, group, cursor, command.epoch)
        some = list(islice(rejects, STEP_UNITS))
        taken = _reject(state, step, queue, group, cursor, some)
        count += taken
        if taken < len(some):
            acknowledged += sum(_is_behind(cursor, sequence) for sequence, _ in some)
        step.work += len(some)
        if len(some) < STEP_UNITS:
            break
        if step.work >= STEP_UNITS:
            step = yield
    need = heavy(queue) if count else light(queue)
    step.answer_standing(command, Rejected(count, len(command.rejects) - count, acknowledged=acknowledged), need)


def _reject(
    state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, rejects: list[tuple[int, str]]
) -> int:
    """How many of them waited."""
    taken: list[tuple[str, int]] = []
    for sequence, error in rejects:
        if sequence >= cursor.committed and group.take_waiting(sequence, sequence):
            taken.append((error, sequence))
            cursor.rejected.add(sequence, sequence)
    for error, items in groupby(sorted(taken), key=itemgetter(0)):
        turn_down(state, step, queue, group, runs_of(sequence for _, sequence in items), error)
    return len(taken)


def _is_behind(cursor: Cursor, sequence: int) -> bool:
    """Whether the group is past it, and has not turned it down, as far as that is remembered."""
    turned_down = sequence in cursor.rejected or sequence in cursor.quarantined
    return sequence < cursor.committed and not turned_down


def quarantine(state: EngineState, step: Step, command: Quarantine) -> Slices:
    queue, group, cursor = _of_owner(state, command)
    if len(command.runs) > RUNS_MAX:
        raise InvalidOptions(f"at most {RUNS_MAX} runs can be quarantined at a time, not {len(command.runs)}")
    asked, taken, more = 0, 0, False
    wanted = RunSet(sorted(command.runs)).runs()
    for runs, cost in pieces(wanted, partial(group.cut_waiting, by_message=queue.options.dead_letter)):
        end, found = tail_of(queue) - 1, RunSet()
        for first, last in runs:
            first, last = max(first, cursor.committed), min(last, end)
            if first <= last:
                asked += last - first + 1
                more = more or not cursor.quarantined.covers(first, last)
                found.add_all((group.waiting_within if command.dry_run else group.take_waiting)(first, last))
                if not command.dry_run:
                    cursor.quarantined.add(first, last)
        taken += found.count
        if found and not command.dry_run:
            turn_down(state, step, queue, group, found.runs(), "quarantined by an operator")
        if not command.dry_run:
            step.note_cursor(queue, group, heavy(queue))
        step.work += cost
        if step.work >= STEP_UNITS:
            step = yield
            queue, group, cursor = _of_owner(state, command)
    need = state.need_of_known if command.dry_run else heavy(queue)
    step.answer_standing(command, Rejected(taken, asked - taken, unchanged=not (taken or more)), need)


def moved(step: Step, queue: Queue, group: Group) -> None:
    """After a seek: a cursor begins anew, and its owner is fenced."""
    cursor = group.cursor
    if cursor is not None:
        cursor.start_over(head_of(queue, group))
        step.note_cursor(queue, group, durable_need(queue))
