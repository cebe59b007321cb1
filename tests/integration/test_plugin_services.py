"""A plug-in without sockets: it serves HTTP, has tasks of its own, and lets peers in that have no socket of ours."""

import asyncio
import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import vibemq
from tests.waiting import until
from vibemq import plugins
from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.errors import ConfigInvalid
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.session import Peer, ProtocolPlugin, Services, SessionContext
from vibemq.protocols.session import Request as SessionRequest
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio

CEILING_S = 60


class EchoSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    word: str = "echo"


def frame(kind: CommandType, message_id: str, queue: str = "", payload: bytes = b"") -> bytes:
    body = encode_body(kind, message_id, queue, payload)
    return struct.pack("!IB", len(body), 0) + body


class KeepingSession(NativeSession):
    """May keep back what has come."""

    keeping = False
    looks = 0

    def keeps_back(self) -> bool:
        return self.keeping

    def commands(self) -> Sequence[SessionRequest]:
        self.looks += 1
        return super().commands()


@dataclass
class Echo:
    """Publishes what is posted to /echo, as a native peer of its own."""

    heard: list[CommandType] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    peer: Peer | None = None
    session: KeepingSession | None = None

    async def start(self, services: Services, settings: EchoSettings) -> None:
        reader = NativeFrameReader()

        def write(data: bytes) -> None:
            reader.receive_data(data)
            self.heard += [CommandType(body[1]) for body in reader.bodies()]

        def create(context: SessionContext) -> KeepingSession:
            self.session = KeepingSession(context, NativeSettings())
            return self.session

        self.peer = services.connect(create, host="plug-in", write=write)
        self.peer.receive(frame(CommandType.CONNECT, "c"))
        services.mount("/echo", Starlette(routes=[Route("/{queue}", self._post, methods=["POST"])]))
        services.begin(self._work, services, settings.word)
        services.begin(self._fail)

    async def _post(self, request: Request) -> PlainTextResponse:
        assert self.peer is not None
        body = await request.body()
        self.peer.receive(frame(CommandType.PUBLISH, "m", request.path_params["queue"], body))
        return PlainTextResponse("taken\n", 202)

    async def _work(self, services: Services, word: str) -> None:
        assert word == "word"
        async with services.outbound:
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended = True

    async def _fail(self) -> None:
        raise ZeroDivisionError("a bug of the plug-in")


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    """Installs the plug-in."""
    made = Echo()
    find = plugins.find
    plugin = ProtocolPlugin(name="echo", settings=EchoSettings, start=made.start)

    def find_ours(group: str, name: str) -> Any:
        return plugin if (group, name) == ("protocols", "echo") else find(group, name)

    monkeypatch.setattr(plugins, "find", find_ours)
    return made


def settings(data_dir: Path, *, http: bool = True) -> Settings:
    return Settings(
        data_dir=data_dir,
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0), Listener(protocol="echo", settings={"word": "word"})),
        http=Http(enabled=http, port=0),
    )


async def post(broker: Broker, path: str, body: bytes) -> int:
    assert broker.http_address is not None
    async with asyncio.timeout(CEILING_S):
        reader, writer = await asyncio.open_connection(*broker.http_address)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return int(answer.split()[1])


async def test_a_plugin_without_sockets(tmp_path: Path, echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(settings=settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        assert [listening.protocol for listening in broker.listening] == ["native"]
        async with asyncio.timeout(CEILING_S):
            await echo.began.wait()
        assert await post(broker, "/echo/q", b'"hello"') == 202
        assert await post(broker, "/livez", b"") == 405, "the broker's own pages are still there"
        [message] = await mq.fetch("q", timeout=CEILING_S)
        assert message.json() == "hello"
        await message.ack()
    assert echo.ended, "its tasks end with the broker"
    assert echo.peer is not None
    assert echo.peer.ended
    assert echo.heard == [CommandType.CONNECT_ACK, CommandType.PUBLISH_ACK, CommandType.DISCONNECT]
    failures = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert ["echo" in record.getMessage() for record in failures] == [True], "a bug of it is in the log, and only there"


async def test_a_plugin_that_needs_http_says_so(tmp_path: Path, echo: Echo) -> None:
    with pytest.raises(ConfigInvalid, match="echo needs the HTTP port"):
        async with Broker(settings=settings(tmp_path, http=False)):
            pass


async def test_what_a_peer_has_said_before_its_end_counts_however_much_it_is(tmp_path: Path, echo: Echo) -> None:
    names = [f"q{number}" for number in range(1_000)]
    async with Broker(settings=settings(tmp_path)) as broker:
        async with asyncio.timeout(CEILING_S):
            await echo.began.wait()
        assert echo.peer is not None
        echo.peer.receive(b"".join(frame(CommandType.CREATE_QUEUE, "c", name) for name in names))
        echo.peer.close()
        await until(lambda: all(broker.queue_info(name) is not None for name in names))


async def test_a_session_that_keeps_back_what_has_come_is_not_asked_for_it(tmp_path: Path, echo: Echo) -> None:
    async with Broker(settings=settings(tmp_path)) as broker:
        async with asyncio.timeout(CEILING_S):
            await echo.began.wait()
        assert echo.peer is not None
        assert echo.session is not None
        await until(lambda: CommandType.CONNECT_ACK in echo.heard)
        echo.session.keeping, looks = True, echo.session.looks
        echo.peer.receive(frame(CommandType.CREATE_QUEUE, "c", "kept"))
        assert echo.session.looks == looks
        echo.session.keeping = False
        echo.peer.receive(frame(CommandType.CREATE_QUEUE, "c", "behind"))
        await until(lambda: all(broker.queue_info(name) is not None for name in ("kept", "behind")))
