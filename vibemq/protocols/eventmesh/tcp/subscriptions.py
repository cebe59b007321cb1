"""Topics that a session has subscribed.

A subscription is asked for without credit. The session gives it some once it is answered and the client listens; so
nothing is pushed before the answer to SUBSCRIBE_REQUEST or LISTEN_REQUEST, and a group collects from the moment on that
its member has subscribed.

Before it subscribes, the session asks what kind of queue the topic is: where consumers take turns, everybody joins the
one group that they share (`vibemq.protocols.eventmesh.topics`).
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from vibemq.errors import InvalidMessage, NotAuthorized, VibeMQError
from vibemq.model.commands import DescribeQueue, SetCapacity, SharedCapacity, StartAt, Subscribe, Unsubscribe
from vibemq.model.effects import Subscribed
from vibemq.model.options import check_queue_name
from vibemq.model.runs import END
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.base_session import emptied
from vibemq.protocols.eventmesh.messages.recurring import Recurring
from vibemq.protocols.eventmesh.tcp.frames import EventMeshDialect
from vibemq.protocols.eventmesh.tcp.package import Cmd, Package
from vibemq.protocols.eventmesh.tcp.state import EventMeshState
from vibemq.protocols.eventmesh.topics import SubscriptionItem, takes_turns

_ASKED_AT_ONCE = 15
"""Topics of one list that the engine is asked for in one turn. Each may have to be made."""
TOPICS_AT_ONCE = 100
"""For which credit is given, or which are left, in one turn."""
FREED_AT_ONCE = 500
"""Subscriptions, in about half a millisecond."""
SHARE = "session"
"""The capacity that all subscriptions of a session have together."""


@dataclass(slots=True, eq=False)
class SubscriptionAnswer:
    """An answer that waits for the engine's word on several topics."""

    package: Package
    missing: int = 0
    error: VibeMQError | None = None


@dataclass(slots=True, eq=False)
class EventMeshSubscription:
    consumer: int
    item: SubscriptionItem
    group: str | None
    """None: it has one of its own, that ends with it; or all consumers of the queue share one."""
    broadcasts: bool | None = None
    """Of an old subscription, which is two: whether this one is for broadcasts or for all else. None: for all."""
    ready: bool = False
    """The engine has said yes."""
    leaving: bool = False
    credited: bool = False
    cache: Recurring[Any] = field(default_factory=Recurring)
    """Of what its pushes have in common: see `EventMeshPushes`."""


@dataclass(slots=True)
class TopicAsked:
    """Token of a DescribeQueue."""

    item: SubscriptionItem
    answer: SubscriptionAnswer


@dataclass(slots=True)
class EventMeshSubscribeAsked:
    """Token of a Subscribe."""

    subscription: EventMeshSubscription
    answer: SubscriptionAnswer


@dataclass(slots=True)
class EventMeshUnsubscribeAsked:
    """Token of an Unsubscribe; without an answer it is the session that ends the subscription."""

    subscription: EventMeshSubscription
    answer: SubscriptionAnswer | None


