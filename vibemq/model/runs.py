"""Sets of sequences as runs: `[first, last]`, both inclusive, disjoint, sorted, never adjacent.

A queue's progress is long runs with few holes, so a set of a million sequences is usually one pair of integers.
Shared by the engine (what is waiting, taken, in flight) and by storage (what is still alive).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import pairwise
from operator import sub
from typing import Self, overload

Run = tuple[int, int]
"""(first, last), both inclusive."""
END = 1 << 62
"""Above every sequence and behind every instant."""


def runs_of(sequences: Iterable[int]) -> list[Run]:
    """Sorted, merged runs of any sequences, in any order."""
    if isinstance(sequences, range) and sequences.step == 1:
        return [(sequences[0], sequences[-1])] if sequences else []
    ordered = sorted(sequences)
    if not ordered:
        return []
    first = last = ordered[0]
    if ordered[-1] - first + 1 == len(ordered) == len(set(ordered)):
        return [(first, ordered[-1])]
    runs: list[Run] = []
    for sequence in ordered:
        if sequence > last + 1:
            runs.append((first, last))
            first = sequence
        last = sequence
    runs.append((first, last))
    return runs


def runs_of_ascending(sequences: Sequence[int]) -> list[Run]:
    """As `runs_of`, of sequences that ascend, none of them twice: one run costs nothing to find, and many a third."""
    if not sequences:
        return []
    if sequences[-1] - sequences[0] + 1 == len(sequences):
        return [(sequences[0], sequences[-1])]
    return runs_in_order(sequences)


def runs_in_order(sequences: Sequence[int]) -> list[Run]:
    """Runs of any sequences in their order, in which they need not ascend. There is at least one."""
    starts = [place for place, step in enumerate(map(sub, sequences[1:], sequences), 1) if step != 1]
    firsts = [sequences[0], *map(sequences.__getitem__, starts)]
    return list(zip(firsts, [*[sequences[place - 1] for place in starts], sequences[-1]], strict=True))


def smallest_of(sorted_runs: Iterable[Sequence[Run]], count: int) -> list[Run]:
    """Up to `count` of the smallest sequences of several lists of runs, each ascending, none with a member of another;
    merged. Costs what it returns."""
    found: list[Run] = []
    for first, last in merge(*sorted_runs):
        if count <= 0:
            break
        last = min(last, first + count - 1)
        count -= last - first + 1
        if found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


class RunArrays(Sequence[Run]):
    """Very many runs in two arrays. Each becomes a tuple only when it is its turn: for runs that are worked off in
    steps, which would else be held up by the making of all of them."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, firsts: "array[int]", lasts: "array[int]") -> None:
        self._firsts, self._lasts = firsts, lasts

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Run]:
        return zip(self._firsts, self._lasts, strict=True)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> "RunArrays": ...
    def __getitem__(self, index: int | slice) -> "Run | RunArrays":
        if isinstance(index, slice):
            return RunArrays(self._firsts[index], self._lasts[index])
        return self._firsts[index], self._lasts[index]


def run_count(runs: Iterable[Run]) -> int:
    """How many sequences the runs hold."""
    return sum(last - first + 1 for first, last in runs)


def gaps(runs: Iterable[Run], first: int, last: int) -> list[Run]:
    """What of [first, last] is between the runs, which ascend and lie in it."""
    found: list[Run] = []
    for start, stop in runs:
        if first < start:
            found.append((first, start - 1))
        first = stop + 1
    if first <= last:
        found.append((first, last))
    return found


def end_before(end: int, runs: Sequence[Run]) -> int:
    """The end, moved before the runs that reach up to it without a gap. They ascend."""
    for first, last in reversed(runs):
        if last != end - 1:
            break
        end = first
    return end


def without(runs: list[Run], others: list[Run]) -> list[Run]:
    """What of the runs is in none of the others. Both ascend."""
    found: list[Run] = []
    index, count = 0, len(others)
    for first, last in runs:
        while index < count and others[index][1] < first:
            index += 1
        at = index
        while at < count and others[at][0] <= last:
            start, stop = others[at]
            if first < start:
                found.append((first, start - 1))
            first = stop + 1
            at += 1
        if first <= last:
            found.append((first, last))
    return found


