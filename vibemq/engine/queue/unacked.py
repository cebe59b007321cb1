"""The unacknowledged messages of one consumer: runs of sequences, each with its deadline and bytes.

A hand-out of a thousand consecutive messages is one stretch, so holding and settling cost per run, not per message.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from vibemq.model.runs import END, Run, Stretches, run_count

NEVER = END
"""A deadline that does not come."""
STRETCHES_TOGETHER_MAX = 2048
"""Stretches that stand in one list; more are kept in parts, so that a settlement moves some kilobytes at most."""


class Unacked(Stretches):
    """Few stretches are four lists. Many are parts, each such a hold of its own."""

    __slots__ = ("_deadlines", "_sizes", "earliest", "size")

    def __init__(self) -> None:
        self._parts: list[Unacked] | None = None
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._deadlines: list[int] = []
        self._sizes: list[int] = []
        self.count = 0
        self.size = 0
        """Estimated bytes."""
        self.earliest = NEVER
        """No deadline is before it; it may be too early, never too late."""

    def lowest(self) -> int | None:
        """The smallest sequence that is held; None when nothing is."""
        return self._firsts[0] if self._firsts else None

    def first_deadline(self) -> int:
        """The earliest of what is held; NEVER when nothing is. Looks at every stretch once, of very many at `earliest`
        alone."""
        return min(self._deadlines, default=NEVER) if self._parts is None else self.earliest

    def add(self, first: int, last: int, deadline: int, size: int) -> None:
        """Hold a run of which nothing is held yet."""
        count = last - first + 1
        self.count += count
        self.size += size
        if deadline < self.earliest:
            self.earliest = deadline
        if self._parts is not None:
            index = max(0, bisect_right(self._firsts, first) - 1)
            self._parts[index].add(first, last, deadline, size)
            self._tidy(self._parts, index, index + 1)
            return
        lasts = self._lasts
        if not lasts or first > lasts[-1]:
            if lasts and lasts[-1] + 1 == first and self._deadlines[-1] == deadline:
                lasts[-1] = last
                self._sizes[-1] += size
                return
            index = len(lasts)
        else:
            index = bisect_left(self._firsts, first)
        self._insert(index, first, last, deadline, size)

    def _insert(self, index: int, first: int, last: int, deadline: int, size: int) -> None:
        self._firsts.insert(index, first)
        self._lasts.insert(index, last)
        self._deadlines.insert(index, deadline)
        self._sizes.insert(index, size)
        if len(self._firsts) > STRETCHES_TOGETHER_MAX:
            self._divide()

    def from_(self, start: int) -> Iterator[tuple[int, int, int]]:
        """(first, last, deadline) of each stretch from `start` on, ascending; to be read before anything changes."""
        for part in (self,) if self._parts is None else self._parts[bisect_left(self._lasts, start) :]:
            for index in range(bisect_left(part._lasts, start), len(part._lasts)):
                yield max(part._firsts[index], start), part._lasts[index], part._deadlines[index]

    def take(self, first: int, last: int) -> list[Run]:
        """Let go of what is held within [first, last], and return it."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if low >= high:
            return []
        if self._parts is not None:
            return self._take_from_parts(self._parts, low, high, first, last)
        if high - low == 1 and first <= self._firsts[low]:
            if self._lasts[low] <= last:
                return [self._take_whole(low)]
            return [self._take_front(low, last)]
        return self._take_cut(low, high, first, last)

    def _take_whole(self, index: int) -> Run:
        run = (self._firsts.pop(index), self._lasts.pop(index))
        self.count -= run[1] - run[0] + 1
        self.size -= self._sizes.pop(index)
        del self._deadlines[index]
        if not self.count:
            self.earliest = NEVER
        return run

    def _take_front(self, index: int, last: int) -> Run:
        """The usual settlement of one message after the other: the stretch just begins later."""
        first, stop = self._firsts[index], self._lasts[index]
        count = last - first + 1
        size = self._sizes[index] * count // (stop - first + 1)
        self._firsts[index] = last + 1
        self._sizes[index] -= size
        self.size -= size
        self.count -= count
        return first, last

    def _take_cut(self, low: int, high: int, first: int, last: int) -> list[Run]:
        taken: list[Run] = []
        kept: list[tuple[int, int, int, int]] = []
        for index in range(low, high):
            start, stop = self._firsts[index], self._lasts[index]
            deadline, size = self._deadlines[index], self._sizes[index]
            count = stop - start + 1
            run = (max(start, first), min(stop, last))
            taken.append(run)
            before = size * (run[0] - start) // count
            after = size * (stop - run[1]) // count
            if start < run[0]:
                kept.append((start, run[0] - 1, deadline, before))
            if run[1] < stop:
                kept.append((run[1] + 1, stop, deadline, after))
            self.count -= run[1] - run[0] + 1
            self.size -= size - before - after
        self._firsts[low:high] = [k[0] for k in kept]
        self._lasts[low:high] = [k[1] for k in kept]
        self._deadlines[low:high] = [k[2] for k in kept]
        self._sizes[low:high] = [k[3] for k in kept]
        if not self.count:
            self.earliest = NEVER
        if len(self._firsts) > STRETCHES_TOGETHER_MAX:
            self._divide()
        return taken

    def take_all(self) -> list[Run]:
        runs = self.runs()
        self.__init__()  # type: ignore[misc]  # an empty one again
        return runs

    def take_front(self, count: int) -> list[Run]:
        """Let go of up to `count` of the smallest sequences, and return them."""
        front = self.front(count)
        return self.take(front[0][0], front[-1][1]) if front else []

    def weigh(self, between: Callable[[int, int], int]) -> None:
        """Set the bytes of every stretch anew."""
        if self._parts is not None:
            for part in self._parts:
                part.weigh(between)
            self.size = sum(part.size for part in self._parts)
            return
        self._sizes = [between(first, last) for first, last in self.runs()]
        self.size = sum(self._sizes)

    def due(self, now: int, most: int = NEVER) -> list[Run]:
        """Up to `most` members whose deadline is at or before now, as runs; they stay held. When these are all, makes
        `earliest` exact for the others."""
        if self.earliest > now:
            return []
        if self._parts is not None:
            found: list[Run] = []
            for part in self._parts:
                found += part.due(now, most - run_count(found))
                if part.earliest <= now:
                    return found
            self.earliest = min(part.earliest for part in self._parts)
            return found
        found = []
        for first, last, deadline in zip(self._firsts, self._lasts, self._deadlines, strict=True):
            if deadline <= now:
                if most <= 0:
                    return found
                found.append((first, min(last, first + most - 1)))
                most -= last - first + 1
        if most >= 0:
            self.earliest = min((d for d in self._deadlines if d > now), default=NEVER)
        return found

    def extend(self, first: int, last: int, deadline: int) -> int:
        """Give what is held within [first, last] a new deadline; return how many that are."""
        before = self.count, self.size
        taken = self.take(first, last)
        count, size = before[0] - self.count, before[1] - self.size
        left = count
        for start, stop in taken:
            share = size * (stop - start + 1) // left
            left -= stop - start + 1
            size -= share
            self.add(start, stop, deadline, share)
        return count

    # -- parts ----------------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        middle = len(self._firsts) // 2
        parts = [self._part(0, middle), self._part(middle, len(self._firsts))]
        self._parts = parts
        self._firsts = [part._firsts[0] for part in parts]
        self._lasts = [part._lasts[-1] for part in parts]
        self._deadlines, self._sizes = [], []

    def _part(self, low: int, high: int) -> "Unacked":
        part = Unacked()
        part._firsts, part._lasts = self._firsts[low:high], self._lasts[low:high]
        part._deadlines, part._sizes = self._deadlines[low:high], self._sizes[low:high]
        part.count = sum(part._lasts) - sum(part._firsts) + len(part._firsts)
        part.size = sum(part._sizes)
        part.earliest = min(part._deadlines)
        return part

    def _take_from_parts(self, parts: "list[Unacked]", low: int, high: int, first: int, last: int) -> list[Run]:
        if high - low == 1:
            part = parts[low]
            count, size = part.count, part.size
            taken = part.take(first, last)
            self.count -= count - part.count
            self.size -= size - part.size
            self._tidy(parts, low, high)
            return taken
        touched = parts[low:high]
        count, size = sum(part.count for part in touched), sum(part.size for part in touched)
        taken = [run for part in touched for run in part.take(first, last)]
        self.count -= count - sum(part.count for part in touched)
        self.size -= size - sum(part.size for part in touched)
        self._tidy(parts, low, high)
        if not self.count:
            self.earliest = NEVER
        return taken

    def _become(self, part: "Unacked | None") -> None:
        self._firsts, self._lasts = ([], []) if part is None else (part._firsts, part._lasts)
        if part is not None:
            self._deadlines, self._sizes = part._deadlines, part._sizes
