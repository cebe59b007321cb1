"""Sets of sequences as runs: `[first, last]`, both inclusive, disjoint, sorted, never adjacent.

A queue's progress is long runs with few holes, so a set of a million sequences is usually one pair of integers.
Shared by the engine (what is waiting, taken, in flight) and by storage (what is still alive).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Run = tuple[int, int]
"""(first, last), both inclusive."""


def runs_of(sequences: Iterable[int]) -> list[Run]:
    """Sorted, merged runs of any sequences, in any order."""
    runs: list[Run] = []
    first = last = -2
    for sequence in sorted(sequences):
        if sequence == last + 1:
            last = sequence
        elif sequence != last:
            if first >= 0:
                runs.append((first, last))
            first = last = sequence
    if first >= 0:
        runs.append((first, last))
    return runs


def run_count(runs: Iterable[Run]) -> int:
    """How many sequences the runs hold."""
    return sum(last - first + 1 for first, last in runs)


class RunSet:
    """A mutable set of integers kept as runs. Adding at the end and removing from the front are cheap."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.count = 0
        for first, last in runs:
            self.add(first, last)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    def __contains__(self, sequence: int) -> bool:
        index = bisect_right(self._firsts, sequence) - 1
        return index >= 0 and sequence <= self._lasts[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunSet) and self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RunSet({self.runs()})"

    @property
    def run_count(self) -> int:
        """How many runs it is made of: what it costs."""
        return len(self._firsts)

    def runs(self) -> list[Run]:
        return list(zip(self._firsts, self._lasts, strict=True))

    def __iter__(self) -> Iterator[int]:
        """Every sequence, ascending. Not for big sets: use `runs()`."""
        for first, last in self.runs():
            yield from range(first, last + 1)

    @property
    def first(self) -> int:
        """The smallest member. Raises IndexError when empty."""
        return self._firsts[0]

    @property
    def last(self) -> int:
        """The largest member. Raises IndexError when empty."""
        return self._lasts[-1]

    def add(self, first: int, last: int) -> None:
        """Add every sequence of the run; those already there stay once."""
        firsts, lasts = self._firsts, self._lasts
        if not firsts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            self.count += last - first + 1
            return
        low = bisect_left(lasts, first - 1)
        high = bisect_right(firsts, last + 1)
        if low < high:
            self.count -= sum(lasts[i] - firsts[i] + 1 for i in range(low, high))
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
        firsts[low:high] = [first]
        lasts[low:high] = [last]
        self.count += last - first + 1

    def remove(self, first: int, last: int) -> int:
        """Remove every sequence of the run that is there; return how many were."""
        firsts, lasts = self._firsts, self._lasts
        low = bisect_left(lasts, first)
        high = bisect_right(firsts, last)
        if low >= high:
            return 0
        before = self.count
        kept_firsts: list[int] = []
        kept_lasts: list[int] = []
        if firsts[low] < first:
            kept_firsts.append(firsts[low])
            kept_lasts.append(first - 1)
        if lasts[high - 1] > last:
            kept_firsts.append(last + 1)
            kept_lasts.append(lasts[high - 1])
        self.count -= sum(lasts[i] - firsts[i] + 1 for i in range(low, high))
        self.count += sum(b - a + 1 for a, b in zip(kept_firsts, kept_lasts, strict=True))
        firsts[low:high] = kept_firsts
        lasts[low:high] = kept_lasts
        return before - self.count

    def pop_front(self, count: int) -> list[Run]:
        """Remove and return up to `count` of the smallest sequences, as runs."""
        taken: list[Run] = []
        whole = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            size = last - first + 1
            if size > count:
                break
            taken.append((first, last))
            count -= size
            whole += 1
            self.count -= size
            if count == 0:
                break
        if whole:
            del self._firsts[:whole]
            del self._lasts[:whole]
        if count and self._firsts:
            first = self._firsts[0]
            taken.append((first, first + count - 1))
            self._firsts[0] = first + count
            self.count -= count
        return taken

    def overlap(self, first: int, last: int) -> list[Run]:
        """The members within [first, last], as runs, without removing them."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        return [(max(first, self._firsts[i]), min(last, self._lasts[i])) for i in range(low, high)]

    def covers(self, first: int, last: int) -> bool:
        """Whether the whole run is there."""
        index = bisect_right(self._firsts, first) - 1
        return index >= 0 and last <= self._lasts[index]

    def touching(self, first: int, last: int) -> list[Run]:
        """The whole runs that overlap or adjoin [first, last], unclipped: those that adding or removing it changes."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        return list(zip(self._firsts[low:high], self._lasts[low:high], strict=True))

    def count_between(self, first: int, last: int) -> int:
        return run_count(self.overlap(first, last))
