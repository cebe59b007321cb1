"""A queue that gets 5,000 messages a second, and a live tail of it."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx

import vibemq
from bench.web.addresses import TAILED, Addresses

RATE = 5_000
AT_A_TIME = 100
BODY = b"x" * 1_024
LEFT = ("consumers", "groups")
QUIET_S = 2.0
"""Nothing was told for so long: all has been."""


async def fill(addresses: Addresses, seen: dict[str, Any], begun: Callable[[], None]) -> None:
    """At its rate, as far as the broker confirms in time."""
    seen["published"] = 0
    async with vibemq.connect(addresses.native) as producer:
        begun()
        began = time.perf_counter()
        while True:
            with anyio.CancelScope(shield=True):
                await producer.publish_many(TAILED, [BODY] * AT_A_TIME)
            seen["published"] += AT_A_TIME
            await anyio.sleep(max(0.0, began + seen["published"] / RATE - time.perf_counter()))


async def tail(addresses: Addresses, seen: dict[str, Any], begun: Callable[[], None]) -> None:
    """Ends when all that was published has been told of."""
    seen.update(shown=0, skipped=0, most_in_frame=0, seconds=0.0)
    async with (
        httpx.AsyncClient(base_url=addresses.api, timeout=60) as http,
        _nothing_left(http, seen),
        http.stream("GET", f"/queues/{TAILED}/tail") as events,
        anyio.create_task_group() as tasks,
    ):
        events.raise_for_status()
        reading = anyio.CancelScope(shield=True)
        began = time.perf_counter()

        async def read() -> None:
            with reading:
                async for line in events.aiter_lines():
                    if line.startswith('data: {"messages"'):
                        _note(json.loads(line.removeprefix("data: ")), seen)
                        seen["seconds"] = time.perf_counter() - began

        tasks.start_soon(read)
        begun()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                while time.perf_counter() - began - seen["seconds"] < QUIET_S:
                    await anyio.sleep(QUIET_S / 10)
            reading.cancel()


def _note(told: dict[str, Any], seen: dict[str, Any]) -> None:
    shown = len(told["messages"])
    seen["shown"] += shown
    seen["skipped"] += told["skipped"]
    seen["most_in_frame"] = max(seen["most_in_frame"], shown)


@asynccontextmanager
async def _nothing_left(http: httpx.AsyncClient, seen: dict[str, Any]) -> AsyncIterator[None]:
    """Note how many consumers and groups the queue has more behind the tail."""
    before = {what: await _count(http, what) for what in LEFT}
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            seen["left"] = {what: await _count(http, what) - before[what] for what in LEFT}


async def _count(http: httpx.AsyncClient, what: str) -> int:
    """Of the queue that nobody consumes from."""
    return len((await http.get(f"/queues/{TAILED}/{what}")).raise_for_status().json()["items"])
