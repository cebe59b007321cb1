"""Parts of the order of what is due: up to some thousand (instant, sequence), eight bytes each, or a run of sequences
that have one instant, however many."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice

from vibemq.model.runs import Run, runs_in_order

Entry = tuple[int, int]
"""(instant, sequence)."""
DueRun = tuple[int, int, int]
"""(instant, first, last): a run of sequences that fall due together."""

TOGETHER_MAX = 1024
RUN_LEAST = 64
"""From so many neighbours with one instant on they are a run; fewer are cheaper one by one."""
_SPAN = 1 << 32
_HALF = _SPAN >> 1


class Stretch:
    """Two columns of 32 bits, counted from a base each; of 64 bits where the entries are further apart than that."""

    __slots__ = ("_base", "_due", "_instants", "_sequences")

    def __init__(self, due: int, sequence: int) -> None:
        """For entries about these."""
        self._due = max(0, due - _HALF)
        self._base = max(0, sequence - _HALF)
        self._instants = array("I")
        self._sequences = array("I")

    def __len__(self) -> int:
        return len(self._instants)

    @property
    def first_due(self) -> int:
        return self._due + self._instants[0]

    @property
    def last_due(self) -> int:
        return self._due + self._instants[-1]

    @property
    def last(self) -> Entry:
        return self._due + self._instants[-1], self._base + self._sequences[-1]

    def place_of(self, due: int, sequence: int) -> int:
        """Where the entry is, or would be."""
        instants, due = self._instants, due - self._due
        low = bisect_left(instants, due)
        if low < len(instants) and instants[low] == due:
            return bisect_left(self._sequences, sequence - self._base, low, bisect_right(instants, due, low))
        return low

    def place_after(self, due: int, start: int = 0) -> int:
        """How many are due at or before the instant. `start`: so many are known to be."""
        return bisect_right(self._instants, due - self._due, start)

    def due_from(self, instant: int) -> int:
        """When the first one is due that is not due before the instant, of which there is one."""
        return self._due + self._instants[bisect_left(self._instants, instant - self._due)]

    def insert(self, due: int, sequence: int) -> None:
        self._fit(due, sequence)
        place = self.place_of(due, sequence)
        self._instants.insert(place, due - self._due)
        self._sequences.insert(place, sequence - self._base)

    def insert_all(self, entries: list[Entry]) -> None:
        """As `insert` of each of these, which are in order."""
        numbers = [sequence for _, sequence in entries]
        self._fit(entries[-1][0], min(numbers))
        self._fit(entries[0][0], max(numbers))
        instants, sequences, base_due, base = self._instants, self._sequences, self._due, self._base
        place = 0
        for due, sequence in entries:
            due -= base_due
            place = bisect_left(instants, due, place)
            if place < len(instants) and instants[place] == due:
                place = bisect_left(sequences, sequence - base, place, bisect_right(instants, due, place))
            instants.insert(place, due)
            sequences.insert(place, sequence - base)

    def append(self, due: int, sequence: int) -> None:
        """It comes behind all others."""
        self._fit(due, sequence)
        self._instants.append(due - self._due)
        self._sequences.append(sequence - self._base)

    def _fit(self, due: int, sequence: int) -> None:
        if self._instants.typecode == "I" and not (0 <= due - self._due < _SPAN and 0 <= sequence - self._base < _SPAN):
            self._instants = array("Q", [self._due + instant for instant in self._instants])
            self._sequences = array("Q", [self._base + sequence for sequence in self._sequences])
            self._due = self._base = 0

    def extend(self, dues: Sequence[int], sequences: Sequence[int]) -> None:
        """Entries in order, behind all others; their least and greatest sequences fit if all do."""
        self._fit(dues[-1], min(sequences))
        self._fit(dues[0], max(sequences))
        due, base = self._due, self._base
        self._instants.extend([instant - due for instant in dues])
        self._sequences.extend([sequence - base for sequence in sequences])

    def split(self, middle: int) -> "Stretch":
        """Keep so many; the rest is another stretch."""
        other = Stretch(0, 0)
        other._due, other._base = self._due, self._base
        other._instants, other._sequences = self._instants[middle:], self._sequences[middle:]
        self._instants, self._sequences = self._instants[:middle], self._sequences[:middle]
        return other

    def sequences(self, start: int, end: int) -> list[int]:
        base = self._base
        return [base + sequence for sequence in self._sequences[start:end]]

    def runs(self, end: int) -> list[DueRun]:
        """The first ones, each by itself."""
        due, sequences = self._due, self.sequences(0, end)
        return list(zip([due + instant for instant in self._instants[:end]], sequences, sequences, strict=True))

    def runs_in_order(self, end: int) -> list[Run]:
        """The same without their instants."""
        return runs_in_order(self.sequences(0, end))

    def remove(self, start: int, end: int) -> None:
        del self._instants[start:end], self._sequences[start:end]

    def following(self, place: int, found: Sequence[int], at: int) -> int:
        """How many of found[at:] stand here one behind the other from that place on. The first one does."""
        start = at
        while True:
            # Some at a time: they are seldom many.
            some = self.sequences(place + at - start, place + at - start + _LOOKED_AT)
            for mine, other in zip(some, islice(found, at, None), strict=False):
                if mine != other:
                    return at - start
                at += 1
            if len(some) < _LOOKED_AT or at == len(found):
                return at - start


_LOOKED_AT = 32


class SameDue:
    """A run that falls due at one instant. It loses what is at its ends; in between it is cut before."""

    __slots__ = ("due", "first", "last_sequence")

    def __init__(self, due: int, first: int, last: int) -> None:
        self.due = due
        self.first = first
        self.last_sequence = last

    def __len__(self) -> int:
        return self.last_sequence - self.first + 1

    @property
    def first_due(self) -> int:
        return self.due

    @property
    def last_due(self) -> int:
        return self.due

    @property
    def last(self) -> Entry:
        return self.due, self.last_sequence

    def place_of(self, due: int, sequence: int) -> int:
        """Where the entry is, or would be."""
        if due != self.due:
            return 0 if due < self.due else len(self)
        return min(max(sequence - self.first, 0), len(self))

    def place_after(self, due: int) -> int:
        """How many are due at or before the instant."""
        return len(self) if self.due <= due else 0

    def due_from(self, _: int) -> int:
        """When the first one is due that is not due before the instant, of which there is one."""
        return self.due

    def sequences(self, start: int, end: int) -> range:
        return range(self.first + start, min(self.first + end, self.last_sequence + 1))

    def runs(self, end: int) -> list[DueRun]:
        """The first ones."""
        return [(self.due, self.first, min(self.last_sequence, self.first + end - 1))]

    def runs_in_order(self, end: int) -> list[Run]:
        """The same without their instant."""
        return [(self.first, min(self.last_sequence, self.first + end - 1))]

    def split(self, place: int) -> "SameDue":
        """Keep what is before the place; the rest is another run."""
        other = SameDue(self.due, self.first + place, self.last_sequence)
        self.last_sequence = other.first - 1
        return other

    def remove(self, start: int, end: int) -> None:
        """From the one end or the other."""
        if start:
            self.last_sequence = self.first + start - 1
        else:
            self.first += end

    def following(self, place: int, found: Sequence[int], at: int) -> int:
        """How many of found[at:], which ascend, stand here from that place on. The first one does."""
        return neighbours(found, at, len(self) - place)

    def stretch(self) -> Stretch:
        """The same as a stretch; of not too many."""
        count = len(self)
        stretch = Stretch(self.due, self.first)
        stretch.extend(array("Q", (self.due,)) * count, array("Q", range(self.first, self.first + count)))
        return stretch


def neighbours(sequences: Sequence[int], at: int, most: int) -> int:
    """How many from that place on, up to `most`, follow each other without a gap. They ascend."""
    first, count = sequences[at], min(most, len(sequences) - at)
    if sequences[at + count - 1] - first == count - 1:
        return count
    return bisect_right(range(count), 0, key=lambda place: sequences[at + place] - first - place)
