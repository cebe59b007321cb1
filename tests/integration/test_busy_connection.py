"""A connection without a pause: what a publisher says about time counts from when he said it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import vibemq
from tests.integration.plain_peers import CEILING_S, PlainPeer, frame
from vibemq.client import Client
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

BUSY_S = 150


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TimedBroker]:
    async with TimedBroker(tmp_path / "data", storage="sqlite") as broker:
        yield broker


@pytest.fixture
async def peer(broker: TimedBroker) -> AsyncIterator[PlainPeer]:
    peer = PlainPeer(broker.port)
    await peer.connect()
    yield peer
    peer.close()


async def check(mq: Client, broker: TimedBroker) -> None:
    """`later` with a delay of 0.4 s and `now` with a ttl of 4 s have been published in this moment."""
    [message] = await mq.fetch("q", max=2, timeout=CEILING_S)
    assert message.json() == "now", "a ttl of 4 s is not over, nor is a delay of 0.4 s"
    await message.ack()
    broker.advance(0.5)
    [message] = await mq.fetch("q", max=1, timeout=CEILING_S)
    assert message.json() == "later"
    await message.ack()


async def test_delay_and_ttl_of_our_client(broker: TimedBroker) -> None:
    async with vibemq.connect(broker.url) as mq:
        for _ in range(BUSY_S):
            await mq.publish("busy", 1)
            broker.advance_unseen(1)
        await mq.publish("q", "later", delay=0.4)
        await mq.publish("q", "now", ttl=4)
        await check(mq, broker)
        await mq.publish_many("q", ["later"], delay=0.4)
        await mq.publish_many("q", ["now"], ttl=4)
        await check(mq, broker)


async def test_delay_and_ttl_of_a_plain_client(broker: TimedBroker, peer: PlainPeer) -> None:
    async with vibemq.connect(broker.url) as mq:
        for number in range(BUSY_S):
            peer.send(frame(CommandType.PUBLISH, f"m{number}", "busy", b"1"))
            assert await peer.heard() == CommandType.PUBLISH_ACK
            broker.advance_unseen(1)
        peer.send(frame(CommandType.PUBLISH, "m-later", "q", b'"later"', vibemq_delay_ms="400"))
        assert await peer.heard() == CommandType.PUBLISH_ACK
        peer.send(frame(CommandType.PUBLISH, "m-now", "q", b'"now"', vibemq_ttl_ms="4000"))
        assert await peer.heard() == CommandType.PUBLISH_ACK
        await check(mq, broker)


async def test_what_was_said_in_time_counts_however_late_the_broker_reads_it(
    broker: TimedBroker, peer: PlainPeer
) -> None:
    peer.send(frame(CommandType.PUBLISH, "m", "q", b"1"))
    broker.advance_unseen(3_600)
    assert await peer.heard() == CommandType.PUBLISH_ACK
