"""Dispatch of ready messages to consumers that have room: fair, stable, in contiguous runs."""

from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.routing.isolated import dispatch_isolated
from vibemq.engine.routing.routed import route
from vibemq.engine.routing.turns import KNOWN_PER_UNIT, Given, share_of, take_turns, tell
from vibemq.engine.routing.unwanted import outranked_since, settle_outranked, settle_unheard
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.runs import END


def dispatch(state: EngineState, step: Step, queue: Queue, group: Group, units: int = END) -> int:
    """Hand out what can be handed out, as far as it costs no more than about so many units; return what it has cost."""
    top = group.top
    if top is None:
        return settle_unheard(step, queue, group) if queue.options.highest_priority_only else 0
    if queue.options.highest_priority_only and (since := outranked_since(queue, group)) < END:
        cost = settle_outranked(step, queue, group, since)
        if cost:
            return cost
    if not top.open:
        return 0
    if group.routes is not None:
        return route(state, step, queue, group, group.routes, units)
    if group.attempts and queue.options.hold_behind_failed:
        return dispatch_isolated(state, step, queue, group, units)
    waiting, scheduled = group.ready.count, group.scheduled
    if scheduled.levels:
        # Ticks may be late: what has fallen due meanwhile comes before what was published since.
        scheduled.advance(step.now)
        waiting += scheduled.fallen
    if not waiting:
        return 0
    allowed = _allowed(group, waiting, units)
    given: Given = {}
    least = waiting - allowed
    takers = top.weight
    while waiting > least and takers:
        takers = take_turns(step, queue, group, top, share_of(waiting, takers, least), given, least)
        waiting = group.ready_count
    if not given:
        return 1
    cost = tell(state, step, queue, group, given)
    if takers and waiting:
        step.touch(queue, group)
    return cost


def _allowed(group: Group, waiting: int, units: int) -> int:
    """How many messages may be handed out for so many units."""
    if waiting <= units:
        return waiting
    allowed = _in_runs(group, units)
    if group.attempts:
        allowed = min(allowed, KNOWN_PER_UNIT * units)
    if group.top is not None and len(group.top.open) > units:
        allowed = min(allowed, units)
    return allowed


def _in_runs(group: Group, units: int) -> int:
    """How many messages about so many runs of what is ready are, in the order of hand-out."""
    plain, scheduled = group.ready, group.scheduled
    if not (scheduled.levels and scheduled.fallen):
        return plain.in_runs(units)
    fallen = scheduled.in_runs(units)
    if not plain.count:
        return fallen
    # Of so few neither order has more runs than that, wherever the two meet.
    return max(units, min(plain.in_runs(units), fallen))
