"""One queue: its groups, and what is known about its messages beyond their order."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.dedup import NO_DEDUP_WINDOW, DedupWindow
from vibemq.engine.queue.delayed import Delayed
from vibemq.engine.queue.group import Group, GroupCounters
from vibemq.engine.queue.ready import Levels
from vibemq.engine.queue.sizes import Sizes, span_for
from vibemq.engine.queue.tail import Tail
from vibemq.engine.queue.walk import Count, Trim, Walk
from vibemq.engine.waiting import Places, Waiting
from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.instants import Instants, Values
from vibemq.model.options import DeliveryMode, Durability, QueueOptions, Retention
from vibemq.model.records import DEFAULT_GROUP, Attempts, Extras
from vibemq.model.rows import Rows
from vibemq.model.runs import END, Run, RunSet, gaps, runs_of, without
from vibemq.model.upcoming import Upcoming

WAITING_NAME = ""
"""Name of the default group, and of a fan-out queue's group that waits for a subscriber."""

_COLLECT_AT_LEAST = 512
_NOTES_TOGETHER = 128
_CHUNKS_TOGETHER = 16
_MESSAGES_TOGETHER = 1024
"""Groups may have them in half as many runs."""
_LOOKS_TOGETHER = 32
"""Groups that one publish looks at near the limits."""
_LOOKS_MAX = 400
"""The same of one with very many messages."""
_LOOKUPS_MAX = 64
"""Sizes of so many runs are looked up one by one; beyond, sizes are taken as even."""


@dataclass(slots=True, eq=False)
class Added:
    """New messages on their way: allotted, perhaps not yet visible."""

    queue: "Queue"
    first: int
    last: int
    extras: ExtraColumns | None
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
    published_at: int = 0
    promised: bool = False
    """Of a transient queue, and confirmed without waiting for storage: what is refused beside it does not undo it."""


@dataclass(slots=True, eq=False)
class TakenOut:
    """Waiting messages of a queue's default group that entered another queue."""

    queue: "Queue"
    runs: list[Run]
    due: dict[int, int] = field(default_factory=dict)
    """When those that had come back and waited for an instant were due."""
    scheduled: dict[int, int] = field(default_factory=dict)
    """The instants of those that were published with a delay and had not been handed out."""
    attempts: dict[int, Attempts] = field(default_factory=dict)
    requests: list[tuple[Waiting, int]] = field(default_factory=list)
    """Those that went along, and which message each was."""

    def return_requests(self) -> None:
        for waiting, sequence in self.requests:
            waiting.place(self.queue.name, self.queue.place_for_requests(), sequence)


@dataclass(slots=True, eq=False)
class Expiring:
    """What has expired and is taken out of the groups, one after the other."""

    runs: list[Run]
    groups: deque[Group]
    """They still have to be seen to."""
    lost: bool
    """See `remove_from_group`."""
    upto: int = 0
    """While it is found out what the runs are: at most up to there."""
    most: int = 0
    """Then: what one group may have in them."""


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

    def forget_waiting(self) -> None:
        """It is refused, which is all that its requester has to hear."""
        if self.waiting is not None:
            self.waiting.table.forget(self.waiting)


_NO_REQUESTS = Places()
_NO_UNSEEN: deque[Added] = deque()
_NO_PARKED: deque[Parked] = deque()
_NO_ROTATION: deque[Group] = deque()
_NO_HOLES: list[Run] = []
_NO_INSTANTS = Instants()
_NO_DELAYED = Delayed()
_NO_SEQUENCES = RunSet()
_NO_ALARMS: list[tuple[int, int, Group | Consumer]] = []
_NO_TALLY = GroupCounters()
_NO_RANKS: dict[int, int] = {}
_NO_SIZES = Sizes()


