"""Timers. Each queue has one alarm for its earliest deadline; it may be early, but never late."""

from heapq import heappop

from vibemq.engine import lifetime
from vibemq.engine.handlers.crowds import log_trimming
from vibemq.engine.handlers.cursors.holds import next_alarm_of, run_due_of_cursor
from vibemq.engine.handlers.expiry import expire
from vibemq.engine.handlers.overflow import trim_oldest, trim_some
from vibemq.engine.handlers.publish import unpark
from vibemq.engine.handlers.retention import trim_log
from vibemq.engine.handlers.settle import time_out
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.timing.alarms import ring
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.effects import Departure
from vibemq.model.options import Overflow
from vibemq.model.runs import END, runs_of

_DUE_PER_UNIT = 8
"""Messages to be tried again that become ready for the cost of one run."""
_SETTLING_MS = 10
"""Until a consumer in the middle of a settlement is looked at again."""


def next_alarm(state: EngineState) -> int | None:
    """When the next queue wants to be seen to."""
    timers = state.timers
    while timers:
        at, queue_id = timers[0]
        queue = state.queues_by_id.get(queue_id)
        if queue is not None and queue.armed_at == at:
            return at
        heappop(timers)
    return None


def run_due_timers(state: EngineState, step: Step) -> None:
    """Of the queues whose alarm is due, as far as that is the work of one step; the others stay due."""
    while step.work < STEP_UNITS and (at := next_alarm(state)) is not None and at <= step.now:
        _, queue_id = heappop(state.timers)
        queue = state.queues_by_id[queue_id]
        ring(queue, step.now)
        step.work += 1
        if lifetime.expires_at(queue) <= step.now:
            lifetime.doom(state, queue, Departure.EXPIRED)
        else:
            run_timers_of(state, step, queue)


def run_timers_of(state: EngineState, step: Step, queue: Queue) -> None:
    due = queue.alarms.pop_due(step.now, STEP_UNITS - step.work + 1)
    for part in due:
        step.work += 1
        _run_due_of_part(state, step, queue, part)
    if not expire(state, step, queue):
        state.arm(queue, step.now)
    if queue.options.overflow is Overflow.DROP_OLDEST:
        trim_oldest(state, step, queue)
        trim_some(state, step, queue)
    if queue.log_trim is not None:
        log_trimming.go_on(state, step, queue)
    if queue.log is not None:
        trim_log(state, step, queue)
    for part in due:
        _arm_part(state, step, queue, part)
    if queue.parked:
        unpark(state, step, queue)
    queue.dedup.prune(step.now - queue.options.dedup_window_ms)
    queue.rest()
    _arm_next(state, step, queue)


def _run_due_of_part(state: EngineState, step: Step, queue: Queue, part: Group | Consumer) -> None:
    if isinstance(part, Consumer):
        # What it settles now, piece by piece, was settled in time.
        if part in part.group.consumers and not part.settling:
            time_out(state, step, part)
    elif queue.groups.get(part.name) is part:
        _run_due_of_group(step, queue, part)


def _run_due_of_group(step: Step, queue: Queue, group: Group) -> None:
    due = group.delayed.pop_due(step.now, _DUE_PER_UNIT * max(1, STEP_UNITS - step.work))
    if group.held_up and group.let_go(step.now):
        step.touch(queue, group)
    scheduled = group.scheduled
    if scheduled and scheduled.next_later() <= step.now:
        scheduled.advance(step.now)
        step.touch(queue, group)
    if due:
        step.work += 1 + len(due) // _DUE_PER_UNIT
        for first, last in runs_of(due):
            group.ready.add(first, last)
        step.touch(queue, group)


def _arm_part(state: EngineState, step: Step, queue: Queue, part: Group | Consumer) -> None:
    """Say when it wants to be seen to next: at once when it has more to do than one step could."""
    if isinstance(part, Consumer):
        at = part.unacked.earliest if part in part.group.consumers else END
        if part.settling:
            at = max(at, step.now + _SETTLING_MS)
    elif queue.groups.get(part.name) is part:
        at = part.next_due()
        if part.cursor is not None:
            run_due_of_cursor(state, step, queue, part, part.cursor)
            at = min(at, next_alarm_of(part, part.cursor, step.now))
    else:
        return
    if at < END:
        state.arm_part(queue, part, max(at, step.now))


def _arm_next(state: EngineState, step: Step, queue: Queue) -> None:
    at = min(queue.next_expiry(), lifetime.expires_at(queue))
    if queue.dedup:
        at = min(at, queue.dedup.oldest + queue.options.dedup_window_ms + 1)
    # What has expired but is not visible yet would ring without end.
    at = min(max(at, step.now + 1), queue.alarms.next())
    if at < END:
        state.arm(queue, at)
