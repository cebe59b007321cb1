"""Thousands of connections that log in and then say next to nothing: `python -m tests.proof.idle_clients …`.

Prints one JSON line when all are in; hangs up when stdin ends. Pings now and then, so that the broker does not take
its peers for dead.
"""

import argparse
import asyncio
import json
import resource
import sys

from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

CONNECT = encode_frame(encode_body(CommandType.CONNECT, "c"))
PING = encode_frame(encode_body(CommandType.PING, "p"))
AT_ONCE = 200
PING_EVERY_S = 45.0
QUEUES = 100


def subscribe(number: int) -> bytes:
    return encode_frame(encode_body(CommandType.SUBSCRIBE, "s", f"idle-{number % QUEUES}"))


class Idler(asyncio.Protocol):
    """One connection: `ready` once the broker has answered the last thing that was asked."""

    __slots__ = ("_answers", "_asked", "ready", "transport")

    def __init__(self, asked: list[bytes]) -> None:
        self._asked = asked
        self._answers = b""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        assert self.transport is not None
        if self._asked:
            self.transport.write(self._asked.pop(0))
        elif not self.ready.done():
            self.ready.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self.ready.done():
            return
        self._answers += data
        size = int.from_bytes(self._answers[:4], "big")
        if len(self._answers) < 5 + size:
            return
        if self._answers[6] == CommandType.ERROR:
            self.ready.set_exception(ConnectionRefusedError(repr(self._answers)))
            return
        self._answers = self._answers[5 + size :]
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionResetError("the broker hung up"))


async def open_all(port: int, first: int, count: int, subscribed: bool) -> list[asyncio.Transport]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(AT_ONCE)

    async def open_one(number: int) -> asyncio.Transport:
        asked = [CONNECT, subscribe(number)] if subscribed else [CONNECT]
        async with gate:
            transport, idler = await loop.create_connection(lambda: Idler(asked), "127.0.0.1", port)
            await idler.ready
        return transport

    return await asyncio.gather(*(open_one(number) for number in range(first, first + count)))


async def keep_alive(transports: list[asyncio.Transport]) -> None:
    while True:
        for transport in transports:
            await asyncio.sleep(PING_EVERY_S / len(transports))
            transport.write(PING)


async def main(port: int, first: int, count: int, subscribed: bool) -> None:
    transports = await open_all(port, first, count, subscribed)
    pinging = asyncio.ensure_future(keep_alive(transports))
    print(json.dumps({"open": len(transports)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    pinging.cancel()
    print(json.dumps({"still_open": sum(not transport.is_closing() for transport in transports)}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--subscribed", action="store_true")
    given = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(given.port, given.first, given.count, given.subscribed))
