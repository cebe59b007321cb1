"""A part of the order of what is due: up to some thousand (instant, sequence), eight bytes each."""

from array import array
from bisect import bisect_left, bisect_right

Entry = tuple[int, int]
"""(instant, sequence)."""

TOGETHER_MAX = 1024
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

    def extend(self, dues: "array[int]", sequences: "array[int]") -> None:
        """Entries in order, behind all others; their least and greatest sequences fit if all do."""
        self._fit(dues[-1], min(sequences))
        self._fit(dues[0], max(sequences))
        due, base = self._due, self._base
        self._instants.extend([instant - due for instant in dues])
        self._sequences.extend([sequence - base for sequence in sequences])

    def split(self) -> "Stretch":
        """Keep the first half; the other one is another stretch."""
        middle = len(self._instants) // 2
        other = Stretch(0, 0)
        other._due, other._base = self._due, self._base
        other._instants, other._sequences = self._instants[middle:], self._sequences[middle:]
        self._instants, self._sequences = self._instants[:middle], self._sequences[:middle]
        return other

    def sequences(self, start: int, end: int) -> list[int]:
        base = self._base
        return [base + sequence for sequence in self._sequences[start:end]]

    def entries(self, end: int) -> list[Entry]:
        due = self._due
        return list(zip([due + instant for instant in self._instants[:end]], self.sequences(0, end), strict=True))

    def remove(self, start: int, end: int) -> None:
        del self._instants[start:end], self._sequences[start:end]
