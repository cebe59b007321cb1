"""The HTTP API of a large broker: how long requests take, what holds the loop, and what an open console costs.

    python -m bench.web [--queues 10000] [--letters 1000000] [--connections 1000] [--asks 40] [--pairs 9] [--seconds 20]

The store is filled through a provider's own appends. The broker runs in a process of its own, which measures the
processor time of its loop's thread between two turns. Requests are asked one after the other. Then publishes and
acknowledgements of 1 KiB messages are counted with and without three open consoles and a scrape, in turn; these have a
process of their own (`bench.web_readers`).
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import httpx

import vibemq
from bench.common.options import switches
from bench.common.watched import WatchedBroker, watched_broker
from bench.scale.stores import AT_ONCE, HOUR_MS, Batches, build, queues
from bench.scale.subscribers import Subscriber
from bench.web_readers import open_consoles
from vibemq.model.records import DeadFacts, DeadLettered, HandedOut, MessagesAdded, Reason
from vibemq.model.rows import Rows, pack_row

LETTER_QUEUES = 20
ERRORS = 1_000
LOAD = "load"
BODY = b"x" * 1_024
AT_A_TIME = 500
HTTP = {"port": 0, "requests_per_second": 0}
"""Requests come as fast as they are answered."""

PAGES: dict[str, str] = {
    "overview": "/overview",
    "history": "/history?range=15m",
    "queues": "/queues?limit=50",
    "queues by ready": "/queues?limit=50&sort=-ready",
    "queues by name part": "/queues?limit=50&name=99",
    "queue": "/queues/q1",
    "state of a queue": "/queues?queue=q1",
    "consumers": "/queues/q1/consumers",
    "search in a queue": "/queues/q1/messages?message_id=none",
    "letters": "/dead-letters?limit=50",
    "newest letters": "/dead-letters?limit=50&order=newest",
    "letters of a queue": "/dead-letters?limit=50&queue=q7",
    "letters by reason": "/dead-letters?limit=50&reason=rejected",
    "letters by text": "/dead-letters?limit=50&error=article+999",
    "letters by header": "/dead-letters?limit=50&header=tenant:t19",
    "groups of letters": "/dead-letters/groups?limit=100",
    "one letter": "/dead-letters/{letter}",
    "jobs": "/jobs",
    "connections": "/connections?limit=50",
    "cursors": "/cursors?limit=50",
    "checks": "/broker/checks",
    "settings": "/broker/settings",
    "audit": "/audit?limit=50",
}


def store(queue_count: int, letter_count: int) -> Batches:
    """Empty queues, and dead letters of the first of them with very many errors."""
    yield from queues(queue_count)
    now = time.time_ns() // 1_000_000
    for batch, first in enumerate(range(1, letter_count + 1, AT_ONCE)):
        queue_id = 1 + batch % LETTER_QUEUES
        at = now - HOUR_MS + first // 1_000
        ids = range(first, first + AT_ONCE)
        begin = 1 + batch // LETTER_QUEUES * AT_ONCE
        rows = Rows.of([pack_row(f"m{number}", b'{"n": 1}', [("tenant", f"t{number % 20}")]) for number in ids])
        letters = [
            DeadFacts(number, begin + index, Reason.REJECTED, f"no article {_word(number)}", 1, 1, at, at)
            for index, number in enumerate(ids)
        ]
        yield [
            MessagesAdded(queue_id, begin, at, rows),
            HandedOut(queue_id, 1, [(begin, begin + AT_ONCE - 1)]),
            DeadLettered(queue_id, 1, letters),
        ]


def _word(number: int) -> str:
    """One of ERRORS, without a digit: numbers do not tell errors apart."""
    return f"{number % ERRORS:03d}".translate(str.maketrans("0123456789", "abcdefghij"))


async def ask_pages(broker: WatchedBroker, asks: int, letter: int) -> None:
    print(f"{'request':<22} {'p50 ms':>8} {'p99 ms':>8} {'hold ms':>8}  status, bytes")
    async with console(broker) as http:
        for name, pattern in PAGES.items():
            broker.longest_hold_ms()
            path, laps = pattern.format(letter=letter), []
            for _ in range(asks):
                began = time.perf_counter()
                answer = await http.get(path)
                laps.append((time.perf_counter() - began) * 1_000)
            laps.sort()
            p99 = laps[min(len(laps) - 1, len(laps) * 99 // 100)]
            hold = broker.longest_hold_ms()
            figures = f"{statistics.median(laps):>8.1f} {p99:>8.1f} {hold:>8.2f}"
            print(f"{name:<22} {figures}  {answer.status_code}, {len(answer.content):,}", flush=True)


@asynccontextmanager
async def console(broker: WatchedBroker) -> AsyncIterator[httpx.AsyncClient]:
    address = f"http://127.0.0.1:{broker.http_port}/api/v1"
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [answered]}
    async with httpx.AsyncClient(base_url=address, timeout=60, event_hooks=hooks) as http:
        yield http


async def answered(answer: httpx.Response) -> None:
    """Raises httpx.HTTPStatusError: a refusal costs next to nothing, and its figures would be taken for an answer's."""
    answer.raise_for_status()


