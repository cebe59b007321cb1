"""Messages leave the log of a crowded queue: its groups let go of them one after the other, and the log last.

A log that is a little above its limits stays as it is: each trim looks at all groups.
"""

from collections.abc import Generator
from functools import partial

from vibemq.engine.handlers.crowds.dropping import cut_group, fail_dropped, in_turn, is_there
from vibemq.engine.handlers.dead_lettering import lose, take_waiting, unlog
from vibemq.engine.pacing import STEP_UNITS, pieces
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy
from vibemq.model.records import Dropped, Reason
from vibemq.model.runs import Run, RunSet, run_count

SURPLUS_PART = 32
"""The log may be above a limit by one message, or byte, in so many."""


def begin(state: EngineState, step: Step, queue: Queue, cut: int) -> None:
    """Unless one is under way: let go of everything up to the cut, with the next ticks."""
    if queue.log_trim is None:
        queue.log_trim = _drop_logged(queue, cut)
        next(queue.log_trim)
    state.arm(queue, step.now)


def go_on(state: EngineState, step: Step, queue: Queue) -> None:
    """As far as that is the work of one step."""
    trim = queue.log_trim
    while trim is not None:
        if step.work >= STEP_UNITS:
            state.arm(queue, step.now)
            return
        try:
            trim.send(step)
        except StopIteration:
            queue.log_trim = trim = None


def _drop_logged(queue: Queue, cut: int) -> Generator[None, Step, None]:
    step = yield
    for group in in_turn(queue):
        for piece, cost in pieces([(1, cut)], partial(cut_group, group)):
            if queue.deleted:
                return
            if not is_there(queue, group):
                break
            _let_go(step, queue, group, piece)
            step.work += 1 + cost
            if step.work >= STEP_UNITS:
                step = yield
    if queue.deleted:
        return
    dropped = unlog(queue, [(1, cut)], RunSet())
    if dropped:
        step.note(Dropped(queue.queue_id, dropped, Reason.RETENTION), heavy(queue))
    yield from fail_dropped(step, queue, dropped, Reason.RETENTION)


def _let_go(step: Step, queue: Queue, group: Group, runs: list[Run]) -> None:
    """Of what waits in the group, and of what is held."""
    waiting = take_waiting(group, runs)
    held = [part for first, last in runs for part in group.take_held(first, last)] if group.in_flight else []
    if not waiting and not held:
        return
    if held:
        step.touch(queue, group)
    gone = RunSet(waiting)
    gone.add_all(held)
    group.forget_history(gone.runs())
    group.counters.dropped += run_count(waiting) + run_count(held)
    lose(step, queue, group, waiting)
    step.note_settled(queue, group, gone.runs())
    step.free(queue)
