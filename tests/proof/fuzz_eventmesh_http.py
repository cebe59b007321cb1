"""Fuzz targets: HTTP of EventMesh. Requests however they are cut, a whole session, and URLs of subscribers."""

import json
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from tests.proof.fuzz_engine import Broken, Target
from vibemq.errors import NoReply, OutboundRefused, QueueNotFound
from vibemq.model.commands import Publish
from vibemq.model.effects import Published, Reply, Responded
from vibemq.protocols.eventmesh.http.request import HttpReader
from vibemq.protocols.eventmesh.http.session import EventMeshHttpSession
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.http.state import Done
from vibemq.protocols.eventmesh.messages.json_scan import Steps
from vibemq.protocols.eventmesh.topics import SubscriptionItem
from vibemq.protocols.http1 import Http1Error
from vibemq.protocols.session import Authenticate, Principal
from vibemq.server.outbound.targets import parse_target
from vibemq.testing.session_conformance import NOW, context

WORDS = (
    *(b"POST / HTTP/1.1\r\n", b"GET /?code=104&topic=t&content=x HTTP/1.1\r\n", b"\r\n\r\n", b"code: "),
    *(b"content-length: ", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b"expect: 100-continue\r\n", b"%ff", b"+"),
    *(b"content-type: application/json\r\n", b"content-type: application/cloudevents+json\r\n"),
    *(b"ce-specversion: 1.0\r\n", b"code: 206\r\n", b"protocoltype: cloudevents\r\n", b"extFields=", b"ttl="),
    *(b"/eventmesh/publish/t", b"/eventmesh/subscribe/local", b"version: 3\r\n", b"authorization: Basic "),
    *(b"contents=", b"heartbeatEntities=", b"consumerGroup=g", b"url="),
)
RECORDED = [
    text.encode("latin-1")
    for text in json.loads((Path(__file__).parent.parent / "vectors" / "eventmesh-http.json").read_text())["requests"]
]
URL_WORDS = (
    *(b"http://", b"https://", b"127.0.0.1", b"[::1]", b"@", b"%", b"#", b"?", b"\\", b":80", b"0x7f", b"017700000001"),
    *(b"[::ffff:1.2.3.4]", b".", b"//", b"xn--", b"localhost", b"2130706433", b"\xc2\xb0"),
)


# -- HTTP/1.1 ---------------------------------------------------------------------------------------------------------


def requests(data: bytes) -> Hashable:
    """The first byte says how the stream is cut; however it is, the same requests come out."""
    if not data:
        return None
    stream = data[1:]
    whole = _requests(stream, len(stream) or 1)
    if _requests(stream, 1 + data[0] % 61) != whole:
        raise Broken("another cut of the stream, other requests")
    return len(whole[0]), whole[1]


def _requests(stream: bytes, step: int) -> tuple[list[tuple[str, str, bytes]], int]:
    reader = HttpReader(head_bytes_max=2_000, body_bytes_max=2_000, send=lambda sent: None)
    found: list[tuple[str, str, bytes]] = []
    try:
        for start in range(0, len(stream), step):
            reader.receive_data(stream[start : start + step])
            while reader.fresh:
                if (request := reader.next_request()) is not None:
                    found.append((request.method, request.path, request.body))
                    reader.answer(200, b"", b"")
    except Http1Error as error:
        return found, error.status
    return found, 0


# -- a session --------------------------------------------------------------------------------------------------------


class _Nobody:
    """Subscribers of a listener where nothing is kept."""

    def subscribe(
        self, principal: Principal, group: str, items: Sequence[SubscriptionItem], url: str, now: int, done: Done
    ) -> None:
        done(None)

    def unsubscribe(self, principal: Principal, group: str, topics: Sequence[str], url: str, done: Done) -> None:
        done(None)

    def heard(self, principal: Principal, group: str, entities: Sequence[tuple[str, str]], now: int) -> None:
        """It is not missed."""

    def topics_of(self, principal: Principal) -> Steps[list[str]]:
        yield from ()
        return []


