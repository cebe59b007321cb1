"""The deletion of queues whose time has ended: a few in each step, and before anything else is done to them."""

import dataclasses
from collections import deque
from collections.abc import Generator

from vibemq.engine import lifetime
from vibemq.engine.handlers.queues import end_everybody, remove
from vibemq.engine.pacing import Slices, work_off
from vibemq.engine.queue.parts.backlog import Parked
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy
from vibemq.model import commands as ask
from vibemq.model.effects import QueueGone

REMOVAL_UNITS = 5
"""What the deletion of a queue costs, with its record and what storage does for it."""
SERVER_SESSION = 0
"""Where the server hears of it."""

OPEN_TO_ALL: frozenset[tuple[type, str]] = frozenset(
    {
        (ask.Publish, "queue"),
        (ask.DescribeQueue, "queue"),
        (ask.Stage, "queue"),
        (ask.MoveStage, "queue"),
        (ask.MoveStaged, "queue"),
        (ask.MoveMessages, "to"),
        (ask.ImportMessages, "queue"),
        (ask.ReplayDead, "queue"),
    }
)
"""What other connections may do with an exclusive queue, by the field that names it: put messages in, look at it."""
USES: frozenset[type] = frozenset(
    {
        ask.CreateQueue,
        ask.ChangeQueue,
        ask.Subscribe,
        ask.SeekGroup,
        ask.FilterGroup,
        ask.JoinCursor,
        ask.CommitCursor,
        ask.PlanBatch,
        ask.EnterBatch,
        ask.RejectAt,
        ask.Quarantine,
    }
)
"""What begins the time anew in which a queue expires: to declare it, or to consume from it. To publish does not."""


TRIED: frozenset[type] = frozenset(
    kind for kind in USES if "dry_run" in {field.name for field in dataclasses.fields(kind)}
)
"""Those that can be a dry run, which is no use."""


def fields_of(kind: type) -> tuple[str, ...]:
    """Which fields of a command name queues."""
    return tuple(field.name for field in dataclasses.fields(kind) if field.type is ask.QueueName)


def look(state: EngineState, step: Step, command: ask.Command, fields: tuple[str, ...]) -> None:
    """Before a command about queues that may go away by themselves. `fields`: those that name them.

    Raises:
        QueueExclusive: one belongs to another connection.
    """
    kind = type(command)
    for field in fields:
        queue = state.mortal.get(getattr(command, field))
        if queue is None:
            continue
        if queue in state.doomed:
            _depart(state, step, queue, 0)
            continue
        if (kind, field) not in OPEN_TO_ALL:
            lifetime.check_owner(queue, command)
        if kind in USES and not (kind in TRIED and command.dry_run):  # type: ignore[union-attr]  # these have it
            queue.unused_since = step.now


def looking(
    state: EngineState, command: ask.Command, fields: tuple[str, ...], slices: Slices
) -> Generator[None, Step, None]:
    """What is left of the command, with a look before each slice: the time of its queue may end in between, and what is
    put into it then would go with it."""
    try:
        slices.send(None)  # type: ignore[arg-type]  # the first one has got its step already
        while True:
            step = yield
            if state.doomed:
                _look_again(state, step, command, fields)
            slices.send(step)
    except StopIteration:
        return
    finally:
        slices.close()


def _look_again(state: EngineState, step: Step, command: ask.Command, fields: tuple[str, ...]) -> None:
    for field in fields:
        queue = state.mortal.get(getattr(command, field))
        if queue is not None and queue in state.doomed:
            _depart(state, step, queue, 0)


def reap(state: EngineState, step: Step, units: int) -> None:
    """Delete doomed queues until the step has cost so much, at least one."""
    told, facts = len(step.effects), step.facts
    while state.doomed or state.departing:
        if state.departing:
            if work_off(state.departing[0], step, units, begun=True):
                state.departing.popleft()
        else:
            _depart(state, step, next(iter(state.doomed)), units)
        if step.work >= units:
            break
    if step.facts > facts and len(step.effects) > told:
        step.confirm_after_append(told)


def _depart(state: EngineState, step: Step, queue: Queue, units: int) -> None:
    why = state.doomed[queue]
    need = heavy(queue)
    parked = queue.take_parked()
    remove(state, step, queue, state.queues)
    state.removed[why] += 1
    step.work += REMOVAL_UNITS
    step.tell(QueueGone(SERVER_SESSION, queue.name, why), need)
    ending = _end(state, step, queue, parked)
    if not work_off(ending, step, units, begun=False):
        state.departing.append(ending)


def _end(state: EngineState, step: Step, queue: Queue, parked: deque[Parked]) -> Slices:
    yield from end_everybody(state, step, queue, parked)
