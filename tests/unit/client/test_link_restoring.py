"""A subscription of a queue that is created anew waits for the answer."""

import math
from typing import Any

import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.receiving.put_off import RETRY_S
from vibemq.client.receiving.restoring import HELD_S_MAX
from vibemq.client.subscription import Subscription
from vibemq.errors import QueueExclusive, RateLimited, RequestTimeout, StorageFull
from vibemq.model.options import QueueOptions
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body, encode_body

pytestmark = pytest.mark.anyio


@pytest.fixture
def link() -> ClientLink:
    """Just connected again, with the subscription of an exclusive queue."""
    link = ClientLink(ClientSettings(), now=0.0)
    link.restored.passing.created("replies", QueueOptions(exclusive=True), b"{}", 0.0)
    subscription: Subscription[Any] = Subscription(link, SubscribeOptions(queue="replies"), None)
    subscription.known = True
    link.subscriptions[subscription.id] = subscription
    link.online(ClientProtocol(link.settings), 0.0)
    return link


def answer(link: ClientLink, kind: CommandType = CommandType.ADMIN, code: str | None = None) -> WireMessage:
    (request_id,) = link.restored.creating
    error = None if code is None else "of the test"
    return decode_body(encode_body(kind, request_id, "", error_code=code, error_message=error))


@pytest.mark.parametrize("code", [None, "NOT_AUTHORIZED"])
async def test_it_begins_when_that_is_answered(link: ClientLink, code: str | None) -> None:
    assert link.waiting_for_peer
    assert not link.restored.subscribing
    link.receive(answer(link, CommandType.ADMIN if code is None else CommandType.ERROR, code))
    assert list(link.restored.subscribing) == list(link.subscriptions)


async def test_it_does_not_begin_on_a_connection_that_is_to_be_replaced(link: ClientLink) -> None:
    with pytest.raises(RateLimited):
        link.receive(answer(link, CommandType.ERROR, "RATE_LIMITED"))
    link.offline(1.0, "of the test")
    assert (link.restored.creating, link.restored.waiting, link.restored.subscribing) == ({}, {}, {})
    assert link.subscriptions


async def test_a_queue_that_the_old_connection_still_has_is_created_again_by_this_one(link: ClientLink) -> None:
    for second in range(1, 100):
        link.receive(answer(link, CommandType.ERROR, "QUEUE_EXCLUSIVE"))
        assert not link.restored.creating
        link.tick(second - 0.5)
        assert not link.restored.creating, "not before its time"
        link.tick(float(second))
    link.receive(answer(link))
    assert list(link.restored.subscribing) == list(link.subscriptions)
    link.tick(101.0)
    assert not link.restored.creating


async def test_a_queue_that_the_program_deletes_while_it_waits_keeps_nobody_waiting(link: ClientLink) -> None:
    link.receive(answer(link, CommandType.ERROR, "QUEUE_EXCLUSIVE"))
    assert not link.restored.subscribing
    link.restored.deleted("replies", 0.1)
    assert list(link.restored.subscribing) == list(link.subscriptions)
    link.tick(RETRY_S)
    assert not link.restored.creating, "it would be there again"


async def test_a_queue_that_the_program_deletes_while_it_is_created_is_not_created_again(link: ClientLink) -> None:
    link.restored.deleted("replies", 0.1)
    assert not link.restored.subscribing, "to subscribe might create another one"
    link.receive(answer(link, CommandType.ERROR, "QUEUE_EXCLUSIVE"))
    assert list(link.restored.subscribing) == list(link.subscriptions)


async def test_a_queue_that_is_somebody_elses_for_good_ends_its_subscription(link: ClientLink) -> None:
    (subscription,) = link.subscriptions.values()
    now = 0.0
    while link.subscriptions:
        assert now <= HELD_S_MAX + RETRY_S
        link.receive(answer(link, CommandType.ERROR, "QUEUE_EXCLUSIVE"))
        now += RETRY_S
        link.tick(now)
    assert now > HELD_S_MAX
    assert isinstance(subscription, Subscription)
    assert subscription.failure is not None
    assert isinstance(subscription.failure(), QueueExclusive)
    link.tick(now + 100)
    assert not link.restored.creating


