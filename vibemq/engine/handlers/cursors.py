"""Cursors: groups that are read by ranges and acknowledged up to a sequence (docs/spec/cursor.md).

join, commit, reject, quarantine     what an owner or an operator asks
plan                                 how a reader cuts its batches
describe, reach, cuts                what a reader may know; the rows themselves come from storage
see_to_cursor                        holds that are over, and groups that lag too far behind
"""

from functools import partial
from itertools import groupby, islice
from operator import itemgetter

from vibemq.engine.handlers.dead_lettering import discard, turn_down
from vibemq.engine.handlers.fan_out import (
    check_group_name,
    check_owner,
    claim,
    durable_need,
    group_for,
    head_of,
    move_group,
)
from vibemq.engine.handlers.queues import find
from vibemq.engine.handlers.transactions import has_delays_on_their_way
from vibemq.engine.pacing import STEP_UNITS, Slices, pieces
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import END, Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy, light
from vibemq.engine.views import group_oldest
from vibemq.errors import (
    GroupExpired,
    GroupFenced,
    GroupHasProgress,
    GroupNotFound,
    InvalidOptions,
    PlanUnknown,
    WrongIncarnation,
)
from vibemq.model.commands import Begin, CommitCursor, JoinCursor, PlanBatch, Quarantine, RejectAt, StartAt
from vibemq.model.effects import CursorInfo, Reach, Rejected
from vibemq.model.options import NUMBER_MAX, Durability
from vibemq.model.records import Plan, PlanMade, PlansForgotten, Reason
from vibemq.model.runs import Run, RunSet, run_count, runs_of

OWNER_MAX = 256
RUNS_MAX = 10_000
"""Most runs of one Quarantine."""
TAG_MAX = 64
EPOCHS_OF_A_GROUP = 1 << 20
LAG_CHECK_MS = 1_000
LEAP = 1 << 24
"""How many sequences a weak or async queue with a cursor skips after a restart: more than a crash can have taken."""


# -- what is asked ------------------------------------------------------------------------------------------------


def join(state: EngineState, step: Step, command: JoinCursor) -> None:
    queue = find_same(state, command.queue, command.incarnation)
    group = queue.groups.get(command.group)
    if group is None:
        if not (command.take_over and command.create):
            raise missing(queue, command.group)
        name = check_group_name(command.group)
        _check_no_delays(state, queue, name, step.now)
        group, _ = group_for(state, step, queue, name, command.start, command.start_sequence)
        group.cursor = Cursor(head_of(queue, group))
        # A reader of a group of this name that was deleted must not pass for this one's: ids are never used again.
        group.epoch += group.group_id * EPOCHS_OF_A_GROUP
    else:
        check_owner(queue, group, command.user, manage=command.manage)
    cursor = cursor_of(queue, group)
    if command.take_over:
        check_expired(queue, group, cursor)
        if command.begin is not None and cursor.moved:
            _begin_anew(state, step, queue, group, cursor, command.begin)
        claim(step, queue, group, command.user)
        group.epoch += 1
        cursor.joins += 1
        cursor.owner = command.owner[:OWNER_MAX]
    _configure(cursor, command)
    step.note_cursor(queue, group, durable_need(queue))
    state.arm_part(queue, group, step.now)
    step.answer(command, describe(queue, group, cursor), durable_need(queue))


def _check_no_delays(state: EngineState, queue: Queue, name: str, now: int) -> None:
    """A cursor reads by sequence: it would read a delayed message before it is due, or pass it over."""
    on_their_way = [*(added.extras for added in queue.unseen), *(parked.extras for parked in queue.parked)]
    waiting = any(extra.deliver_at > now for extras in on_their_way if extras for extra in extras.values())
    if queue.delayed and not waiting:
        # Of many that wait usually the first is enough.
        waiting = any(queue.delayed.get(s) > now for group in queue.groups.values() for s in group.delayed)
    if waiting or has_delays_on_their_way(state, queue.name):
        raise InvalidOptions(
            f"queue {queue.name!r} has delayed messages, and the cursor {name!r} would read them before they are due; "
            "make the cursor when they are delivered, or read another queue"
        )


