"""Subscriptions with a selector, through the client and every kind of store."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.integration.fake_broker import broker_and_client
from vibemq.client import Client
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.client.subscription import Subscription
from vibemq.errors import InvalidSelector, LocalProtocolError, UnknownCommand
from vibemq.model.options import DeliveryMode
from vibemq.protocols.native.codec.extensions import WHERE_EXTENSION
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

LARGE = b"x" * (2 << 20)
QUICK = ReconnectPolicy(initial_delay=0.01, max_delay=0.1)


async def publish(mq: Client, queue: str, numbers: range) -> None:
    for number in numbers:
        headers = {"region": "eu" if number % 3 else "us", "total": str(number)}
        await mq.publish(queue, LARGE if number == 7 else number, headers=headers)


async def taken(messages: Subscription[Any], count: int) -> list[int]:
    found: list[int] = []
    with anyio.fail_after(30):
        while len(found) < count:
            for message in await messages.next_batch():
                found.append(int(message.headers["total"]))
                message.ack()
    return found


@pytest.mark.parametrize("mode", [DeliveryMode.ROUND_ROBIN, DeliveryMode.FAN_OUT_WITH_ACK])
@pytest.mark.parametrize("durability", ["transient", "async", "weak", "strong"])
@pytest.mark.parametrize("storage", ["sqlite", "lmdb"])
async def test_what_is_published_while_somebody_waits_is_looked_at_when_it_can_be_read(
    tmp_path: Path, storage: str, durability: str, mode: DeliveryMode
) -> None:
    """The engine asks about messages that it has decided on, and that may not be appended yet."""
    count, publishers = 60, 4
    async with TimedBroker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("orders", durability=durability, mode=mode)
        async with mq.subscribe("orders", where='region == "eu"') as messages:
            await mq.ping()

            async def publish_some(first: int) -> None:
                for number in range(first, count, publishers):
                    await mq.publish("orders", number, headers={"region": "eu", "total": str(number)})

            async with anyio.create_task_group() as tasks:
                for first in range(publishers):
                    tasks.start_soon(publish_some, first)
                assert sorted(await taken(messages, count)) == list(range(count))


@pytest.mark.parametrize("storage", ["memory", "sqlite", "lmdb"])
async def test_only_what_matches_is_delivered_and_the_rest_waits(tmp_path: Path, storage: str) -> None:
    async with TimedBroker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await publish(mq, "orders", range(12))
        async with mq.subscribe("orders", where='region == "eu" && total > 4') as messages:
            assert await taken(messages, 5) == [5, 7, 8, 10, 11]
            await publish(mq, "orders", range(12, 14))
            assert await taken(messages, 1) == [13]
        async with mq.subscribe("orders", where='region == "us"', prefetch=1) as messages:
            assert await taken(messages, 5) == [0, 3, 6, 9, 12]
        await mq.ping()
        (info,) = await mq.list_queues()
        assert (info.ready, info.in_flight) == (3, 0)
        async with mq.subscribe("orders") as messages:
            assert await taken(messages, 3) == [1, 2, 4]


async def test_a_bad_selector_is_refused_and_the_connection_lives_on(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data", storage="memory") as broker, vibemq.connect(broker.url) as mq:
        with pytest.raises(InvalidSelector, match=r"character 7, '= 1'") as refused:
            mq.subscribe("orders", where="total = 1")
        assert (refused.value.offset, refused.value.text) == (6, "total = 1")
        # As a client without a parser of its own would meet it.
        with pytest.raises(InvalidSelector, match=r"character 7, '= 1'"):
            await mq._link.requests.request(CommandType.SUBSCRIBE, "orders", headers={"where": "total = 1"})
        with pytest.raises(LocalProtocolError, match="weight is 0"):
            mq.subscribe("orders", weight=0)
        await mq.ping()


async def test_consumers_take_turns_by_their_weights(tmp_path: Path) -> None:
    async with (
        TimedBroker(tmp_path / "data", storage="memory") as broker,
        vibemq.connect(broker.url) as mq,
        mq.subscribe("orders", weight=3, where="total >= 0") as heavy,
        mq.subscribe("orders", where="total >= 0") as light,
    ):
        await publish(mq, "orders", range(6))
        assert await taken(heavy, 5) == [0, 1, 2, 4, 5]
        assert await taken(light, 1) == [3]


async def test_every_subscriber_of_a_fan_out_queue_has_a_selector_of_its_own(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data", storage="sqlite") as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("news", mode=DeliveryMode.FAN_OUT_WITH_ACK)
        async with (
            mq.subscribe("news", where="total < 2") as few,
            mq.subscribe("news", group="audit", where='region == "us"') as audit,
            mq.subscribe("news") as every,
        ):
            await publish(mq, "news", range(6))
            assert await taken(few, 2) == [0, 1]
            assert await taken(audit, 2) == [0, 3]
            assert await taken(every, 6) == [0, 1, 2, 3, 4, 5]
        async with mq.subscribe("news", group="audit") as audit:
            assert await taken(audit, 4) == [1, 2, 4, 5]


async def test_the_selector_is_restored_after_a_lost_connection(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    await anyio.to_thread.run_sync(broker.start)
    try:
        async with (
            vibemq.connect(broker.url, reconnect=QUICK) as mq,
            mq.subscribe("orders", where='region == "us"', prefetch=1) as messages,
        ):
            await publish(mq, "orders", range(6))
            assert await taken(messages, 2) == [0, 3]
            await mq.ping()
            await anyio.to_thread.run_sync(broker.kill)
            await anyio.to_thread.run_sync(broker.start)
            await publish(mq, "orders", range(6, 10))
            assert await taken(messages, 2) == [6, 9]
        with vibemq.sync.connect(broker.url) as mq, mq.subscribe("orders", where="total == 4") as messages:
            message = next(iter(messages))
            assert message.json() == 4
            message.ack()
    finally:
        broker.stop()


async def test_a_broker_that_knows_no_selectors_is_not_asked() -> None:
    async with broker_and_client() as (_, mq):
        with pytest.raises(UnknownCommand, match=WHERE_EXTENSION):
            async with mq.subscribe("orders", where="total > 1") as messages:
                await messages.next_batch()
        await mq.ping()