async def load(broker: WatchedBroker, seconds: float) -> tuple[float, float]:
    """Messages published and acknowledged a second, and the broker's processor seconds for 100,000 of them."""
    async with vibemq.connect(broker.url) as producer, vibemq.connect(broker.url) as consumer:
        await producer.create_queue(LOAD, durability="strong")
        await producer.purge_queue(LOAD)
        count, cpu, began = 0, broker.cpu_s(), time.perf_counter()
        end = began + seconds

        async def publish() -> None:
            while time.perf_counter() < end:
                await producer.publish_many(LOAD, [BODY] * AT_A_TIME)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(publish)
            async with consumer.subscribe(LOAD, prefetch=4_000) as messages:
                async for batch in messages.batches():
                    batch.ack_all()
                    count += len(batch)
                    if time.perf_counter() >= end:
                        break
        took = time.perf_counter() - began
        return count / took, (broker.cpu_s() - cpu) / count * 100_000


async def pairs(broker: WatchedBroker, count: int, seconds: float) -> None:
    ratios: dict[str, list[float]] = {"throughput": [], "processor time": []}
    await load(broker, min(seconds, 3))
    for number in range(count):
        found: dict[bool, tuple[float, float]] = {}
        for watched in (False, True) if number % 2 else (True, False):
            with open_consoles(broker.http_port, LOAD) if watched else nullcontext():
                found[watched] = await load(broker, seconds)
        ratios["throughput"].append(found[True][0] / found[False][0])
        ratios["processor time"].append(found[True][1] / found[False][1])
        print(f"pair {number + 1}: {found[False][0]:,.0f}/s alone, {found[True][0]:,.0f}/s watched", flush=True)
    for name, values in ratios.items():
        print(f"{name}, watched / alone: median {statistics.median(values):.3f} of {json.dumps(_rounded(values))}")


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in sorted(values)]


async def measure(broker: WatchedBroker, given: argparse.Namespace) -> None:
    connected = [Subscriber() for _ in range(given.connections)]
    for at in range(0, len(connected), 100):
        await asyncio.gather(*(one.connect(broker.ports[0]) for one in connected[at : at + 100]))
    await ask_pages(broker, given.asks, given.letters // 2)
    if given.pairs:
        await pairs(broker, given.pairs, given.seconds)


def main() -> None:
    parser = switches("web", __doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--asks", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        build(Path(folder), "lmdb", lambda count: store(given.queues, count), given.letters)
        with watched_broker(folder=Path(folder), http=HTTP, limits={"max_connections": 20_000}) as broker:
            asyncio.run(measure(broker, given))


if __name__ == "__main__":
    main()