def _begin_anew(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, begin: Begin) -> None:
    """For a reader that has no position of its own, on a cursor that was moved. Once: from here on it is not moved."""
    if begin is Begin.REFUSE:
        raise GroupHasProgress(
            f"group {group.name!r} of queue {queue.name!r} has acknowledged messages up to {cursor.committed} for a "
            "reader that knew its position; one that does not must say whether it continues there or reads again "
            f"from {cursor.head}, the earliest that is held"
        )
    if begin is Begin.REPLAY:
        move_group(state, step, queue, group, StartAt.SEQUENCE, cursor.head, durable_need(queue))
        cursor.start_over(head_of(queue, group))
        return
    cursor.moved = False
    forget_plans(step, queue, group, cursor, cursor.plans.next_number, durable_need(queue), newest=True)


def _configure(cursor: Cursor, command: JoinCursor) -> None:
    for name in ("hold_ms", "max_lag_ms", "max_lag_bytes"):
        value = getattr(command, name)
        if value is not None:
            if not 0 <= value <= NUMBER_MAX:
                raise InvalidOptions(f"{name} is {value}; it must be from 0 to {NUMBER_MAX}")
            setattr(cursor, name, value)


def commit(state: EngineState, step: Step, command: CommitCursor) -> Slices:
    """The cursor moves at once. What lies below it leaves the group in slices; a restart does the same."""
    queue, group, cursor = _of_owner(state, command)
    _check_epoch(queue, group, cursor, command.epoch)
    below = max(cursor.committed, min(command.sequence, tail_of(queue)))
    plans = 0 if command.plan is None else cursor.plans.before(command.plan)
    first = not cursor.moved and below > cursor.committed
    if below > cursor.committed or plans > cursor.plans_done:
        _acknowledge(state, step, queue, group, cursor, below, plans)
        while not _let_go(state, step, queue, group, cursor):
            step = yield
            if queue.deleted or queue.groups.get(group.name) is not group:
                break
    step.answer(command, describe(queue, group, cursor), durable_need(queue) if first else light(queue))


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
        forget_plans(step, queue, group, cursor, cursor.plans_done, light(queue))
    cursor.forget_runs()
    step.note_cursor(queue, group, need)


def _let_go(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor) -> bool:
    """Take what is acknowledged out of what waits, as much as one step can; whether that is all."""
    last = cursor.committed - 1
    stop, cost = group.cut_waiting(min(group.lowest_waiting(), last), last, STEP_UNITS)
    runs = group.take_waiting(1, stop)
    step.work += cost
    if cursor.hold_ms:
        group.in_flight += run_count(runs)
        cursor.keep(runs)
        state.arm_part(queue, group, cursor.next_release())
    else:
        _settle(step, queue, group, runs)
    step.free(queue)
    return group.lowest_waiting() > last


def _settle(step: Step, queue: Queue, group: Group, runs: list[Run]) -> None:
    group.forget_history(runs)
    group.counters.settled += run_count(runs)
    if runs:
        step.note_settled(queue, group, runs)


def reject(state: EngineState, step: Step, command: RejectAt) -> Slices:
    count = 0
    rejects = iter(command.rejects)
    queue = find(state, command.queue)
    while True:
        queue, group, cursor = _of_owner(state, command)
        if command.epoch is not None:
            _check_epoch(queue, group, cursor, command.epoch)
        some = list(islice(rejects, STEP_UNITS))
        count += _reject(state, step, queue, group, cursor, some)
        step.work += len(some)
        if len(some) < STEP_UNITS:
            break
        if step.work >= STEP_UNITS:
            step = yield
    step.answer(command, Rejected(count, len(command.rejects) - count), heavy(queue) if count else light(queue))


def _reject(
    state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, rejects: list[tuple[int, str]]
) -> int:
    """How many of them waited."""
    taken: list[tuple[str, int]] = []
    for sequence, error in rejects:
        if sequence >= cursor.committed and group.take_waiting(sequence, sequence):
            taken.append((error, sequence))
    for error, items in groupby(sorted(taken), key=itemgetter(0)):
        turn_down(state, step, queue, group, runs_of(sequence for _, sequence in items), error)
    return len(taken)