class Queue:
    __slots__ = (
        "_behind",
        "_counted",
        "_expired",
        "_fullest",
        "_furthest",
        "_furthest_seen",
        "_rotation",
        "_upcoming",
        "alarms",
        "armed_at",
        "attendant_count",
        "attended",
        "collect_at",
        "consumer_count",
        "count",
        "created_at",
        "dead",
        "dedup",
        "delayed",
        "deleted",
        "expires",
        "expiring",
        "groups",
        "holes",
        "incarnation",
        "levels",
        "log",
        "log_trim",
        "name",
        "next_group_id",
        "next_sequence",
        "options",
        "owner",
        "parked",
        "published",
        "queue_id",
        "ranked_from",
        "ranks",
        "redirected",
        "refused",
        "regains",
        "requests",
        "retired",
        "sizes",
        "starts_max",
        "swept",
        "tail",
        "trim",
        "unseen",
        "unseen_count",
        "unused_since",
        "upcoming",
        "walk",
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
        self.ranks = _NO_RANKS
        """Consumers of each priority that receive in passing groups."""
        self.ranked_from = 1
        """What was published before it was for consumers that now have a lower priority than others."""
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
        self._expired = _NO_SEQUENCES
        """The others."""
        self.expiring: Expiring | None = None
        self.swept = 0
        """The queue's TTL has passed for everything up to here."""
        self.delayed: Instants = _NO_INSTANTS
        """deliver_at of visible messages that were published with a delay, until they are gone."""
        self.upcoming: Upcoming | None = None
        """Which of these, and of those on their way, end next; made when there are some."""
        self.dedup = NO_DEDUP_WINDOW
        self.parked: deque[Parked] = _NO_PARKED
        self.requests = _NO_REQUESTS
        """Messages whose publishers wait for a reply, by sequence."""
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
        self.log_trim: Generator[None, Any, None] | None = None
        """Messages that leave the log of a queue with very many groups."""
        self.collect_at = _COLLECT_AT_LEAST
        """The weight at which a walk looks for what is gone."""
        self.walk: Walk | None = None
        self.consumer_count = 0
        """Of all groups, those that only hold messages included."""
        self.attendant_count = 0
        """Of these, those that were no fetch."""
        self.attended = False
        """It has had a consumer that was no fetch; known when `auto_delete` is on."""
        self.unused_since = created_at
        """When it was last declared or consumed from; of no meaning while it has consumers."""
        self.owner = 0
        """The session to which it is exclusive; 0 = none."""

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

    def measure(self, first: int, last: int, size: int, published_at: int) -> bool:
        """Note the bytes and the age of new messages. Returns whether a delay may have ended since those before."""
        if self.sizes is _NO_SIZES:
            self.sizes = Sizes()
        # Those published before and after a delay ended do not share a chunk: what fell due comes between them.
        apart = self.upcoming is not None and self.upcoming.pass_by(published_at, self.delayed)
        self.sizes.add(first, last, size, published_at, span_for(self.options.message_ttl_ms), apart=apart)
        return apart

    def park(self, parked: Parked) -> None:
        if self.parked is _NO_PARKED:
            self.parked = deque()
        self.parked.append(parked)

    def place_for_requests(self) -> Places:
        if self.requests is _NO_REQUESTS:
            self.requests = Places()
        return self.requests

    def expect(self, due: Values, now: int) -> None:
        """Delays that are on their way end then."""
        if self.upcoming is None:
            self.upcoming = Upcoming(0 if self.delayed else now)
        self.upcoming.add_all(due)

    def delay(self, sequences: Sequence[int], due: Values) -> None:
        """They were published with delays that end then."""
        if self.delayed is _NO_INSTANTS:
            self.delayed = Instants()
        self.delayed.put_columns(sequences, due)
        if self.upcoming is not None:
            self.upcoming.add_all(due)

    def remember(self, dedup_ids: Sequence[bytes], sequences: Sequence[int], published_at: int) -> None:
        """The ids are known for the window from then on."""
        if self.dedup is NO_DEDUP_WINDOW:
            self.dedup = DedupWindow()
        self.dedup.remember(dedup_ids, sequences, published_at)

    def levels_of(self, runs: list[Run]) -> dict[int, int]:
        """Sequence -> priority of those messages that are not normal."""
        return {
            sequence: level
            for level, members in (self.levels or {}).items()
            for run in runs
            for first, last in members.overlap(*run)
            for sequence in range(first, last + 1)
        }

    def rank(self, priority: int, change: int) -> None:
        """So many more consumers of that priority receive in passing groups."""
        if self.ranks is _NO_RANKS:
            self.ranks = {}
        if change > 0 and all(priority > other for other in self.ranks):
            self.ranked_from = self.next_sequence
        count = self.ranks.get(priority, 0) + change
        if count:
            self.ranks[priority] = count
        else:
            del self.ranks[priority]

    # -- what waits -----------------------------------------------------------------------------------------------

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
        parked, self.parked = self.parked, _NO_PARKED
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
        if self.walk is not None:
            self.walk.begin_again()

    def group_size(self, group: Group) -> int:
        """Estimated bytes of what waits in the group."""
        if group.ready.run_count + len(group.delayed) + len(group.scheduled) <= _LOOKUPS_MAX:
            return self.sizes.of_runs(group.waiting_within(0, END))
        return self.sizes.average() * group.waiting

    def alive(self, start: int, now: int) -> RunSet:
        """Visible sequences from `start` on that a group could still be given, and may be given at once."""
        if start >= self.open_end():
            return RunSet()
        if self.log is not None:
            alive = RunSet(self.log.overlap(start, END))
        else:
            alive = self._unsettled()
            alive.remove(0, start - 1)
        alive.remove(1, self.swept)
        for run in self._overdue(now):
            alive.remove(*run)
        self.regained()
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

    def expire(self, sequences: Sequence[int], instants: Values) -> None:
        """New messages, which expire then."""
        if self.expires is _NO_INSTANTS:
            self.expires, self._upcoming, self._expired = Instants(), Delayed(), RunSet()
        self.expires.put_columns(sequences, instants)
        self._upcoming.add_all(sequences, instants)

    def set_expiries(self, expires: Instants) -> None:
        """Those of all messages, after a start."""
        if expires:
            self.expires, self._upcoming, self._expired = expires.copy(), Delayed(), RunSet()
            self._upcoming.fill(expires.copy())

    def pop_expired(self, now: int, most: int) -> list[int]:
        """Up to `most` sequences whose own expiry has come; they stay in `expires`, for those that are in flight."""
        found = self._upcoming.pop_due(now, most)
        for run in runs_of(found):
            self._expired.add(*run)
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

    def _overdue(self, now: int) -> list[Run]:
        """Runs of sequences whose own expiry has come, those that are in flight included."""
        return self._expired.runs() + runs_of(self._upcoming.due_by(now))

    # -- memory ---------------------------------------------------------------------------------------------------

    def weight(self) -> int:
        """How much is noted."""
        levels = sum(members.run_count for members in self.levels.values()) if self.levels else 0
        return len(self.sizes) + self.sizes.mark_count // 8 + len(self.expires) + len(self.delayed) + levels

    def stretch_of_notes(self, first: int, end: int) -> int:
        """How far of [first, end] some hundred notes reach."""
        begin = self.sizes.first_from(first)
        last = min(end, self.sizes.reach_of_chunks(first, _CHUNKS_TOGETHER))
        for instants in (self.expires, self.delayed):
            if some := instants.lowest(_NOTES_TOGETHER, first):
                begin = min(begin, some[0])
                last = min(last, some[-1]) if len(some) == _NOTES_TOGETHER else last
        for members in (self.levels or {}).values():
            last, _ = members.cut_runs(first, last, _NOTES_TOGETHER)
            begin = min([begin, *(run[0] for run in members.front(1, first))])
        return min(last, begin + _MESSAGES_TOGETHER)

    def who_may_want(self) -> list[Group]:
        """The groups that together have everything that any group has."""
        whole = self.whole
        if whole is not None and whole.untouched and self.groups.get(whole.name) is whole:
            return [whole]
        return list(self.groups.values())

    def forget_notes(self, first: int, last: int, wanted: RunSet) -> None:
        """Forget what is noted of messages in [first, last] that are not wanted."""
        self.sizes.forget(first, last, wanted)
        if wanted.covers(first, last):
            return
        kept = wanted.runs()
        for start, stop in without(runs_of(self.expires.within(first, last)), kept):
            for sequence in range(start, stop + 1):
                del self.expires[sequence]
            self._upcoming.remove(start, stop)
            self._expired.remove(start, stop)
        for start, stop in without(runs_of(self.delayed.within(first, last)), kept):
            for sequence in range(start, stop + 1):
                del self.delayed[sequence]
        for level, members in list((self.levels or {}).items()):
            there = members.overlap(first, last)
            gone = without(there, kept)
            stay = without(there, gone)
            # Many that are gone between two that stay are one removal.
            for run in gone if len(gone) <= len(stay) else gaps(stay, first, last):
                members.remove(*run)
            if not members and self.levels:
                del self.levels[level]

    def _unsettled(self) -> RunSet:
        unsettled = RunSet()
        for group in self.who_may_want():
            group.gather(unsettled)
        return unsettled
