"""What a client was told, and the verdict on what a store still has after a crash.

A message's life is a list of events: publish, then ack, reject (into the dead letters) or replay (out of them). Each
was issued at one instant and known to be done at a later one. A crash may undo the last events of a message, never one
that was safe, and a store may show only a state that the message was in:

    safe, kill -9      a strong or weak publish that was confirmed; anything else once such a publish that was sent
                       after it is confirmed, because the journal keeps the order
    safe, power cut    the same with strong publishes only; a confirmed weak one also when its flush interval is over

And it is a prefix: when an event is visible, so is every event that was done before that one was issued.
All instants are CLOCK_MONOTONIC nanoseconds, which every process of the machine shares.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

EventKind = Literal["publish", "ack", "reject", "replay"]
FOREVER = 1 << 62
"""Has not happened, and never will."""
READ_BY_RANGE = "ranges"
"""A queue with a reader of its own."""
FIRST_SEQUENCE = 1
THE_END = FOREVER - 1
"""After everything that happened."""


@dataclass(slots=True)
class Event:
    kind: EventKind
    issued_at: int
    done_at: int = FOREVER


@dataclass(slots=True)
class Message:
    id: str
    queue: str
    policy: str
    sequence: int = 0
    """0 = no receipt came."""
    events: list[Event] = field(default_factory=list)

    @property
    def issued_at(self) -> int:
        return self.events[0].issued_at if self.events else 0

    @property
    def confirmed_at(self) -> int:
        """FOREVER when it was not, or was refused."""
        return self.events[0].done_at if self.events else FOREVER


class Place(NamedTuple):
    """Where a message lies. `replays` counts how often it came back from the dead letters."""

    where: Literal["queue", "dead"]
    replays: int


class Found(NamedTuple):
    """One copy of a message in a store."""

    queue: str
    place: Place
    sequence: int
    intact: bool
    why: str = ""
    """Of a dead letter, where that is known."""


@dataclass(slots=True)
class Contents:
    """Everything a store has. Of `READ_BY_RANGE`, which nobody is handed messages of, it is how far its reader is."""

    queues: set[str] = field(default_factory=set)
    committed: int | None = None
    """None: nobody looked."""
    copies: dict[str, list[Found]] = field(default_factory=dict)

    def add(self, message_id: str, found: Found) -> None:
        self.copies.setdefault(message_id, []).append(found)


def body_of(message_id: str) -> dict[str, str]:
    """The body that goes with an id `<queue>-<number>-<size>`, so that content can be checked without a copy of it."""
    return {"id": message_id, "fill": "x" * int(message_id.rpartition("-")[2])}


class Account:
    """Events as the client saw them. Ids name queue and size, see `body_of`."""

    def __init__(self) -> None:
        self.acknowledged = self.acknowledging = 0
        """Up to where the reader of `READ_BY_RANGE` was told that it is, and up to where it has asked."""
        self.messages: dict[str, Message] = {}
        self.queues: dict[str, Event] = {}
        self._numbers: dict[str, int] = {}
        self._flushes: list[tuple[int, int]] = []
        self._frozen: dict[bool, list[Life]] = {}

    def new_id(self, queue: str, size: int) -> str:
        number = self._numbers[queue] = self._numbers.get(queue, 0) + 1
        return f"{queue}-{number}-{size}"

    def published(self, message_id: str, queue: str, policy: str, now: int) -> None:
        self.messages[message_id] = Message(message_id, queue, policy, events=[Event("publish", now)])

    def confirmed(self, message_id: str, sequence: int, now: int) -> None:
        message = self.messages[message_id]
        message.sequence = sequence
        message.events[0].done_at = now

    def refused(self, message_id: str) -> None:
        """It must be nowhere, now and later."""
        self.messages[message_id].events.clear()

    def creating(self, queue: str, now: int) -> Event:
        return self.queues.setdefault(queue, Event("publish", now))

    def issued(self, message_id: str, kind: EventKind, now: int) -> Event:
        event = Event(kind, now)
        self.messages[message_id].events.append(event)
        return event

    @property
    def confirmed_count(self) -> int:
        return sum(message.confirmed_at < FOREVER for message in self.messages.values())

    def flushed(self, asked_at: int, done_at: int) -> None:
        """Everything done before `asked_at` was on the disk at `done_at`: a clean stop, say."""
        self._flushes.append((asked_at, done_at))

    def copy(self) -> "Account":
        return deepcopy(self)

    def freeze(self) -> None:
        """No event is added any more: prepare for many verdicts."""
        self._frozen = {power_cut: self._lives(power_cut) for power_cut in (False, True)}

    def lives(self, *, power_cut: bool) -> "list[Life]":
        """Those of all messages, in the order of their publishing."""
        return self._frozen[power_cut] if self._frozen else self._lives(power_cut)

    def _lives(self, power_cut: bool) -> "list[Life]":
        marks = self._marks(power_cut)
        return [
            Life(
                message,
                [event.issued_at for event in message.events],
                [marks.safe_at(message, event) for event in message.events],
                list(_places(message.events)),
            )
            for message in self.messages.values()
        ]

    def rebase(self, contents: Contents, now: int) -> None:
        """After a crash and a sound verdict: what the store has is what happened, and it is safe from here on.

        What is gone has to stay away, whether it was settled or never written.
        """
        for message in self.messages.values():
            copies = contents.copies.get(message.id)
            shown = _states_of(message.events, copies[0].place) if copies else []
            del message.events[shown[-1] if shown else 0 :]
            for event in message.events:
                event.done_at = now
            if copies:
                message.sequence = copies[0].sequence
        # One that is not there has to be made again: a publish would make it with other options.
        self.queues = {name: event for name, event in self.queues.items() if name in contents.queues}
        for event in self.queues.values():
            event.done_at = min(event.done_at, now)
        self.flushed(now, now)

    def _marks(self, power_cut: bool) -> "Marks":
        policies = _durable_by_confirm(power_cut)
        publishes = [m for m in self.messages.values() if m.policy in policies and m.confirmed_at < FOREVER]
        marks = sorted([*self._flushes, *((m.issued_at, m.confirmed_at) for m in publishes)])
        earliest = [confirmed for _, confirmed in marks]
        for index in range(len(earliest) - 2, -1, -1):
            earliest[index] = min(earliest[index], earliest[index + 1])
        return Marks(policies, [sent for sent, _ in marks], earliest)


def _durable_by_confirm(power_cut: bool) -> tuple[str, ...]:
    return ("strong",) if power_cut else ("strong", "weak")


@dataclass(frozen=True, slots=True)
class Marks:
    """What makes events safe: confirmed publishes that took everything before them along."""

    policies: tuple[str, ...]
    """Whose publishes are safe by their own confirm."""
    sent: list[int]
    """Ascending."""
    earliest: list[int]
    """The earliest confirm of those sent then or later."""

    def safe_at(self, message: Message, event: Event) -> int:
        """When the event could not be undone any more."""
        if event.kind == "publish" and message.policy in self.policies:
            return event.done_at
        index = bisect_left(self.sent, event.done_at)
        return self.earliest[index] if index < len(self.earliest) else FOREVER


@dataclass(slots=True)
class Life:
    """A message, and what a verdict asks of it again and again."""

    message: Message
    issued_at: list[int]
    """Of every event."""
    safe_at: list[int]
    """From when on the event could not be undone any more."""
    places: list[Place | None]
    """Where the message is after none, one, two ... of its events; None = nowhere."""


@dataclass(slots=True)
class Verdict:
    """What a crash did to an account. Sentences name the messages."""

    confirmed: int = 0
    lost: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    worst_weak_ms: float = 0.0
    async_lost: int = 0
    weak_lost: int = 0

    @property
    def sound(self) -> bool:
        return not (self.lost or self.resurrected)

    def sentence(self) -> str:
        named = self.lost[:4] + self.resurrected[:4]
        return f"{len(self.lost)} lost, {len(self.resurrected)} resurrected: {'; '.join(named)}"


def judge(
    account: Account,
    contents: Contents,
    *,
    power_cut: bool,
    cut_at: int = THE_END,
    noticed_at: int = 0,
    weak_limit_ms: float = 0.0,
    trusted_until: int = THE_END,
) -> Verdict:
    """Compare a store after a crash with the account.

    Args:
        cut_at: the instant of the crash; events issued later cannot have happened. THE_END when the crash itself kept
            anything later from being confirmed.
        noticed_at: the instant that the age of lost weak messages is reckoned to; `cut_at` by default.
        weak_limit_ms: oldest confirmed weak message that a power cut may take; 0 = do not ask.
        trusted_until: what was confirmed later may be gone: the disk had begun to lie about its flushes.
    """
    trusted_until, noticed_at = min(trusted_until, cut_at), noticed_at or cut_at
    return _Judge(account, contents, power_cut, cut_at, trusted_until, noticed_at, weak_limit_ms).verdict()


class _Judge:
    def __init__(
        self,
        account: Account,
        contents: Contents,
        power_cut: bool,
        cut_at: int,
        trusted_until: int,
        noticed_at: int,
        weak_limit_ms: float,
    ) -> None:
        self._account = account
        self._contents = contents
        self._lives = account.lives(power_cut=power_cut)
        self._power_cut = power_cut
        self._cut_at = cut_at
        self._trusted_until = trusted_until
        self._noticed_at = noticed_at
        self._weak_limit_ms = weak_limit_ms
        self._out = Verdict()
        self._visible: dict[str, tuple[int, int]] = {}
        """How many events of the message show, at least and at most."""

    def verdict(self) -> Verdict:
        for name, event in self._account.queues.items():
            if event.done_at <= self._cut_at and name not in self._contents.queues:
                self._out.lost.append(f"queue {name} is gone")
        self._look_at_reader()
        for life in self._lives:
            if life.message.issued_at <= self._cut_at:
                self._look_at(life)
        for message_id in self._contents.copies.keys() - self._visible.keys():
            self._out.resurrected.append(f"{message_id} was never published")
        self._ask_for_a_prefix()
        return self._out

    def _look_at_reader(self) -> None:
        """An answered acknowledgement is written, so only a power cut may undo it."""
        told, asked, found = self._account.acknowledged, self._account.acknowledging, self._contents.committed
        if found is not None and found < told and not self._power_cut:
            self._out.lost.append(f"the reader was told that it is at {told}, and is at {found}")
        if found is not None and found > max(asked, FIRST_SEQUENCE):
            self._out.resurrected.append(f"the reader is at {found}, and has acknowledged up to {asked}")

    def _look_at(self, life: Life) -> None:
        message = life.message
        # Of one client, so one after another.
        issued = bisect_right(life.issued_at, self._cut_at)
        if message.confirmed_at <= self._cut_at:
            self._out.confirmed += 1
        copies = self._contents.copies.get(message.id, [])
        self._visible[message.id] = (0, issued)
        if len(copies) > 1:
            self._out.resurrected.append(f"{message.id} is there {len(copies)} times: {copies}")
            return
        place = copies[0].place if copies else None
        shown = [count for count in range(issued + 1) if life.places[count] == place]
        if not shown:
            did = [event.kind for event in message.events[:issued]]
            why = copies[0].why if copies else ""
            self._out.resurrected.append(f"{message.id} is in {place}, where it never was {did} {why}".rstrip())
            return
        self._visible[message.id] = (shown[0], shown[-1])
        self._check_copy(message, copies)
        self._check_safe(life, issued, shown, bool(copies))

    def _check_copy(self, message: Message, copies: list[Found]) -> None:
        for found in copies:
            if not found.intact:
                self._out.lost.append(f"{message.id} has another body")
            if found.queue != message.queue:
                self._out.resurrected.append(f"{message.id} is in queue {found.queue}")
            if message.sequence and not found.place.replays and found.sequence != message.sequence:
                self._out.resurrected.append(f"{message.id} was {message.sequence} and is {found.sequence}")

    def _check_safe(self, life: Life, issued: int, shown: list[int], present: bool) -> None:
        message = life.message
        safe = max((index for index in range(issued) if life.safe_at[index] <= self._trusted_until), default=-1) + 1
        if shown[-1] < safe:
            kinds = [event.kind for event in message.events[:issued]]
            what = f"{message.id} shows {shown} of {kinds}, of which {safe} were safe"
            (self._out.resurrected if present else self._out.lost).append(what)
        elif not shown[-1] and message.confirmed_at <= self._trusted_until:
            self._note_expected_loss(message)

    def _note_expected_loss(self, message: Message) -> None:
        if message.policy == "async":
            self._out.async_lost += 1
            return
        self._out.weak_lost += 1
        if self._noticed_at == THE_END:
            return
        age_ms = (self._noticed_at - message.confirmed_at) / 1e6
        self._out.worst_weak_ms = max(self._out.worst_weak_ms, age_ms)
        if self._weak_limit_ms and age_ms > self._weak_limit_ms:
            self._out.lost.append(f"{message.id} is gone {age_ms:.0f} ms after its confirm")

    def _ask_for_a_prefix(self) -> None:
        latest = max(
            (self._account.messages[i].events[least - 1].issued_at for i, (least, _) in self._visible.items() if least),
            default=0,
        )
        for message_id, (_, most) in self._visible.items():
            for event in self._account.messages[message_id].events[most:]:
                if event.done_at < latest:
                    self._out.lost.append(f"{event.kind} of {message_id} is missing, what came after it is there")


def _states_of(events: list[Event], place: Place | None) -> list[int]:
    """After how many of the events the message is in that place; None = it is nowhere."""
    return [count for count, state in enumerate(_places(events)) if state == place]


def _places(events: list[Event]) -> Iterator[Place | None]:
    replays = 0
    yield None
    for event in events:
        if event.kind == "ack":
            yield None
            continue
        replays += event.kind == "replay"
        yield Place("dead" if event.kind == "reject" else "queue", replays)
