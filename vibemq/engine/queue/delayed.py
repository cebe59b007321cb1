"""Messages that wait for an instant: published with a delay, or to be retried."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import le

from vibemq.model.instants import Instants
from vibemq.model.options import NUMBER_MAX
from vibemq.model.runs import Run

_TOGETHER_MAX = 1024
"""Entries of one stretch of the order."""

_NO_ORDER: "list[tuple[array[int], array[int]]]" = []
_NO_BOUNDS: list[int] = []


class Delayed:
    """Sequences by due instant: sixteen bytes each in the order of what is due, eight or more by sequence.

    Removed ones leave the order when they surface, or when they outnumber the others.
    """

    __slots__ = ("_bounds", "_due", "_order", "_ordered")

    def __init__(self) -> None:
        self._due: Instants | None = None
        """Made when something waits for the first time."""
        self._order: list[tuple[array[int], array[int]]] = _NO_ORDER
        """Stretches of (instants, sequences), by instant."""
        self._bounds: list[int] = _NO_BOUNDS
        """The last instant of each stretch."""
        self._ordered = 0
        """Entries in the order, removed ones included."""

    def __len__(self) -> int:
        return 0 if self._due is None else len(self._due)

    def __contains__(self, sequence: int) -> bool:
        return self._due is not None and sequence in self._due

    def __iter__(self) -> Iterator[int]:
        """Every sequence, in no order that means anything."""
        for _, sequences in self._order:
            for sequence in sequences:
                if sequence in self:
                    yield sequence

    def runs(self) -> list[Run]:
        return [] if self._due is None else self._due.runs()

    def due_at(self, sequence: int) -> int:
        """0 when it does not wait."""
        return 0 if self._due is None else self._due.get(sequence)

    def lowest(self) -> int | None:
        """The smallest sequence; None when nothing waits."""
        return self._due.first if self._due else None

    def smallest(self, count: int, start: int = 0) -> list[int]:
        """Up to `count` of the smallest sequences from `start` on."""
        return self._due.lowest(count, start) if self._due else []

    def add(self, sequence: int, due: int) -> None:
        if self._due is None:
            self._due, self._order, self._bounds = Instants(), [], []
        self._due[sequence] = due
        self._ordered += 1
        bounds, order = self._bounds, self._order
        index = bisect_left(bounds, due)
        if index == len(bounds):
            if not order or len(order[-1][0]) >= _TOGETHER_MAX:
                order.append((array("Q"), array("Q")))
                bounds.append(due)
            index = len(bounds) - 1
            bounds[index] = due
            order[index][0].append(due)
            order[index][1].append(sequence)
            return
        instants, sequences = order[index]
        place = bisect_right(instants, due)
        instants.insert(place, due)
        sequences.insert(place, sequence)
        if len(instants) > 2 * _TOGETHER_MAX:
            self._halve(index)

    def _halve(self, index: int) -> None:
        instants, sequences = self._order[index]
        middle = len(instants) // 2
        halves = [(instants[:middle], sequences[:middle]), (instants[middle:], sequences[middle:])]
        self._order[index : index + 1] = halves
        self._bounds[index : index + 1] = [half[0][-1] for half in halves]

    def fill(self, due: Instants) -> None:
        """Take many at once, of which none waits yet; cheaper than one by one. `due` is this one's own from here on."""
        if self._due:
            for sequence, instant in due.items():
                self.add(sequence, instant)
        elif due:
            self._due = due
            self._put_in_order()

    def _put_in_order(self) -> None:
        assert self._due is not None
        numbers, dues = self._due.columns()
        self._ordered = len(numbers)
        self._order = []
        for instants, sequences in _sorted_apart(dues, numbers):
            for at in range(0, len(instants), _TOGETHER_MAX):
                end = at + _TOGETHER_MAX
                self._order.append((instants[at:end], sequences[at:end]))
        self._bounds = [stretch[0][-1] for stretch in self._order]

    def within(self, first: int, last: int) -> list[int]:
        """The sequences in [first, last]."""
        return [] if self._due is None else self._due.within(first, last)

    def remove(self, first: int, last: int) -> list[int]:
        due = self._due
        if not due:
            return []
        found = due.within(first, last)
        for sequence in found:
            del due[sequence]
        if not due:
            self._order, self._bounds, self._ordered = [], [], 0
        elif self._ordered > 2 * len(due) + 64:
            self._put_in_order()
        return found

    def pop_due(self, now: int, most: int = NUMBER_MAX) -> list[int]:
        """Remove and return up to `most` sequences that are due at or before now, the longest due first."""
        found: list[int] = []
        while len(found) < most and self._order and self._order[0][0][0] <= now:
            found += self._pop_stretch(now, most - len(found))
        return found

    def _pop_stretch(self, now: int, most: int) -> list[int]:
        """Of the first stretch, and of that the first `most` entries."""
        instants, sequences = self._order[0]
        place = min(bisect_right(instants, now), most)
        due = self._due
        assert due is not None
        found: list[int] = []
        for instant, sequence in zip(instants[:place], sequences[:place], strict=True):
            if due.get(sequence) == instant:
                del due[sequence]
                found.append(sequence)
        self._cut(place)
        return found

    def _cut(self, count: int) -> None:
        """The first `count` entries of the order are done with."""
        instants, sequences = self._order[0]
        self._ordered -= count
        if count == len(instants):
            del self._order[0]
            del self._bounds[0]
        else:
            del instants[:count]
            del sequences[:count]

    def due_by(self, now: int) -> list[int]:
        """Every sequence that is due at or before now; they stay."""
        found: list[int] = []
        due = self._due
        for instants, sequences in self._order:
            if due is None or instants[0] > now:
                break
            some = zip(instants, sequences[: bisect_right(instants, now)], strict=False)
            found += [sequence for instant, sequence in some if due.get(sequence) == instant]
        return found

    def next_due(self) -> int | None:
        due = self._due
        if not due:
            return None
        while True:
            for place, (instant, sequence) in enumerate(zip(*self._order[0], strict=True)):
                if due.get(sequence) == instant:
                    if place:
                        self._cut(place)
                    return instant
            self._cut(len(self._order[0][0]))


def _sorted_apart(instants: "array[int]", sequences: "array[int]") -> "Iterable[tuple[array[int], array[int]]]":
    """The columns by instant, in ascending pieces: sorting a million numbers at once would need them all as objects."""
    if all(map(le, instants, instants[1:])):
        yield instants, sequences
        return
    low = min(instants)
    width = (max(instants) - low) * _TOGETHER_MAX // len(instants) + 1
    pieces: dict[int, tuple[array[int], array[int]]] = {}
    for instant, sequence in zip(instants, sequences, strict=True):
        piece = pieces.get((instant - low) // width)
        if piece is None:
            piece = pieces[(instant - low) // width] = (array("Q"), array("Q"))
        piece[0].append(instant)
        piece[1].append(sequence)
    for index in sorted(pieces):
        dues, numbers = pieces.pop(index)
        ranks = sorted(range(len(dues)), key=dues.__getitem__)
        yield array("Q", map(dues.__getitem__, ranks)), array("Q", map(numbers.__getitem__, ranks))
