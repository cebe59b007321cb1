"""Topics and subscriptions of one connection.

A subscription is asked for without credit, and gets some once its Subscribed frame is on its way. So no Message comes
before its Subscribed, whatever answer that one has to stand behind; and a replay that its queue cannot give is refused
before anything is handed out.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vibemq.errors import VibeMQError
from vibemq.model import effects
from vibemq.model.commands import SetCapacity, Settle, Settlement, StartAt, Subscribe, Unsubscribe
from vibemq.model.stored import Slice
from vibemq.protocols.omq import commands as said
from vibemq.protocols.omq.delivery_index import Held, OmqDeliveryIndex
from vibemq.protocols.omq.errors import Refusal
from vibemq.protocols.omq.frames import Topic, message_frames, subscribed_frame, unsubscribed_frame
from vibemq.protocols.omq.state import OmqState, Slot

TOPIC_BYTES_MAX = 1024
TOPICS_MAX = 65_536
"""Names that one connection may get ids for."""
MESSAGE_ID_MAX = (1 << 62) - 1
"""What every OCaml type of ids can hold."""
PASSING_WINDOW = 1_000
"""Messages of a fan-out queue with acks on their way to one subscriber. They are settled as they are written; what is
not written when the connection breaks counts as failed one by one, so it must not be many."""
_ENDLESS = 1 << 62
_SHARED_GROUP = ""
"""The engine's name for the group in which the subscribers of a round-robin queue take turns."""


@dataclass(slots=True, eq=False)
class OmqSubscription:
    consumer: int
    name: str
    replay: said.Replay
    topic: Topic | None = None
    """None while the engine has not said yes."""
    shared: bool = False
    """Takes turns with others (round robin); what it gets is held until an Ack."""
    leaving: bool = False
    """The client has unsubscribed, and is not to get any more."""
    later: deque[tuple[said.OmqSubscribe | said.OmqUnsubscribe, Slot]] = field(default_factory=deque)
    """What the client said about the topic before the engine's word on it."""


@dataclass(slots=True)
class OmqSubscribeAsked:
    """Token of a Subscribe."""

    subscription: OmqSubscription
    slot: Slot


@dataclass(slots=True)
class OmqUnsubscribeAsked:
    """Token of an Unsubscribe; without a slot it is the session that ends the subscription."""

    subscription: OmqSubscription
    slot: Slot | None


@dataclass(slots=True)
class CreditAsked:
    """Token of a SetCapacity."""


