"""What a configure asks for: the consumers of a stream, each with its own limits, priority and condition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vibemq.model.commands import SharedCapacity, StartAt, Subscribe
from vibemq.model.selector import Selector
from vibemq.protocols.blazingmq.codec.messages import (
    ConsumerInfo,
    ExpressionVersion,
    QueueStreamParameters,
    StreamSubscription,
)
from vibemq.protocols.blazingmq.errors import WrongRequest
from vibemq.protocols.blazingmq.settings import DomainMode
from vibemq.protocols.blazingmq.streams import Stream

SUBSCRIPTIONS_MAX = 256
"""Of one stream, with all their consumers."""
_AT_MOST = f"at most {SUBSCRIPTIONS_MAX} are served"
_START = {
    DomainMode.PRIORITY: StartAt.DEFAULT,
    # The group of an application is there, unless its first reader may not make it with the queue.
    DomainMode.FANOUT: StartAt.BEGINNING,
    DomainMode.BROADCAST: StartAt.NOW,
}


@dataclass(frozen=True, slots=True)
class ReaderWish:
    """One subscription of a configure."""

    s_id: int
    messages: int
    size: int
    priority: int
    weight: int
    where: Selector | None = None

    @property
    def receives(self) -> bool:
        """A limit of 0 is a pause, in messages as in bytes."""
        return self.messages > 0 and self.size > 0

    def limits(self, messages_max: int) -> tuple[int, int]:
        """(messages, bytes) of the share; `messages_max`: most of them, however many are wanted."""
        return (min(self.messages, messages_max), self.size) if self.receives else (0, max(1, self.size))

    def subscribe(
        self,
        session: int,
        token: Any,
        stream: Stream,
        consumer: int,
        place: int,
        limits: tuple[int, int] | None,
        beside: int | None,
    ) -> Subscribe:
        """The command for it, which hands out nothing yet.

        Args:
            place: among the subscriptions of the stream; the one that had it before shares its limits with this one.
            limits: None: those that its predecessor has, until this one takes its place.
            beside: another consumer of the stream. In a broadcast a message is for one of them.
        """
        messages, size = limits or (None, None)
        return Subscribe(
            session,
            token,
            consumer,
            stream.queue,
            group=stream.group,
            capacity_messages=0,
            share=SharedCapacity(share_name(stream, place), messages, size),
            priority=self.priority,
            weight=self.weight,
            where=self.where,
            # Held until they are confirmed, or the stream or the connection ends.
            ack_timeout_ms=0,
            start=_START[stream.domain.mode],
            create=False,
            # Who may not create queues has not been told at the opening that this one is another kind.
            mode=stream.domain.delivery_mode,
            beside=beside,
        )


def share_name(stream: Stream, place: int) -> str:
    return f"{stream.q_id}/{stream.sub_id}/{place}"


def read_wishes(subscriptions: Sequence[StreamSubscription], wishes: list[ReaderWish]) -> Iterator[None]:
    """Append what they ask for, that of one subscription at a step: an expression may take a tenth of a millisecond.

    Raises:
        WrongRequest, InvalidSelector
    """
    if len(subscriptions) > SUBSCRIPTIONS_MAX:
        raise WrongRequest(f"{len(subscriptions)} subscriptions of one stream; {_AT_MOST}")
    if len({subscription.s_id for subscription in subscriptions}) < len(subscriptions):
        raise WrongRequest("two subscriptions of the stream have the same sId")
    for subscription in subscriptions:
        wishes += _wishes(subscription)
        if len(wishes) > SUBSCRIPTIONS_MAX:
            raise WrongRequest(f"too many consumers in the subscriptions of one stream; {_AT_MOST}")
        yield


def _wishes(subscription: StreamSubscription) -> list[ReaderWish]:
    """One for each of its consumers; all have its sId. Without a text everything is wanted."""
    expression = subscription.expression
    where = None
    if expression.version is not ExpressionVersion.E_UNDEFINED and expression.text:
        where = Selector.parse(expression.text)
    return [
        ReaderWish(
            subscription.s_id,
            max(0, info.max_unconfirmed_messages),
            max(0, info.max_unconfirmed_bytes),
            info.consumer_priority,
            max(1, info.consumer_priority_count),
            where,
        )
        for info in subscription.consumers or (ConsumerInfo(),)
    ]


def wishes_of_legacy(sub_id: int, parameters: QueueStreamParameters) -> list[ReaderWish]:
    """Of a configureQueueStream, whose deliveries carry the subId of openQueue."""
    if not parameters.consumer_priority_count:
        return []
    return [
        ReaderWish(
            sub_id,
            max(0, parameters.max_unconfirmed_messages),
            max(0, parameters.max_unconfirmed_bytes),
            parameters.consumer_priority,
            max(1, parameters.consumer_priority_count),
        )
    ]
