"""Subscriptions that are kept: one message for each in a queue of the plug-in's own.

The plug-in is the queue's one consumer. It holds every message for as long as the subscription lasts, and acknowledges
it when that ends; so the queue holds what there is, and nothing else. A changed subscription is published anew, and
the message before it is acknowledged when the new one has come back. After a restart, or a kill, all are handed out
again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from vibemq.errors import VibeMQError
from vibemq.model.commands import Publish, Settle, Settlement, Subscribe
from vibemq.model.effects import Deliver
from vibemq.model.options import OWN_QUEUE_PREFIX, Durability, LostConnection, Overflow, QueueOptions
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.topic_publish import ask_for_queue, refusal_in

QUEUE = f"{OWN_QUEUE_PREFIX}eventmesh-http.subscriptions"
CAPACITY = 1 << 40
_ATTEMPTS = 1 << 40
_VERSION = 1

Told = Callable[[VibeMQError | None], None]
Found = Callable[["KeptSubscription"], None]


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    user: str
    token_id: str
    """Of the access token that the user logged in with; "" = none."""
    group: str
    topic: str
    url: str


@dataclass(slots=True)
class KeptSubscription:
    key: SubscriptionKey
    sync: bool = False
    beating: bool = False
    """A heartbeat has come once: it ends when none comes any more."""

    def same_as(self, other: "KeptSubscription") -> bool:
        return (self.sync, self.beating) == (other.sync, other.beating)


def registry_options(defaults: QueueOptions) -> QueueOptions:
    durability = Durability.TRANSIENT if defaults.durability is Durability.TRANSIENT else Durability.STRONG
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
        "group": key.group,
        "topic": key.topic,
        "url": key.url,
        "sync": kept.sync,
        "beating": kept.beating,
    }
    return pack_row(record_id, orjson.dumps(fields))


def from_row(row: bytes) -> KeptSubscription | None:
    """None: it is none of ours."""
    try:
        fields = orjson.loads(RowView(row).payload)
        texts = [fields[name] for name in ("user", "token_id", "group", "topic", "url")]
        sync, beating = fields["sync"], fields["beating"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not (fields.get("version") == _VERSION and all(isinstance(text, str) for text in texts)):
        return None
    return KeptSubscription(SubscriptionKey(*texts), sync is True, beating is True)


class SubscriptionRegistry:
    """Args:
    found: told of each subscription that is in the queue when the broker starts.
    """

    def __init__(self, session: InnerSession, found: Found) -> None:
        self._session = session
        self._found = found
        self._held: dict[SubscriptionKey, int] = {}
        """The sequence of each subscription's message."""
        self._here: set[int] = set()
        """Messages that have been handed out."""
        self._unwanted: set[int] = set()
        """Messages that are to go as soon as they are handed out."""
        self._mine: set[str] = set()
        """Ids of messages that are published and not handed out yet."""
        self._first_new = 0
        """From this sequence on, only messages that this object has published count; 0: not known yet."""
        self._consumer = 0
        self._broken: VibeMQError | None = None
        """Why nothing can be kept."""

    def start(self) -> None:
        session = self._session
        ask_for_queue(session, session.number, QUEUE, registry_options(session.context.queue_defaults), self._created)

    def _created(self, result: Any) -> None:
        if isinstance(result, VibeMQError):
            self._broken = result
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
            self._broken = result
            return
        self._first_new = result.next_sequence

    def _ended(self, error: VibeMQError) -> None:
        """Somebody has deleted the queue: what is subscribed goes on until the broker ends, and is kept anew."""
        for known in (self._held, self._here, self._unwanted, self._mine):
            known.clear()
        self._first_new = 0
        self.start()

    def keep(self, kept: KeptSubscription, told: Told) -> None:
        """`told` when it is durable, or why it cannot be kept."""
        session = self._session
        if self._broken is not None:
            told(self._broken)
            return
        record_id = session.context.new_id()
        self._mine.add(record_id)
        rows = Rows.of([to_row(kept, record_id)])

        def published(result: Any) -> None:
            error = refusal_in(result)
            if error is not None:
                self._mine.discard(record_id)
                told(error)
                return
            self._now_held(kept.key, result.first_sequence)
            told(None)

        session.ask(Publish(session.number, published, QUEUE, rows, create=False))

    def drop(self, key: SubscriptionKey, told: Callable[[], None]) -> None:
        """It is over; `told` when that is durable."""
        sequence = self._held.pop(key, None)
        if sequence is None:
            told()
        else:
            self._let_go(sequence, told)

    def _let_go(self, sequence: int, told: Callable[[], None] | None = None) -> None:
        session = self._session
        if sequence in self._here:
            self._here.discard(sequence)
            token = None if told is None else lambda _: told()
            session.ask(Settle(session.number, token, self._consumer, Settlement.ACK, [(sequence, sequence)]))
            return
        self._unwanted.add(sequence)
        if told is not None:
            told()

    def _now_held(self, key: SubscriptionKey, sequence: int) -> None:
        before = self._held.get(key, 0)
        if before == sequence:
            return
        self._held[key] = max(before, sequence)
        if before:
            self._let_go(min(before, sequence))

    def _delivered(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        for piece in slices:
            for sequence, row in enumerate(piece.rows, piece.first_sequence):
                self._take(sequence, row)

    def _take(self, sequence: int, row: bytes) -> None:
        self._here.add(sequence)
        kept = from_row(row)
        new = bool(self._first_new) and sequence >= self._first_new
        record_id = RowView(row).message_id
        if kept is None or (new and record_id not in self._mine):
            self._here.discard(sequence)
            why = "only the plug-in eventmesh-http itself publishes here"
            self._session.settle(self._consumer, sequence, Settlement.REJECT, reason=why)
            return
        self._mine.discard(record_id)
        if sequence in self._unwanted:
            self._unwanted.discard(sequence)
            self._let_go(sequence)
        else:
            self._now_held(kept.key, sequence)
            if not new and self._held.get(kept.key) == sequence:
                self._found(kept)