RUNS_TOGETHER_MAX = 2048
"""Runs that stand in one list; more are kept in parts, so that a change moves some kilobytes at most."""

_NONE: list[int] = []


class Stretches:
    """Disjoint stretches in ascending order: their bounds, in one list each or in parts.

    Few stretches are two lists. Many are parts, each such a value of its own; the two lists are then the parts' bounds.
    """

    __slots__ = ("_firsts", "_lasts", "_parts", "count")

    count: int
    _firsts: list[int]
    _lasts: list[int]
    _parts: "list[Self] | None"

    @property
    def run_count(self) -> int:
        """How many stretches there are: what it costs."""
        if self._parts is not None:
            return sum(len(part._firsts) for part in self._parts)
        return len(self._firsts)

    def runs(self) -> list[Run]:
        if self._parts is not None:
            return [run for part in self._parts for run in part.runs()]
        return list(zip(self._firsts, self._lasts, strict=True))

    def overlap(self, first: int, last: int) -> list[Run]:
        """The members within [first, last], as runs, without removing them."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if self._parts is not None:
            return [run for part in self._parts[low:high] for run in part.overlap(first, last)]
        return [(max(first, self._firsts[i]), min(last, self._lasts[i])) for i in range(low, high)]

    def meets(self, first: int, last: int) -> bool:
        """Whether any member is within [first, last]."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if low >= high or self._parts is None:
            return low < high
        return high - low > 2 or any(part.meets(first, last) for part in self._parts[low:high])

    def front(self, count: int, start: int = 0, last: int = END) -> list[Run]:
        """Up to `count` of the smallest sequences in [start, last], as runs, without removing them."""
        found: list[Run] = []
        parts = (self,) if self._parts is None else self._parts[bisect_left(self._lasts, start) :]
        for part in parts:
            for index in range(bisect_left(part._lasts, start), len(part._lasts)):
                if count <= 0 or part._firsts[index] > last:
                    return found
                first, stop = max(part._firsts[index], start), min(part._lasts[index], last)
                found.append((first, min(stop, first + count - 1)))
                count -= stop - first + 1
        return found

    def first_runs(self, most: int) -> list[Run]:
        """The first stretches, up to so many."""
        found: list[Run] = []
        for part in (self,) if self._parts is None else self._parts:
            found += zip(part._firsts[: most - len(found)], part._lasts[: most - len(found)], strict=True)
            if len(found) == most:
                break
        return found

    def cut_runs(self, first: int, last: int, most: int) -> tuple[int, int]:
        """(stop, number): how far of [first, last] the first `most` stretches in it reach, and how many these are."""
        number = 0
        parts = (self,) if self._parts is None else self._parts[bisect_left(self._lasts, first) :]
        for part in parts:
            low, high = bisect_left(part._lasts, first), bisect_right(part._firsts, last)
            if high - low > most - number:
                index = low + most - number
                return min(last, part._lasts[index - 1] if index > low else part._firsts[low] - 1), most
            number += max(0, high - low)
            if high < len(part._firsts):
                break
        return last, number

    def cut_members(self, first: int, last: int, most: int) -> tuple[int, int]:
        """(stop, number): how far of [first, last] the first `most` members in it reach, and how many these are."""
        number = 0
        for start, stop in self.front(most, first, last):
            number += stop - start + 1
            if number >= most:
                return stop, number
        return last, number

    def _tidy(self, parts: "list[Self]", low: int, high: int) -> None:
        """After the parts [low, high) have changed: none is empty or too big."""
        if high - low == 1:
            part = parts[low]
            if part._firsts and part._parts is None:
                self._firsts[low] = part._firsts[0]
                self._lasts[low] = part._lasts[-1]
                return
        tidied: list[Self] = []
        for part in parts[low:high]:
            if part._parts is not None:
                tidied += part._parts
            elif part._firsts:
                tidied.append(part)
        parts[low:high] = tidied
        self._firsts[low:high] = [part._firsts[0] for part in tidied]
        self._lasts[low:high] = [part._lasts[-1] for part in tidied]
        if len(parts) <= 1:
            self._parts = None
            self._become(parts[0] if parts else None)

    def _become(self, part: "Self | None") -> None:
        """The only part left is all of it; None: nothing is."""
        raise NotImplementedError