def quarantine(state: EngineState, step: Step, command: Quarantine) -> Slices:
    queue, group, cursor = _of_owner(state, command)
    if len(command.runs) > RUNS_MAX:
        raise InvalidOptions(f"at most {RUNS_MAX} runs can be quarantined at a time, not {len(command.runs)}")
    asked, taken = 0, 0
    for runs, cost in pieces(command.runs, partial(group.cut_waiting, by_message=queue.options.dead_letter)):
        end, found = tail_of(queue) - 1, RunSet()
        for first, last in runs:
            first, last = max(first, cursor.committed), min(last, end)
            if first <= last:
                asked += last - first + 1
                found.add_all(group.take_waiting(first, last))
                cursor.quarantined.add(first, last)
        taken += found.count
        if found:
            turn_down(state, step, queue, group, found.runs(), "quarantined by an operator")
        step.note_cursor(queue, group, heavy(queue))
        step.work += cost
        if step.work >= STEP_UNITS:
            step = yield
            queue, group, cursor = _of_owner(state, command)
    step.answer(command, Rejected(taken, asked - taken), heavy(queue))


def moved(step: Step, queue: Queue, group: Group) -> None:
    """After a seek: a cursor begins anew, and its owner is fenced."""
    cursor = group.cursor
    if cursor is not None:
        cursor.start_over(head_of(queue, group))
        step.note_cursor(queue, group, durable_need(queue))


# -- how batches are cut ------------------------------------------------------------------------------------------


def plan(state: EngineState, step: Step, command: PlanBatch) -> None:
    """Where the batch that begins at a position ends: where it was said to end before, or else where it is said to now.

    One queue of a reader keeps the plans of all of them, so that a plan is one fact: it is there or it is not.
    """
    queue, group, cursor = find_cursor(state, command.queue, command.group, command.incarnation)
    check_owner(queue, group, command.user, manage=command.manage)
    check_expired(queue, group, cursor)
    _check_epoch(queue, group, cursor, command.epoch)
    known = cursor.plans.find(command.tag)
    if known is None:
        known = _new_plan(step, queue, group, cursor, command)
    # An earlier one may be on its way to the disk yet: this answer waits for it too.
    step.answer(command, known, durable_need(queue))


def _new_plan(step: Step, queue: Queue, group: Group, cursor: Cursor, command: PlanBatch) -> Plan:
    if not 1 <= len(command.tag) <= TAG_MAX or not command.end:
        raise InvalidOptions(f"a plan has a tag of 1 to {TAG_MAX} characters, and an end")
    if not cursor.plans.may_begin(command.tag):
        if not command.anew:
            raise unknown_plan(queue, group)
        forget_plans(step, queue, group, cursor, cursor.plans.next_number, durable_need(queue), newest=True)
    made = Plan(command.tag, command.end)
    number = cursor.plans.next_number
    cursor.plans.add(number, made)
    step.note(PlanMade(queue.queue_id, group.group_id, number, made), durable_need(queue))
    forget_plans(step, queue, group, cursor, cursor.plans.beyond_bounds(), light(queue))
    return made


def forget_plans(
    step: Step, queue: Queue, group: Group, cursor: Cursor, below: int, need: Durability, *, newest: bool = False
) -> None:
    gone = cursor.plans.forget(below, newest=newest)
    if gone:
        step.note(PlansForgotten(queue.queue_id, group.group_id, gone), need)


def unknown_plan(queue: Queue, group: Group) -> PlanUnknown:
    return PlanUnknown(
        f"group {group.name!r} of queue {queue.name!r} has planned batches, but none that begins at this position, and "
        "it is not where the newest one ends: where a batch ended that began here is not known any more, or it was "
        "another reader's"
    )


# -- who is meant -------------------------------------------------------------------------------------------------


def find_same(state: EngineState, name: str, incarnation: str | None) -> Queue:
    """The queue, if it is the one that is meant."""
    queue = find(state, name)
    if incarnation is not None and incarnation != queue.incarnation:
        raise WrongIncarnation(
            f"queue {name!r} was deleted and created again, or restored from a backup: sequences of the old queue are "
            "not valid in the new one; start over (with Spark: another checkpoint)"
        )
    return queue


def find_cursor(state: EngineState, name: str, group_name: str, incarnation: str | None) -> tuple[Queue, Group, Cursor]:
    queue = find_same(state, name, incarnation)
    group = queue.groups.get(group_name)
    if group is None:
        raise missing(queue, group_name)
    return queue, group, cursor_of(queue, group)


def missing(queue: Queue, group: str) -> GroupNotFound:
    return GroupNotFound(f"queue {queue.name!r} has no group {group!r}; it was deleted, or no reader has joined it yet")


