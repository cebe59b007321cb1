"""When a queue, a group or a consumer wants to be seen to.

Each is in a heap with the earliest instant that it has asked for. An instant that comes before it makes another entry,
and the one behind counts again when that has rung. So what waits for long beside what is due again and again has one
entry for each of the two, however often the near one rings.
"""

from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from vibemq.model.runs import END

_LEFT_AT_LEAST = 64
_SWEPT_TOGETHER = 32
_GONE_TOGETHER = 16
"""Entries of those that have gone, for the cost of one that is seen to."""

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


P = TypeVar("P", bound=Armed)


class PartAlarms(Generic[P]):
    """The heap of a queue's groups and consumers: (instant, order, who wants to be seen to then).

    What is not its `armed_at` may be behind it, or belongs to somebody who has gone. These are taken out once they are
    more than half, a piece with each that goes: the heap is two meanwhile.
    """

    __slots__ = ("_heap", "_left", "_unswept")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, P]] = []
        self._unswept: list[tuple[int, int, P]] = []
        """A heap, too."""
        self._left = 0
        """About how many have gone since they were last taken out; some of them may have come up by themselves."""

    def __len__(self) -> int:
        return len(self._heap) + len(self._unswept)

    def set(self, at: int, order: int, part: P) -> None:
        heappush(self._heap, (at, order, part))

    def pop_due(self, now: int, most: int) -> list[P]:
        """Who wants to be seen to at or before now, the first `most` of them, or fewer where many have gone."""
        due: list[P] = []
        gone = 0
        while len(due) < most and gone < _GONE_TOGETHER and (heap := self._earlier()) and heap[0][0] <= now:
            at, _, part = heappop(heap)
            if part.armed_at == at:
                ring(part, now)
                due.append(part)
            else:
                gone += 1
        return due

    def next(self) -> int:
        """When the next one wants to be seen to; earlier where many have gone."""
        for _ in range(_GONE_TOGETHER):
            heap = self._earlier()
            if not heap or heap[0][2].armed_at == heap[0][0]:
                break
            heappop(heap)
        heap = self._earlier()
        return heap[0][0] if heap else END

    def _earlier(self) -> list[tuple[int, int, P]]:
        heap, unswept = self._heap, self._unswept
        return unswept if unswept and (not heap or unswept[0] < heap[0]) else heap

    def disarm(self, part: P) -> None:
        """It has gone, and is not kept for the sake of its alarm."""
        self._left += disarm(part)
        if not self._unswept and self._left > _LEFT_AT_LEAST and 2 * self._left > len(self._heap):
            self._heap, self._unswept, self._left = [], self._heap, 0
        for _ in range(min(_SWEPT_TOGETHER, len(self._unswept))):
            # A heap stays one without its last entry.
            alarm = self._unswept.pop()
            if alarm[2].armed_at < END:
                heappush(self._heap, alarm)