class OmqSubscriptions:
    def __init__(self, state: OmqState) -> None:
        self._state = state
        self.delivery_index = OmqDeliveryIndex()
        self._wanted: dict[str, OmqSubscription] = {}
        """By topic, those that the client has not ended."""
        self._by_consumer: dict[int, OmqSubscription] = {}
        """Those and the ones that are leaving."""
        self._topic_ids: dict[str, int] = {}
        self._put_off: deque[OmqSubscription] = deque()
        """Answered ones of which the client has said more meanwhile."""
        self._last_consumer = 0
        self._unanswered = 0
        self._to_end: deque[OmqSubscription] | None = None
        """Since the client's end of stream."""

    @property
    def used(self) -> bool:
        """Whether there ever was a subscription."""
        return self._last_consumer > 0

    # -- what the client says ---------------------------------------------------------------------------------------

    def subscribe(self, command: said.OmqSubscribe) -> None:
        self._say(topic_name(command.topic), command, self._state.expect())

    def unsubscribe(self, command: said.OmqUnsubscribe) -> None:
        self._say(topic_name(command.topic), command, self._state.expect())

    def _say(self, name: str, command: said.OmqSubscribe | said.OmqUnsubscribe, slot: Slot) -> None:
        subscription = self._wanted.get(name)
        if subscription is not None and subscription.topic is None:
            subscription.later.append((command, slot))
        elif isinstance(command, said.OmqSubscribe):
            self._subscribe(name, command.replay, slot)
        elif subscription is None:
            self._state.refuse(Refusal("not subscribed", name), slot=slot)
        else:
            del self._wanted[name]
            subscription.leaving = True
            self._ask_unsubscribe(subscription, slot)

    def _subscribe(self, name: str, replay: said.Replay, slot: Slot) -> None:
        refusal = self._refusal(name)
        if refusal is not None:
            self._state.refuse(refusal, slot=slot)
            return
        self._last_consumer += 1
        subscription = OmqSubscription(self._last_consumer, name, replay)
        self._wanted[name] = self._by_consumer[subscription.consumer] = subscription
        self._unanswered += 1
        self._state.ask(self._request(subscription, slot))

    def _refusal(self, name: str) -> Refusal | None:
        most = self._state.settings.subscriptions_max
        if name in self._wanted:
            return Refusal("already subscribed", name)
        if len(self._by_consumer) >= most:
            return Refusal("too many subscriptions", f"{most} at a time; open another connection")
        if name not in self._topic_ids and len(self._topic_ids) >= TOPICS_MAX:
            return Refusal("too many topics", f"a connection may name {TOPICS_MAX}; open another one")
        return None

    def _request(self, subscription: OmqSubscription, slot: Slot) -> Subscribe:
        start, first = StartAt.NOW, 0
        match subscription.replay:
            case said.FromBeginning():
                start = StartAt.BEGINNING
            case said.FromMessage(wanted):
                start, first = StartAt.SEQUENCE, min(max(1, wanted), MESSAGE_ID_MAX)
        return Subscribe(
            self._state.context.session,
            OmqSubscribeAsked(subscription, slot),
            subscription.consumer,
            subscription.name,
            credit=0,
            # Held until an Ack or the end of the connection: the silence of a client is judged by its heartbeat.
            ack_timeout_ms=0,
            start=start,
            start_sequence=first,
        )

    @property
    def has_put_off(self) -> bool:
        """The client has said something about a topic that waited for the engine's word on it, and can go on now."""
        return bool(self._put_off)

    def go_on(self, most: int) -> None:
        """With so many of these commands. The next of a topic that the engine has to answer takes the rest over whole:
        each command is looked at once, however many there are."""
        while self._put_off and most > 0:
            answered = self._put_off[0]
            name, later = answered.name, answered.later
            command, slot = later.popleft()
            most -= 1
            self._say(name, command, slot)
            subscription = self._wanted.get(name)
            if subscription is not None and subscription.topic is None:
                subscription.later = later
                self._put_off.popleft()
            elif not later:
                self._put_off.popleft()

    def acked(self, second: int | None) -> None:
        if second is not None:
            self._settle(Settlement.ACK, self.delivery_index.acked(second))

    # -- what the engine says ---------------------------------------------------------------------------------------

    def answered(self, token: Any, result: Any) -> None:
        """The reply to one of our commands: a result, or an error of the family."""
        match token:
            case OmqSubscribeAsked():
                self._unanswered -= 1
                if isinstance(result, effects.Subscribed):
                    self._subscribed(token.subscription, token.slot, result)
                else:
                    self._not_subscribed(token.subscription, token.slot, result)
                if token.subscription.later:
                    self._put_off.append(token.subscription)
            case CreditAsked():
                self._unanswered -= 1
            case OmqUnsubscribeAsked():
                self._unsubscribed(token.subscription, token.slot)

    def _subscribed(self, subscription: OmqSubscription, slot: Slot, result: effects.Subscribed) -> None:
        state, name = self._state, subscription.name
        subscription.shared = result.group == _SHARED_GROUP
        if subscription.shared and isinstance(subscription.replay, said.FromMessage):
            self._ask_unsubscribe(subscription, None)
            self._not_subscribed(subscription, slot, Refusal("replay needs a broadcast queue", name))
            return
        number = self._topic_ids.setdefault(name, len(self._topic_ids) + 1)
        subscription.topic = Topic(number, name.encode())
        state.answer(slot, subscribed_frame(subscription.topic), lambda: self._give_credit(subscription))

    def _not_subscribed(self, subscription: OmqSubscription, slot: Slot, error: VibeMQError) -> None:
        self._remove(subscription)
        self._state.refuse(error, subscription.name, slot)

    def _give_credit(self, subscription: OmqSubscription) -> None:
        state, settings = self._state, self._state.settings
        if subscription.leaving or state.failed:
            return
        self._unanswered += 1
        messages, size = PASSING_WINDOW, 0
        if subscription.shared:
            messages, size = settings.unsettled_messages_max, settings.unsettled_bytes_max
        session, token = state.context.session, CreditAsked()
        state.ask(SetCapacity(session, token, subscription.consumer, messages, size, add_credit=_ENDLESS))

    def _unsubscribed(self, subscription: OmqSubscription, slot: Slot | None) -> None:
        self._remove(subscription)
        if slot is not None and subscription.topic is not None:
            self._state.answer(slot, unsubscribed_frame(subscription.topic))

    def ended(self, consumer: int) -> None:
        """The queue is gone. A client that has just unsubscribed gets the answer to that."""
        self.delivery_index.forget(consumer)
        subscription = self._by_consumer.get(consumer)
        if subscription is not None and not subscription.leaving and subscription.topic is not None:
            self._remove(subscription)
            self._state.answer(self._state.expect(), unsubscribed_frame(subscription.topic))

    def _remove(self, subscription: OmqSubscription) -> None:
        self._by_consumer.pop(subscription.consumer, None)
        if self._wanted.get(subscription.name) is subscription:
            del self._wanted[subscription.name]

    # -- messages ---------------------------------------------------------------------------------------------------

    def deliver(self, deliver: effects.Deliver, slices: Sequence[Slice]) -> None:
        subscription = self._by_consumer.get(deliver.consumer)
        unwanted = subscription is None or subscription.leaving
        most = self._state.context.limits.body_bytes_max
        if not unwanted and any(piece.rows.size > most for piece in slices):
            slices = self._without_large(deliver, slices, most)
        if subscription is not None and subscription.topic is not None and not unwanted:
            for piece in slices:
                frames = message_frames(piece.rows, piece.first_sequence, subscription.topic.id)
                self._state.send(frames)
        if deliver.settled:
            return
        runs = [(piece.first_sequence, piece.first_sequence + piece.rows.count - 1) for piece in slices]
        if unwanted:
            self._settle(Settlement.RELEASE, {deliver.consumer: runs})
        elif subscription is not None and subscription.shared:
            for run in runs:
                self.delivery_index.written(deliver.consumer, run)
        else:
            # The pass over the queue is this client's own: whatever is lost with it, it asks for by From_message.
            self._settle(Settlement.ACK, {deliver.consumer: runs})

    def _without_large(self, deliver: effects.Deliver, slices: Sequence[Slice], most: int) -> list[Slice]:
        """Turn down what is larger than a message of this protocol, which a client would have to hold in one piece."""
        large = [piece for piece in slices if piece.rows.count == 1 and piece.rows.size > most]
        if not deliver.settled:
            reason = f"too large for this protocol: its messages have at most {most:,} bytes"
            for piece in large:
                self._settle(Settlement.REJECT, {deliver.consumer: [(piece.first_sequence,) * 2]}, reason)
        return [piece for piece in slices if piece not in large]

    def _settle(self, verb: Settlement, held: Held, reason: str = "") -> None:
        for consumer, runs in held.items():
            self._state.ask(Settle(self._state.context.session, None, consumer, verb, runs, reason=reason))

    # -- the end ----------------------------------------------------------------------------------------------------

    def wind_down(self, most: int) -> bool:
        """After the client's end of stream: have nothing more handed out, write what is queued.

        True when nothing is left to write. So many subscriptions are ended; `winds_down`: there are more.
        """
        if self._unanswered or self._state.slots:
            return False
        if self._to_end is None:
            self._to_end = deque(self._by_consumer.values())
        for _ in range(min(most, len(self._to_end))):
            self._ask_unsubscribe(self._to_end.popleft(), None)
        return not self._by_consumer

    @property
    def winds_down(self) -> bool:
        return bool(self._to_end)

    def _ask_unsubscribe(self, subscription: OmqSubscription, slot: Slot | None) -> None:
        token = OmqUnsubscribeAsked(subscription, slot)
        self._state.ask(Unsubscribe(self._state.context.session, token, subscription.consumer))


def topic_name(topic: bytes) -> str:
    """Raises Refusal: empty, too long, or no UTF-8."""
    if not 1 <= len(topic) <= TOPIC_BYTES_MAX:
        raise Refusal("invalid topic", f"a name has 1 to {TOPIC_BYTES_MAX} bytes, not {len(topic)}")
    try:
        return topic.decode()
    except UnicodeDecodeError:
        raise Refusal("invalid topic", "the name is not UTF-8") from None
