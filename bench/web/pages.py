"""What the console's pages ask for, one request after the other."""

import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from bench.common.watched import WatchedBroker

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
