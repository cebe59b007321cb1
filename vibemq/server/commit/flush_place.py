"""Where a flush runs: in a thread of its own, beside the event loop, or at once on the loop.

A hop to a thread and back costs a message that comes alone more than the flush of a quick disk does: two wake-ups, two
changes of the interpreter's lock and a turn of the loop. So a small flush runs on the loop when the latest ones have
been short. What many publishers have gathered, or is large, is flushed in the thread: the loop goes on meanwhile.

A disk that is quick most of the time may be slow once, and the loop stands still for that long. Therefore each slow
flush on the loop multiplies the number of short ones, in the thread, that are asked for before the next on the loop, by
as much as it was too long, and at least by two. A disk that is slow every so often is soon left to the thread: a slow
flush there begins the count again. Only a run of short ones that is longer than any number that is asked for makes all
that forgotten.
"""

HOLD_MAX_S = 0.0004
"""A flush that takes longer is not short."""
STEPS_MAX = 2
"""More outcomes than these have come from several publishers, whose next messages the loop can read meanwhile."""
BYTES_MAX = 64 << 10
"""Of rows; more take their time on any disk."""
SHORT_MIN = 8
"""Flushes in a row that must have been short before one runs on the loop."""
SHORT_MAX = 1 << 16
FORGIVEN_AFTER = 1 << 17
"""Short ones in a row; two minutes at a thousand a second."""


def is_small_flush(steps: int, size: int) -> bool:
    """Of a flush that so many outcomes wait for, with so many bytes of rows since the one before. One that nobody waits
    for is in no hurry."""
    return 0 < steps <= STEPS_MAX and size <= BYTES_MAX


class FlushPlace:
    """Hears how long each small flush has taken, and says where the next one runs."""

    __slots__ = ("_asked_for", "_short")

    def __init__(self) -> None:
        self._asked_for = SHORT_MIN
        self._short = 0
        """Short flushes in a row."""

    @property
    def is_loop(self) -> bool:
        """Whether the next small flush may run on the loop."""
        return self._short >= self._asked_for

    def note(self, took_s: float, *, on_loop: bool) -> None:
        """How long a small flush has taken: its system calls, and what the provider does around them."""
        if took_s > HOLD_MAX_S:
            self._short = 0
            if on_loop:
                self._asked_for = min(self._asked_for * max(2, round(took_s / HOLD_MAX_S)), SHORT_MAX)
            return
        self._short += 1
        if self._short >= FORGIVEN_AFTER:
            self._asked_for = SHORT_MIN
