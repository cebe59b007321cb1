"""A connection without a pause: what a publisher says about time counts from when he said it."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

import vibemq
from vibemq.client import Client
from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.server import assembly
from vibemq.server.broker import Broker
from vibemq.server.clock import Clock

pytestmark = pytest.mark.anyio

BUSY_S = 150
CEILING_S = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Time:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._wall = time.time() - self._at

    def monotonic(self) -> float:
        return self._at

    def wall(self) -> float:
        return self._wall + self._at

    def advance(self, seconds: float) -> None:
        self._at += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    stopped = Time()
    monkeypatch.setattr(assembly, "Clock", partial(Clock, wall=stopped.wall, monotonic=stopped.monotonic))
    return stopped


@pytest.fixture
async def broker(clock: Time, tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", storage="sqlite") as broker:
        yield broker


def frame(kind: CommandType, message_id: str, queue: str = "", payload: bytes = b"", **headers: str) -> bytes:
    body = encode_body(kind, message_id, queue, payload, {key.replace("_", "-"): text for key, text in headers.items()})
    return struct.pack("!IB", len(body), 0) + body


class PlainPeer:
    """Speaks as .NET clients do: no extension, a frame for each message."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._reader = NativeFrameReader()

    def send(self, data: bytes) -> None:
        """Into the socket at once, before the broker's loop has another turn."""
        assert self._socket.send(data) == len(data)

    async def heard(self) -> CommandType:
        """Type of the next frame."""
        async with asyncio.timeout(CEILING_S):
            while not (bodies := self._reader.bodies()):
                self._reader.receive_data(await asyncio.get_running_loop().sock_recv(self._socket, 65_536))
        assert len(bodies) == 1
        return CommandType(bodies[0][1])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[PlainPeer]:
    peer = PlainPeer(broker.port)
    peer.send(frame(CommandType.CONNECT, "c"))
    assert await peer.heard() == CommandType.CONNECT_ACK
    yield peer
    peer.close()


async def check(mq: Client, clock: Time) -> None:
    """`later` with a delay of 0.4 s and `now` with a ttl of 4 s have been published in this moment."""
    [message] = await mq.fetch("q", max=2, timeout=CEILING_S)
    assert message.json() == "now", "a ttl of 4 s is not over, nor is a delay of 0.4 s"
    await message.ack()
    clock.advance(0.5)
    [message] = await mq.fetch("q", max=1, timeout=CEILING_S)
    assert message.json() == "later"
    await message.ack()


async def test_delay_and_ttl_of_our_client(clock: Time, broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        for _ in range(BUSY_S):
            await mq.publish("busy", 1)
            clock.advance(1)
        await mq.publish("q", "later", delay=0.4)
        await mq.publish("q", "now", ttl=4)
        await check(mq, clock)
        await mq.publish_many("q", ["later"], delay=0.4)
        await mq.publish_many("q", ["now"], ttl=4)
        await check(mq, clock)


async def test_delay_and_ttl_of_a_plain_client(clock: Time, broker: Broker, peer: PlainPeer) -> None:
    async with vibemq.connect(broker.url) as mq:
        for number in range(BUSY_S):
            peer.send(frame(CommandType.PUBLISH, f"m{number}", "busy", b"1"))
            assert await peer.heard() == CommandType.PUBLISH_ACK
            clock.advance(1)
        peer.send(frame(CommandType.PUBLISH, "m-later", "q", b'"later"', vibemq_delay_ms="400"))
        assert await peer.heard() == CommandType.PUBLISH_ACK
        peer.send(frame(CommandType.PUBLISH, "m-now", "q", b'"now"', vibemq_ttl_ms="4000"))
        assert await peer.heard() == CommandType.PUBLISH_ACK
        await check(mq, clock)


async def test_what_was_said_in_time_counts_however_late_the_broker_reads_it(clock: Time, peer: PlainPeer) -> None:
    peer.send(frame(CommandType.PUBLISH, "m", "q", b"1"))
    clock.advance(3_600)
    assert await peer.heard() == CommandType.PUBLISH_ACK