def cursor_of(queue: Queue, group: Group) -> Cursor:
    if group.cursor is None:
        raise InvalidOptions(
            f"group {group.name!r} of queue {queue.name!r} has ordinary subscribers and cannot be read by ranges; "
            "choose another group"
        )
    return group.cursor


def check_expired(queue: Queue, group: Group, cursor: Cursor) -> None:
    if cursor.expired:
        limit = f"{cursor.max_lag_bytes} bytes" if cursor.max_lag_bytes else f"{cursor.max_lag_ms} ms"
        raise GroupExpired(
            f"group {group.name!r} of queue {queue.name!r} lagged more than its limit ({limit}) and lost what it had "
            f"not read; `vibemq-admin group seek {queue.name} {group.name}` moves it to where it shall go on"
        )


def _check_epoch(queue: Queue, group: Group, cursor: Cursor, epoch: int) -> None:
    if epoch != group.epoch:
        raise GroupFenced(
            f"group {group.name!r} of queue {queue.name!r} has a new reader ({cursor.owner or 'unnamed'}, epoch "
            f"{group.epoch}, yours was {epoch}); this one must stop. One query per group: give each its own"
        )


# -- what a reader may know ---------------------------------------------------------------------------------------


def tail_of(queue: Queue) -> int:
    """The first sequence that cannot be read yet and may yet be given to another message."""
    if not queue.unseen:
        return queue.open_end()
    waiting = queue.unseen[0]
    end = waiting.first
    for first, last in reversed(waiting.holes):
        # Recorded together with the messages behind them.
        if last != end - 1:
            break
        end = first
    return end


def known_end(queue: Queue) -> int:
    """The first sequence that may yet be given to another message. Unlike the tail it lies behind numbers that a
    restart has skipped: a range that was planned before the restart can be finished."""
    if not _leaps(queue):
        return tail_of(queue)
    return queue.unseen[0].first if queue.unseen else queue.next_sequence


def readable(
    queue: Queue, group: Group | None, now: int, start: int, end: int = END, max_messages: int = END
) -> RunSet:
    """The sequences of [start, end) that a reader may be given: of one cursor, or of anybody. Of a cursor no more than
    the first `max_messages` may need."""
    if group is None or group.cursor is None:
        return queue.alive(1, now)
    last, _ = group.ready.cut(start, end - 1, max_messages)
    return group.unsettled_within(start, last)


def describe(queue: Queue, group: Group, cursor: Cursor) -> CursorInfo:
    oldest = group_oldest(group)
    return CursorInfo(
        group=group.name,
        queue_id=queue.queue_id,
        incarnation=queue.incarnation,
        epoch=group.epoch,
        committed=cursor.committed,
        head=cursor.head,
        tail=tail_of(queue),
        backlog_messages=group.waiting,
        backlog_bytes=queue.group_size(group),
        oldest_at=queue.sizes.published_at(oldest) if oldest < END else 0,
        hold_ms=cursor.hold_ms,
        max_lag_ms=cursor.max_lag_ms,
        max_lag_bytes=cursor.max_lag_bytes,
        expired=cursor.expired,
        moved=cursor.moved,
        expired_messages=group.counters.expired + group.counters.expired_dead,
        plans=len(cursor.plans),
        joins=cursor.joins,
        owner=cursor.owner,
        user=group.owner,
        lost=cursor.lost.runs(),
        quarantined=cursor.quarantined.runs(),
    )


def reach(queue: Queue, members: RunSet, start: int, max_messages: int, max_bytes: int) -> Reach:
    """How far a reader of `members` at `start` may go: both limits hold, but for the first message."""
    tail = tail_of(queue)
    left = max_messages or END
    room = max_bytes or END
    end, count, size = start, 0, 0
    for first, last in members.overlap(start, tail - 1):
        last = min(last, first + left - 1)
        if queue.sizes.between(first, last) > room:
            last = queue.sizes.reach(first, last, room)
            if count and queue.sizes.between(first, last) > room:
                return Reach(end, count, size, tail)
            left = last - first + 1
        taken = queue.sizes.between(first, last)
        end, count, size = last + 1, count + last - first + 1, size + taken
        left -= last - first + 1
        room -= taken
        if left <= 0 or room <= 0:
            return Reach(end, count, size, tail)
    return Reach(max(start, tail), count, size, tail)


