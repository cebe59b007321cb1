"""A broker with the HTTP door of EventMesh, and subscribers that do what they are told."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx
import orjson

from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.server.broker import Broker

LOOPBACK = ("127.0.0.0/8",)
OK = b'{"retCode":1}'
IDENTITY = {"env": "P", "idc": "FT", "sys": "1234", "pid": "4321", "ip": "127.0.0.1", "language": "JAVA"}


def http_settings(data_dir: Path, *, auth: Auth | None = None, provider: str = "memory", **options: Any) -> Settings:
    options.setdefault("push_allowed_networks", LOOPBACK)
    more = {"auth": auth} if auth is not None else {}
    return Settings(
        data_dir=data_dir,
        storage=StorageChoice(provider=provider),
        listeners=(Listener(port=0), Listener(protocol="eventmesh-http", port=0, settings=options)),
        http=Http(enabled=False),
        **more,
    )


def url_of(broker: Broker) -> str:
    port, *_ = [each.port for each in broker.listening if each.protocol == "eventmesh-http"]
    return f"http://127.0.0.1:{port}"


@dataclass(slots=True)
class Push:
    path: str
    headers: dict[str, str]
    fields: dict[str, str]

    @property
    def content(self) -> str:
        return self.fields["content"]


@dataclass(slots=True)
class Answer:
    """What a subscriber answers: a whole response, or the body of one with status 200."""

    body: bytes = OK
    raw: bytes | None = None
    hang: bool = False


Script = Callable[[Push], Answer]


@dataclass
class Subscriber:
    """A small HTTP server that keeps what is posted to it."""

    script: Script = lambda push: Answer()
    pushes: list[Push] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = field(default_factory=dict)

    def url(self, path: str = "/sub") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def contents(self) -> list[str]:
        return [push.content for push in self.pushes]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open[writer] = asyncio.current_task()
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers["content-length"]))
                fields = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
                push = Push(lines[0].split()[1], headers, fields)
                answer = self.script(push)
                self.pushes.append(push)
                if answer.hang:
                    await self.released.wait()
                    return
                if answer.raw is not None:
                    writer.write(answer.raw)
                    return
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer.body) + answer.body)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def end(self) -> None:
        self.released.set()
        for writer, task in list(self.open.items()):
            writer.transport.abort()
            if task is not None:
                await task


@asynccontextmanager
async def subscriber(
    script: Script = lambda push: Answer(), *, bound: socket.socket | None = None
) -> AsyncIterator[Subscriber]:
    """`bound`: a socket of its own that does not listen yet: until now, connections were refused."""
    made = Subscriber(script)
    bound = bound or socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(made.serve, sock=bound)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.end()


@dataclass
class Client:
    """Speaks as the Java SDK does."""

    http: httpx.AsyncClient
    headers: dict[str, str] = field(default_factory=lambda: dict(IDENTITY))

    async def send(self, code: int | str, **fields: Any) -> dict[str, Any]:
        answer = await self.http.post("/", headers={**self.headers, "code": str(code)}, data=fields)
        assert answer.status_code == 200, answer.text
        return orjson.loads(answer.content)

    async def publish(self, topic: str, content: str, **fields: Any) -> dict[str, Any]:
        given = {"bizseqno": "1" * 30, "uniqueid": "2" * 30, "ttl": "", "producergroup": "pg", **fields}
        return await self.send(104, topic=topic, content=content, **given)

    async def subscribe(self, topic: str, url: str, group: str = "g", kind: str = "ASYNC") -> dict[str, Any]:
        item = {"topic": topic, "mode": "CLUSTERING", "type": kind}
        return await self.send(206, topic=orjson.dumps([item]).decode(), url=url, consumerGroup=group)

    async def unsubscribe(self, topic: str, url: str, group: str = "g") -> dict[str, Any]:
        return await self.send(207, topic=orjson.dumps([topic]).decode(), url=url, consumerGroup=group)

    async def heartbeat(self, topic: str, url: str, group: str = "g") -> dict[str, Any]:
        entities = orjson.dumps([{"topic": topic, "url": url}]).decode()
        return await self.send(203, clientType="SUB", heartbeatEntities=entities, consumerGroup=group)


@asynccontextmanager
async def client(broker: Broker, **headers: str) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=url_of(broker), timeout=60, trust_env=False, verify=False) as http:
        yield Client(http, {**IDENTITY, **headers})


async def raw(broker: Broker, data: bytes, *, end: bool = True) -> bytes:
    """Send bytes as they are, and read to the end of the answer's stream."""
    port = int(url_of(broker).rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


def form(**fields: str) -> bytes:
    return urlencode(fields).encode()
