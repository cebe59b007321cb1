"""Dispatch in a queue where a message that has failed holds up those behind it (`hold_behind_failed`).

It goes when its backoff has passed since it became the next one. So messages that were together in the hands of a
consumer that died come one by one, with time between them, and the one that kills consumers is found.
"""

from vibemq.engine.backoff import retry_delay_ms
from vibemq.engine.queue.consumer import Rotation
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.routing.turns import Given, Source, share_of, take_turns, tell
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.records import Attempts
from vibemq.model.runs import END

_LOOKED_AT = 512
"""Messages that are looked at together for one that has failed."""


def dispatch_isolated(state: EngineState, step: Step, queue: Queue, group: Group, units: int) -> int:
    """As `dispatch`."""
    assert group.top is not None
    given: Given = {}
    group.scheduled.advance(step.now)
    left = min(units, _LOOKED_AT)
    left -= serve_isolated(state, step, queue, group, group, group.top, 0, given, left)
    if left <= 0 and group.ready_count:
        step.touch(queue, group)
    return tell(state, step, queue, group, given) if given else 1


def serve_isolated(
    state: EngineState,
    step: Step,
    queue: Queue,
    group: Group,
    source: Source,
    top: Rotation,
    key: int,
    given: Given,
    units: int,
) -> int:
    """The turns of consumers at a source of messages, which `key` names within the group; returns how many were
    given."""
    left = units
    while left > 0 and source.ready_count:
        count = _free(state, step, queue, group, source, key)
        least = max(0, source.ready_count - min(count, left))
        before, takers = source.ready_count, top.weight
        while count and source.ready_count > least and takers:
            takers = take_turns(step, queue, source, top, share_of(source.ready_count, takers, least), given, least)
        if source.ready_count == before:
            break
        left -= before - source.ready_count
        group.held_up.pop(key, None)
    return units - left


def _free(state: EngineState, step: Step, queue: Queue, group: Group, source: Source, key: int) -> int:
    """How many of the next messages may go now; 1 for one that has failed, 0 while it has to wait."""
    count = 0
    for first, last in source.peek(queue.sizes, _LOOKED_AT):
        for sequence in range(first, last + 1):
            history = group.attempts.get(sequence)
            if history is None or not history.failed:
                count += 1
            elif count:
                return count
            else:
                return _is_over(state, step, queue, group, key, sequence, history)
    return count


def _is_over(
    state: EngineState, step: Step, queue: Queue, group: Group, key: int, sequence: int, history: Attempts
) -> bool:
    """Whether the next message, which has failed, has waited long enough."""
    if history.due_at:
        # It has waited for a delay of its own, among the delayed ones.
        return True
    failure = sequence, history.failed
    known, until = group.held_up.get(key, (None, 0))
    if known != failure:
        base_ms, max_ms = queue.options.retry_base_ms, queue.options.retry_max_ms
        until = step.now + retry_delay_ms(history.failed, base_ms=base_ms, max_ms=max_ms, jitter=1)
        group.hold_up(key, failure, until)
    if until < END and step.now < until:
        state.arm_part(queue, group, until)
        return False
    group.hold_up(key, failure, END)
    return True