class EventMeshSubscriptions:
    def __init__(self, state: EventMeshState, ended: Callable[[VibeMQError], None]) -> None:
        """`ended`: called when a subscription is over through no wish of the client."""
        self._state = state
        self._ended = ended
        self.by_consumer: dict[int, EventMeshSubscription] = {}
        """Those that the client has, and those that are leaving."""
        self._topics: dict[str, list[EventMeshSubscription]] = {}
        """Empty while the engine is asked."""
        self._asking = 0
        self._to_ask: deque[tuple[SubscriptionItem, SubscriptionAnswer]] = deque()
        self._last_consumer = 0
        self._listening = False
        self._work: Iterator[None] | None = None
        """What is being done for each topic."""

    # -- what the client says ---------------------------------------------------------------------------------------

    def subscribe(self, package: Package, items: list[SubscriptionItem]) -> None:
        self._begin(self._ask_for(package, items))

    def _ask_for(self, package: Package, items: list[SubscriptionItem]) -> Iterator[None]:
        if len(items) > TOPICS_AT_ONCE:
            # To read the list has taken long enough.
            yield
        try:
            fresh = self._fresh(items)
            for number, topic in enumerate(fresh, 1):
                check_queue_name(topic)
                if number % TOPICS_AT_ONCE == 0:
                    yield
        except VibeMQError as error:
            self._state.refuse(package, error)
            return
        answer = SubscriptionAnswer(package, len(fresh))
        for topic in reversed(list(fresh)):
            self._topics[topic] = []
            self._to_ask.append((fresh[topic], answer))
        if len(fresh) > TOPICS_AT_ONCE:
            yield
        self._ask_some()
        self._settle_answer(answer)

    def _fresh(self, items: list[SubscriptionItem]) -> dict[str, SubscriptionItem]:
        """Of the topics those that are new, the last one first. Raises InvalidMessage."""
        most = self._state.settings.subscriptions_max
        fresh = {item.topic: item for item in reversed(items) if item.topic not in self._topics}
        if len(self._topics) + len(fresh) > most:
            raise InvalidMessage(f"at most {most:,} topics for one connection; open another one")
        return fresh

    @property
    def asking(self) -> bool:
        """Whether it is not known yet of some topics what they are. Nothing more is read until it is, so that what was
        said first is done first."""
        return self._asking > 0

    def _ask_some(self) -> None:
        while self._to_ask and self._asking < _ASKED_AT_ONCE:
            item, answer = self._to_ask.popleft()
            self._asking += 1
            token = TopicAsked(item, answer)
            self._state.ask(DescribeQueue(self._state.session, token, item.topic, figures=False))

    def is_under_way(self) -> bool:
        """Something is done for each topic, and `go_on` has not come to its end. Nothing more is read until it has."""
        return self._work is not None

    def go_on(self) -> None:
        """For some of the topics."""
        if self._work is not None and next(self._work, self) is self:
            self._work = None

    def _begin(self, work: Iterator[None]) -> None:
        self._work = work if self._work is None else chain(self._work, work)
        self.go_on()

    def listen(self, package: Package) -> None:
        self._state.answer(Cmd.LISTEN_RESPONSE, package.seq)
        self._listening = True
        self._begin(self._give_credits())

    def _give_credits(self) -> Iterator[None]:
        for number, subscription in enumerate(list(self.by_consumer.values()), 1):
            self._give_credit(subscription)
            if number % TOPICS_AT_ONCE == 0:
                yield

    def unsubscribe(self, package: Package) -> None:
        """All topics, whatever the body says."""
        self._topics.clear()
        self._begin(self._leave(SubscriptionAnswer(package, 1)))

    def stop(self) -> None:
        """Nothing more is handed out; what the client holds stays its own until it acknowledges or leaves."""
        self._topics.clear()
        self._begin(self._leave(None))

    def _leave(self, answer: SubscriptionAnswer | None) -> Iterator[None]:
        for number, subscription in enumerate(list(self.by_consumer.values()), 1):
            if answer is not None:
                answer.missing += 1
            self._ask_unsubscribe(subscription, answer)
            if number % TOPICS_AT_ONCE == 0:
                yield
        if answer is not None:
            self._answered(answer, None)

    def _ask_unsubscribe(self, subscription: EventMeshSubscription, answer: SubscriptionAnswer | None) -> None:
        subscription.leaving = True
        token = EventMeshUnsubscribeAsked(subscription, answer)
        self._state.ask(Unsubscribe(self._state.session, token, subscription.consumer))

    # -- what the engine says ---------------------------------------------------------------------------------------

    def described(self, asked: TopicAsked, result: Any) -> None:
        """Who may not look at the queue is told nothing about it, and gets the usual group."""
        self._asking -= 1
        self._described(asked, result)
        if not self._asking:
            self._ask_some()

    def _described(self, asked: TopicAsked, result: Any) -> None:
        topic, answer = asked.item.topic, asked.answer
        if topic not in self._topics:
            # The client has unsubscribed meanwhile.
            self._answered(answer, None)
            return
        if isinstance(result, VibeMQError) and not isinstance(result, NotAuthorized):
            del self._topics[topic]
            self._answered(answer, result)
            return
        if not isinstance(result, QueueInfo):
            self._state.create_topic(topic)
        shared = takes_turns(result if isinstance(result, QueueInfo) else None)
        made = self._made(asked.item, shared=shared)
        self._topics[topic] = made
        answer.missing += len(made) - 1
        for subscription in made:
            self.by_consumer[subscription.consumer] = subscription
            self._state.ask(self._request(subscription, answer))

    def _made(self, item: SubscriptionItem, *, shared: bool) -> list[EventMeshSubscription]:
        agent = self._state.agent
        group = agent.group_name if agent is not None else ""
        if shared:
            return [EventMeshSubscription(self._next_consumer(), item, None)]
        if item.broadcasting:
            return [EventMeshSubscription(self._next_consumer(), item, None)]
        if not item.bare or self._state.dialect is not EventMeshDialect.WEMQ:
            return [EventMeshSubscription(self._next_consumer(), item, group)]
        # Before 1.2 it is the publisher who says that all members get a message.
        return [
            EventMeshSubscription(self._next_consumer(), item, group, broadcasts=False),
            EventMeshSubscription(self._next_consumer(), item, None, broadcasts=True),
        ]

    def _next_consumer(self) -> int:
        self._last_consumer += 1
        return self._last_consumer

    def _request(self, subscription: EventMeshSubscription, answer: SubscriptionAnswer) -> Subscribe:
        state, settings, agent = self._state, self._state.settings, self._state.agent
        window = settings.unacked_messages_max
        if agent is not None and agent.unack > 0:
            window = min(agent.unack, settings.unacked_messages_limit)
        return Subscribe(
            state.session,
            EventMeshSubscribeAsked(subscription, answer),
            subscription.consumer,
            subscription.item.topic,
            group=subscription.group,
            share=SharedCapacity(SHARE, window, settings.unacked_bytes_max),
            credit=0,
            # What waits in a topic without a group is the first one's, whatever its mode: to begin later would drop it.
            start=StartAt.NOW if subscription.broadcasts else StartAt.DEFAULT,
            create=False,
        )

    def subscribed(self, asked: EventMeshSubscribeAsked, result: Any) -> None:
        subscription = asked.subscription
        error = None
        if isinstance(result, Subscribed):
            subscription.ready = True
        elif isinstance(result, VibeMQError):
            error = result
            self._remove(subscription)
        self._answered(asked.answer, error)
        if self._listening:
            self._give_credit(subscription)

    def unsubscribed(self, asked: EventMeshUnsubscribeAsked) -> None:
        self.by_consumer.pop(asked.subscription.consumer, None)
        if asked.answer is not None:
            self._answered(asked.answer, None)

    def ended(self, consumer: int, error: VibeMQError) -> None:
        subscription = self.by_consumer.get(consumer)
        if subscription is None:
            return
        self._remove(subscription)
        if not subscription.leaving:
            self._ended(error)

    def _remove(self, subscription: EventMeshSubscription) -> None:
        self.by_consumer.pop(subscription.consumer, None)
        if not subscription.leaving:
            self._topics.pop(subscription.item.topic, None)

    def _answered(self, answer: SubscriptionAnswer, error: VibeMQError | None) -> None:
        answer.missing -= 1
        answer.error = answer.error or error
        self._settle_answer(answer)

    def _settle_answer(self, answer: SubscriptionAnswer) -> None:
        if answer.missing:
            return
        if answer.error is not None:
            self._state.refuse(answer.package, answer.error)
        elif answer.package.cmd is Cmd.SUBSCRIBE_REQUEST:
            self._state.answer(Cmd.SUBSCRIBE_RESPONSE, answer.package.seq)
        else:
            self._state.answer(Cmd.UNSUBSCRIBE_RESPONSE, answer.package.seq)

    def _give_credit(self, subscription: EventMeshSubscription) -> None:
        if not subscription.ready or subscription.leaving or subscription.credited or self._state.failed:
            return
        subscription.credited = True
        self._state.ask(SetCapacity(self._state.session, None, subscription.consumer, END, 0, add_credit=END))

    def let_go(self) -> Iterator[None]:
        for table in (self._topics, self.by_consumer):
            yield from emptied(table, FREED_AT_ONCE)