class RunSet(Stretches):
    """A mutable set of integers kept as runs. Any change costs about the logarithm of their number."""

    __slots__ = ()

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        # Empty ones share a list, which nothing is ever put into: a broker has more empty sets than others.
        self._firsts: list[int] = _NONE
        self._lasts: list[int] = _NONE
        self._parts: list[RunSet] | None = None
        self.count = 0
        self.add_all(runs)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    def __contains__(self, sequence: int) -> bool:
        return self.covers(sequence, sequence)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunSet) and self.count == other.count and self.runs() == other.runs()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RunSet({self.runs()})"

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
        if self._parts is not None:
            self._add_to_parts(self._parts, first, last)
            return
        firsts, lasts = self._firsts, self._lasts
        if not firsts:
            self._firsts, self._lasts = [first], [last]
            self.count = last - first + 1
            return
        if first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            self.count += last - first + 1
        else:
            low = bisect_left(lasts, first - 1)
            high = bisect_right(firsts, last + 1)
            if low < high:
                self.count -= sum(lasts[i] - firsts[i] + 1 for i in range(low, high))
                first = min(first, firsts[low])
                last = max(last, lasts[high - 1])
            firsts[low:high] = [first]
            lasts[low:high] = [last]
            self.count += last - first + 1
        if len(firsts) > RUNS_TOGETHER_MAX:
            self._divide()

    def add_all(self, runs: Iterable[Run]) -> None:
        """As `add` of each, and faster when the set is empty and the runs are in order."""
        runs = list(runs)
        if len(runs) > 1 and not self._firsts and all(a[0] <= b[0] for a, b in pairwise(runs)):
            self._fill_merged(runs)
            return
        for first, last in runs:
            self.add(first, last)

    def copy(self) -> "RunSet":
        """Another one with the same runs; very many cost little."""
        made = RunSet()
        made.replace(self)
        made._firsts, made._lasts = self._firsts[:], self._lasts[:]
        made._parts = None if self._parts is None else [part.copy() for part in self._parts]
        return made

    def replace(self, other: "RunSet") -> None:
        """Hold what the other one holds, which is not used any more."""
        self._firsts, self._lasts = other._firsts, other._lasts
        self._parts, self.count = other._parts, other.count

    def remove(self, first: int, last: int) -> int:
        """Remove every sequence of the run that is there; return how many were."""
        if self._parts is not None:
            return self._remove_from_parts(self._parts, first, last)
        firsts, lasts = self._firsts, self._lasts
        low = bisect_left(lasts, first)
        high = bisect_right(firsts, last)
        if low >= high:
            return 0
        if high - low == 1:
            return self._remove_from_one(low, first, last)
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

    def _remove_from_one(self, index: int, first: int, last: int) -> int:
        """The usual case of `remove`: what leaves is part of one run."""
        start, end = self._firsts[index], self._lasts[index]
        gone = min(last, end) - max(first, start) + 1
        if first > start and last < end:
            self._firsts.insert(index + 1, last + 1)
            self._lasts.insert(index, first - 1)
            if len(self._firsts) > RUNS_TOGETHER_MAX:
                self._divide()
        elif first > start:
            self._lasts[index] = first - 1
        elif last < end:
            self._firsts[index] = last + 1
        elif self.count == gone:
            self._firsts = self._lasts = _NONE
        else:
            del self._firsts[index], self._lasts[index]
        self.count -= gone
        return gone

    def pop_front(self, count: int) -> list[Run]:
        """Remove and return up to `count` of the smallest sequences, as runs."""
        if self._parts is not None:
            return self._pop_from_parts(count)
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
        if not self.count:
            self._firsts = self._lasts = _NONE
            return taken
        if whole:
            del self._firsts[:whole]
            del self._lasts[:whole]
        if count and self._firsts:
            first = self._firsts[0]
            taken.append((first, first + count - 1))
            self._firsts[0] = first + count
            self.count -= count
        return taken

    def covers(self, first: int, last: int) -> bool:
        """Whether the whole run is there."""
        index = bisect_right(self._firsts, first) - 1
        if index < 0 or last > self._lasts[index]:
            return False
        return self._parts is None or self._parts[index].covers(first, last)

    def touching(self, first: int, last: int) -> list[Run]:
        """The whole runs that overlap or adjoin [first, last], unclipped: those that adding or removing it changes."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if self._parts is not None:
            return [run for part in self._parts[low:high] for run in part.touching(first, last)]
        return list(zip(self._firsts[low:high], self._lasts[low:high], strict=True))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _fill(self, firsts: list[int], lasts: list[int]) -> None:
        """Give an empty set its runs."""
        self.count = sum(lasts) - sum(firsts) + len(firsts)
        if len(firsts) <= RUNS_TOGETHER_MAX:
            self._firsts, self._lasts = firsts, lasts
            return
        step = RUNS_TOGETHER_MAX // 2
        self._set_parts([_part(firsts[at : at + step], lasts[at : at + step]) for at in range(0, len(firsts), step)])

    def _fill_merged(self, runs: list[Run]) -> None:
        """Of runs by their beginning; some may adjoin or overlap."""
        firsts, lasts = [runs[0][0]], [runs[0][1]]
        end = lasts[0]
        for first, last in runs:
            if first > end + 1:
                firsts.append(first)
                lasts.append(last)
                end = last
            elif last > end:
                lasts[-1] = end = last
        self._fill(firsts, lasts)

    def _divide(self) -> None:
        self._set_parts(self._halves())

    def _set_parts(self, parts: "list[RunSet]") -> None:
        self._parts = parts
        self._firsts = [part.first for part in parts]
        self._lasts = [part.last for part in parts]

    def _halves(self) -> "list[RunSet]":
        middle = len(self._firsts) // 2
        return [_part(self._firsts[:middle], self._lasts[:middle]), _part(self._firsts[middle:], self._lasts[middle:])]

    def _add_to_parts(self, parts: "list[RunSet]", first: int, last: int) -> None:
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low >= high:
            # It touches none: it goes to the end of the part before it.
            low = max(low - 1, 0)
            high = low + 1
        if high - low == 1:
            before = parts[low].count
            parts[low].add(first, last)
            self.count += parts[low].count - before
            self._tidy(parts, low, high)
            return
        before = sum(part.count for part in parts[low:high])
        end = parts[high - 1].touching(first, last)
        last = max(last, end[-1][1]) if end else last
        parts[high - 1].remove(first, last)
        for part in parts[low + 1 : high - 1]:
            part._clear()
        parts[low].add(first, last)
        self.count += sum(part.count for part in parts[low:high]) - before
        self._tidy(parts, low, high)

    def _remove_from_parts(self, parts: "list[RunSet]", first: int, last: int) -> int:
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        removed = 0
        for index in range(low, high):
            if low < index < high - 1:
                removed += parts[index].count
                parts[index]._clear()
            else:
                removed += parts[index].remove(first, last)
        if removed:
            self.count -= removed
            self._tidy(parts, low, high)
        return removed

    def _pop_from_parts(self, count: int) -> list[Run]:
        taken: list[Run] = []
        while count > 0 and self._parts is not None:
            part = self._parts[0]
            before = part.count
            taken += part.pop_front(count)
            count -= before - part.count
            self.count -= before - part.count
            self._tidy(self._parts, 0, 1)
        return taken + self.pop_front(count) if count > 0 else taken

    def _clear(self) -> None:
        self._firsts, self._lasts, self._parts, self.count = _NONE, _NONE, None, 0

    def _become(self, part: "RunSet | None") -> None:
        self._firsts, self._lasts = (_NONE, _NONE) if part is None else (part._firsts, part._lasts)


def _part(firsts: list[int], lasts: list[int]) -> RunSet:
    part = RunSet()
    part._firsts, part._lasts = firsts, lasts
    part.count = sum(lasts) - sum(firsts) + len(firsts)
    return part