def session(data: bytes) -> Hashable:
    """Every request is answered once, in its order; whatever comes, the session says it or ends."""
    made = EventMeshHttpSession(context(), EventMeshHttpSettings(), _Nobody())
    made.receive_data(data)
    made.receive_data(b"")
    asked = 0
    # A session does a part of what it has with each tick; there are no more requests than lines.
    for _ in range(100 + data.count(b"\n")):
        made.tick(NOW)
        commands = made.commands()
        for command in commands:
            asked += 1
            if isinstance(command, Authenticate):
                made.authenticated(command.token, Principal("anonymous", superuser=True))
            else:
                token = getattr(command, "token", None)
                result = QueueNotFound("t") if isinstance(command, Publish) and not command.create else None
                if isinstance(command, Publish) and command.create:
                    result = Published(command.queue, 1, command.rows.count)  # type: ignore[assignment]
                if token is not None:
                    made.apply([Reply(1, token, result)])
                if isinstance(command, Publish) and command.requester is not None and command.create:
                    made.apply([Responded(1, command.requester.token, NoReply("nobody"))])
        if made.closing:
            break
    said = made.data_to_send()
    if not made.closing:
        raise Broken("the stream has ended, and the session goes on")
    return said[9:12], said.count(b"HTTP/1.1 "), min(asked, 8)


# -- URLs -------------------------------------------------------------------------------------------------------------


def url(data: bytes) -> Hashable:
    """A URL is refused, or understood as the standard library understands it."""
    text = data.decode("latin-1")
    try:
        target = parse_target(text)
    except OutboundRefused:
        return None
    split = urlsplit(text)
    if (split.hostname, split.username, split.fragment) != (target.host, None, ""):
        raise Broken(f"{text!r} names {target.host!r} here, and {split.hostname!r} elsewhere")
    if (split.port or (443 if target.secure else 80)) != target.port:
        raise Broken(f"{text!r} has port {target.port} here, and {split.port} elsewhere")
    return target.secure, target.address is None, target.port > 1_023


def _request_seeds() -> Iterable[bytes]:
    for recorded in RECORDED:
        yield b"\x07" + recorded
    yield b"\x03POST / HTTP/1.1\r\ncontent-length: 5000\r\n\r\n"
    yield b"\x05POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n"
    yield b"\x09POST / HTTP/1.1\r\nx y\r\n\r\n"
    yield b"\x01POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.0\r\n\r\n"


def _session_seeds() -> Iterable[bytes]:
    yield from RECORDED
    event = orjson.dumps({"specversion": "1.0", "id": "1", "source": "s", "type": "t", "subject": "q", "data": 1})
    for kind in (b"application/cloudevents+json", b"application/json"):
        head = b"POST /eventmesh/publish/t HTTP/1.1\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
        yield head % (kind, len(event)) + event
    yield b"GET /?code=102&contents=%5B%7B%22topic%22%3A%22t%22%2C%22msg%22%3A%22m%22%7D%5D HTTP/1.1\r\n\r\n"
    yield b"GET /?code=301&content=c&origtopic=t&extFields=%7B%22correlation99id%22%3A%22a%22%7D HTTP/1.1\r\n\r\n"


def _url_seeds() -> Iterable[bytes]:
    yield from (b"http://example.com:8080/a?b=c", b"https://[2606:4700::1111]/", b"http://8.8.8.8", b"http://u@h/")


TARGETS = [
    Target("http1", "requests of HTTP/1.1", requests, (), _request_seeds, WORDS, 1_200),
    Target("eventmesh-http", "a session of EventMesh over HTTP", session, (), _session_seeds, WORDS, 1_200),
    Target("outbound-url", "URLs that the broker may call", url, (), _url_seeds, URL_WORDS, 200),
]
