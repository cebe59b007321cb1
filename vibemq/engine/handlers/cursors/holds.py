"""What a cursor has acknowledged and still holds, and groups that lag too far behind."""

from vibemq.engine.handlers.cursors.plans import forget_plans
from vibemq.engine.handlers.dead_lettering import discard
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.requests.failing import note_acknowledged
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy, light
from vibemq.engine.views import group_oldest
from vibemq.model.records import Reason
from vibemq.model.runs import END, Run, RunSet, run_count

LAG_CHECK_MS = 1_000
_PLANS_PER_UNIT = 4


def run_due_of_cursor(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor) -> None:
    plans = cursor.release_due(step.now)
    if plans is not None:
        forget_plans(state, step, queue, group, cursor, plans, light(queue))
        cursor.forget_runs()
        step.note_cursor(queue, group, light(queue))
    runs = cursor.take_released(max(1, STEP_UNITS - step.work))
    step.work += len(runs)
    group.in_flight -= run_count(runs)
    group.counters.ahead -= run_count(runs)
    settle(step, queue, group, runs)
    step.work += cursor.plans.sweep(_PLANS_PER_UNIT * max(1, STEP_UNITS - step.work)) // _PLANS_PER_UNIT
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
    if (cursor.expired and group.unsettled) or not cursor.plans.is_swept:
        return now
    limited = cursor.expired or cursor.max_lag_ms or cursor.max_lag_bytes
    return min(at, now + LAG_CHECK_MS) if limited else at


def take_up(state: EngineState, step: Step, queue: Queue, group: Group, cursor: Cursor, dead: RunSet) -> None:
    """A stored cursor: what it had acknowledged and not released is held for a whole hold anew. Without a hold it is
    released, and leaves with the timers of the cursor, in steps.

    Args:
        dead: of the queue. Which of them the group has rejected is not stored; a batch with one row too many is better
            than one without a row that it had.
    """
    group.cursor = cursor
    acknowledged = group.take_waiting(1, cursor.committed - 1)
    if not cursor.head:
        cursor.head = min((first for first, _ in acknowledged), default=cursor.committed)
    cursor.rejected.add_all(dead.overlap(cursor.head, END))
    group.in_flight += run_count(acknowledged)
    cursor.keep(acknowledged)
    if cursor.hold_ms and (acknowledged or cursor.head < cursor.committed):
        cursor.hold(step.now)
    else:
        cursor.release(cursor.head)
    state.arm_part(queue, group, step.now)


def settle(step: Step, queue: Queue, group: Group, runs: list[Run]) -> None:
    group.forget_history(runs)
    group.counters.settled += run_count(runs)
    if runs:
        if queue.requests:
            note_acknowledged(queue, runs)
        step.note_settled(queue, group, runs)
