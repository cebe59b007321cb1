"""Consumers that end their stream: what they have not got is nobody's attempt, and others get it at once."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.waiting import until
from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

CEILING_S = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["lmdb", "sqlite"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    # Its time stands still: no ack timeout gives back what a consumer has left behind.
    async with TimedBroker(tmp_path / "data", storage=request.param) as broker:
        yield broker


def frame(kind: CommandType, message_id: str, queue: str = "", **headers: str) -> bytes:
    body = encode_body(kind, message_id, queue, b"", headers)
    return struct.pack("!IB", len(body), 0) + body


class Consumer:
    """A plain client of which every byte is under control."""

    def __init__(self, port: int, *, receive_buffer: int = 0) -> None:
        self._socket = socket.socket()
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._reader = NativeFrameReader(body_bytes_max=1 << 21)
        self._bodies: list[bytes] = []

    async def join(self, queue: str) -> None:
        # With it nobody knows which of the messages it has begun.
        extension = {"supported-extensions": "settle/1"}
        self._socket.send(frame(CommandType.CONNECT, "c", **extension) + frame(CommandType.SUBSCRIBE, "s", queue))
        assert [await self._next(), await self._next()] == [CommandType.CONNECT_ACK, CommandType.SUBSCRIBE_ACK]

    async def _next(self) -> CommandType:
        while not self._bodies:
            self._reader.receive_data(await asyncio.get_running_loop().sock_recv(self._socket, 4096))
            self._bodies += self._reader.bodies()
        return CommandType(self._bodies.pop(0)[1])

    def end_stream(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    async def read_to_the_end(self) -> list[Any]:
        """What was delivered until the broker ended its side; the socket stays open."""
        async with asyncio.timeout(CEILING_S):
            while data := await asyncio.get_running_loop().sock_recv(self._socket, 1 << 20):
                self._reader.receive_data(data)
                self._bodies += self._reader.bodies()
        delivered = [decode_body(body) for body in self._bodies if body[1] == CommandType.DELIVER]
        return [message.id for message in delivered]

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def connect() -> Iterator[Callable[..., Consumer]]:
    """Makes consumers that are closed after the test."""
    made: list[Consumer] = []

    def make(port: int, **options: int) -> Consumer:
        made.append(Consumer(port, **options))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


async def until_free(broker: Broker, queue: str) -> None:
    await until(lambda: (info := broker.queue_info(queue)) is not None and not info.in_flight)


async def test_nothing_is_handed_to_a_consumer_that_has_ended_its_stream(
    broker: Broker, connect: Callable[..., Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", max_attempts=1)
        consumer = connect(broker.port)
        await consumer.join("q")
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
    broker: Broker, connect: Callable[..., Consumer], reset: bool
) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", max_attempts=1)
        consumer = connect(broker.port, receive_buffer=4096)
        await mq.publish_many("q", [f"{number:03}" + "x" * 60_000 for number in range(200)])
        await consumer.join("q")
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