def cuts(queue: Queue, members: RunSet, start: int, end: int, parts: int) -> list[int]:
    """Points that divide [start, end) into up to `parts` stretches of about the same number of bytes."""
    runs = members.overlap(start, end - 1)
    total = queue.sizes.of_runs(runs)
    points = [start]
    done = 0
    for first, last in runs:
        while len(points) < parts:
            wanted = total * len(points) // parts - done
            if queue.sizes.between(first, last) <= wanted or first > last:
                break
            stop = queue.sizes.reach(first, last, wanted)
            if stop >= end - 1:
                break
            done += queue.sizes.between(first, stop)
            first = stop + 1
            if first > points[-1]:
                points.append(first)
        if first <= last:
            done += queue.sizes.between(first, last)
    return [*points, end]


# -- what falls due -----------------------------------------------------------------------------------------------


def see_to_cursor(step: Step, queue: Queue, group: Group, cursor: Cursor) -> None:
    plans = cursor.release_due(step.now)
    if plans is not None:
        forget_plans(step, queue, group, cursor, plans, light(queue))
        cursor.forget_runs()
        step.note_cursor(queue, group, light(queue))
    runs = cursor.take_released(max(1, STEP_UNITS - step.work))
    step.work += len(runs)
    group.in_flight -= run_count(runs)
    _settle(step, queue, group, runs)
    enforce_lag_limit(step, queue, group, cursor)


def enforce_lag_limit(step: Step, queue: Queue, group: Group, cursor: Cursor) -> None:
    """Give up on a group that is further behind than it may be, at once and from then on, until it is sought."""
    if not cursor.expired and _lags(queue, group, cursor, step.now):
        cursor.expired = True
        step.note_cursor(queue, group, heavy(queue))
    if cursor.expired and group.unsettled:
        most = max(1, STEP_UNITS - step.work)
        last, cost = group.cut_waiting(min(group.lowest_waiting(), group.lowest_held()), END, most)
        last, held = group.cut_held(1, last, most)
        step.work += cost + held
        runs = RunSet([*group.take_waiting(1, last), *group.take_held(1, last)]).runs()
        discard(step, queue, group, runs, Reason.RETENTION)


def _lags(queue: Queue, group: Group, cursor: Cursor, now: int) -> bool:
    if not group.waiting:
        return False
    if cursor.max_lag_bytes and queue.group_size(group) > cursor.max_lag_bytes:
        return True
    oldest_at = queue.sizes.published_at(group_oldest(group)) if cursor.max_lag_ms else 0
    return bool(oldest_at) and oldest_at + cursor.max_lag_ms < now


def next_alarm_of(group: Group, cursor: Cursor, now: int) -> int:
    at = cursor.next_release()
    if cursor.expired and group.unsettled:
        return now
    limited = cursor.expired or cursor.max_lag_ms or cursor.max_lag_bytes
    return min(at, now + LAG_CHECK_MS) if limited else at


# -- after a restart ----------------------------------------------------------------------------------------------


def take_up(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor) -> None:
    """A stored cursor: what it had acknowledged and not released is held for a whole hold anew."""
    group.cursor = cursor
    acknowledged = group.take_waiting(1, cursor.committed - 1)
    if not cursor.head:
        cursor.head = min((first for first, _ in acknowledged), default=cursor.committed)
    if cursor.hold_ms and (acknowledged or cursor.head < cursor.committed):
        group.in_flight += run_count(acknowledged)
        cursor.keep(acknowledged)
        cursor.hold(step.now)
    else:
        _settle(step, queue, group, acknowledged)
        cursor.release(cursor.head)
    state.arm_part(queue, group, step.now)


def leap(queue: Queue) -> None:
    """Skip more sequences than a crash can have taken from a queue that is not flushed with every publish.

    A reader may have seen messages that are gone; its position must not come to lie behind new ones that it has not
    seen. The skipped numbers are a hole like any other: recorded with the next messages, otherwise forgotten.
    """
    if _leaps(queue):
        queue.holes = [(queue.next_sequence, queue.next_sequence + LEAP - 1)]
        queue.next_sequence += LEAP


def _leaps(queue: Queue) -> bool:
    return queue.options.durability in (Durability.WEAK, Durability.ASYNC) and any(
        group.cursor is not None for group in queue.groups.values()
    )
