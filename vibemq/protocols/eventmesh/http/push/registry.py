"""Subscriptions that are kept: one message for each in a queue of the plug-in's own.

The plug-in is the queue's one consumer. It holds every message for as long as the subscription lasts, and acknowledges
it when that ends; so the queue holds what there is, and nothing else. A changed subscription is published anew, and
the message before it is acknowledged when the new one has come back. After a restart, or a kill, all are handed out
again.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from vibemq.errors import RequestFailed, VibeMQError
from vibemq.model.commands import CreateQueue, Publish, Settle, Settlement, Subscribe
from vibemq.model.effects import Deliver
from vibemq.model.options import OWN_QUEUE_PREFIX, Durability, LostConnection, Overflow, QueueOptions
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.topic_publish import refusal_in
from vibemq.protocols.session import SessionContext

log = logging.getLogger("vibemq.plugin")

QUEUE = f"{OWN_QUEUE_PREFIX}eventmesh-http.subscriptions"
CAPACITY = 1 << 40
_ATTEMPTS = 1 << 40
_VERSION = 2
_WITHOUT_SINCE = 1
"""The version of rows that do not say when their user was made."""
_ENDED_EARLY = "the subscription was ended while it was made; ask again"
RETRY_MS = 30_000
MOVE_MS = 1_000
"""Before a new session takes the place of one that has failed: what fails at once again must not do so without end."""

UserKey = tuple[str, str, int]
"""User, token, and when the user was made."""
GroupKey = tuple[str, str, int, str, str]
"""The same, topic and group."""
UNKNOWN_SINCE = -1
"""Of no user that there is."""
Told = Callable[[VibeMQError | None], None]
Found = Callable[["KeptSubscription"], None]
SinceOf = Callable[[str, str, int], int]


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    user: str
    token_id: str
    """Of the access token that the user logged in with; "" = none."""
    since: int
    """When the user was made: somebody else may be given the name later. UNKNOWN_SINCE: it cannot be said any more."""
    group: str
    topic: str
    url: str

    @property
    def of_user(self) -> UserKey:
        return self.user, self.token_id, self.since

    @property
    def of_group(self) -> GroupKey:
        return *self.of_user, self.topic, self.group


@dataclass(slots=True)
class KeptSubscription:
    key: SubscriptionKey
    sync: bool = False
    beating: bool = False
    """A heartbeat has come once: it ends when none comes any more."""

    def same_as(self, other: "KeptSubscription") -> bool:
        return (self.sync, self.beating) == (other.sync, other.beating)


def registry_options(context: SessionContext) -> QueueOptions:
    """Whatever the broker's defaults are: a subscription outlives the broker, if its storage does."""
    durability = Durability.TRANSIENT if context.transient_only else Durability.STRONG
    return QueueOptions(
        durability=durability,
        overflow=Overflow.DROP_NEWEST,
        dead_letter=False,
        max_attempts=_ATTEMPTS,
        lost_connection=LostConnection.RELEASE,
        ack_timeout_ms=0,
        dedup_window_ms=0,
    )


def to_row(kept: KeptSubscription, record_id: str) -> bytes:
    key = kept.key
    fields = {
        "version": _VERSION,
        "user": key.user,
        "token_id": key.token_id,
        "since": key.since,
        "group": key.group,
        "topic": key.topic,
        "url": key.url,
        "sync": kept.sync,
        "beating": kept.beating,
    }
    return pack_row(record_id, orjson.dumps(fields))


def from_row(row: bytes, published_at: int, since_of: SinceOf) -> KeptSubscription | None:
    """None: it is none of ours."""
    try:
        fields = orjson.loads(RowView(row).payload)
        version = fields["version"]
        user, token_id, group, topic, url = texts = [
            fields[name] for name in ("user", "token_id", "group", "topic", "url")
        ]
        sync, beating = fields["sync"], fields["beating"]
        since = fields["since"] if version != _WITHOUT_SINCE else UNKNOWN_SINCE
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if version not in (_VERSION, _WITHOUT_SINCE) or not isinstance(since, int):
        return None
    if not all(isinstance(text, str) for text in texts):
        return None
    if version == _WITHOUT_SINCE:
        since = since_of(user, token_id, published_at)
    return KeptSubscription(SubscriptionKey(user, token_id, since, group, topic, url), sync is True, beating is True)


