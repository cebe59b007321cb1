"""Consumers that end their stream: what they have not got is nobody's attempt, and others get it at once."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import vibemq
from tests.integration.plain_peers import CEILING_S, PlainPeer
from tests.waiting import until
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["lmdb", "sqlite"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    # Its time stands still: no ack timeout gives back what a consumer has left behind.
    async with TimedBroker(tmp_path / "data", storage=request.param) as broker:
        yield broker


@pytest.fixture
def connect() -> Iterator[Callable[..., PlainPeer]]:
    """Makes consumers that are closed after the test."""
    made: list[PlainPeer] = []

    def make(port: int, **options: int) -> PlainPeer:
        made.append(PlainPeer(port, **options))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


async def until_free(broker: Broker, queue: str) -> None:
    await until(lambda: (info := broker.queue_info(queue)) is not None and not info.in_flight)


async def test_nothing_is_handed_to_a_consumer_that_has_ended_its_stream(
    broker: Broker, connect: Callable[..., PlainPeer], caplog: pytest.LogCaptureFixture
) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", max_attempts=1)
        consumer = connect(broker.port)
        await consumer.consume("q")
        consumer.end_stream()
        assert await consumer.read_to_the_end() == []
        # The broker has ended its side; the connection itself still stands for a while.
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                await mq.publish("q", number)
            messages = await mq.fetch("q", max=3, timeout=CEILING_S)
        assert [(message.json(), message.attempt) for message in messages] == [(0, 1), (1, 1), (2, 1)]
        assert caplog.records == []
        info = broker.queue_info("q")
        assert info is not None
        assert info.dead == 0


@pytest.mark.parametrize("reset", [False, True])
async def test_what_was_never_written_counts_as_no_attempt_and_keeps_its_order(
    broker: Broker, connect: Callable[..., PlainPeer], reset: bool
) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", max_attempts=1)
        consumer = connect(broker.port, receive_buffer=4096)
        await mq.publish_many("q", [f"{number:03}" + "x" * 60_000 for number in range(200)])
        await consumer.consume("q")
        # As many as it may hold are its own by now, and most of them wait in the broker.
        await until(lambda: (info := broker.queue_info("q")) is not None and info.in_flight >= 130)
        if reset:
            consumer.reset()
        else:
            consumer.end_stream()
            seen = await consumer.read_to_the_end()
        await until_free(broker, "q")
        info = broker.queue_info("q")
        assert info is not None
        assert info.ready + info.dead == 200
        assert info.dead < 120, "what was written counts as tried, the rest does not"
        if not reset:
            assert info.dead == len(seen)
        messages = await mq.fetch("q", max=info.ready, timeout=CEILING_S)
        numbers = [int(message.json()[:3]) for message in messages]
        assert numbers == list(range(info.dead, info.dead + len(numbers)))
