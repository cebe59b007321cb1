"""Batches of commands in steps that take a few milliseconds each.

A settlement may name any number of messages in one frame. Whoever drives the engine gives it one step after the other,
and lets others have the loop in between. The answer comes with the last piece, so answers keep their order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vibemq.model.commands import Command, Extend, Settle, Settlement
from vibemq.model.runs import Run

STEP_UNITS = 150
"""Runs, or messages where each costs something of its own, in one step.

With what storage does for them on the loop, 500 took 9 to 13 ms of CPU on a busy core.
"""


Held = Callable[[int, int], int]
"""(session, consumer) -> how many messages the consumer holds."""


def paced(commands: Sequence[Command], held: Held | None = None) -> Iterator[Sequence[Command]]:
    """The commands in order, as steps. One step, the very same sequence, when there is nothing long among them.

    A peer may name any range, however few of its messages it holds. `held` bounds the number of steps: without it a
    settlement is taken at its word.
    """
    if not any(isinstance(command, Settle | Extend) and _work(command, held) > STEP_UNITS for command in commands):
        yield commands
        return
    step: list[Command] = []
    left = STEP_UNITS
    for command in commands:
        for piece in _pieces(command, held) if isinstance(command, Settle | Extend) else (command,):
            units = _work(piece, held) if isinstance(piece, Settle | Extend) else 1
            if step and units > left:
                yield step
                step, left = [], STEP_UNITS
            step.append(piece)
            left -= units
    if step:
        yield step


def _by_message(command: Settle | Extend) -> bool:
    """Whether each message costs something, not each run."""
    return isinstance(command, Settle) and command.verb is not Settlement.ACK


def _units(command: Settle | Extend) -> int:
    runs = command.runs
    if not _by_message(command):
        return len(runs)
    if len(runs) == 1:
        return runs[0][1] - runs[0][0] + 1
    return sum(last - first + 1 for first, last in runs)


def _work(command: Settle | Extend, held: Held | None) -> int:
    """No more messages are settled than are held."""
    units = _units(command)
    if held is None or units <= STEP_UNITS or not _by_message(command):
        return units
    return min(units, held(command.session, command.consumer))


def _pieces(command: Settle | Extend, held: Held | None) -> Iterator[Settle | Extend]:
    """All but the last are not answered."""
    work = _work(command, held)
    if work <= STEP_UNITS:
        yield command
        return
    taken: list[Run] = []
    units = 0
    size = -(-_units(command) // -(-work // STEP_UNITS))
    for first, last in command.runs:
        while first <= last:
            if units >= size:
                yield replace(command, token=None, runs=taken)
                taken, units = [], 0
            stop = min(last, first + size - units - 1) if _by_message(command) else last
            taken.append((first, stop))
            units += stop - first + 1 if _by_message(command) else 1
            first = stop + 1
    yield replace(command, runs=taken)
