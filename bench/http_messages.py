"""Messages over HTTP: publishes and fetches with acknowledgement a second on keep-alive connections, and what three
open streams cost native publishers and consumers.

    python -m bench.http_messages [--seconds 3] [--pairs 5] [--connections 8]

The broker runs in a process of its own, its data below /var/tmp. The clients are plain sockets, which cost a tenth of
what an HTTP library does. Streams are compared in pairs, with and without in turn: messages a second, and processor
seconds of the broker for 100,000 messages.
"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio

import vibemq
from bench.common.options import switches
from bench.common.watched import WatchedBroker, watched_broker

BODY = b"x" * 1_024
LINES = b"\n".join(json.dumps({"payload": "x" * 1_024}).encode() for _ in range(1_000))
NATIVE_BATCH = 500


class KeptAlive:
    """One connection that asks one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, path: str, body: bytes, kind: str) -> dict[str, Any]:
        head = f"POST /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
        self._writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        size = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        told: dict[str, Any] = json.loads(await self._reader.readexactly(int(size[15:])))
        assert answer.startswith(b"HTTP/1.1 200"), (answer, told)
        return told


@asynccontextmanager
async def kept_alive(broker: WatchedBroker) -> AsyncIterator[KeptAlive]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port, limit=1 << 24)
    try:
        yield KeptAlive(reader, writer)
    finally:
        writer.close()


async def per_second(
    broker: WatchedBroker, connections: int, seconds: float, ask: Callable[[KeptAlive], Awaitable[int]]
) -> float:
    """What `ask` counts, of all connections together."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(kept_alive(broker)) for _ in range(connections)]
        end = time.monotonic() + seconds

        async def go_on(one: KeptAlive) -> int:
            count = 0
            while time.monotonic() < end:
                count += await ask(one)
            return count

        began = time.monotonic()
        counts = await asyncio.gather(*map(go_on, opened))
        return sum(counts) / (time.monotonic() - began)


async def publish_one(one: KeptAlive) -> int:
    await one.post("/queues/http/messages", BODY, "application/octet-stream")
    return 1


async def publish_lines(one: KeptAlive) -> int:
    answer = await one.post("/queues/http/messages", LINES, "application/x-ndjson")
    return int(answer["confirmed"])


async def fetch_and_ack(one: KeptAlive) -> int:
    fetched = await one.post("/queues/http/deliveries", b'{"max": 100}', "application/json")
    wishes = [{"lease": item["lease"], "verb": "ack"} for item in fetched["items"]]
    if wishes:
        await one.post("/deliveries", json.dumps({"settlements": wishes}).encode(), "application/json")
    return len(wishes)


# -- streams ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def streams(broker: WatchedBroker) -> AsyncIterator[None]:
    """Three readers as consoles have them: the overview, the busy queue, and its tail."""
    paths = ("/events?topic=overview&topic=alarms", "/events?topic=queue:load&topic=queues", "/queues/load/tail")
    async with AsyncExitStack() as stack:
        tasks = []
        for path in paths:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
            stack.callback(writer.close)
            writer.write(f"GET /api/v1{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            tasks.append(asyncio.create_task(_read(reader)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _read(reader: asyncio.StreamReader) -> None:
    with suppress(asyncio.CancelledError):
        while await reader.read(65_536):
            pass


async def native_load(broker: WatchedBroker, seconds: float) -> tuple[float, float]:
    """(messages a second, processor seconds of the broker for 100,000), published and acknowledged."""
    count = 0
    async with vibemq.connect(broker.url) as publisher, vibemq.connect(broker.url) as consumer:
        cpu, began = broker.cpu_s(), time.monotonic()
        end = began + seconds

        async def publish() -> None:
            while time.monotonic() < end:
                await publisher.publish_many("load", [BODY] * NATIVE_BATCH)

        async def consume() -> None:
            nonlocal count
            async with consumer.subscribe("load", prefetch=2_000) as subscription:
                async for batch in subscription.batches():
                    count += len(batch)
                    batch.ack_all()
                    if time.monotonic() >= end:
                        return

        await asyncio.gather(publish(), publish(), consume())
        return count / (time.monotonic() - began), (broker.cpu_s() - cpu) * 100_000 / max(count, 1)


async def measure(seconds: float, pairs: int, connections: int) -> None:
    with watched_broker(watched=False, http={"port": 0, "requests_per_second": 0}) as broker:
        async with vibemq.connect(broker.url) as mq:
            for queue in ("http", "load"):
                await mq.create_queue(queue)
        for number in (1, connections):
            rate = await per_second(broker, number, seconds, publish_one)
            print(f"publish, one 1 KiB message a request, {number} connections: {rate:,.0f}/s")
        print(f"publish, 1,000 lines a request: {await per_second(broker, 2, seconds, publish_lines):,.0f} messages/s")
        rate = await per_second(broker, 2, seconds, fetch_and_ack)
        print(f"fetch 100 and acknowledge, 2 connections: {rate:,.0f} messages/s")
        rates, costs = [], []
        for pair in range(pairs):
            found = {}
            for watched in (False, True) if pair % 2 else (True, False):
                async with AsyncExitStack() as stack:
                    if watched:
                        await stack.enter_async_context(streams(broker))
                    found[watched] = await native_load(broker, seconds)
            rates.append(found[True][0] / found[False][0])
            costs.append(found[True][1] / found[False][1])
            print(f"  pair {pair + 1}: {found[False][0]:,.0f}/s alone, {found[True][0]:,.0f}/s with three streams")
        print(f"throughput with three streams: x {statistics.median(rates):.3f} ({_spread(rates)})")
        print(f"processor time a message: x {statistics.median(costs):.3f} ({_spread(costs)})")


def _spread(values: list[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


def main() -> None:
    parser = switches("http_messages", __doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    told = parser.parse_args()
    anyio.run(measure, told.seconds, told.pairs, told.connections, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()
