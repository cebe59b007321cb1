"""What a group may hand out now, in order: higher levels first, within a level by sequence."""

from vibemq.model.runs import Run, RunSet, run_count, smallest_of

Levels = dict[int, RunSet]
"""Priority -> sequences, for priorities other than NORMAL."""

NORMAL = 1
_NO_LEVELS: Levels = {}
_NO_RUNS = RunSet()
"""Shared by those with nothing ready, and never put into."""


class Ready:
    """A FIFO backlog is one run. With `levels` (a queue's priorities, shared and never changed here) it is one RunSet
    per level."""

    __slots__ = ("_levels", "_plain", "count", "queue_levels")

    def __init__(self, levels: Levels | None = None) -> None:
        self._plain = _NO_RUNS
        self.queue_levels = levels
        self._levels: Levels = _NO_LEVELS
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, first: int, last: int) -> None:
        """Add a run of which nothing is ready yet."""
        self.count += last - first + 1
        if self._plain is _NO_RUNS:
            self._plain = RunSet()
        if not self.queue_levels:
            self._plain.add(first, last)
            return
        normal = RunSet([(first, last)])
        for level, members in self.queue_levels.items():
            for run in members.overlap(first, last):
                normal.remove(*run)
                if self._levels is _NO_LEVELS:
                    self._levels = {}
                self._levels.setdefault(level, RunSet()).add(*run)
        for run in normal.runs():
            self._plain.add(*run)

    def fill(self, members: RunSet) -> None:
        """As `add` of each run when nothing is ready."""
        if self.queue_levels:
            for run in members.runs():
                self.add(*run)
        elif members:
            self._plain = members.copy()
            self.count = members.count

    def clear(self) -> None:
        """Nothing is ready."""
        self._plain, self._levels, self.count = _NO_RUNS, _NO_LEVELS, 0

    def remove(self, first: int, last: int) -> list[Run]:
        """Remove what is ready within [first, last], and return it (level by level)."""
        found = self._plain.overlap(first, last)
        if found:
            self.count -= self._plain.remove(first, last)
        for members in self._levels.values():
            if part := members.overlap(first, last):
                found += part
                self.count -= members.remove(first, last)
        return found

    def pop(self, count: int) -> list[Run]:
        """Remove and return up to `count` sequences, in the order of hand-out."""
        if not self._levels:
            runs = self._plain.pop_front(count)
            for first, last in runs:
                self.count -= last - first + 1
            return runs
        return self._pop_levels(count)

    def levels(self) -> list[int]:
        """Those that have something, besides NORMAL, which may have nothing."""
        return [*self._levels, NORMAL]

    def front(self, level: int, count: int, start: int = 0) -> list[Run]:
        """Up to `count` of a level's from `start` on, in order; they stay."""
        members = self._plain if level == NORMAL else self._levels.get(level, _NO_RUNS)
        return members.front(count, start)

    def first_runs(self, level: int, most: int) -> list[Run]:
        """Up to so many of a level's first runs; they stay."""
        return (self._plain if level == NORMAL else self._levels.get(level, _NO_RUNS)).first_runs(most)

    def pop_level(self, level: int, count: int) -> None:
        """Take the first ones out of a level."""
        if count:
            members = self._plain if level == NORMAL else self._levels[level]
            self.count -= run_count(members.pop_front(count))
            if level != NORMAL and not members:
                del self._levels[level]

    def _pop_levels(self, count: int) -> list[Run]:
        taken: list[Run] = []
        for level in sorted([*self._levels, NORMAL], reverse=True):
            members = self._plain if level == NORMAL else self._levels[level]
            for first, last in members.pop_front(count):
                taken.append((first, last))
                count -= last - first + 1
                self.count -= last - first + 1
            if level != NORMAL and not members:
                del self._levels[level]
            if not count:
                break
        return taken

    def overlap(self, first: int, last: int) -> list[Run]:
        found = self._plain.overlap(first, last)
        for members in self._levels.values():
            found += members.overlap(first, last)
        return found

    def runs(self) -> list[Run]:
        """All of it, ascending and merged."""
        if not self._levels:
            return self._plain.runs()
        union = RunSet(self._plain.runs())
        for members in self._levels.values():
            for run in members.runs():
                union.add(*run)
        return union.runs()

    def members(self) -> RunSet:
        """All of it, as a set of its own."""
        return RunSet(self.runs()) if self._levels else self._plain.copy()

    def next(self, count: int, start: int = 0) -> list[Run]:
        """Up to `count` of those from `start` on, in the order of hand-out; they stay."""
        runs: list[Run] = []
        for level in sorted([*self._levels, NORMAL], reverse=True):
            found = (self._plain if level == NORMAL else self._levels[level]).front(count, start)
            runs += found
            count -= run_count(found)
        return runs

    def cut(self, first: int, last: int, most: int, *, by_message: bool = False) -> tuple[int, int]:
        """(stop, cost): how far of [first, last] about `most` runs reach, or messages, and how many these are."""
        cost = 0
        for members in (self._plain, *self._levels.values()):
            last, number = (members.cut_members if by_message else members.cut_runs)(first, last, most)
            cost += number
        return last, cost

    def in_runs(self, most: int) -> int:
        """How many messages the first `most` runs of each level are."""
        plain, levels = self._plain, self._levels
        if not levels and plain.run_count <= most:
            return self.count
        return sum(run_count(members.first_runs(most)) for members in (plain, *levels.values()))

    def first_at(self, start: int) -> int | None:
        """The smallest sequence from `start` on, whatever its level."""
        found = [runs[0][0] for members in (self._plain, *self._levels.values()) if (runs := members.front(1, start))]
        return min(found, default=None)

    def lowest(self) -> int | None:
        """The smallest sequence, whatever its level; None when nothing is ready."""
        if not self._levels:
            return self._plain.first if self._plain.count else None
        firsts = [members.first for members in (self._plain, *self._levels.values()) if members]
        return min(firsts, default=None)

    def only_run(self) -> Run | None:
        """All of it when it is one run, as a FIFO backlog is."""
        plain = self._plain
        return (plain.first, plain.last) if not self._levels and plain.run_count == 1 else None

    @property
    def run_count(self) -> int:
        """How many runs the whole is made of: its cost in memory."""
        return self._plain.run_count + sum(members.run_count for members in self._levels.values())

    def smallest(self, count: int, start: int = 0) -> list[Run]:
        """Up to `count` of the smallest sequences from `start` on, whatever their level; they stay."""
        if not self._levels:
            return self._plain.front(count, start)
        return smallest_of((members.front(count, start) for members in (self._plain, *self._levels.values())), count)

    def oldest(self, count: int) -> list[Run]:
        """Remove and return up to `count` of the smallest sequences, whatever their level."""
        if not self._levels:
            return self.pop(count)
        union = RunSet(self.runs())
        taken = union.pop_front(count)
        for run in taken:
            self.remove(*run)
        return taken
