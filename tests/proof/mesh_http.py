"""EventMesh over HTTP in the storm of `mesh_chaos`: a publisher of forms, and two groups of URLs that fail as dice say.

At the end every confirmed message has been taken by both groups, and nothing has come that was not published.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.integration.eventmesh_http import Answer, Client, Push, Script, subscriber

TOPIC = "chaos-http"
GROUPS = ("green", "grey")
URLS = 2
"""Of each group."""
QUEUE: dict[str, Any] = {
    "mode": "fan-out-with-ack",
    "durability": "strong",
    # Whatever the dice say: no message runs out of attempts.
    "max_attempts": 1_000_000,
    "retry_base_ms": 10,
    "retry_max_ms": 50,
}
FAILURES = (
    Answer(raw=b""),
    Answer(raw=b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"),
    Answer(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"),
    Answer(raw=b"no HTTP at all\r\n\r\n"),
    Answer(b'{"retCode":2}'),
)
"""After each of them the message is pushed again."""
FAILURE_SHARE = 0.2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@dataclass
class HttpSide:
    rng: random.Random
    port: int = field(default_factory=free_port)
    tried: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    taken: dict[str, set[str]] = field(default_factory=lambda: {group: set() for group in GROUPS})
    failed: int = 0
    calm: bool = False
    """The storm is over, and nothing fails any more."""

    @property
    def toml(self) -> str:
        """The listener."""
        allowed = 'push_allowed_networks = ["127.0.0.0/8"]'
        return f'[[listeners]]\nprotocol = "eventmesh-http"\nport = {self.port}\n[listeners.settings]\n{allowed}\n'

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """The URLs are there and subscribed; the topic's queue exists, and the broker runs."""
        async with AsyncExitStack() as stack:
            mesh = await stack.enter_async_context(self._client())
            for group in GROUPS:
                for _ in range(URLS):
                    app = await stack.enter_async_context(subscriber(self._script(group)))
                    answer = await mesh.subscribe(TOPIC, app.url(), group=group)
                    assert answer["retCode"] == 0, answer
            yield

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        address = f"http://127.0.0.1:{self.port}"
        async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False, verify=False) as http:
            yield Client(http)

    def _script(self, group: str) -> Script:
        def script(push: Push) -> Answer:
            if not self.calm and self.rng.random() < FAILURE_SHARE:
                self.failed += 1
                return self.rng.choice(FAILURES)
            self.taken[group].add(push.content)
            return Answer()

        return script

    async def publish(self) -> None:
        """Until it is cancelled."""
        count = 0
        while True:
            async with self._client() as mesh:
                with suppress(httpx.HTTPError, AssertionError):
                    while True:
                        count += 1
                        name = f"http-{count}"
                        self.tried.add(name)
                        if (await mesh.publish(TOPIC, name, bizseqno=name))["retCode"] == 0:
                            self.confirmed.add(name)
                        await asyncio.sleep(0.005)
            await asyncio.sleep(0.02)

    @property
    def lost(self) -> set[str]:
        return {name for group in self.taken.values() for name in self.confirmed - group}

    @property
    def phantoms(self) -> set[str]:
        return {name for group in self.taken.values() for name in group - self.tried}
