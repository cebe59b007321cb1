"""One queue: its groups, and what is known about its messages beyond their order."""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.group import Group, GroupCounters
from vibemq.engine.queue.ready import Levels
from vibemq.engine.queue.sizes import Sizes, span_for
from vibemq.engine.queue.tail import Tail
from vibemq.model.instants import Instants
from vibemq.model.options import DeliveryMode, Durability, QueueOptions, Retention
from vibemq.model.records import DEFAULT_GROUP, Attempts, MessageExtra
from vibemq.model.rows import Rows
from vibemq.model.runs import END, Run, RunSet

WAITING_NAME = ""
"""Name of the default group, and of a fan-out queue's group that waits for a subscriber."""

_COLLECT_AT_LEAST = 512
_LOOKUPS_MAX = 64
"""Sizes of so many runs are looked up one by one; beyond, sizes are taken as even."""


@dataclass(slots=True, eq=False)
class Added:
    """New messages on their way: allotted, perhaps not yet visible."""

    queue: "Queue"
    first: int
    last: int
    extras: dict[int, MessageExtra] | None
    hidden: RunSet | None = None
    """Never visible: overflow that went into the DLQ at once, or what lies before the start of every group."""
    redirected: int = 0
    """How many went into the DLQ."""
    visible: bool = False
    """Its policy says that it may be handed out."""
    replayed: list[int] | None = None
    """Dead letters it brought back."""
    holes: list[Run] = field(default_factory=list)
    """Older holes that are recorded with it."""
    origins: dict[int, int] | None = None
    """Their queues, as far as the command told them."""


@dataclass(slots=True, eq=False)
class TakenOut:
    """Waiting messages of a queue's default group that entered another queue."""

    queue: "Queue"
    runs: list[Run]
    due: dict[int, int] = field(default_factory=dict)
    """When those that waited for an instant were due."""
    attempts: dict[int, Attempts] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Parked:
    """A publish that waits for room."""

    session: int
    token: Any
    rows: Rows
    extras: dict[int, MessageExtra] | None
    deadline: int


_NO_UNSEEN: deque[Added] = deque()
_NO_PARKED: deque[Parked] = deque()
_NO_HOLES: list[Run] = []
_NO_INSTANTS = Instants()
_NO_DELAYED = Delayed()
_NO_SEQUENCES: list[int] = []
_NO_DEDUP: dict[bytes, tuple[int, int]] = {}
_NO_ORDER: deque[tuple[int, bytes]] = deque()
_NO_ALARMS: list[tuple[int, int, Group | Consumer]] = []
_NO_TALLY = GroupCounters()
_NO_SIZES = Sizes()


