"""Batches of commands in steps that take a few milliseconds each.

A command may stand for any number of messages. Its handler does little of that at once, and returns the rest as
`Slices`. Whoever drives the engine gives it one step after the other (`Engine.advance`), and lets others have the loop
in between. The answer comes with the last slice, so answers keep their order.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from vibemq.engine.queue.queue import Queue
from vibemq.engine.step import Step
from vibemq.model.commands import Command
from vibemq.model.runs import Run

STEP_UNITS = 150
"""Runs, or messages where each costs something of its own, in one step.

With what storage does for them on the loop, 500 took 9 to 13 ms of CPU on a busy core.
"""

Slices = Generator[None, Step, None]
"""What a handler has left to do. It yields after each slice, and is sent the step that the next one belongs to."""

Cut = Callable[[int, int, int], tuple[int, int]]
"""(first, last, most) -> (stop, cost): how far of [first, last] a slice goes that may cost about `most`."""


def is_crowded(queue: Queue) -> bool:
    """Whether to look at all groups of the queue takes more than one step."""
    return len(queue.groups) > STEP_UNITS


class Batch:
    """Commands that are carried out in order, and how far that has come: for `Engine.advance`, until it is done."""

    __slots__ = ("commands", "fault", "place", "slices")

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.place = 0
        """Of the command that is carried out next, or that `slices` is left of."""
        self.slices: Slices | None = None
        self.fault: Exception | None = None
        """A bug of ours, which ended the batch at the command that met it."""

    def fail(self, fault: Exception) -> None:
        """Nothing of the batch that is not done yet is carried out."""
        self.fault, self.slices, self.place = fault, None, len(self.commands)

    @property
    def done(self) -> bool:
        return self.place == len(self.commands)


def pieces(runs: Iterable[Run], cut: Cut) -> Iterator[tuple[list[Run], int]]:
    """The runs in order, cut into pieces of the work of one step, each with its cost; none is empty. Look at the next
    piece only when it is due: what there is to do is found then."""
    piece: list[Run] = []
    left = STEP_UNITS
    for first, last in runs:
        while first <= last:
            if left <= 0:
                yield piece, STEP_UNITS - left
                piece, left = [], STEP_UNITS
            stop, cost = cut(first, last, left)
            piece.append((first, stop))
            left -= max(1, cost)
            first = stop + 1
    if piece:
        yield piece, STEP_UNITS - left


def work_off(slices: Slices, step: Step, units: int, *, begun: bool) -> bool:
    """Do slices until the step has cost so much, at least one; whether all of them are done."""
    try:
        slices.send(step if begun else None)  # type: ignore[arg-type]  # the first one has got its step already
        while step.work < units:
            slices.send(step)
    except StopIteration:
        return True
    return False
