"""The broker's path of one message at a time: published, confirmed, delivered, acknowledged. A whole broker, from the
bytes that a socket has read to the bytes that it is given; only the sockets are missing, and time stands still."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from bench.guard.hot_path import BODY, MESSAGES, QUEUE, Maker, Scenario
from vibemq.client.address import ClientSettings
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.outgoing import RowPacker
from vibemq.model.commands import Settlement
from vibemq.protocols.native.codec.extensions import EXTENSIONS, settle
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.server.net.transport import Connection
from vibemq.testing.timed_broker import TimedBroker

T = TypeVar("T")
WARM_UP = 20


def lone_scenarios() -> dict[str, Maker]:
    return {
        "broker confirms one by one": partial(_one_by_one, consumed=False),
        "broker confirms and delivers one by one": partial(_one_by_one, consumed=True),
    }


def _one_by_one(folder: Path, *, consumed: bool) -> Scenario:
    loop = _Loop()
    broker = _Broker(folder)
    loop.run_until_complete(broker.start())
    broker.flush_on_the_loop()
    peers = loop.run_until_complete(_connected(broker, consumed=consumed))
    peers.prepare(WARM_UP + 1, MESSAGES)
    loop.stands_at = loop.time()

    def check() -> None:
        info = broker.queue_info(QUEUE)
        assert info is not None
        assert info.next_sequence == WARM_UP + MESSAGES + 1
        assert (info.ready, info.in_flight) == ((0, 0) if consumed else (WARM_UP + MESSAGES, 0))

    def close() -> None:
        loop.stands_at = None
        peers.hang_up()
        loop.run_until_complete(_finished(broker.stop()))
        loop.close()

    return Scenario(lambda: loop.run_until_complete(peers.exchange()), check, close)


async def _connected(broker: "_Broker", *, consumed: bool) -> "_Peers":
    peers = _Peers(broker, consumed=consumed)
    await peers.begin()
    return peers


async def _finished(ending: Awaitable[T]) -> T:
    return await ending


class _Loop(asyncio.SelectorEventLoop):
    """While it stands its timers are not due, so that a slow machine adds no turns."""

    stands_at: float | None = None

    def time(self) -> float:
        return super().time() if self.stands_at is None else self.stands_at


class _OnTheLoop:
    """Instead of `FlushPlace`: each small flush runs on the loop, however slow this disk is at the moment."""

    is_loop = True

    def note(self, took_s: float, *, on_loop: bool) -> None: ...


class _Broker(TimedBroker):
    def connect(self, written: Callable[[], None]) -> Connection:
        """A connection whose `written` is called whenever it is given something to send."""
        connection = Connection(self._running().socket_services, self.listening[0].endpoint)
        connection.connection_made(_Wire(written))
        return connection

    def flush_on_the_loop(self) -> None:
        self._running().committer._flush_place = cast(Any, _OnTheLoop())


class _Wire(asyncio.Transport):
    def __init__(self, written: Callable[[], None]) -> None:
        super().__init__()
        self._written = written

    def write(self, data: Any) -> None:
        self._written()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None: ...

    def abort(self) -> None: ...


class _Peers:
    """A publisher that waits for each confirm, and perhaps a consumer that acknowledges each message before the next is
    published."""

    def __init__(self, broker: _Broker, *, consumed: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._publisher = broker.connect(self._follow if not consumed else _pass)
        self._consumer = broker.connect(self._follow) if consumed else None
        self._publishes: Iterator[bytes] = iter(())
        self._settlements: Iterator[bytes] = iter(())
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._done.set_result(None)

    async def begin(self) -> None:
        await self._ask(self._publisher, encode_body(CommandType.CONNECT, "c", headers=_EXTENSIONS))
        await self._ask(self._publisher, encode_body(CommandType.CREATE_QUEUE, "q", QUEUE))
        if self._consumer is not None:
            await self._ask(self._consumer, encode_body(CommandType.CONNECT, "c", headers=_EXTENSIONS))
            await self._ask(self._consumer, encode_body(CommandType.SUBSCRIBE, "s", QUEUE, headers={"prefetch": "10"}))
        self.prepare(1, WARM_UP)
        await self.exchange()

    async def _ask(self, connection: Connection, body: bytes) -> None:
        sent = connection.bytes_sent
        connection.data_received(encode_frame(body))
        while connection.bytes_sent == sent:
            await asyncio.sleep(0)

    def prepare(self, first: int, number: int) -> None:
        """The frames of so many messages, of which the first will have that sequence number."""
        self._publishes = iter([_published(sequence) for sequence in range(first, first + number)])
        self._settlements = iter([_settled(sequence) for sequence in range(first, first + number)])

    async def exchange(self) -> None:
        self._done = self._loop.create_future()
        self._publish()
        await self._done
        # What the last settlement asks for follows in these turns.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def hang_up(self) -> None:
        for connection in (self._publisher, self._consumer):
            if connection is not None:
                connection.connection_lost(None)

    def _publish(self) -> None:
        frame = next(self._publishes, None)
        if frame is None:
            self._done.set_result(None)
        else:
            self._publisher.data_received(frame)

    def _follow(self) -> None:
        """The message has been confirmed, or delivered."""
        if self._done.done():
            return
        if self._consumer is not None:
            self._loop.call_soon(self._consumer.data_received, next(self._settlements))
        self._loop.call_soon(self._publish)


_EXTENSIONS = {"supported-extensions": ",".join(EXTENSIONS)}


def _pass() -> None: ...


def _published(sequence: int) -> bytes:
    batch = PublishBatch(QUEUE)
    batch.id = str(sequence)
    batch.offer(RowPacker().plain_row(BODY))
    return ClientProtocol(ClientSettings()).publish(batch)


def _settled(sequence: int) -> bytes:
    return encode_frame(settle("s", Settlement.ACK, [(sequence, sequence)]))
