"""One peer's huge request, and the end of one that held very much, leave the loop to the others."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import vibemq
from tests.watchdog import slowness, watched
from vibemq.config import Http, Limits, Listener, Settings, StorageChoice
from vibemq.model.commands import PurgeQueue, RemoveMessages
from vibemq.model.records import ALL_GROUPS, DeadLettered
from vibemq.model.rows import Rows, pack_row
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.server.broker import Broker
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.testing.storage_conformance import added, letter, queue

pytestmark = pytest.mark.anyio

RUNS = 30_000
HOLD_S_MAX = 0.08
"""Measured once, so far more than is wanted; in one piece these take from 110 to 410 ms. `test_every_call.py` repeats
its calls and has the limit that is wanted."""
CEILING_S = 120


class Peer:
    """A consumer that says exactly what the test wants it to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._frames = NativeFrameReader(body_bytes_max=1 << 26)
        self._bodies: list[bytes] = []

    @classmethod
    @asynccontextmanager
    async def connect(cls, port: int, **headers: str) -> AsyncIterator["Peer"]:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        headers = {"supported-extensions": "batch/1,settle/1", **headers}
        peer.send(encode_body(CommandType.CONNECT, "c", "", b"", headers))
        await peer.answer(CommandType.CONNECT_ACK)
        try:
            yield peer
        finally:
            peer.writer.close()
            with suppress(OSError):
                await peer.writer.wait_closed()

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(struct.pack("!IB", len(body), 0) + body for body in bodies))

    async def answer(self, kind: CommandType) -> bytes:
        """The next body of that kind; deliveries before it have been received."""
        while True:
            while self._bodies:
                if (body := self._bodies.pop(0))[1] == kind:
                    return body
            self._frames.receive_data(await self._reader.read(1 << 20))
            self._bodies += self._frames.bodies()

    async def receive(self, queue: str, count: int) -> None:
        """Subscribe, publish that many messages and receive them all."""
        headers = {"prefetch": str(count)}
        self.send(encode_body(CommandType.SUBSCRIBE, "s", queue, b"", headers))
        await self.answer(CommandType.SUBSCRIBE_ACK)
        for first in range(0, count, 5_000):
            rows = Rows.of([pack_row("m", b"x")] * min(5_000, count - first))
            self.send(extensions.publish_many("p", queue, rows, None))
            got = 0
            while got < rows.count:
                got += extensions.parse_deliver_many(await self.answer(CommandType.DELIVER_MANY)).rows.count