class Queue:
    __slots__ = (
        "_collect_at",
        "_expired",
        "_upcoming",
        "alarms",
        "armed_at",
        "attended",
        "consumer_count",
        "created_at",
        "dead",
        "dedup",
        "dedup_order",
        "delayed",
        "deleted",
        "expires",
        "groups",
        "holes",
        "incarnation",
        "levels",
        "log",
        "name",
        "next_group_id",
        "next_sequence",
        "options",
        "owner",
        "parked",
        "published",
        "queue_id",
        "redirected",
        "refused",
        "retired",
        "sizes",
        "starts_max",
        "swept",
        "tail",
        "unseen",
        "unseen_count",
        "unused_since",
        "whole",
    )

    def __init__(self, queue_id: int, name: str, options: QueueOptions, created_at: int, incarnation: str) -> None:
        self.queue_id = queue_id
        self.name = name
        self.options = options
        self.created_at = created_at
        self.incarnation = incarnation
        self.deleted = False
        self.next_sequence = 1
        self.next_group_id = DEFAULT_GROUP
        self.groups: dict[str, Group] = {}
        """By name."""
        self.whole: Group | None = None
        """A group that had all that any group has when it was made: as long as it has lost nothing, it still has."""
        self.starts_max = 0
        """No group starts above it."""
        self.tail: Tail[Group] | None = None
        """Shows new messages to the groups, once there has been a second one."""
        # What most queues never need is shared by all of them, never put into, and replaced where it is.
        self.sizes = _NO_SIZES
        self.levels: Levels | None = {} if options.mode is DeliveryMode.PRIORITY_BASED else None
        """Sequences of each priority but NORMAL; None when the order does not depend on it."""
        self.log: RunSet | None = RunSet() if options.retention is Retention.LOG else None
        """What log retention keeps."""
        self.unseen: deque[Added] = _NO_UNSEEN
        """Allotted, not visible yet, in order: none is shown before those in front of it."""
        self.unseen_count = 0
        self.holes: list[Run] = _NO_HOLES
        """Sequences whose messages could not be stored, to be recorded with the next ones that can."""
        self.expires: Instants = _NO_INSTANTS
        self._upcoming: Delayed = _NO_DELAYED
        """Those of `expires` whose time has not come, by their instants."""
        self._expired: list[int] = _NO_SEQUENCES
        """The others."""
        self.swept = 0
        """The queue's TTL has passed for everything up to here."""
        self.delayed: Instants = _NO_INSTANTS
        """deliver_at of visible messages, until it comes."""
        self.dedup: dict[bytes, tuple[int, int]] = _NO_DEDUP
        """dedup_id -> (sequence, published_at)."""
        self.dedup_order: deque[tuple[int, bytes]] = _NO_ORDER
        self.parked: deque[Parked] = _NO_PARKED
        self.dead = 0
        self.armed_at = END
        self.alarms: list[tuple[int, int, Group | Consumer]] = _NO_ALARMS
        """(instant, order, who wants to be seen to then); those that are not its `armed_at` are stale."""
        self.published = 0
        self.refused = 0
        self.redirected = 0
        """Published straight into the DLQ."""
        self.retired = _NO_TALLY
        """Of groups that are gone."""
        self.consumer_count = 0
        """Of all groups, those that only hold messages included."""
        self.attended = False
        """It has had a consumer that was no fetch; known when `auto_delete` is on."""
        self.unused_since = created_at
        """When it was last declared or consumed from; of no meaning while it has consumers."""
        self.owner = 0
        """The session to which it is exclusive; 0 = none."""
        self._collect_at = _COLLECT_AT_LEAST

    # -- groups ---------------------------------------------------------------------------------------------------

    def new_group(self, name: str, *, durable: bool, start: int) -> Group:
        group = Group(self.next_group_id, name, durable=durable, start=start, levels=self.levels)
        self.next_group_id += 1
        self.starts_max = max(self.starts_max, start)
        self.groups[name] = group
        if self.tail is not None:
            group.follow(self.tail)
        return group

    def share_tail(self, tail: Tail[Group]) -> None:
        """More than one group will look at new messages."""
        self.tail = tail
        for group in self.groups.values():
            group.follow(tail)

    @property
    def transient(self) -> bool:
        return self.options.durability is Durability.TRANSIENT

    @property
    def only_group(self) -> bool:
        """Whether what leaves its group leaves the store: nobody else and no log keeps it."""
        return len(self.groups) == 1 and self.log is None

    def retire(self, counters: GroupCounters) -> None:
        """Keep the counters of a group that is gone."""
        if self.retired is _NO_TALLY:
            self.retired = GroupCounters()
        self.retired.add(counters)

    # -- notes about messages -------------------------------------------------------------------------------------

    def hide(self, added: Added) -> None:
        """New messages are on their way."""
        if self.unseen is _NO_UNSEEN:
            self.unseen = deque()
        self.unseen.append(added)
        self.unseen_count += added.last - added.first + 1

    def measure(self, first: int, last: int, size: int, published_at: int) -> None:
        """Note the bytes and the age of new messages."""
        if self.sizes is _NO_SIZES:
            self.sizes = Sizes()
        self.sizes.add(first, last, size, published_at, span_for(self.options.message_ttl_ms))

    def park(self, parked: Parked) -> None:
        if self.parked is _NO_PARKED:
            self.parked = deque()
        self.parked.append(parked)

    def delay(self, sequence: int, deliver_at: int) -> None:
        if self.delayed is _NO_INSTANTS:
            self.delayed = Instants()
        self.delayed[sequence] = deliver_at

    def remember(self, dedup_id: bytes, sequence: int, published_at: int) -> None:
        """The id is known for the window from then on."""
        if self.dedup_order is _NO_ORDER:
            self.dedup_order = deque()
        if self.dedup is _NO_DEDUP:
            self.dedup = {}
        self.dedup[dedup_id] = (sequence, published_at)
        self.dedup_order.append((published_at, dedup_id))

    def levels_of(self, runs: list[Run]) -> dict[int, int]:
        """Sequence -> priority of those messages that are not normal."""
        return {
            sequence: level
            for level, members in (self.levels or {}).items()
            for run in runs
            for first, last in members.overlap(*run)
            for sequence in range(first, last + 1)
        }

    # -- what waits -----------------------------------------------------------------------------------------------

    def waiting(self) -> int:
        """Messages that count towards max_messages: of the group furthest behind, with those not visible yet."""
        most = 0
        for group in self.groups.values():
            most = max(most, group.ready.count + len(group.delayed))
        return most + self.unseen_count

    def waiting_size(self) -> int:
        """Their estimated bytes."""
        most = max((self.group_size(group) for group in self.groups.values()), default=0)
        return most + sum(self.sizes.between(added.first, added.last) for added in self.unseen)

    def group_size(self, group: Group) -> int:
        """Estimated bytes of what waits in the group."""
        if group.ready.run_count + len(group.delayed) <= _LOOKUPS_MAX:
            return self.sizes.of_runs(group.ready.runs()) + self.sizes.of_runs(group.delayed.runs())
        return self.sizes.average() * group.waiting

    def alive(self, start: int, now: int) -> RunSet:
        """Visible sequences from `start` on that a group could still be given."""
        if start >= self.open_end():
            return RunSet()
        if self.log is not None:
            alive = RunSet(self.log.overlap(start, END))
        else:
            alive = self._unsettled()
            alive.remove(0, start - 1)
        alive.remove(1, self.swept)
        for sequence in self._overdue(now):
            alive.remove(sequence, sequence)
        return alive

    def open_end(self) -> int:
        """First sequence that no stored or storable message has: where a group "from now" begins."""
        end = self.next_sequence
        for first, last in reversed(self.holes):
            # What could not be stored at the end leaves no trace on disk: a restart allots these numbers again.
            if last != end - 1:
                break
            end = first
        return end

    # -- alarms of groups and consumers ---------------------------------------------------------------------------

    def set_alarm(self, at: int, order: int, part: Group | Consumer) -> None:
        if not self.alarms:
            self.alarms = []
        heappush(self.alarms, (at, order, part))

    def pop_alarms(self, now: int, most: int) -> list[Group | Consumer]:
        """Who wants to be seen to at or before now, the first `most` of them."""
        due: list[Group | Consumer] = []
        alarms = self.alarms
        while len(due) < most and alarms and alarms[0][0] <= now:
            at, _, part = heappop(alarms)
            if part.armed_at == at:
                part.armed_at = END
                due.append(part)
        return due

    def next_alarm(self) -> int:
        alarms = self.alarms
        while alarms and alarms[0][2].armed_at != alarms[0][0]:
            heappop(alarms)
        return alarms[0][0] if alarms else END

    # -- expiry ---------------------------------------------------------------------------------------------------

    def set_expiry(self, sequence: int, expires_at: int) -> None:
        if self.expires is _NO_INSTANTS:
            self.expires, self._upcoming, self._expired = Instants(), Delayed(), []
        self.expires[sequence] = expires_at
        self._upcoming.add(sequence, expires_at)

    def set_expiries(self, expires: Instants) -> None:
        """Those of all messages, after a start."""
        if expires:
            self.expires, self._upcoming, self._expired = expires.copy(), Delayed(), []
            self._upcoming.fill(expires.copy())

    def pop_expired(self, now: int, most: int) -> list[int]:
        """Up to `most` sequences whose own expiry has come; they stay in `expires`, for those that are in flight."""
        found = self._upcoming.pop_due(now, most)
        if found:
            self._expired += found
        return found

    def next_expiry(self) -> int:
        """No waiting message expires before it."""
        upcoming = self._upcoming.next_due()
        at = END if upcoming is None else upcoming
        ttl = self.options.message_ttl_ms
        if ttl:
            published_at = self.sizes.next_at(self.swept)
            if published_at is not None:
                at = min(at, published_at + ttl)
        return at

    def is_expired(self, sequence: int, now: int) -> bool:
        return sequence <= self.swept or 0 < self.expires.get(sequence) <= now

    def _overdue(self, now: int) -> list[int]:
        """Sequences whose own expiry has come, those that are in flight included."""
        return self._expired + self._upcoming.due_by(now)

    # -- memory ---------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Forget what belonged to messages that are gone, each time the notes have doubled."""
        if self._weight() < self._collect_at:
            return
        wanted = RunSet(self.log.runs()) if self.log is not None else self._unsettled()
        for added in self.unseen:
            wanted.add(added.first, added.last)
        self.sizes.keep(wanted.runs())
        self._keep_values(wanted)
        self._keep_levels(wanted)
        self._collect_at = max(_COLLECT_AT_LEAST, 2 * self._weight())

    def _weight(self) -> int:
        levels = sum(members.run_count for members in self.levels.values()) if self.levels else 0
        return len(self.sizes) + self.sizes.mark_count // 8 + len(self.expires) + len(self.delayed) + levels

    def _unsettled(self) -> RunSet:
        unsettled = RunSet()
        whole = self.whole
        if whole is not None and whole.untouched and self.groups.get(whole.name) is whole:
            whole.gather(unsettled)
            return unsettled
        for group in self.groups.values():
            group.gather(unsettled)
        return unsettled

    def _keep_values(self, wanted: RunSet) -> None:
        for sequence in [sequence for sequence in self.expires if sequence not in wanted]:
            del self.expires[sequence]
            self._upcoming.remove(sequence, sequence)
        self._expired = [sequence for sequence in self._expired if sequence in self.expires]
        for sequence in [sequence for sequence in self.delayed if sequence not in wanted]:
            del self.delayed[sequence]

    def _keep_levels(self, wanted: RunSet) -> None:
        if not self.levels:
            return
        for level, members in list(self.levels.items()):
            kept = RunSet(part for run in members.runs() for part in wanted.overlap(*run))
            if kept:
                self.levels[level] = kept
            else:
                del self.levels[level]
