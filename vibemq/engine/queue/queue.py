"""One queue: its groups, and what is known about its messages beyond their order."""

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.dedup import NO_DEDUP_WINDOW, DedupWindow
from vibemq.engine.queue.group import Group, GroupCounters
from vibemq.engine.queue.parts.backlog import NO_PARKED, NO_SIZES, Backlog
from vibemq.engine.queue.parts.expiries import NO_EXPIRIES, Expiries, Expiring
from vibemq.engine.queue.ready import Levels
from vibemq.engine.queue.sizes import Sizes, span_for
from vibemq.engine.queue.tail import Tail
from vibemq.engine.queue.timing.alarms import Behind, PartAlarms
from vibemq.engine.queue.walk import Walk
from vibemq.engine.waiting import Places, Waiting
from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.instants import Instants, Values
from vibemq.model.options import DeliveryMode, Durability, QueueOptions, Retention
from vibemq.model.records import DEFAULT_GROUP, Attempts
from vibemq.model.runs import END, Run, RunSet, end_before, gaps, runs_of_ascending, without
from vibemq.model.upcoming import Upcoming

WAITING_NAME = ""
"""Name of the default group, and of a fan-out queue's group that waits for a subscriber."""

_COLLECT_AT_LEAST = 512
_NOTES_TOGETHER = 128
_CHUNKS_TOGETHER = 16
_MESSAGES_TOGETHER = 1024
"""Groups may have them in half as many runs."""
_EXPECTED_TOGETHER = 2_048
"""Delays of a batch on its way that are noted at once: about two milliseconds."""


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
    is_retried: bool = False
    """A job tries again what was refused, so each letter would count many times."""
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
    epoch: int = 0
    """Of the group then: it is another one when the group was sought meanwhile."""
    requests: list[tuple[Waiting, int]] = field(default_factory=list)
    """Those that went along, and which message each was."""

    def return_requests(self) -> None:
        for waiting, sequence in self.requests:
            waiting.place(self.queue.name, self.queue.place_for_requests(), sequence)


_NO_REQUESTS = Places()
NO_UNSEEN: deque[Added] = deque()
"""Of a queue with nothing on its way, which is what most of many queues have: a deque of its own is 760 bytes."""
NO_HOLES: list[Run] = []
_NO_INSTANTS = Instants()
_NO_ALARMS: PartAlarms[Group | Consumer] = PartAlarms()
_NO_TALLY = GroupCounters()
_NO_RANKS: "dict[str, Ranks]" = {}


class Ranks:
    """Of the consumers of passing groups that want the same messages, how many have which priority."""

    __slots__ = ("counts", "since")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.since = 1
        """What was published before it was for those that now have a lower priority than others."""

    def outranked_since(self, priority: int) -> int:
        """END: no other has a higher one."""
        return self.since if len(self.counts) > 1 and priority < max(self.counts) else END


