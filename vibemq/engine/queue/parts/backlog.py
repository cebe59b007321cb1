"""How much waits in a queue: what limits are compared with."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from vibemq.engine.queue.group import Group
from vibemq.engine.queue.sizes import Sizes
from vibemq.engine.queue.walk import Count, Trim
from vibemq.engine.waiting import Waiting
from vibemq.model.extras.message_extra import Extras
from vibemq.model.options import QueueOptions
from vibemq.model.rows import Rows
from vibemq.model.runs import END, RunSet

_LOOKS_TOGETHER = 32
"""Groups that one publish looks at near the limits."""
_LOOKS_MAX = 400
"""The same of one with very many messages."""
_LOOKUPS_MAX = 64
"""Sizes of so many runs are looked up one by one; beyond, sizes are taken as even."""


@dataclass(slots=True, eq=False)
class Parked:
    """A publish that waits for room."""

    session: int
    token: Any
    rows: Rows
    extras: Extras | None
    deadline: int
    waiting: Waiting | None = None
    """When it is a request."""
    size: int = 0
    """What it has of the waiting room."""

    def forget_waiting(self) -> None:
        """It is refused, which is all that its requester has to hear."""
        if self.waiting is not None:
            self.waiting.table.forget(self.waiting)


class Allotted(Protocol):
    """Messages that follow each other."""

    first: int
    last: int


S = TypeVar("S", bound=Allotted)
NO_PARKED: deque[Parked] = deque()
_NO_ROTATION: deque[Group] = deque()
NO_SIZES = Sizes()


class Backlog(Generic[S]):
    """What is on its way to the groups, and how much waits in the one that has most. There may be very many groups, and
    a publish looks at some of them only."""

    __slots__ = (
        "_behind",
        "_counted",
        "_fullest",
        "_furthest",
        "_furthest_seen",
        "_rotation",
        "count",
        "groups",
        "next_sequence",
        "options",
        "parked",
        "regains",
        "sizes",
        "trim",
        "unseen",
        "unseen_count",
    )

    def __init__(self, options: QueueOptions, unseen: deque[S]) -> None:
        self.options = options
        self.next_sequence = 1
        self.groups: dict[str, Group] = {}
        """By name."""
        self.sizes = NO_SIZES
        self.unseen = unseen
        """Allotted, not visible yet, in order: none is shown before those in front of it."""
        self.unseen_count = 0
        self.parked = NO_PARKED
        self._furthest = END
        """No group has more unsettled than that and the next sequence, with what is not visible yet; END: not known."""
        self.regains = 0
        """How often a group was given messages that it did not have."""
        self._fullest: Group | None = None
        """The group that had most, when this was last looked at."""
        self._behind: Group | None = None
        """The same of the groups that have been looked at in this rotation."""
        self._furthest_seen = 0
        """The same of the groups that have been looked at in this rotation."""
        self._rotation = _NO_ROTATION
        """Groups that have not been."""
        self.count: Count | None = None
        """Goes on for publishers that wait for room."""
        self._counted: Count | None = None
        """The one that was just finished, for whoever asked for it."""
        self.trim: Trim | None = None

    def park(self, parked: Parked) -> None:
        if self.parked is NO_PARKED:
            self.parked = deque()
        self.parked.append(parked)

    def waiting(self) -> int:
        """Messages that count towards max_messages: of the group furthest behind, with those not visible yet. Looks at
        every group: see `surely_within`."""
        most = unsettled = 0
        for group in self.groups.values():
            waiting = group.waiting
            if waiting > most:
                most, self._fullest = waiting, group
            unsettled = max(unsettled, waiting + group.in_flight)
        self._furthest = unsettled - self.next_sequence + self.unseen_count
        self._rotation.clear()
        return most + self.unseen_count

    def waiting_size(self) -> int:
        """Their estimated bytes."""
        most = max((self.group_size(group) for group in self.groups.values()), default=0)
        return most + sum(self.sizes.between(added.first, added.last) for added in self.unseen)

    def begin_count(self) -> Count:
        """For a queue with very many groups: instead of `waiting`, in steps."""
        return Count(self.groups.values(), self.next_sequence, self.regains)

    def go_on_counting(self, count: Count, looks: int) -> bool:
        """Look at so many groups; whether these were the last ones. Then `counted` knows."""
        by_bytes = bool(self.options.max_bytes)
        published = self.sizes.between(count.since, END) if by_bytes else 0
        unseen = self.sizes.between(self.unseen[0].first, END) if by_bytes and self.unseen else 0
        for _ in range(min(looks, len(count.groups))):
            group = count.groups.popleft()
            if self.groups.get(group.name) is group:
                size = self.group_size(group) if by_bytes else 0
                # What is not visible yet is before the next sequence and not in the group.
                count.note(group, group.waiting + self.unseen_count - self.next_sequence, size + unseen - published)
        if count.groups:
            return False
        self._counted = count
        if count.regains == self.regains:
            self._furthest = count.furthest
            self._rotation.clear()
        if not self.surely_full():
            self._fullest = count.fullest
        return True

    def forget_count(self) -> None:
        """Whoever comes next has to count anew: it would not see what groups have handed out, or got back, since."""
        self._counted = None

    def counted(self) -> tuple[int, int]:
        """(messages, bytes): `waiting` and `waiting_size`, never less, by the count that was just finished; exact but
        for what has come back to groups, or was handed out by them, meanwhile."""
        count = self._counted
        if count is None:
            return self.waiting(), self.waiting_size()
        size = max(0, count.behind_size + self.sizes.between(count.since, END)) if self.options.max_bytes else 0
        return max(0, count.behind + self.next_sequence), size

    def is_overtaken(self) -> bool:
        """Whether the group that had most in the count that was just finished has less by now: something was handed out
        while the others were looked at, and more may fit than the count says."""
        count = self._counted
        if count is None:
            return False
        most, size = self.counted()
        if most and self._now_in(count.fullest, lambda group: group.waiting) + self.unseen_count < most:
            return True
        if not size:
            return False
        unseen = self.sizes.between(self.unseen[0].first, END) if self.unseen else 0
        return self._now_in(count.heaviest, self.group_size) + unseen < size

    def _now_in(self, group: Group | None, measure: Callable[[Group], int]) -> int:
        return measure(group) if group is not None and self.groups.get(group.name) is group else 0

    def take_parked(self) -> deque[Parked]:
        """The publishers that wait, who wait no more."""
        parked, self.parked = self.parked, NO_PARKED
        self.count = None
        return parked

    def begin_trim(self) -> bool:
        """When something has become visible since the last one, or the limits have changed; whether one is under
        way."""
        end = self.unseen[0].first if self.unseen else self.next_sequence
        mark = (end, self.options.max_messages, self.options.max_bytes)
        if self.trim is None or not (self.trim.groups or self.trim.mark == mark):
            self.trim = Trim(self.groups.values(), mark)
        return bool(self.trim.groups)

    def surely_full(self) -> bool:
        """Whether not one more message fits, by what is known of the group that had most. False: it is not known."""
        fullest, most = self._fullest, self.options.max_messages
        if not most or fullest is None or self.groups.get(fullest.name) is not fullest:
            return False
        return fullest.waiting + self.unseen_count >= most

    def surely_within(self, messages: int = 0, size: int = 0) -> bool:
        """Whether so much more keeps every group within the limits, by what is known without looking at all groups:
        none has more messages than the one that had most had, and what was published since; or more bytes than all."""
        options = self.options
        if options.max_messages:
            if 2 * (self._furthest + self.next_sequence + messages) > options.max_messages:
                if self.surely_full():
                    return False
                self._look_at_some_groups(messages)
            if self._furthest + self.next_sequence + messages > options.max_messages:
                return False
        return not (options.max_bytes and self.sizes.total + size > options.max_bytes)

    def _look_at_some_groups(self, messages: int) -> None:
        """At the next ones; when that was all of them, it is known anew which is furthest behind. That should be so
        when as many messages as a half of the limit were published."""
        if len(self.groups) <= _LOOKS_TOGETHER:
            return
        rotation = self._rotation
        if not rotation:
            self._rotation = rotation = deque(self.groups.values())
            self._furthest_seen = -self.next_sequence
        looks = 2 * len(self.groups) * messages // self.options.max_messages
        for _ in range(min(len(rotation), max(_LOOKS_TOGETHER, min(looks, _LOOKS_MAX)))):
            group = rotation.popleft()
            # What is not visible yet is before the next sequence and not in the group.
            behind = group.unsettled + self.unseen_count - self.next_sequence
            if behind > self._furthest_seen:
                self._furthest_seen, self._behind = behind, group
        if not rotation:
            self._furthest = self._furthest_seen
            if not self.surely_full():
                self._fullest = self._behind

    def regained(self) -> None:
        """A group is given messages that it did not have."""
        self._furthest = END
        self.regains += 1
        self._rotation.clear()

    def is_size_counted(self, group: Group) -> bool:
        """Whether the bytes of what waits in the group are added up; else some are told by the average of the queue."""
        return group.ready.run_count + len(group.delayed) + len(group.scheduled) <= _LOOKUPS_MAX

    def size_of(self, wanted: RunSet) -> int:
        """Estimated bytes of a group's messages, which it does not have yet."""
        if wanted.run_count <= _LOOKUPS_MAX:
            return self.sizes.of_runs(wanted.runs())
        return self.sizes.average() * wanted.count

    def group_size(self, group: Group) -> int:
        """Estimated bytes of what waits in the group."""
        ready, later = group.ready, len(group.delayed) + len(group.scheduled)
        if self.is_size_counted(group):
            return self.sizes.of_runs(group.waiting_within(0, END))
        if ready.run_count <= _LOOKUPS_MAX:
            # The backlog is mostly here, and what waits for an instant are many single messages.
            return self.sizes.of_runs(ready.overlap(0, END)) + self.sizes.average() * later
        return self.sizes.average() * group.waiting
