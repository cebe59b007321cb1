"""Subscriptions that are kept in a queue, and what becomes of them when they end while that is under way."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from vibemq.errors import RequestFailed, VibeMQError
from vibemq.model.commands import CreateQueue, Publish, Settle, Subscribe
from vibemq.model.effects import Deliver, Published, Reply, Subscribed
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.stored import Slice
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.registry import (
    MOVE_MS,
    QUEUE,
    KeptSubscription,
    SubscriptionKey,
    SubscriptionRegistry,
    from_row,
    registry_options,
)
from vibemq.testing.session_conformance import context


@pytest.mark.parametrize("keeps_nothing", [False, True])
def test_subscriptions_are_as_durable_as_the_storage_can_make_them(keeps_nothing: bool) -> None:
    """Whatever queues are where nothing else is said."""
    defaults = QueueOptions(durability=Durability.TRANSIENT)
    around = replace(context(queue_defaults=defaults), transient_only=keeps_nothing)
    assert registry_options(around).durability is (Durability.TRANSIENT if keeps_nothing else Durability.STRONG)


KEY = SubscriptionKey("ann", "", 0, "g", "t", "http://example.com/")


class Keeping:
    """A registry whose engine says what the test has it say, when the test has it."""

    def __init__(self, *, goes_on: bool = True) -> None:
        """`goes_on`: the queue is there, and subscribed."""
        self.session = InnerSession(context(), None, parted=lambda reason: None)
        self.found: list[KeptSubscription] = []
        self.registry = SubscriptionRegistry(self.session, self.found.append, lambda: None, lambda *_: 0)
        self.registry.start()
        self.next_sequence = 1
        self.published: list[Publish] = []
        self.settled: list[Settle] = []
        self.in_the_queue: set[int] = set()
        if goes_on:
            self.go_on()

    def go_on(self) -> None:
        while requests := self.session.commands():
            for request in requests:
                if isinstance(request, Publish):
                    self.published.append(request)
                elif isinstance(request, Settle):
                    self.settled.append(request)
                elif isinstance(request, CreateQueue):
                    self.answer(request, None)
                elif isinstance(request, Subscribe):
                    self.answer(request, Subscribed(QUEUE, "", 1, self.next_sequence))

    def answer(self, request: Any, result: Any) -> None:
        self.session.apply([Reply(self.session.number, request.token, result)])

    def move(self, next_sequence: int) -> None:
        """The session has ended, and what is in the queue will be handed out to the next one."""
        self.session = InnerSession(context(), None, parted=lambda reason: None)
        self.next_sequence = next_sequence
        self.registry.move_to(self.session, RequestFailed("the session has ended"))
        self.session.tick(self.session.now + MOVE_MS)
        self.go_on()

    def confirm(self, number: int) -> None:
        self.in_the_queue.add(number)
        self.answer(self.published[number - 1], Published(QUEUE, number, 1))
        self.go_on()

    def hand_out(self, number: int) -> None:
        deliver = Deliver(self.session.number, 1, QUEUE, 1, 0, [(number, number)])
        self.session.deliver(deliver, [Slice(number, 0, self.published[number - 1].rows)])
        self.go_on()

    def acknowledge(self) -> None:
        settled, self.settled = self.settled, []
        for settle in settled:
            self.in_the_queue -= {sequence for sequence, _ in settle.runs}
            self.answer(settle, None)


class Told:
    def __init__(self) -> None:
        self.heard: list[VibeMQError | None] = []

    def __call__(self, error: VibeMQError | None) -> None:
        self.heard.append(error)


# Of two messages: each is confirmed before it is handed out, and somewhere the subscription ends.
ORDERS = [
    order
    for order in permutations(("confirm 1", "hand out 1", "confirm 2", "hand out 2", "end"))
    if order.index("confirm 1") < min(order.index("hand out 1"), order.index("confirm 2"))
    and order.index("confirm 2") < order.index("hand out 2")
    and order.index("hand out 1") < order.index("hand out 2")
]


@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_a_subscription_that_ends_leaves_nothing_in_the_queue(order: Sequence[str]) -> None:
    """It was kept twice, as with its first heartbeat. Its end is told when nothing of it can come back."""
    keeping, kept, ended = Keeping(), Told(), Told()
    for beating in (False, True):
        keeping.registry.keep(KeptSubscription(KEY, beating=beating), kept)
    keeping.go_on()
    for step in order:
        if step == "end":
            keeping.registry.drop(KEY, ended)
            keeping.go_on()
        elif step.startswith("confirm"):
            keeping.confirm(int(step[-1]))
        else:
            keeping.hand_out(int(step[-1]))
        assert not ended.heard
    keeping.acknowledge()
    keeping.go_on()
    assert (ended.heard, keeping.in_the_queue, len(kept.heard)) == ([None], set(), 2)
    assert not keeping.registry.holds(KEY)
    # It can be kept again, and ended again.
    again, over = Told(), Told()
    keeping.registry.keep(KeptSubscription(KEY), again)
    keeping.go_on()
    keeping.confirm(3)
    keeping.hand_out(3)
    assert (again.heard, keeping.registry.holds(KEY), keeping.found) == ([None], True, [])
    keeping.registry.drop(KEY, over)
    keeping.go_on()
    keeping.acknowledge()
    assert (over.heard, keeping.in_the_queue) == ([None], set())


def subscribed_with(*early: tuple[KeptSubscription, Told]) -> Keeping:
    """The queue has just been subscribed, and what was to be kept before is not published yet."""
    keeping = Keeping(goes_on=False)
    for kept, told in early:
        keeping.registry.keep(kept, told)
    (create,) = keeping.session.commands()
    keeping.answer(create, None)
    (subscribe,) = keeping.session.commands()
    keeping.answer(subscribe, Subscribed(QUEUE, "", 1, 1))
    return keeping


def test_a_subscription_that_ends_before_it_is_published_is_not_kept() -> None:
    other, kept, kept_too, ended = replace(KEY, topic="other"), Told(), Told(), Told()
    keeping = subscribed_with((KeptSubscription(KEY), kept), (KeptSubscription(other), kept_too))
    keeping.registry.drop(KEY, ended)
    keeping.go_on()
    assert len(keeping.published) == 1
    keeping.confirm(1)
    keeping.hand_out(1)
    assert [type(error) for error in kept.heard] == [RequestFailed]
    assert (ended.heard, kept_too.heard) == ([None], [None])
    assert not keeping.registry.holds(KEY)
    assert keeping.registry.holds(other)


def test_what_is_kept_later_is_published_later() -> None:
    """A heartbeat that comes while the subscription itself is still to be published."""
    kept = Told()
    keeping = subscribed_with((KeptSubscription(KEY), kept))
    keeping.registry.keep(KeptSubscription(KEY, beating=True), kept)
    keeping.go_on()
    found = [from_row(row, 0, lambda *_: 0) for publish in keeping.published for row in publish.rows]
    assert [each is not None and each.beating for each in found] == [False, True]
    for number in (1, 2):
        keeping.confirm(number)
    assert kept.heard == [None, None]


def kept_once() -> tuple[Keeping, Told]:
    """Its message is in the queue, and has come back."""
    keeping, kept = Keeping(), Told()
    keeping.registry.keep(KeptSubscription(KEY), kept)
    keeping.go_on()
    keeping.confirm(1)
    keeping.hand_out(1)
    return keeping, kept


def test_a_subscription_that_ends_while_another_session_takes_over_does_not_come_back() -> None:
    keeping, ended = kept_once()[0], Told()
    keeping.move(next_sequence=2)
    assert keeping.registry.holds(KEY)
    keeping.registry.drop(KEY, ended)
    keeping.go_on()
    assert ended.heard == []
    keeping.hand_out(1)
    keeping.acknowledge()
    assert (ended.heard, keeping.in_the_queue, keeping.found) == ([None], set(), [])
    assert not keeping.registry.holds(KEY)


def test_nor_does_what_was_on_its_way_into_the_queue() -> None:
    """Its first heartbeat was being kept, and nobody has heard whether it is."""
    (keeping, kept), ended = kept_once(), Told()
    keeping.registry.keep(KeptSubscription(KEY, beating=True), kept)
    keeping.go_on()
    keeping.in_the_queue.add(2)
    keeping.move(next_sequence=3)
    assert [type(error) for error in kept.heard] == [type(None), RequestFailed]
    keeping.registry.drop(KEY, ended)
    keeping.go_on()
    for number in (1, 2):
        keeping.hand_out(number)
    keeping.acknowledge()
    assert (ended.heard, keeping.in_the_queue, keeping.found) == ([None], set(), [])


def test_the_end_of_a_subscription_is_answered_when_another_session_takes_over() -> None:
    """It was being carried out, in two messages at once, and nobody has heard whether it is."""
    (keeping, kept), ended = kept_once(), Told()
    keeping.registry.keep(KeptSubscription(KEY, beating=True), kept)
    keeping.go_on()
    keeping.registry.drop(KEY, ended)
    keeping.go_on()
    keeping.in_the_queue.add(2)
    keeping.move(next_sequence=3)
    for number in (1, 2):
        keeping.hand_out(number)
    keeping.acknowledge()
    assert ([type(error) for error in ended.heard], keeping.in_the_queue) == ([RequestFailed], set())
    assert keeping.found == []
