"""Very many subscribers of one fan-out queue, each with a connection of its own."""

import asyncio
import struct
import time
from dataclasses import dataclass

import vibemq
from bench.scale.broker import Broker
from vibemq.protocols.native.codec.wire import CommandType, encode_body

AT_ONCE = 200
"""Connections that are made at the same time, so that the listener's queue is never full."""
QUEUE = "news"


@dataclass(frozen=True, slots=True)
class Joined:
    connect_cpu_s: float
    join_s: float
    join_cpu_s: float
    stop_s: float
    rss_anon_mib: float


class Subscriber:
    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self._ask(encode_body(CommandType.CONNECT, "c", "", b"", {}), CommandType.CONNECT_ACK)

    async def join(self) -> None:
        await self._ask(encode_body(CommandType.SUBSCRIBE, "s", QUEUE, b"", {}), CommandType.SUBSCRIBE_ACK)

    async def _ask(self, body: bytes, answer: CommandType) -> None:
        self._writer.write(struct.pack("!IB", len(body), 0) + body)
        while True:
            size, _ = struct.unpack("!IB", await self._reader.readexactly(5))
            found = await self._reader.readexactly(size)
            if found[1] == answer:
                return
            if found[1] == CommandType.ERROR:
                raise RuntimeError(f"the broker refuses: {found!r}")


async def join_and_stop(broker: Broker, count: int) -> Joined:
    """All connect; then all subscribe at once; then the broker is stopped with all of them connected."""
    subscribers = [Subscriber() for _ in range(count)]
    before = broker.cpu_s()
    for at in range(0, count, AT_ONCE):
        await asyncio.gather(*(one.connect(broker.port) for one in subscribers[at : at + AT_ONCE]))
    async with vibemq.connect(f"vibemq://127.0.0.1:{broker.port}") as mq:
        await mq.create_queue(QUEUE, mode="fan_out_with_ack")
    connected, began = broker.cpu_s(), time.monotonic()
    await asyncio.gather(*(one.join() for one in subscribers))
    join_s, join_cpu_s = time.monotonic() - began, broker.cpu_s() - connected
    memory = broker.rss_anon_mib()
    stop_s = await asyncio.to_thread(broker.stop)
    return Joined(connected - before, join_s, join_cpu_s, stop_s, memory)
