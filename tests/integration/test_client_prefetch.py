"""How much a broker delivers ahead, through the client: it changes, and is shared."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import vibemq
import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.waiting import until, wait_until
from vibemq.client import Client
from vibemq.client.subscription import Subscription
from vibemq.errors import InvalidOptions, LocalProtocolError
from vibemq.model.options import Durability
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[Client]:
    async with TimedBroker(tmp_path / "data", storage="sqlite") as broker, vibemq.connect(broker.url) as client:
        for queue in ("a", "b"):
            await client.create_queue(queue, durability=Durability.TRANSIENT)
            await client.publish_many(queue, range(100))
        yield client


async def in_flight(mq: Client) -> int:
    return sum(info.in_flight for info in await mq.list_queues())


async def all_told(mq: Client, *subscriptions: Subscription[object]) -> int:
    """What the subscriptions hold, when everything that was sent to the broker has had its effect."""
    await mq.ping()
    handed_out = await in_flight(mq)
    await until(lambda: sum(subscription.held for subscription in subscriptions) == handed_out)
    return handed_out


async def test_subscriptions_of_a_share_hold_its_prefetch_together(mq: Client) -> None:
    async with mq.subscribe("a", share="worker", prefetch=4) as a, mq.subscribe("b", share="worker", prefetch=4) as b:
        assert await all_told(mq, a, b) == 4
        for _ in range(30):
            await (await anext(a if a.buffered else b)).ack()
            assert await all_told(mq, a, b) == 4
        assert a.stats.received > 10 < b.stats.received


async def test_a_share_has_one_prefetch_and_any_of_it_changes_it(mq: Client) -> None:
    async with mq.subscribe("a", share="worker", prefetch=4) as a, mq.subscribe("b", share="worker") as b:
        assert (a.prefetch, b.prefetch) == (4, 4)
        with pytest.raises(InvalidOptions, match=r"share 'worker' hold 4 messages together, .* asks for 5"):
            async with mq.subscribe("b", share="worker", prefetch=5):
                pass
        await b.set_prefetch(7)
        assert (await all_told(mq, a, b), a.prefetch) == (7, 7)
        a.set_prefetch(2)
        assert await all_told(mq, a, b) == 7
        async with mq.subscribe("b", share="worker", prefetch=2) as c:
            assert await all_told(mq, a, b, c) == 7
            for _ in range(6):
                await (await anext(a if a.buffered else b)).ack()
            assert await all_told(mq, a, b, c) == 2


async def test_any_of_a_share_changes_it_also_one_that_has_ended(mq: Client) -> None:
    async with (
        mq.subscribe("a", share="worker", prefetch=4) as stopped,
        mq.subscribe("b", share="worker", prefetch=4) as b,
    ):
        await mq.create_queue("gone", durability=Durability.TRANSIENT)
        async with mq.subscribe("gone", share="worker") as ended:
            await mq.delete_queue("gone")
            await until(lambda: ended.failure is not None)
        await stopped.stop()
        assert await all_told(mq, b) == 4
        for subscription, messages in ((stopped, 7), (ended, 9)):
            subscription.set_prefetch(messages)
            assert (await all_told(mq, b), b.prefetch) == (messages, messages)


async def test_a_share_that_has_only_ended_subscriptions_is_begun_anew(mq: Client) -> None:
    async with mq.subscribe("a", share="worker", prefetch=4) as a:
        message = await anext(a)
        await a.drain(timeout=0)
        async with mq.subscribe("b", share="worker", prefetch=6) as b:
            # What the ended one still holds counts.
            assert (await all_told(mq, a, b), b.prefetch) == (6, 6)
            message.ack()
            assert await all_told(mq, b) == 6


async def test_bytes_that_differ_from_those_of_the_share_are_refused(mq: Client) -> None:
    async with mq.subscribe("a", share="worker", prefetch=4):
        with pytest.raises(InvalidOptions, match=r"share 'worker' hold 0 bytes together, .* asks for 100"):
            async with mq.subscribe("b", share="worker", prefetch_bytes=100):
                pass


async def test_a_prefetch_changes_and_pauses(mq: Client) -> None:
    async with mq.subscribe("a", prefetch=3) as a:
        assert await all_told(mq, a) == 3
        a.set_prefetch(messages=5)
        assert await all_told(mq, a) == 5
        a.set_prefetch(messages=0)
        for _ in range(5):
            await (await anext(a)).ack()
        assert await all_told(mq, a) == 0
        a.set_prefetch(messages=100, bytes=1)
        assert await all_told(mq, a) == 1
        a.set_prefetch(bytes=0)
        assert await all_told(mq, a) == 95
        for wrong in ({"messages": -1}, {"messages": 2**32}, {"bytes": -1}, {"messages": True}):
            with pytest.raises(LocalProtocolError, match="must be a whole number from 0"):
                a.set_prefetch(**wrong)
        assert a.prefetch == 100


async def test_a_changed_prefetch_holds_on_the_next_connection(mq: Client) -> None:
    async with (
        mq.subscribe("a", prefetch=9) as alone,
        mq.subscribe("a", share="worker", prefetch=4) as a,
        mq.subscribe("b", share="worker", prefetch=4) as b,
    ):
        b.set_prefetch(6)
        alone.set_prefetch(0)
        async with vibemq.connect(mq.settings, name="other") as other:
            [ours] = [known for known in await mq.admin("connections.list") if known["name"] != "other"]
            await other.admin("connections.close", connection_id=ours["connection_id"])
        await until(lambda: mq.reconnects == 1 and a.connected and b.connected and alone.connected)
        assert await all_told(mq, alone, a, b) == 6
        assert alone.held == 0
        async with mq.subscribe("b", share="worker", prefetch=6) as c:
            assert await all_told(mq, alone, a, b, c) == 6


async def test_auto_ack_shares_too(mq: Client) -> None:
    async with (
        mq.subscribe("a", share="worker", prefetch=4, auto_ack=True) as a,
        mq.subscribe("b", share="worker", prefetch=4) as b,
    ):
        for _ in range(20):
            await anext(a)
            assert await all_told(mq, a, b) <= 4
            if not a.buffered:
                await (await anext(b)).ack()
                await all_told(mq, a, b)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("data"))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def test_the_blocking_client_says_it_too(process: BrokerProcess) -> None:
    with vibemq.sync.connect(process.url) as mq:
        mq.publish_many("jobs", range(20))
        with mq.subscribe("jobs", share="worker", prefetch=2) as messages:
            wait_until(lambda: messages.held == 2)
            messages.set_prefetch(5)
            wait_until(lambda: messages.held == 5)
            assert messages.prefetch == 5
            with pytest.raises(LocalProtocolError):
                messages.set_prefetch(-1)
