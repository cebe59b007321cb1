"""Three open consoles and a scrape: what the pages overview, queue and dead letters ask for, with their streams."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.abc
import httpx

from bench.web.addresses import LOAD, Addresses

EVERY_S = 5.0
"""`EVERY_MS` of the console: of what is not in its stream."""
SCRAPE_S = 15.0


async def look(addresses: Addresses, seen: dict[str, Any], begun: Callable[[], None]) -> None:
    seen["asked"] = 0
    async with httpx.AsyncClient(base_url=addresses.api, timeout=60) as http:

        async def stream(*topics: str, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            async with http.stream("GET", "/events", params={"topic": topics}) as events:
                events.raise_for_status()
                task_status.started()
                async for _ in events.aiter_raw():
                    pass
            raise SystemExit("a stream has ended")

        async def every(period_s: float, *paths: str) -> None:
            while True:
                for path in paths:
                    (await http.get(path)).raise_for_status()
                    seen["asked"] += 1
                await anyio.sleep(period_s)

        async with anyio.create_task_group() as tasks:
            await tasks.start(stream, "overview")
            await tasks.start(stream, "overview", f"queue:{LOAD}", f"queues?queue={LOAD}")
            await tasks.start(stream, "overview")
            begun()
            messages, history = f"/queues/{LOAD}/messages?limit=50", f"/history?queue={LOAD}&range=15m"
            tasks.start_soon(every, EVERY_S, "/history?range=15m")
            tasks.start_soon(every, EVERY_S, f"/queues/{LOAD}/consumers", history, messages)
            tasks.start_soon(every, EVERY_S, "/dead-letters?limit=50&order=newest", "/dead-letters/groups?limit=500")
            tasks.start_soon(every, SCRAPE_S, f"{addresses.http}/metrics/prometheus")
