"""Requests that perhaps no group has any more, because a group has gone or was moved.

A queue may have very many of them, so they are looked at in steps, by ticks.
"""

from vibemq.engine.pacing import STEP_UNITS, is_crowded
from vibemq.engine.requests.failing import fail_unheld
from vibemq.engine.state import Doubt, EngineState
from vibemq.engine.step import Step


def begin(state: EngineState, step: Step) -> None:
    for queue in step.doubtful:
        if is_crowded(queue):
            # To ask very many groups about one request takes longer than a step: its deadline ends it.
            continue
        known = state.doubtful.get(queue)
        if known is None:
            state.doubtful[queue] = Doubt(list(queue.requests))
        else:
            known.again = True


def look(state: EngineState, step: Step) -> None:
    """At those of one step; a tick that is due at once looks at the others."""
    room = STEP_UNITS - step.work
    while state.doubtful and room > 0:
        queue, doubt = next(iter(state.doubtful.items()))
        while doubt.sequences and room > 0:
            room -= fail_unheld(queue, doubt.sequences.pop())
        if not doubt.sequences:
            del state.doubtful[queue]
            if doubt.again and queue.requests:
                state.doubtful[queue] = Doubt(list(queue.requests))