class Queue(Backlog["Added"]):
    __slots__ = (
        "alarms",
        "armed_at",
        "armed_behind",
        "attendant_count",
        "attended",
        "collect_at",
        "consumer_count",
        "created_at",
        "dead",
        "dedup",
        "delayed",
        "deleted",
        "expiries",
        "expiring",
        "holes",
        "incarnation",
        "leaving",
        "levels",
        "log",
        "log_trim",
        "name",
        "next_group_id",
        "owner",
        "published",
        "queue_id",
        "ranks",
        "redirected",
        "refused",
        "requests",
        "retired",
        "starts_max",
        "swept",
        "tail",
        "unused_since",
        "upcoming",
        "walk",
        "whole",
    )

    def __init__(self, queue_id: int, name: str, options: QueueOptions, created_at: int, incarnation: str) -> None:
        super().__init__(options, NO_UNSEEN)
        self.queue_id = queue_id
        self.name = name
        self.created_at = created_at
        self.incarnation = incarnation
        self.deleted = False
        self.leaving = 0
        """Batches on their way that have taken messages out of it. These come back if the batch cannot be stored, so
        what is noted of them is kept until then."""
        self.next_group_id = DEFAULT_GROUP
        self.ranks = _NO_RANKS
        """Of those that receive in passing groups, by the text of their selector."""
        self.whole: Group | None = None
        """A group that had all that any group has when it was made: as long as it has lost nothing, it still has."""
        self.starts_max = 0
        """No group starts above it."""
        self.tail: Tail[Group] | None = None
        """Shows new messages to the groups, once there has been a second one."""
        # What most queues never need is shared by all of them, never put into, and replaced where it is.
        self.levels: Levels | None = {} if options.mode is DeliveryMode.PRIORITY_BASED else None
        """Sequences of each priority but NORMAL; None when the order does not depend on it."""
        self.log: RunSet | None = RunSet() if options.retention is Retention.LOG else None
        """What log retention keeps."""
        self.holes: list[Run] = NO_HOLES
        """Sequences whose messages could not be stored, to be recorded with the next ones that can."""
        self.expiries = NO_EXPIRIES
        self.expiring: Expiring | None = None
        self.swept = 0
        """The queue's TTL has passed for everything up to here."""
        self.delayed: Instants = _NO_INSTANTS
        """deliver_at of visible messages that were published with a delay, until they are gone."""
        self.upcoming: Upcoming | None = None
        """Which of these, and of those on their way, end next; made when there are some."""
        self.dedup = NO_DEDUP_WINDOW
        self.requests = _NO_REQUESTS
        """Messages whose publishers wait for a reply, by sequence."""
        self.dead = 0
        self.armed_at = END
        self.armed_behind: Behind = None
        self.alarms = _NO_ALARMS
        self.published = 0
        """Stored, or in memory for good where nothing is stored; what is on its way comes when it has arrived."""
        self.refused = 0
        self.redirected = 0
        """Published straight into the DLQ."""
        self.retired = _NO_TALLY
        """Of groups that are gone."""
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

    def rest(self) -> None:
        """Give back the containers of messages when there is no message: most of many queues are used now and then.

        The one group is asked; queues with several keep them.
        """
        if self.unseen or self.log is not None or len(self.groups) != 1 or self.tail is not None:
            return
        if self.leaving or self.walk or self.count or self._counted or self.trim or self.expiring:
            return
        (group,) = self.groups.values()
        if group.unsettled or group.cursor is not None or group.routes is not None:
            return
        group.rest()
        self.sizes, self.collect_at = NO_SIZES, _COLLECT_AT_LEAST
        self.expiries = NO_EXPIRIES
        self.delayed, self.upcoming = _NO_INSTANTS, None
        if self.levels:
            self.levels.clear()
        if not self.alarms:
            self.alarms = _NO_ALARMS
        if not self.parked:
            self.parked = NO_PARKED
        if not self.dedup:
            self.dedup = NO_DEDUP_WINDOW

    # -- notes about messages -------------------------------------------------------------------------------------

    def hide(self, added: Added) -> None:
        """New messages are on their way."""
        if self.unseen is NO_UNSEEN:
            self.unseen = deque()
        self.unseen.append(added)
        self.unseen_count += added.last - added.first + 1

    def measure(self, first: int, last: int, size: int, published_at: int) -> bool:
        """Note the bytes and the age of new messages. Returns whether a delay may have ended since those before."""
        if self.sizes is NO_SIZES:
            self.sizes = Sizes()
        # Those published before and after a delay ended do not share a chunk: what fell due comes between them.
        apart = self.upcoming is not None and self._may_have_ended(self.upcoming, published_at)
        self.sizes.add(first, last, size, published_at, span_for(self.options.message_ttl_ms), apart=apart)
        return apart

    def place_for_requests(self) -> Places:
        if self.requests is _NO_REQUESTS:
            self.requests = Places()
        return self.requests

    def _may_have_ended(self, upcoming: Upcoming, now: int) -> bool:
        passed = upcoming.pass_by(now, self.delayed)
        return passed or (bool(self.unseen) and self.unseen[0].first <= upcoming.unknown_to)

    def expect(self, due: Values, now: int, last: int) -> None:
        """Delays that are on their way end then; of a batch that ends with the sequence `last`."""
        if self.upcoming is None:
            self.upcoming = Upcoming(0 if self.delayed else now)
        if isinstance(due, int) or len(due) <= _EXPECTED_TOGETHER:
            self.upcoming.add_all(due)
        else:
            # They are added with the parts in which the batch is shown; until then any of them may have ended.
            self.upcoming.unknown_to = last

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

    def rank(self, consumer: Consumer, change: int) -> None:
        """One consumer more, or less, receives in passing groups."""
        if self.ranks is _NO_RANKS:
            self.ranks = {}
        text, priority = _wanted(consumer), consumer.priority
        ranks = self.ranks.get(text)
        if ranks is None:
            ranks = self.ranks[text] = Ranks()
        if change > 0 and all(priority > other for other in ranks.counts):
            ranks.since = self.next_sequence
        count = ranks.counts.get(priority, 0) + change
        if count:
            ranks.counts[priority] = count
        else:
            del ranks.counts[priority]
            if not ranks.counts:
                del self.ranks[text]

    def outranked_since(self, consumer: Consumer) -> int:
        """From which message on others that want the same have a higher priority; END: none has."""
        ranks = self.ranks.get(_wanted(consumer))
        return END if ranks is None else ranks.outranked_since(consumer.priority)

    def regained(self) -> None:
        super().regained()
        if self.walk is not None:
            self.walk.begin_again()

    def alive(self, start: int, now: int) -> RunSet:
        """Visible sequences from `start` on that a group could still be given, and may be given at once. Whoever gives
        them to one says so: see `regained`."""
        if start >= self.open_end():
            return RunSet()
        if self.log is not None:
            alive = RunSet(self.log.overlap(start, END))
        else:
            alive = self._unsettled()
            alive.remove(0, start - 1)
        return self._without_expired(alive, now)

    def alive_within(self, first: int, last: int, now: int) -> RunSet:
        """The part of `alive` in [first, last]. Costs what is there in each group."""
        alive = RunSet() if self.log is None else RunSet(self.log.overlap(first, last))
        if self.log is None:
            for group in self.who_may_want():
                alive.add_all(group.unsettled_within(first, last).runs())
        return self._without_expired(alive, now)

    def _without_expired(self, alive: RunSet, now: int) -> RunSet:
        alive.remove(1, self.swept)
        for run in self.expiries.overdue(now):
            alive.remove(*run)
        return alive

    def cut_runs(self, first: int, last: int, most: int) -> int:
        """How far of [first, last] about `most` runs reach, of the log or of what waits in each group."""
        if self.log is not None:
            return self.log.cut_runs(first, last, most)[0]
        for group in self.who_may_want():
            last, _ = group.ready.cut(first, last, most)
        return last

    def open_end(self) -> int:
        """First sequence that no stored or storable message has: where a group "from now" begins."""
        # What could not be stored at the end leaves no trace on disk: a restart allots these numbers again.
        return end_before(self.next_sequence, self.holes) if self.holes else self.next_sequence

    def set_alarm(self, at: int, order: int, part: Group | Consumer) -> None:
        if self.alarms is _NO_ALARMS:
            self.alarms = PartAlarms()
        self.alarms.set(at, order, part)

    # -- expiry ---------------------------------------------------------------------------------------------------

    @property
    def expires(self) -> Instants:
        """Sequence -> when the message itself expires; see `Expiries`."""
        return self.expiries.instants

    def expire(self, sequences: Sequence[int], instants: Values) -> None:
        """New messages, which expire then."""
        if self.expiries is NO_EXPIRIES:
            self.expiries = Expiries(Instants())
        self.expiries.add(sequences, instants)

    def set_expiries(self, expires: Instants) -> None:
        """Those of all messages, after a start."""
        if expires:
            self.expiries = Expiries(expires.copy())

    def next_expiry(self) -> int:
        """No waiting message expires before it."""
        at = self.expiries.next_at() if self.expiries is not NO_EXPIRIES else END
        ttl = self.options.message_ttl_ms
        if ttl:
            published_at = self.sizes.next_at(self.swept)
            if published_at is not None:
                at = min(at, published_at + ttl)
        return at

    def pop_expired(self, now: int, most: int) -> list[int]:
        """Up to `most` sequences whose own expiry has come."""
        return self.expiries.pop(now, most) if self.expiries is not NO_EXPIRIES else []

    def is_expired(self, sequence: int, now: int) -> bool:
        return sequence <= self.swept or 0 < self.expires.get(sequence) <= now

    # -- memory ---------------------------------------------------------------------------------------------------

    def weight(self) -> int:
        """How much is noted."""
        levels = sum(members.run_count for members in self.levels.values()) if self.levels else 0
        return len(self.sizes) + self.sizes.mark_count // 8 + len(self.expires) + len(self.delayed) + levels

    def stretch_of_notes(self, first: int, end: int) -> int:
        """How far of [first, end] some hundred notes reach."""
        begin = self.sizes.first_from(first)
        last = min(end, self.sizes.reach_of_chunks(first, _CHUNKS_TOGETHER))
        if expiring := self.expires.lowest(_NOTES_TOGETHER, first):
            begin = min(begin, expiring[0])
            last = min(last, expiring[-1]) if len(expiring) == _NOTES_TOGETHER else last
        # To forget delays costs half as much, and less where they have one instant.
        if delayed := self.delayed.reach(first, 2 * _NOTES_TOGETHER):
            begin, last = min(begin, delayed[0]), min(last, delayed[1])
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
        for run in without(runs_of_ascending(self.expires.within(first, last)), kept):
            self.expiries.forget(*run)
        delayed = self.delayed.within(first, last)
        if len(gone := without(runs_of_ascending(delayed), kept)) == 1:
            self.delayed.remove_all(range(gone[0][0], gone[0][1] + 1))
        elif gone:
            self.delayed.remove_all([s for start, stop in gone for s in range(start, stop + 1)])
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


def _wanted(consumer: Consumer) -> str:
    return "" if consumer.selector is None else consumer.selector.text
