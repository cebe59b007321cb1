"""Peers that stall in the middle of a large message do not hold up those of others."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.waiting import until
from vibemq.config import Http, Limits, Listener, Settings, StorageChoice
from vibemq.model.rows import RowView, pack_row
from vibemq.protocols.native.codec.extensions import publish_one
from vibemq.protocols.native.codec.frames import HEADER, HEADER_SIZE, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.server.assembly import Assembly
from vibemq.server.commit.message_memory import MemoryShare
from vibemq.server.net import large_turns

pytestmark = pytest.mark.anyio

MIB = 1 << 20


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_turns, "TURN_S", 0.0)
    monkeypatch.setattr(large_turns, "PATIENCE_S", 0.0)


@asynccontextmanager
async def broker_with(
    data_dir: Path, message_memory_bytes: int, provider: str = "lmdb"
) -> AsyncIterator[tuple[vibemq.Broker, Assembly]]:
    settings = Settings(
        data_dir=data_dir,
        storage=StorageChoice(provider=provider),
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        limits=Limits(message_memory_bytes=message_memory_bytes),
    )
    async with vibemq.Broker(settings=settings) as broker:
        assert broker._parts is not None
        yield broker, broker._parts


class Peer:
    """Reads and sends as slowly as the test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def connect(cls, port: int) -> "AsyncIterator[Peer]":
        plain = socket.socket()
        # Little is on its way between the broker and who does not read.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        plain.connect(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=plain)
        peer = cls(reader, writer)
        headers = {"supported-extensions": "batch/1", "max-body-bytes": str(1 << 30)}
        peer.send(encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers)))
        await peer.receive()
        try:
            yield peer
        finally:
            writer.transport.abort()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> bytes:
        """The body of the next frame."""
        size, _ = HEADER.unpack(await self._reader.readexactly(HEADER_SIZE))
        return await self._reader.readexactly(size)

    async def told(self) -> str:
        """The broker's last words."""
        while (body := await self.receive())[1] != CommandType.ERROR:
            pass
        return str(decode_body(body).error_message)


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="sqlite")
async def test_readers_that_stall_make_way_and_get_the_rest_later(tmp_path: Path, provider: str) -> None:
    async with (
        broker_with(tmp_path, 34 * MIB, provider) as (broker, parts),
        vibemq.connect(broker.url) as mq,
        Peer.connect(broker.port) as first,
        Peer.connect(broker.port) as second,
    ):
        bodies = {"first": os.urandom(8 * MIB), "second": os.urandom(8 * MIB), "other": os.urandom(4 * MIB)}
        memory = parts.store.memory
        assert memory is not None
        for peer, queue in ((first, "first"), (second, "second")):
            await mq.publish(queue, bodies[queue])
            held = memory.bytes_held
            peer.send(encode_frame(encode_body(CommandType.SUBSCRIBE, "s", queue)))
            await until(lambda held=held: memory.bytes_held > held)
        await mq.publish("other", bodies["other"])
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:

                async def fetch() -> None:
                    [message] = await mq.fetch("other", timeout=50)
                    assert message.body == bodies["other"]

                tasks.start_soon(fetch)
                await until(lambda: memory.waiting)
                # They hold all of it, and read nothing.
                parts.connection_table.sweep()
            for peer, queue in ((first, "first"), (second, "second")):
                while len(body := await peer.receive()) < MIB:
                    pass
                assert bodies[queue] in body
        await until(lambda: not memory.bytes_held)


async def test_a_reader_whose_message_has_gone_meanwhile_is_disconnected_and_not_to_blame(tmp_path: Path) -> None:
    async with (
        broker_with(tmp_path, 16 * MIB) as (broker, parts),
        vibemq.connect(broker.url) as mq,
        Peer.connect(broker.port) as peer,
    ):
        memory = parts.store.memory
        assert memory is not None
        await mq.publish("held", "by the reader")
        peer.send(encode_frame(encode_body(CommandType.SUBSCRIBE, "h", "held")))
        while (await peer.receive())[1] != CommandType.DELIVER_MANY:
            pass
        await mq.publish("q", bytes(8 * MIB))
        peer.send(encode_frame(encode_body(CommandType.SUBSCRIBE, "s", "q")))
        await until(lambda: memory.bytes_held)
        others: list[MemoryShare] = []
        assert memory.take("the test", 1 << 30, others.append) is None
        parts.connection_table.sweep()
        await until(lambda: others)
        await mq.delete_queue("q")
        others.clear()
        with anyio.fail_after(60), pytest.raises(asyncio.IncompleteReadError):
            await peer.told()
        await until(lambda: not memory.bytes_held)
        [message] = await mq.fetch("held", timeout=60)
        assert (message.attempt, message.failures) == (2, 0)


async def test_of_senders_that_stall_the_slowest_makes_way(tmp_path: Path) -> None:
    async with (
        broker_with(tmp_path, 16 * MIB) as (broker, parts),
        vibemq.connect(broker.url) as mq,
        Peer.connect(broker.port) as slow,
        Peer.connect(broker.port) as slower,
    ):
        memory = parts.connection_table.large_turns.incoming
        row = pack_row("a", os.urandom(4 * MIB - 65_536))
        head = publish_one("r", "q", len(row), None)
        frame = HEADER.pack(len(head) + len(row), 0) + head + row
        await mq.create_queue("q")
        at = 100_000
        for peer in (slow, slower):
            held = memory.bytes_held
            peer.send(frame[:at])
            await until(lambda held=held: memory.bytes_held > held)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(mq.publish, "other", bytes(4 * MIB))
                await until(lambda: memory.waiting)
                parts.connection_table.sweep()
                [connection] = [c for c in parts.connection_table if c.large_left and c.number == 2]
                before = connection.large_left
                slow.send(frame[at : 2 * at])
                await until(lambda: connection.large_left < before)
                parts.connection_table.sweep()
                assert "limits.message_memory_bytes" in await slower.told()
            slow.send(frame[2 * at :])
            while (await slow.receive())[1] != CommandType.PUBLISH_MANY_ACK:
                pass
        [message] = await mq.fetch("q")
        assert message.payload == RowView(row).payload
        await until(lambda: not memory.bytes_held)