class SubscriptionRegistry:
    """Args:
    found: told of each subscription that is in the queue when the broker starts.
    lost: called when the queue was deleted with all that it held, and is there again.
    since_of: of a user, a token and an instant: when the user was made, if it is the one that there was then; else
        UNKNOWN_SINCE.
    """

    def __init__(self, session: InnerSession, found: Found, lost: Callable[[], None], since_of: SinceOf) -> None:
        self._session = session
        self._since_of = since_of
        self._found = found
        self._lost = lost
        self._waiting: dict[object, Told] = {}
        """Who wants to know what the engine says."""
        self._was_lost = False
        self._early: deque[tuple[KeptSubscription, Told]] = deque()
        """What is to be kept as soon as the queue is there, some in each turn; until then it can be dropped."""
        self._held: dict[SubscriptionKey, int] = {}
        """The sequence of each subscription's message."""
        self._here: set[int] = set()
        """Messages that have been handed out."""
        self._unwanted: dict[int, Told] = {}
        """Messages that are to go as soon as they are handed out, and those that are on their way out."""
        self._mine: dict[str, SubscriptionKey] = {}
        """Messages that are published and not handed out yet, by their ids."""
        self._coming: dict[SubscriptionKey, set[str]] = {}
        """Those of them whose sequences are not known yet, by their subscriptions."""
        self._ended_early: dict[str, Told] = {}
        """Those of these whose subscriptions have ended, and who wants to know that they are gone."""
        self._unknown: dict[SubscriptionKey, set[str]] = {}
        """Messages that were under way when another session took over, and may be in the queue or not."""
        self._first_new = 0
        """From this sequence on, only messages that this object has published count; 0: not known yet."""
        self._consumer = 0
        self._broken: VibeMQError | None = None
        """Why nothing can be kept."""

    def start(self) -> None:
        session = self._session
        session.ask(CreateQueue(session.number, self._created, QUEUE, registry_options(session.context), implied=True))

    def _fail(self, error: VibeMQError) -> None:
        """Nothing can be kept for now."""
        self._broken = error
        log.error("subscriptions cannot be kept: %s", error)
        early, self._early = self._early, deque()
        session = self._session
        session.call_for_each(early, lambda each: each[1](error))
        session.call_at(session.now + RETRY_MS, partial(self._start_in, session))

    def _start_in(self, session: InnerSession) -> None:
        if session is self._session:
            self.start()

    def _created(self, result: Any) -> None:
        if isinstance(result, VibeMQError):
            self._fail(result)
            return
        session = self._session
        self._consumer = session.consumer(self._delivered, self._ended)
        session.ask(
            Subscribe(
                session.number,
                self._subscribed,
                self._consumer,
                QUEUE,
                capacity_messages=CAPACITY,
                ack_timeout_ms=0,
                create=False,
            )
        )

    def _subscribed(self, result: Any) -> None:
        if isinstance(result, VibeMQError):
            self._fail(result)
            return
        self._broken, self._first_new = None, result.next_sequence
        self._session.call_for_each(range(len(self._early)), self._keep_early)
        if self._was_lost:
            self._was_lost = False
            self._lost()

    def _ended(self, error: VibeMQError) -> None:
        """Somebody has deleted the queue, or its rights do not reach."""
        self._was_lost = True
        gone, self._unwanted = self._unwanted, {}
        early, self._ended_early = self._ended_early, {}
        for known in (self._held, self._here, self._mine, self._coming, self._unknown):
            known.clear()
        self._first_new = 0
        self.start()
        for sequence, told in gone.items():
            if sequence not in self._waiting:
                told(None)
        for told in early.values():
            told(None)

    def move_to(self, session: InnerSession, why: VibeMQError) -> None:
        """The session is gone, and another one takes its place; what is in the queue is handed out to that. What ends
        meanwhile is let go when it comes."""
        waiting, self._waiting = self._waiting, {}
        self._session = session
        for key, coming in self._coming.items():
            self._unknown.setdefault(key, set()).update(coming)
        for known in (self._here, self._mine, self._coming):
            known.clear()
        self._unwanted.update(dict.fromkeys(self._unwanted.keys() & waiting.keys(), _nobody))
        early = {record_id: told for record_id, told in self._ended_early.items() if told is not _nobody}
        self._ended_early = dict.fromkeys(self._ended_early, _nobody)
        self._broken, self._first_new = None, 0
        session.call_at(session.now + MOVE_MS, partial(self._start_in, session))
        for told in (*waiting.values(), *early.values()):
            told(why)

    def holds(self, key: SubscriptionKey) -> bool:
        return key in self._held

    def keep(self, kept: KeptSubscription, told: Told) -> None:
        """`told` when it is durable, or why it cannot be kept: it may have been dropped meanwhile."""
        if self._broken is not None:
            told(self._broken)
        elif not self._first_new:
            self._early.append((kept, told))
        elif self._early:
            # In its order: of one subscription, what is kept last counts.
            self._early.append((kept, told))
            self._session.call_soon(self._keep_early)
        else:
            self._publish(kept, told)

    def _keep_early(self, *_: int) -> None:
        """The first one, if there is one left."""
        if self._early and self._first_new:
            self._publish(*self._early.popleft())

    def _publish(self, kept: KeptSubscription, told: Told) -> None:
        session = self._session
        record_id = session.context.new_id()
        self._mine[record_id] = kept.key
        self._coming.setdefault(kept.key, set()).add(record_id)
        self._waiting[record_id] = told
        rows = Rows.of([to_row(kept, record_id)])

        def published(result: Any) -> None:
            if self._waiting.pop(record_id, None) is None:
                return
            error = refusal_in(result)
            if error is not None:
                self._arrived(record_id)
                self._ended_early.pop(record_id, _nobody)(None)
                told(error)
                return
            if record_id in self._mine and record_id not in self._ended_early:
                # From now on it is known by its sequence.
                _discard(self._coming, kept.key, record_id)
                self._now_held(kept.key, result.first_sequence)
            is_held = self._held.get(kept.key, 0) >= result.first_sequence
            told(None if is_held else RequestFailed(_ENDED_EARLY))

        session.ask(Publish(session.number, published, QUEUE, rows, create=False))

    def drop(self, key: SubscriptionKey, told: Told) -> None:
        """It is over, and so is what of it is still to be kept; `told` when that is durable."""
        early, self._early = self._early, deque()
        for kept, told_kept in early:
            if kept.key == key:
                told_kept(RequestFailed(_ENDED_EARLY))
            else:
                self._early.append((kept, told_kept))
        sequence, coming = self._held.pop(key, None), self._coming.pop(key, set())
        each_told = _told_after(len(coming) + (sequence is not None), told)
        self._ended_early.update(dict.fromkeys(coming, each_told))
        self._ended_early.update(dict.fromkeys(self._unknown.pop(key, ()), _nobody))
        if sequence is not None:
            self._let_go(sequence, each_told)

    def _let_go(self, sequence: int, told: Told) -> None:
        session = self._session
        if sequence not in self._here:
            self._unwanted[sequence] = told
            return
        self._here.discard(sequence)
        self._unwanted[sequence] = told
        self._waiting[sequence] = told

        def settled(result: Any) -> None:
            if self._waiting.pop(sequence, None) is not None:
                self._unwanted.pop(sequence, None)
                told(result if isinstance(result, VibeMQError) else None)

        session.ask(Settle(session.number, settled, self._consumer, Settlement.ACK, [(sequence, sequence)]))

    def _now_held(self, key: SubscriptionKey, sequence: int) -> None:
        before = self._held.get(key, 0)
        if before == sequence:
            return
        self._held[key] = max(before, sequence)
        if before:
            self._let_go(min(before, sequence), _nobody)

    def _delivered(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        for piece in slices:
            for sequence, row in enumerate(piece.rows, piece.first_sequence):
                self._take(sequence, row, piece.published_at)

    def _take(self, sequence: int, row: bytes, published_at: int) -> None:
        self._here.add(sequence)
        kept = from_row(row, published_at, self._since_of)
        new = bool(self._first_new) and sequence >= self._first_new
        record_id = RowView(row).message_id
        if kept is None or (new and record_id not in self._mine):
            self._here.discard(sequence)
            why = "only the plug-in eventmesh-http itself publishes here"
            self._session.settle(self._consumer, sequence, Settlement.REJECT, reason=why)
            return
        over = self._ended_early.pop(record_id, None)
        self._arrived(record_id)
        _discard(self._unknown, kept.key, record_id)
        unwanted = self._unwanted.pop(sequence, over)
        if unwanted is not None:
            self._let_go(sequence, unwanted)
        else:
            self._now_held(kept.key, sequence)
            if not new and self._held.get(kept.key) == sequence:
                self._found(kept)

    def _arrived(self, record_id: str) -> None:
        """Or it was refused."""
        key = self._mine.pop(record_id, None)
        if key is not None:
            _discard(self._coming, key, record_id)


def _discard(ids_of: dict[SubscriptionKey, set[str]], key: SubscriptionKey, record_id: str) -> None:
    ids = ids_of.get(key)
    if ids is not None:
        ids.discard(record_id)
        if not ids:
            del ids_of[key]


def _told_after(count: int, told: Told) -> Told:
    """To be called so often: then `told` hears the last error, if there was one. At once, if nothing is to come."""
    left, failed = count, None

    def one_told(error: VibeMQError | None) -> None:
        nonlocal left, failed
        left, failed = left - 1, error or failed
        if not left:
            told(failed)

    if not count:
        told(None)
    return one_told


def _nobody(error: VibeMQError | None) -> None:
    """Nobody waits for it."""
