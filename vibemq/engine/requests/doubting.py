"""Requests that perhaps no group has any more, because a group has gone, was moved, or has dropped its oldest messages.

A queue may have very many of them, or very many groups, so they are looked at in steps, by ticks.
"""

from collections import deque

from vibemq.engine.pacing import STEP_UNITS, is_crowded
from vibemq.engine.queue.queue import Queue
from vibemq.engine.requests.failing import GROUPS_PER_UNIT, fail_unheld, fail_without_group
from vibemq.engine.state import Asking, Doubt, EngineState
from vibemq.engine.step import Step
from vibemq.model.runs import RunSet, runs_of

_ASKED_TOGETHER = 128
"""Requests that each of very many groups is asked about at a time."""


def begin(state: EngineState, step: Step) -> None:
    for queue in step.doubtful:
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
        while (doubt.asking or doubt.sequences) and room > 0:
            if doubt.asking or is_crowded(queue):
                room -= _ask_some(queue, doubt, room)
            else:
                room -= fail_unheld(queue, doubt.sequences.pop())
        if not (doubt.asking or doubt.sequences):
            del state.doubtful[queue]
            if doubt.again and queue.requests:
                state.doubtful[queue] = Doubt(list(queue.requests))


def _ask_some(queue: Queue, doubt: Doubt, room: int) -> int:
    """What some of very many groups have of the requests. Returns what it has cost."""
    asking = doubt.asking
    if asking is None:
        asking = doubt.asking = _begin_asking(queue, doubt)
    looks = 0
    while asking.requests and asking.groups and looks < room * GROUPS_PER_UNIT:
        group = asking.groups.popleft()
        runs = asking.requests.runs()
        looks += len(runs)
        if queue.groups.get(group.name) is group:
            for run in runs:
                for there in group.unsettled_within(*run).runs():
                    asking.requests.remove(*there)
    if not asking.requests:
        doubt.asking = None
    elif not asking.groups:
        if asking.regains == queue.regains:
            fail_without_group(queue, asking.requests.runs())
            doubt.asking = None
        else:
            # One that was asked before may have got what another one had.
            asking.groups, asking.regains = deque(queue.groups.values()), queue.regains
    return 1 + looks // GROUPS_PER_UNIT


def _begin_asking(queue: Queue, doubt: Doubt) -> Asking:
    some = doubt.sequences[-_ASKED_TOGETHER:]
    del doubt.sequences[-_ASKED_TOGETHER:]
    # What is not visible yet is not in the groups.
    end = queue.unseen[0].first if queue.unseen else queue.next_sequence
    visible = sorted(sequence for sequence in some if sequence < end)
    return Asking(RunSet(runs_of(visible)), deque(queue.groups.values()), queue.regains)
