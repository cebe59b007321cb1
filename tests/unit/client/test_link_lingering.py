"""Acknowledgements wait a moment for others; everything else goes at once."""

from collections.abc import Callable

import anyio
import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.connecting import waking
from vibemq.client.connecting.waking import Waking
from vibemq.client.link import ClientLink
from vibemq.client.message import Message, MessageBatch
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.subscription import Subscription
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec.extensions import DeliverMany

pytestmark = pytest.mark.anyio
COUNT = 40


@pytest.fixture(autouse=True)
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lingers does so until the test is over."""
    monkeypatch.setattr(waking, "LINGER_S", 3600.0)


@pytest.fixture
def link() -> ClientLink:
    link = ClientLink(ClientSettings(), now=0.0)
    link.epoch = 1
    return link


@pytest.fixture
async def writer(link: ClientLink) -> Waking:
    """What the link wakes, after the first time."""
    writer = Waking()
    link.carried_by(writer)
    await writer.woken()
    return writer


def held(link: ClientLink, prefetch: int) -> MessageBatch[object]:
    """Forty messages in the hands of a subscription with this prefetch."""
    subscription: Subscription[object] = Subscription(link, SubscribeOptions(queue="q", prefetch=prefetch), None)
    link.subscriptions[subscription.id] = subscription
    rows = Rows.of([pack_row(f"m{number}", b"") for number in range(COUNT)])
    subscription.deliver(DeliverMany(subscription.id, "q", 1, 0, rows))
    return subscription._untaken.batches[0]


async def is_sent_now(writer: Waking) -> bool:
    """Whether the writer goes on without waiting for more."""
    returned = False

    async def write() -> None:
        nonlocal returned
        await writer.woken()
        returned = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return returned


async def test_a_few_acks_linger(link: ClientLink, writer: Waking) -> None:
    held(link, 200)[0].ack()
    assert not await is_sent_now(writer)


async def test_a_quarter_of_the_prefetch_does_not(link: ClientLink, writer: Waking) -> None:
    held(link, 4 * COUNT).ack_all()
    assert await is_sent_now(writer)


async def test_acks_that_lingered_go_with_those_that_do_not(link: ClientLink, writer: Waking) -> None:
    batch = held(link, 4 * COUNT)
    for message in list(batch)[:-1]:
        message.ack()
    assert not await is_sent_now(writer)
    batch[COUNT - 1].ack()
    assert await is_sent_now(writer)


async def test_with_a_small_prefetch_every_ack_goes_at_once(link: ClientLink, writer: Waking) -> None:
    held(link, 1)[0].ack()
    assert await is_sent_now(writer)


@pytest.mark.parametrize(
    "settle", [lambda m: m.retry(), lambda m: m.reject("bad"), lambda m: m.release(), lambda m: m.extend(5)]
)
async def test_other_verbs_do_not_linger(
    link: ClientLink, writer: Waking, settle: Callable[[Message[object]], object]
) -> None:
    settle(held(link, 200)[0])
    assert await is_sent_now(writer)


async def test_a_request_takes_lingering_acks_along(link: ClientLink, writer: Waking) -> None:
    held(link, 200)[0].ack()
    link.wake()
    assert await is_sent_now(writer)


async def test_lingering_ends_by_itself(link: ClientLink, writer: Waking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "LINGER_S", 0.0)
    held(link, 200)[0].ack()
    with anyio.fail_after(60):
        await writer.woken()
