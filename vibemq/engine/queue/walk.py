"""Walks over the groups of a queue that has very many: a few at a time.

Walk    over what the queue has noted of its messages (`collecting.py`): which of them are gone
Count   over the groups: how much waits in the one that has most
Trim    over the groups: each gives up what it has beyond the limits
"""

from collections import deque
from collections.abc import Iterable

from vibemq.engine.queue.group import Group
from vibemq.model.runs import Run, RunSet

_UNITS_PER_GROUP = 8
_CONSUMERS_PER_UNIT = 2


class Walk:
    __slots__ = ("_groups", "_wanted", "end", "first", "last", "new", "next_sequence", "weight")

    def __init__(self, end: int, weight: int, next_sequence: int) -> None:
        self.end = end
        """The walk is over when everything before it has been looked at."""
        self.weight = weight
        """Of the queue's notes when the walk went on last."""
        self.new = 0
        """What has been noted since the walk began."""
        self.next_sequence = next_sequence
        """Of the queue then."""
        self.first = 1
        """Of the stretch that comes next, or is under way."""
        self.last = 0
        """Of the stretch that is under way; 0: none is."""
        self._wanted = RunSet()
        """What is known to be wanted of it."""
        self._groups: deque[Group] = deque()
        """Which are yet to be asked."""

    def begin(self, last: int, groups: list[Group], logged: list[Run]) -> None:
        """The stretch goes up to there. `logged`: what the log has of it."""
        self.last = last
        self._wanted = RunSet(logged)
        self._groups = deque(groups)

    def begin_again(self) -> None:
        """A group gets messages that it did not have when it was asked."""
        self.last = 0

    def ask(self, units: int) -> int:
        """Ask the next groups what they have of the stretch, as far as that costs about so many units; the cost."""
        first, last, cost = self.first, self.last, 0
        while self._groups and cost < units:
            if self._wanted.covers(first, last):
                self._groups.clear()
                break
            group = self._groups.popleft()
            self._wanted.add_all(group.unsettled_within(first, last).runs())
            cost += _UNITS_PER_GROUP + len(group.consumers) // _CONSUMERS_PER_UNIT
        return cost

    def finish(self) -> RunSet | None:
        """What is wanted of the stretch when all have been asked; the next one comes then."""
        if self._groups:
            return None
        self.first, self.last = self.last + 1, 0
        return self._wanted


class Count:
    """What is published meanwhile is in every group, so a group that was looked at has had that much more since; what
    it has handed out since is not known."""

    __slots__ = ("behind", "behind_size", "fullest", "furthest", "groups", "heaviest", "regains", "since")

    def __init__(self, groups: Iterable[Group], since: int, regains: int) -> None:
        self.groups = deque(groups)
        """They are yet to be looked at."""
        self.since = since
        """The queue's next sequence when it began."""
        self.regains = regains
        """How often a group of the queue had been given messages that it did not have."""
        self.behind = self.furthest = -since
        """The most that waits in one of the others, or that it has not settled: that, and the next sequence."""
        self.behind_size = 0
        """The same in bytes: that, and the size of what was published since the beginning."""
        self.fullest: Group | None = None
        self.heaviest: Group | None = None

    def note(self, group: Group, behind: int, behind_size: int) -> None:
        self.furthest = max(self.furthest, behind + group.in_flight)
        if behind_size > self.behind_size:
            self.behind_size, self.heaviest = behind_size, group
        if behind > self.behind:
            self.behind, self.fullest = behind, group


class Trim:
    __slots__ = ("groups", "mark")

    def __init__(self, groups: Iterable[Group], mark: tuple[int, int | None, int | None]) -> None:
        self.groups = deque(groups)
        """They are yet to be looked at."""
        self.mark = mark
        """Where the visible messages of the queue ended when it began, and the limits."""
