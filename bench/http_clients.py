"""What one push costs with each HTTP client: CPU of the calling process. `python -m bench.http_clients [aiohttp]`.

aiohttp is not among the development tools; install it somewhere and name the folder in PYTHONPATH.
"""

import asyncio
import ipaddress
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from bench.eventmesh_http import Taking
from vibemq.server.outbound import OutboundCalls

BODY = b"content=" + b"x" * 1_024
HEADERS = {"content-type": "application/x-www-form-urlencoded; charset=UTF-8", "code": "105", "version": "1.0"}
COUNT = 3_000
Post = Callable[[str], Awaitable[Any]]


def serve(ports: "multiprocessing.Queue[int]") -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Taking, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def ours(stack: AsyncExitStack) -> Post:
    calls = OutboundCalls(allowed=[ipaddress.ip_network("127.0.0.0/8")])
    stack.callback(calls.close)
    return lambda url: calls.post(url, HEADERS, BODY)


async def by_httpx(stack: AsyncExitStack) -> Post:
    import httpx

    client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
    return lambda url: client.post(url, headers=HEADERS, content=BODY)


async def by_aiohttp(stack: AsyncExitStack) -> Post:
    import aiohttp

    session = await stack.enter_async_context(aiohttp.ClientSession())

    async def post(url: str) -> None:
        async with session.post(url, headers={**HEADERS, "Content-Length": str(len(BODY))}, data=BODY) as answer:
            await answer.read()

    return post


async def measure(name: str, make: Callable[[AsyncExitStack], Awaitable[Post]], url: str, together: int) -> None:
    async with AsyncExitStack() as stack:
        post = await make(stack)

        async def some(count: int) -> None:
            for _ in range(count):
                await post(url)

        await some(100)
        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(some(COUNT // together) for _ in range(together)))
        cpu_us = (time.process_time() - used) / COUNT * 1e6
        rate = COUNT / (time.perf_counter() - began)
        print(f"{name}, {together} at a time: {cpu_us:.0f} µs of CPU for each, {rate:,.0f}/s")


def main() -> None:
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ports.get()}/sub"
    clients: list[tuple[str, Callable[[AsyncExitStack], Awaitable[Post]]]] = [("ours", ours), ("httpx", by_httpx)]
    if "aiohttp" in sys.argv:
        clients.append(("aiohttp", by_aiohttp))
    for together in (1, 8):
        for name, make in clients:
            asyncio.run(measure(name, make, url, together))
    server.kill()


if __name__ == "__main__":
    main()
