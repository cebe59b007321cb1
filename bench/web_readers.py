"""Three open consoles and a scrape, in a process of their own as browsers are: what the pages overview, queue and dead
letters ask for, with their streams.

    python -m bench.web_readers HTTP_PORT QUEUE
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

import anyio
import anyio.abc
import httpx

EVERY_S = 5.0
"""`EVERY_MS` of the console: of what is not in its stream."""
SCRAPE_S = 15.0


@contextmanager
def open_consoles(http_port: int, queue: str) -> Iterator[None]:
    """Their streams have begun when this is entered. Raises SystemExit when they have ended by themselves."""
    readers = Popen([sys.executable, "-m", __name__, str(http_port), queue], stdout=PIPE, text=True)
    assert readers.stdout is not None
    try:
        if not readers.stdout.readline():
            raise SystemExit(f"the open consoles have ended with code {readers.wait()}")
        yield
        if (code := readers.poll()) is not None:
            raise SystemExit(f"the open consoles have ended with code {code}")
    finally:
        readers.kill()
        readers.wait()


async def look(http_port: int, queue: str) -> None:
    address = f"http://127.0.0.1:{http_port}"
    async with httpx.AsyncClient(base_url=f"{address}/api/v1", timeout=60) as http:

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
                await anyio.sleep(period_s)

        async with anyio.create_task_group() as tasks:
            await tasks.start(stream, "overview")
            await tasks.start(stream, "overview", f"queue:{queue}", f"queues?queue={queue}")
            await tasks.start(stream, "overview")
            print("reading", flush=True)
            messages, history = f"/queues/{queue}/messages?limit=50", f"/history?queue={queue}&range=15m"
            tasks.start_soon(every, EVERY_S, "/history?range=15m")
            tasks.start_soon(every, EVERY_S, f"/queues/{queue}/consumers", history, messages)
            tasks.start_soon(every, EVERY_S, "/dead-letters?limit=50&order=newest", "/dead-letters/groups?limit=500")
            tasks.start_soon(every, SCRAPE_S, f"{address}/metrics/prometheus")


if __name__ == "__main__":
    anyio.run(look, int(sys.argv[1]), sys.argv[2])
