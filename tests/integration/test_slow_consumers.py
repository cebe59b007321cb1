"""The time to settle a message begins when it is written to its consumer, however long it has waited for that."""

from contextlib import closing
from pathlib import Path

import pytest

import vibemq
from tests.integration.plain_peers import CEILING_S, PlainPeer
from tests.waiting import until
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

MESSAGES = 130
"""No more than a consumer may hold: all of them are handed out at once."""
MESSAGE_BYTES = 60_000
"""All of them are more than the sockets and the broker's buffer of a connection take."""


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
async def test_what_waits_for_a_slow_consumer_is_not_late(tmp_path: Path, provider: str) -> None:
    async with TimedBroker(tmp_path / "data", storage=provider) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", max_attempts=1, ack_timeout=1)
        await mq.publish_many("q", [f"{number:03}" + "x" * MESSAGE_BYTES for number in range(MESSAGES)])
        consumer = PlainPeer(broker.port, receive_buffer=4096)
        with closing(consumer):
            await consumer.consume("q")
            assert await consumer.heard() == CommandType.DELIVER
            assert info_of(broker).in_flight == MESSAGES
            for _ in range(50):
                broker.advance(0.1)
                await mq.ping()
            # What was written was not acknowledged in time, and nothing else is late.
            assert info_of(broker).in_flight > 0
            consumer.end_stream()
            seen = await consumer.read_to_the_end()
        await until(lambda: not info_of(broker).in_flight)
        assert info_of(broker).dead == len(seen)
        fetched = await mq.fetch("q", max=MESSAGES, timeout=CEILING_S)
        assert len(fetched) == MESSAGES - len(seen)


def info_of(broker: Broker) -> QueueInfo:
    info = broker.queue_info("q")
    assert info is not None
    return info
