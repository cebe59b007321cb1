"""When a queue, a group or a consumer wants to be seen to.

Each is in a heap with the earliest instant that it has asked for. An instant that comes before it makes another entry,
and the one behind counts again when that has rung. So what waits for long beside what is due again and again has one
entry for each of the two, however often the near one rings.
"""

from typing import Protocol

from vibemq.model.runs import END

Behind = tuple[int, "Behind"] | None
"""The next of the later instants that are in the heap, and those behind it."""


class Armed(Protocol):
    armed_at: int
    armed_behind: Behind


def arm(part: Armed, at: int) -> None:
    """It is in the heap with that instant, too, which is earlier than `armed_at`."""
    if part.armed_at < END:
        part.armed_behind = part.armed_at, part.armed_behind
    part.armed_at = at


def ring(part: Armed, now: int) -> None:
    """It is seen to now, and is in the heap with what is later."""
    behind = part.armed_behind
    while behind is not None and behind[0] <= now:
        behind = behind[1]
    part.armed_at, part.armed_behind = (END, None) if behind is None else behind


def disarm(part: Armed) -> bool:
    """It is gone. Whether the heap has it still."""
    armed, part.armed_at, part.armed_behind = part.armed_at < END, END, None
    return armed