async def until(broker: Broker, queue: str, true: Callable[[QueueInfo], bool]) -> None:
    async with asyncio.timeout(CEILING_S):
        while (info := broker.queue_info(queue)) is None or not true(info):
            await asyncio.sleep(0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    limits = Limits(body_bytes_max=1 << 25)
    async with Broker(
        settings=Settings(
            http=Http(enabled=False),
            data_dir=tmp_path / "data",
            storage=StorageChoice(),
            listeners=(Listener(port=0),),
            limits=limits,
        )
    ) as broker:
        yield broker


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[Peer]:
    async with Peer.connect(broker.port) as peer:
        yield peer


SCATTERED = [(sequence, sequence) for sequence in range(1, 2 * RUNS, 2)]


async def test_a_settlement_of_very_many_runs_leaves_the_loop_to_others_and_keeps_its_place(
    broker: Broker, peer: Peer
) -> None:
    await peer.receive("q", 2 * RUNS)
    frames = extensions.settle("s", 0, SCATTERED), encode_body(CommandType.QUEUE_INFO, "i", "q", b"", {})
    async with watched() as watchdog:
        peer.send(*frames)
        await peer.answer(CommandType.QUEUE_INFO)
    assert watchdog.longest_s / slowness() <= HOLD_S_MAX
    # The question behind it was answered behind it.
    info = broker.queue_info("q")
    assert info is not None
    assert info.in_flight == RUNS


async def test_what_was_asked_is_done_although_the_connection_ends_in_the_middle(broker: Broker, peer: Peer) -> None:
    await peer.receive("q", 2 * RUNS)
    rows = Rows.of([pack_row("last", b"x")])
    async with watched() as watchdog:
        peer.send(extensions.settle("s", 0, SCATTERED), extensions.publish_many("p", "q", rows, None))
        await peer.writer.drain()
        await until(broker, "q", lambda info: info.in_flight < 2 * RUNS)
        peer.writer.transport.abort()
        await until(broker, "q", lambda info: not info.in_flight and info.consumers == 0)
    assert watchdog.longest_s / slowness() <= HOLD_S_MAX
    info = broker.queue_info("q")
    assert info is not None
    assert (info.ready + info.delayed, info.counters["settled"]) == (RUNS + 1, RUNS)


@pytest.mark.parametrize("lost_connection", ["fail", pytest.param("release", marks=pytest.mark.long)])
async def test_the_end_of_a_consumer_that_held_very_much_leaves_the_loop_to_others(
    broker: Broker, peer: Peer, lost_connection: str
) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", lost_connection=lost_connection)
    await peer.receive("q", 2 * RUNS)
    async with watched() as watchdog:
        peer.writer.transport.abort()
        await until(broker, "q", lambda info: info.ready == 2 * RUNS)
    assert watchdog.longest_s / slowness() <= HOLD_S_MAX


async def test_rejecting_very_many_leaves_the_loop_to_others(broker: Broker, peer: Peer) -> None:
    await peer.receive("q", 2 * RUNS)
    async with watched() as watchdog:
        peer.send(extensions.settle("s", 3, [(1, 2 * RUNS)]))
        await until(broker, "q", lambda info: info.dead == 2 * RUNS)
    assert watchdog.longest_s / slowness() <= HOLD_S_MAX


async def test_a_purge_of_very_many_runs_leaves_the_loop_to_others(broker: Broker, peer: Peer) -> None:
    await peer.receive("q", 2 * RUNS)
    async with vibemq.connect(broker.url) as mq:
        peer.send(extensions.settle("s", 0, SCATTERED))
        await until(broker, "q", lambda info: info.in_flight == RUNS)
        peer.writer.transport.abort()
        await until(broker, "q", lambda info: info.ready == RUNS)
        async with watched() as watchdog:
            assert await mq.purge_queue("q") == RUNS
        assert watchdog.longest_s / slowness() <= HOLD_S_MAX


async def test_what_the_embedding_program_asks_leaves_the_loop_to_others(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish_many("q", [b"x"] * (2 * RUNS))
    assert broker._parts is not None
    local = broker._parts.local_session
    async with watched() as watchdog:
        removed = await local.ask(lambda session, token: RemoveMessages(session, token, "q", SCATTERED))
        purged = await local.ask(lambda session, token: PurgeQueue(session, token, "q"))
    assert (removed.count, purged.count) == (RUNS, RUNS)
    assert watchdog.longest_s / slowness() <= HOLD_S_MAX


async def test_lists_replays_and_purges_of_very_many_dead_letters_leave_the_loop_to_others(tmp_path: Path) -> None:
    count, page = 30_000, 1_000
    storage = LmdbProvider(tmp_path / "data", LmdbSettings())
    storage.open()
    letters = [letter(number, number) for number in range(1, count + 1)]
    storage.append([*queue(), added(1, count), DeadLettered(1, ALL_GROUPS, letters)])
    storage.close()
    async with Broker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq, watched() as watchdog:
        for _ in range(20):
            # From the beginning each time, where there is more and more that has been removed.
            assert (await mq.admin("dlq.purge", limit=page))["count"] == page
        assert (await mq.admin("dlq.replay", limit=page))["count"] == page
        assert len((await mq.admin("dlq.list", limit=page))["letters"]) == page
        info = broker.queue_info(broker.list_queues()[0].name)
    assert watchdog.longest_s / slowness() <= HOLD_S_MAX
    assert info is not None
    assert (info.dead, info.ready) == (count - 21 * page, page)