async def test_one_that_is_left_meanwhile_never_begins(link: ClientLink) -> None:
    (subscription,) = link.subscriptions.values()
    assert isinstance(subscription, Subscription)
    assert subscription.leave(release=True) is None
    link.receive(answer(link))
    assert not link.restored.subscribing
    assert not link.subscriptions


async def test_a_connection_without_an_answer_is_replaced(link: ClientLink) -> None:
    link.tick(link.settings.command_timeout)
    with pytest.raises(RequestTimeout, match="no answer to the creation of a queue"):
        link.tick(link.settings.command_timeout + 1)


async def test_subscriptions_that_this_broker_does_not_know_end_and_the_others_begin(link: ClientLink) -> None:
    selective: list[Subscription[Any]] = [
        Subscription(link, SubscribeOptions(queue="q", where="a == 1"), None) for _ in range(2)
    ]
    plain: Subscription[Any] = Subscription(link, SubscribeOptions(queue="q"), None)
    link.offline(1.0, "of the test")
    link.subscriptions.update({subscription.id: subscription for subscription in (*selective, plain)})
    link.online(ClientProtocol(link.settings), 2.0)
    assert all(subscription.failure is not None for subscription in selective)
    assert list(link.restored.subscribing) == [plain.id]


async def test_what_a_full_disk_refuses_to_restore_is_restored_later(
    link: ClientLink, caplog: pytest.LogCaptureFixture
) -> None:
    known, new, left = [Subscription[Any](link, SubscribeOptions(queue="q"), None) for _ in range(3)]
    known.known = left.known = True
    link.offline(1.0, "of the test")
    link.subscriptions.clear()
    link.subscriptions.update({subscription.id: subscription for subscription in (known, new, left)})
    link.online(ClientProtocol(link.settings), 2.0)
    for subscription in (known, new, left):
        link.restored.ended(subscription.id, "STORAGE_FULL", "of the test", "q")
    assert known.failure is None
    assert isinstance(new.failure and new.failure(), StorageFull)
    assert left.leave(release=True) is None
    link.tick(2.0 + RETRY_S - 0.1)
    assert not link.restored.subscribing
    link.tick(2.0 + RETRY_S)
    assert list(link.restored.subscribing) == [known.id]
    for second in range(1, 5):
        assert not link.restored.withdraw(known), "the broker may know it"
        link.restored.ended(known.id, "STORAGE_FULL", "of the test", "q")
        link.tick(2.0 + (second + 1) * RETRY_S)
        assert list(link.restored.subscribing) == [known.id]
    assert [record.message for record in caplog.records] == 2 * [
        "the subscription of queue 'q' is not restored yet: of the test"
    ]
    # What the broker ends later ends.
    link.restored.subscribing.clear()
    link.restored.ended(known.id, "STORAGE_FULL", "of the test", "q")
    assert known.failure is not None


async def test_a_lease_that_is_extended_is_looked_after_before_it_has_run_out(link: ClientLink) -> None:
    def begun(**options: Any) -> bool:
        """Whether the client's clock is told to go faster."""
        hurried = link.restored.hurried
        link.restored.subscribe(Subscription(link, SubscribeOptions(queue="q", **options), None), 0.0)
        return hurried.is_set()

    assert not begun(ack_timeout=0.3)
    assert link.restored.tick_s == math.inf
    assert begun(ack_timeout=30, auto_extend=True)
    assert begun(ack_timeout=0.3, auto_extend=True)
    assert link.restored.tick_s == pytest.approx(0.05)
    assert not begun(ack_timeout=3, auto_extend=True)
    assert not begun()
    for subscription in link.restored.all():
        link.restored.forget(subscription)
    assert link.restored.tick_s == math.inf
