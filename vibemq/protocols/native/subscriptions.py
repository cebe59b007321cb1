"""The subscriptions of one connection, and queues that are gone but still wanted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from vibemq.errors import InvalidMessage, LimitError
from vibemq.protocols.native.codec.wire import str16

_WAIT_FIRST_MS = 1_000
_WAIT_MAX_MS = 30_000
_ASKED_AT_ONCE = 100
"""In a millisecond or two."""


@dataclass(slots=True)
class NativeSubscription:
    """One consumer. A plain client has one per queue, known by the queue's name; with batch/1 the id names it."""

    consumer: int
    id: str
    queue: str
    queue_block: bytes
    plain: bool
    share: str = ""
    """What it shares its capacity with; "" = nothing."""
    active: bool = False
    """The engine has said yes."""
    asked_by: list[str] = field(default_factory=list)
    """Ids of the Subscribe frames that wait for the engine's answer."""


class NativeSubscriptions:
    def __init__(self, *, subscriptions_max: int) -> None:
        self._max = subscriptions_max
        self._next_consumer = 1
        self._by_consumer: dict[int, NativeSubscription] = {}
        self._by_queue: dict[str, NativeSubscription] = {}
        self._by_id: dict[str, NativeSubscription] = {}
        self._ended: dict[str, int] = {}
        """Id -> consumer of subscriptions that are over, or are being unsubscribed, and may hold messages."""
        self._ended_ids: dict[int, str] = {}
        """The same by consumer, plain ones included. Until the engine says that it holds nothing any more."""

    def __len__(self) -> int:
        return len(self._by_consumer)

    @property
    def full(self) -> bool:
        return len(self._by_consumer) >= self._max

    def check_room(self, besides: int) -> None:
        """`besides`: what counts beside them. Raises LimitError."""
        if len(self._by_consumer) + besides >= self._max:
            raise LimitError(f"a connection may have {self._max} subscriptions; open another connection")

    def add(self, message_id: str, queue: str, *, plain: bool, share: str = "") -> NativeSubscription:
        """Raises LimitError, or InvalidMessage when the id is in use."""
        self.check_room(0)
        if not plain and message_id in self._by_id:
            raise InvalidMessage(
                f"the subscription id {message_id[:64]!r} is in use on this connection; take a new one"
            )
        subscription = NativeSubscription(
            self._next_consumer, message_id, queue, str16(queue), plain, share, asked_by=[message_id]
        )
        self._next_consumer += 1
        self._by_consumer[subscription.consumer] = subscription
        if plain:
            self._by_queue[queue] = subscription
        else:
            self._by_id[message_id] = subscription
        return subscription

    def of_consumer(self, consumer: int) -> NativeSubscription | None:
        return self._by_consumer.get(consumer)

    def of_queue(self, queue: str) -> NativeSubscription | None:
        """A plain client's."""
        return self._by_queue.get(queue)

    def of_id(self, message_id: str) -> NativeSubscription | None:
        return self._by_id.get(message_id)

    def consumer_of(self, message_id: str) -> int | None:
        """For settlements: subscriptions that are over count too, as long as they hold something."""
        subscription = self._by_id.get(message_id)
        return subscription.consumer if subscription is not None else self._ended.get(message_id)

    def forget_name(self, subscription: NativeSubscription) -> None:
        """It is being unsubscribed: its queue or id may be used again, its deliveries still arrive."""
        if self._by_queue.get(subscription.queue) is subscription:
            del self._by_queue[subscription.queue]
            self._ended_ids[subscription.consumer] = subscription.id
        if self._by_id.get(subscription.id) is subscription:
            del self._by_id[subscription.id]
            self._ended[subscription.id] = subscription.consumer
            self._ended_ids[subscription.consumer] = subscription.id

    def remove(self, subscription: NativeSubscription) -> None:
        """It is over; nothing may be delivered for it any more."""
        self.forget_name(subscription)
        self._by_consumer.pop(subscription.consumer, None)

    def end(self, subscription: NativeSubscription) -> None:
        """As `remove`, when it holds nothing either."""
        self.remove(subscription)
        self.holds_nothing(subscription.consumer)

    def may_hold(self, consumer: int) -> bool:
        """Whether something that was delivered to it may be settled still."""
        return consumer in self._by_consumer or consumer in self._ended_ids

    def holds_nothing(self, consumer: int) -> None:
        """What is over by now, or is being unsubscribed, has nothing left that could be settled."""
        message_id = self._ended_ids.pop(consumer, None)
        if message_id is not None and self._ended.get(message_id) == consumer:
            del self._ended[message_id]


class Wanted:
    """Queues that were deleted under a plain client's subscription.

    Such a client cannot be told, and its subscription is to outlive the queue: it is asked for again, later and
    later, without creating the queue.
    """

    def __init__(self) -> None:
        self._due: dict[str, tuple[int, int]] = {}
        """Queue -> (when to ask, wait after that)."""

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, queue: str, now: int) -> None:
        _, wait_ms = self._due.get(queue, (0, _WAIT_FIRST_MS))
        self._due[queue] = (now + wait_ms, min(2 * wait_ms, _WAIT_MAX_MS))

    def discard(self, queue: str) -> None:
        self._due.pop(queue, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._due)

    def due(self, now: int) -> list[str]:
        """Queues to ask for now, some of them at a time; each stays until `discard`, and is due again after a longer
        wait."""
        queues = list(islice((queue for queue, (when, _) in self._due.items() if when <= now), _ASKED_AT_ONCE))
        for queue in queues:
            self.add(queue, now)
        return queues

    def next_due(self) -> int | None:
        if not self._due:
            return None  # As nearly always, and asked in every turn.
        return min(when for when, _ in self._due.values())
