"""Fuzz targets: EventMesh over TCP. Frames however they are cut, messages of both forms, and one session by script."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import orjson

from tests.proof.fuzz_engine import Broken, Target
from tests.proof.fuzz_script import SessionScript, Verb, item, played
from vibemq.errors import EngineError, InvalidMessage, NoReply, RemoteProtocolError
from vibemq.model.commands import DescribeQueue, Publish
from vibemq.model.effects import Reply, Responded
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.protocols.eventmesh import EventMeshSession, EventMeshSettings
from vibemq.protocols.eventmesh.messages import forms
from vibemq.protocols.eventmesh.messages.attributes import is_readable
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.rows_of import RowsOf
from vibemq.protocols.eventmesh.tcp.frames import (
    EventMeshDialect,
    EventMeshFrameReader,
    FrameLimits,
    encode_frame,
)
from vibemq.protocols.eventmesh.tcp.package import read_package
from vibemq.protocols.session import SessionLimits
from vibemq.testing.session_conformance import NOW, SESSION, context

DIALECTS = tuple(EventMeshDialect)
LIMITS = FrameLimits(4_000, 1_000)


def frame(dialect: EventMeshDialect, cmd: str, body: object = None, *, key: str = "cmd", form: str = "") -> bytes:
    header = orjson.dumps({key: cmd, "code": 0, "seq": "7", "properties": {"protocoltype": form} if form else {}})
    return encode_frame(dialect, header, b"" if body is None else orjson.dumps(body))


EVENT = {"specversion": "1.0", "id": "e", "source": "/", "type": "t", "subject": "q"}
MESSAGES = (
    b'{"topic":"q","properties":{"ttl":"4000","keys":"k"},"headers":{"datacontenttype":"text/plain"},"body":"x"}',
    b'{"topic":"q","properties":{"TTL":4000,"":"","reply-to":"a"},"body":{"a":1}}',
    b'{"topic":"q","properties":{"eventmesh-encoding":"base64","correlation99id":"c"},"body":"/w=="}',
    orjson.dumps(EVENT | {"data": {"a": [1.5, "b"]}, "datacontenttype": "application/json", "ext": 5}),
    orjson.dumps(EVENT | {"data_base64": "/w==", "eventmeshproperties": '{"K":"v"}', "cluster": "x"}),
    orjson.dumps(EVENT | {"specversion": "0.3", "datacontentencoding": "base64", "data": "e30="}),
)
WORDS = (
    *MESSAGES,
    *(b'"data":', b'"data_base64":', b'"subject":', b'"ttl":', b'"TTL":', b'"body":', b'"topic":', b"null", b"{}"),
    *(b"application/json", b"text/plain", b"application/cloudevents+json", b'"seq":', b'"command":', b"\\u0000"),
    *(b"WEMQ0000", b"EventMesh0000", b"SUBSCRIBE_REQUEST", b"RESPONSE_TO_SERVER", b"\0\0\0\x0d", b"eventmesh-"),
)


# -- frames -------------------------------------------------------------------------------------------------------


def frames(data: bytes) -> Hashable:
    """The first byte says how the stream is cut; however it is, the same frames come out, and are written the same."""
    if not data:
        return None
    whole, pieces = _frames(data[1:], len(data)), _frames(data[1:], 1 + data[0] % 37)
    if whole != pieces:
        raise Broken("another cut of the stream, other frames")
    got, dialect, failed = whole
    if (
        dialect is not None
        and not b"".join(encode_frame(dialect, *each) for each in got) == data[1:][: _size(got, dialect)]
    ):
        raise Broken("frames change when they are written again")
    return dialect, failed, *map(_package, got[:3])


def _size(got: list[Any], dialect: EventMeshDialect) -> int:
    return sum(len(dialect.start) + 8 + len(each.header) + len(each.body) for each in got)


def _frames(stream: bytes, step: int) -> tuple[list[Any], EventMeshDialect | None, bool]:
    reader = EventMeshFrameReader(LIMITS)
    got: list[Any] = []
    try:
        for start in range(0, len(stream), step):
            reader.receive_data(stream[start : start + step])
            while (found := reader.next_frame()) is not None:
                got.append(found)
    except RemoteProtocolError:
        return got, reader.dialect, True
    return got, reader.dialect, False


def _package(found: Any) -> Hashable:
    try:
        package = read_package(found)
    except RemoteProtocolError:
        return None
    return package.cmd, package.old, bool(package.seq)


def _frame_seeds() -> Iterable[bytes]:
    agent = {"purpose": "sub", "group": "g", "version": "2"}
    for dialect in DIALECTS:
        hello = frame(dialect, "HELLO_REQUEST", agent, key="command")
        for other in DIALECTS:
            yield b"\x05" + hello + frame(other, "LISTEN_REQUEST") + frame(other, "HEARTBEAT_REQUEST", {})


# -- messages -----------------------------------------------------------------------------------------------------


def message(data: bytes) -> Hashable:
    """What is a message becomes a row, and from then on there is no form in which it cannot be written and read."""
    rows = RowsOf(headers_max=50, header_value_units_max=4_096)
    return tuple(_message(rows, form, data) for form in Form)


def _message(rows: RowsOf, form: Form, data: bytes) -> Hashable:
    try:
        received = forms.read(form, data).check(headers_max=50, header_value_units_max=4_096)
        row = received.row("fresh")
    except (InvalidMessage, EngineError) as error:
        for _ in range(3):
            try:
                rows.row(form, data, b"fresh")
            except (InvalidMessage, EngineError):
                continue
            raise Broken("the quick way takes what the other refuses") from None
        return type(error).__name__
    for _ in range(3):
        quick = rows.row(form, data, b"fresh")
        first, second = RowView(quick.row), RowView(row)
        if (first.message_id, first.payload, first.headers) != (second.message_id, second.payload, second.headers):
            raise Broken("two ways to a row, two rows")
        if (quick.topic, quick.ttl_ms) != (received.topic, received.ttl_ms):
            raise Broken("two ways to a row, another topic or time to live")
    view = RowView(row)
    for other in Form:
        written = forms.write(other, received.topic, view.message_id, view.payload, view.headers)
        if not _ends_no_client(other, orjson.loads(written)):
            raise Broken(f"written as {other}, a client of Java ends its connection at it")
        again = forms.read(other, written)
        if again.payload != view.payload or again.topic != received.topic:
            raise Broken(f"written as {other}, it has another payload or topic")
    received.as_reply()
    return form, bool(received.ttl_ms), len(received.headers) > 5


def _ends_no_client(form: Form, fields: dict[str, Any]) -> bool:
    if form is Form.MESSAGE:
        texts = [*fields["properties"].values(), *fields["headers"].values(), fields["body"]]
        return not any(isinstance(each, dict | list) for each in texts)
    data = ("data", "data_base64", "datacontentencoding")
    return all(isinstance(each, str) and is_readable(name, each) for name, each in fields.items() if name not in data)


def _message_seeds() -> Iterable[bytes]:
    yield from MESSAGES


# -- a session ----------------------------------------------------------------------------------------------------

_HELD = Rows.of(
    [
        pack_row("h1", b"1", [("reply-to", "a" * 32), ("correlation-id", "c")]),
        pack_row("h2", b"\xff\0", [("ce-specversion", "1.0"), ("eventmesh-properties", "[")]),
        pack_row("h3", b"", [("eventmesh-command", "broadcast")]),
    ]
)
_LIMITS = SessionLimits(handshake_timeout_ms=5_000)


class MeshScript(SessionScript):
    held = _HELD

    def __init__(self, flags: int) -> None:
        authentication = bool(flags & 1)
        session = EventMeshSession(
            context(authentication=authentication, limits=_LIMITS),
            EventMeshSettings(
                subscriptions_max=4, unanswered_max=8, idle_timeout_ms=9_000, answer_late_requests=bool(flags & 4)
            ),
        )
        super().__init__(session, NOW, authentication=authentication)
        self.dialect = DIALECTS[(flags >> 4) % 3]
        self.reader = EventMeshFrameReader(FrameLimits(1 << 24, 1 << 16))
        if flags & 2:
            agent = {"purpose": "sub", "group": "g", "version": "2", "username": "u", "password": "secret"}
            self.hear(frame(self.dialect, "HELLO_REQUEST", agent, key="command" if flags & 8 else "cmd"))

    def read(self) -> None:
        """What the peer gets is frames whose headers have every spelling, and that acknowledge what was asked."""
        told = self.session.data_to_send()
        if told:
            self.reader.receive_data(told)
        while (found := self.reader.next_frame()) is not None:
            header = orjson.loads(found.header)
            if header["cmd"] != header["command"] or header.get("desc") != header.get("msg"):
                raise Broken(f"a header in one spelling only: {header}")
            if found.body:
                orjson.loads(found.body)
            self.kinds.add((header["cmd"], header["code"]))

    def asked(self, request: Any) -> None:
        if isinstance(request, DescribeQueue):
            self.session.apply([Reply(SESSION, request.token, None)])
        else:
            super().asked(request)

    def effects(self, request: Any, well: bool) -> Iterator[Any]:
        yield from super().effects(request, well)
        if isinstance(request, Publish) and request.requester is not None:
            end: Any = Rows.of([request.rows[0]]) if well else NoReply("nobody")
            yield Responded(SESSION, request.requester.token, end)

    def verbs(self) -> Sequence[Verb]:
        """The fourth is a body of the script's own in a sound frame."""
        common = super().verbs()
        return (*common[:3], self._hear_framed, *common[4:])

    def _hear_framed(self, verb: int, piece: bytes) -> None:
        self.hear(encode_frame(self.dialect, _HEADERS[verb // 9 % len(_HEADERS)], piece))


def session(data: bytes) -> Hashable:
    return played(MeshScript, data, 63)


_CMDS = (
    *("SUBSCRIBE_REQUEST", "ASYNC_MESSAGE_TO_SERVER", "REQUEST_TO_SERVER", "RESPONSE_TO_SERVER", "LISTEN_REQUEST"),
    *("BROADCAST_MESSAGE_TO_SERVER", "HELLO_REQUEST", "UNSUBSCRIBE_REQUEST", "CLIENT_GOODBYE_REQUEST"),
    *("ASYNC_MESSAGE_TO_CLIENT_ACK", "REQUEST_TO_CLIENT_ACK", "HEARTBEAT_REQUEST", "REDIRECT_TO_CLIENT"),
)
_HEADERS = tuple(
    orjson.dumps({"cmd": cmd, "seq": seq, "properties": {"protocoltype": form}})
    for cmd in _CMDS
    for seq, form in (("1", "eventmeshmessage"), (2, "cloudevents"))
)


def _spoken(cmd: str, body: bytes = b"", *, event: bool = False) -> bytes:
    return item(3 + 9 * ((_CMDS.index(cmd) * 2 + event) % 28), body)


_ANSWER, _REFUSE, _DELIVER, _WAIT = item(0x88 + 1), item(4), item(5, b"1"), item(6, b"x" * 100)


def _session_seeds() -> Iterable[bytes]:
    topics = b'{"topicList":["q",{"topic":"r","mode":"BROADCASTING","type":"SYNC"}]}'
    begin = _spoken("SUBSCRIBE_REQUEST", topics) + _ANSWER + _spoken("LISTEN_REQUEST") + _DELIVER
    ends = _spoken("UNSUBSCRIBE_REQUEST") + _ANSWER + _spoken("CLIENT_GOODBYE_REQUEST") + _WAIT * 3
    for flags in (0x02, 0x12, 0x22, 0x0A, 0x03, 0x16):
        lead = bytes((flags,))
        yield (
            lead + begin + _spoken("ASYNC_MESSAGE_TO_CLIENT_ACK") + _spoken("REQUEST_TO_CLIENT_ACK", event=True) + ends
        )
        for cmd in ("ASYNC_MESSAGE_TO_SERVER", "BROADCAST_MESSAGE_TO_SERVER", "REQUEST_TO_SERVER"):
            yield lead + _spoken(cmd, MESSAGES[0]) + _ANSWER + _spoken(cmd, MESSAGES[3], event=True) + _REFUSE + _ANSWER
        yield (
            lead
            + begin
            + _spoken("RESPONSE_TO_SERVER", MESSAGES[2])
            + _spoken("RESPONSE_TO_SERVER", MESSAGES[0])
            + ends
        )
    yield b"\x00" + item(0, frame(DIALECTS[0], "LISTEN_REQUEST")) + item(8)
    yield b"\x02" + begin + item(7) + _WAIT


TARGETS = [
    Target("eventmesh-frames", "frames of EventMesh", frames, (), _frame_seeds, WORDS, 600),
    Target("eventmesh-message", "messages and CloudEvents of EventMesh", message, (), _message_seeds, WORDS, 400),
    Target("eventmesh-session", "a session of EventMesh by script", session, (), _session_seeds, WORDS, 600),
]
