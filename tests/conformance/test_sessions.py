"""Every protocol's session keeps the promises of `vibemq.protocols.session`."""

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

import orjson
import pytest

from tests.interop.blazingmq.model_sdk import ModelSdk
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.blazingmq import BlazingmqSession, BlazingmqSettings
from vibemq.protocols.blazingmq.codec.control import encode_authentication
from vibemq.protocols.blazingmq.codec.events import HEARTBEAT_RSP, ControlCodec
from vibemq.protocols.blazingmq.codec.messages import (
    AuthenticationRequest,
    ClientLanguage,
    ConfigureStream,
    ConsumerInfo,
    Expression,
    StreamParameters,
    StreamSubscription,
)
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message
from vibemq.protocols.blazingmq.settings import Domain
from vibemq.protocols.eventmesh import EventMeshSession, EventMeshSettings
from vibemq.protocols.eventmesh.http import EventMeshHttpSession, EventMeshHttpSettings
from vibemq.protocols.eventmesh.tcp.frames import EventMeshDialect
from vibemq.protocols.eventmesh.tcp.frames import encode_frame as eventmesh_frame
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec.extensions import EXTENSIONS, publish_many, request, response, stage
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.omq import OmqSession, OmqSettings
from vibemq.protocols.omq.frames import ACCEPTED
from vibemq.protocols.session import SessionContext
from vibemq.testing.session_conformance import CHECKS, QUEUE, Dialect, check_session, connections, messages

BROKEN = (b"\0\0\0\1\0\1", b"\xff\xff\xff\xff\0", b"\0\0\0\3\xff\1\2\3", b"\0\0\0\2\0\1\2")


def frame(kind: CommandType, message_id: str, queue: str = "", payload: bytes = b"", **headers: str) -> bytes:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return encode_frame(encode_body(kind, message_id, queue, payload, named))


def timed_frame(message_id: str, delay_ms: int, ttl_ms: int) -> bytes:
    """PUBLISH with headers that were met before."""
    times = {"vibemq_delay_ms": str(delay_ms), "vibemq_ttl_ms": str(ttl_ms)}
    return frame(CommandType.PUBLISH, message_id, QUEUE, b"1", **times)


def timed_frame_with_news(message_id: str, delay_ms: int, ttl_ms: int) -> bytes:
    """The same with headers that no frame had before: they are read, not recognised."""
    times = {"vibemq_delay_ms": str(delay_ms), "vibemq_ttl_ms": str(ttl_ms)}
    return frame(CommandType.PUBLISH, message_id, QUEUE, b"1", news=message_id, **times)


def timed_many(message_id: str, delay_ms: int, ttl_ms: int) -> bytes:
    extras = {0: {"delay_ms": delay_ms, "ttl_ms": ttl_ms}}
    return encode_frame(publish_many("r-" + message_id, QUEUE, Rows.of([pack_row(message_id, b"1")]), extras))


def timed_stage(message_id: str, delay_ms: int, ttl_ms: int) -> bytes:
    about = {"app": "app", "version": 1, "stage": message_id, "chunk": 0}
    extras = {0: {"delay_ms": delay_ms, "ttl_ms": ttl_ms}}
    return encode_frame(stage("r-" + message_id, QUEUE, about, Rows.of([pack_row(message_id, b"1")]), extras))


NATIVE = Dialect(
    name="native, as .NET speaks it",
    create=lambda context: NativeSession(context, NativeSettings()),
    hello=encode_frame(
        encode_body(CommandType.CONNECT, "hello", headers={"authUsername": "somebody", "authPassword": "secret"})
    ),
    publish=lambda message_id, payload: frame(CommandType.PUBLISH, message_id, QUEUE, payload),
    subscribe=lambda: frame(CommandType.SUBSCRIBE, "s1", QUEUE),
    broken=BROKEN,
    timed={"Publish": timed_frame, "Publish, new headers": timed_frame_with_news},
)


def bulk_hello(extensions: str) -> bytes:
    return encode_frame(
        encode_body(CommandType.CONNECT, "hello", headers={"authToken": "secret", "supported-extensions": extensions})
    )


NATIVE_BULK = Dialect(
    name="native with batch/1",
    create=lambda context: NativeSession(context, NativeSettings()),
    hello=bulk_hello("batch/1,admin/1,cursor/1,request/1"),
    publish=lambda message_id, payload: encode_frame(
        publish_many("request-" + message_id, QUEUE, Rows.of([pack_row(message_id, payload)]))
    ),
    subscribe=lambda: frame(CommandType.SUBSCRIBE, "s1", QUEUE),
    broken=BROKEN,
    publishes_alone=True,
    timed={
        "Publish": timed_frame,
        "Publish, new headers": timed_frame_with_news,
        "PublishMany": timed_many,
        "Stage": timed_stage,
    },
    request=lambda message_id, payload: encode_frame(request(message_id, QUEUE, pack_row("m", payload), 2_000)),
    respond=lambda message_id, address, payload: encode_frame(response(message_id, address, pack_row("m", payload))),
    share=lambda message_id, share, messages: frame(
        CommandType.SUBSCRIBE, message_id, QUEUE, share=share, prefetch=str(messages)
    ),
)

NATIVE_ALL = replace(
    NATIVE_BULK,
    name="native with every extension",
    hello=bulk_hello(",".join(EXTENSIONS)),
)

NATIVE_FAILURES = replace(
    NATIVE_BULK,
    name="native with batch/1 and failures/1",
    hello=bulk_hello("batch/1,admin/1,cursor/1,request/1,failures/1"),
)

OMQ = Dialect(
    name="the OCaml message queue",
    create=lambda context: OmqSession(context, OmqSettings()),
    hello=ACCEPTED + b"(Connect 1 somebody:secret)\n",
    publish=None,
    has_delay=False,
    has_ttl=False,
    subscribe=lambda: f"(Subscribe {QUEUE} From_beginning)\n".encode(),
    keep_alive=lambda now: f"(Ack {now // 1000})\n".encode(),
    silence_ms=OmqSettings().ack_timeout_ms,
    broken=(b")", b"(Ack |#)", b'(Ack "\\999")', b"(" * 65, b"(Ack " + b"1" * 65_536),
)


def blazingmq(language: ClientLanguage, codec: ControlCodec) -> Dialect:
    """A client that has opened the queue for reading and writing."""

    def create(context: SessionContext) -> BlazingmqSession:
        return BlazingmqSession(context, BlazingmqSettings(domains={"here": Domain(plain_names=True)}))

    basic = AuthenticationRequest(mechanism="basic", data=b"somebody:secret")
    sdk = ModelSdk(codec=codec, language=language)
    _, opening = sdk.open(f"bmq://here/{QUEUE}", 3)
    _, configuring = ModelSdk(codec=codec).request(
        ConfigureStream(
            q_id=3,
            stream_parameters=StreamParameters(
                subscriptions=(
                    StreamSubscription(
                        s_id=1,
                        expression=Expression(text=""),
                        consumers=(ConsumerInfo(max_unconfirmed_messages=10, max_unconfirmed_bytes=1_000),),
                    ),
                )
            ),
        )
    )
    event = HEARTBEAT_RSP
    return Dialect(
        name=f"BlazingMQ, {language.name}",
        create=create,
        hello=encode_authentication(codec, basic) + sdk.hello() + opening,
        publish=lambda message_id, payload: build_puts([put_message(3, message_id.encode().rjust(16), payload)]),
        has_delay=False,
        has_ttl=False,
        subscribe=lambda: configuring,
        broken=(
            b"\0\0\0\7" + event[4:],
            b"\0\0\0\x0a" + event[4:],
            b"\x80" + event[1:],
            b"\xff" * 8,
            event[:4] + b"\0" * 4,
        ),
        has_goodbye=False,
        keep_alive=lambda now: event,
        silence_ms=120_000 if language is ClientLanguage.E_CPP else None,
    )


def mesh_frame(dialect: EventMeshDialect, cmd: str, seq: str, body: object = None, protocol: str = "") -> bytes:
    header = {"cmd": cmd, "command": cmd, "code": 0, "seq": seq, "properties": {"protocoltype": protocol}}
    return eventmesh_frame(dialect, orjson.dumps(header), b"" if body is None else orjson.dumps(body))


def mesh_message(payload: bytes, **properties: str) -> dict[str, object]:
    return {"topic": QUEUE, "properties": properties, "body": payload.decode()}


def mesh_event(message_id: str, ttl_ms: int) -> dict[str, object]:
    """A CloudEvent."""
    return {
        "specversion": "1.0",
        "id": message_id,
        "source": "/s",
        "type": "t",
        "subject": QUEUE,
        "ttl": str(ttl_ms),
        "data": "1",
    }


def mesh_timed(dialect: EventMeshDialect) -> dict[str, Callable[[str, int, int], bytes]]:
    """Each command that publishes, in each form; none of them has a delay."""

    def way(cmd: str, protocol: str) -> Callable[[str, int, int], bytes]:
        def publish(message_id: str, delay_ms: int, ttl_ms: int) -> bytes:
            message = mesh_message(b"1", ttl=str(ttl_ms))
            body = mesh_event(message_id, ttl_ms) if protocol else message
            return mesh_frame(dialect, cmd, message_id, body, protocol)

        return publish

    return {
        f"{cmd} {protocol or 'eventmeshmessage'}": way(cmd, protocol)
        for cmd in ("ASYNC_MESSAGE_TO_SERVER", "BROADCAST_MESSAGE_TO_SERVER")
        for protocol in ("", "cloudevents")
    }


def eventmesh(dialect: EventMeshDialect) -> Dialect:
    agent = {
        "group": "workers",
        "purpose": "sub",
        "version": "2",
        "username": "somebody",
        "password": "secret",
    }
    start = dialect.start
    return Dialect(
        name=f"EventMesh over TCP, {dialect.name}",
        create=lambda context: EventMeshSession(
            context, EventMeshSettings(create_topics=False, answer_late_requests=True)
        ),
        hello=mesh_frame(dialect, "HELLO_REQUEST", "1", agent),
        publish=lambda name, payload: mesh_frame(dialect, "ASYNC_MESSAGE_TO_SERVER", name, mesh_message(payload)),
        timed=mesh_timed(dialect),
        has_delay=False,
        subscribe=lambda: mesh_frame(
            dialect, "SUBSCRIBE_REQUEST", "2", {"topicList": [{"topic": QUEUE, "mode": "CLUSTERING", "type": "ASYNC"}]}
        ),
        request=lambda name, payload: mesh_frame(dialect, "REQUEST_TO_SERVER", name, mesh_message(payload, ttl="2000")),
        broken=(
            b"WEMX0000" + bytes(8),
            start[:-1] + b"1" + bytes(8),
            start + b"\0\0\0\x40\0\0\0\0",
            start + b"\0\x50\0\0\0\0\0\x20",
            start + b"\0\0\0\x20\0\0\0\x40",
            eventmesh_frame(dialect, b"{"),
            eventmesh_frame(dialect, b"[]"),
            mesh_frame(dialect, "NOT_A_COMMAND", "3"),
        ),
        on_wire=lambda payload: orjson.dumps(payload.decode()),
        silence_ms=EventMeshSettings().idle_timeout_ms,
    )


EVENTMESH = [eventmesh(dialect) for dialect in EventMeshDialect]
DIALECTS = [
    NATIVE,
    NATIVE_BULK,
    NATIVE_FAILURES,
    NATIVE_ALL,
    OMQ,
    *EVENTMESH,
    blazingmq(ClientLanguage.E_CPP, ControlCodec.BER),
    blazingmq(ClientLanguage.E_JAVA, ControlCodec.JSON),
]


SOMEBODY = ("username: somebody", "passwd: secret")


def http_post(path: str, body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"POST {path} HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def http_form(code: int, *headers: str, **fields: str) -> bytes:
    kind = "content-type: application/x-www-form-urlencoded"
    return http_post("/", urlencode(fields).encode(), f"code: {code}", kind, *headers, *SOMEBODY)


def http_publish(message_id: str, payload: bytes) -> bytes:
    return http_form(104, topic=QUEUE, content=payload.decode(), uniqueid=message_id, bizseqno=message_id)


def http_batch(message_id: str, ttl_ms: int) -> bytes:
    message = {"topic": QUEUE, "msg": "1", "uniqueid": message_id, "ttl": str(ttl_ms)}
    return http_form(102, contents=orjson.dumps([message]).decode(), size="1")


def http_event_of_headers(message_id: str, ttl_ms: int) -> bytes:
    event = {name: value for name, value in mesh_event(message_id, ttl_ms).items() if name != "data"}
    attributes = [f"ce-{name}: {value}" for name, value in event.items()]
    return http_post("/", b"1", "content-type: text/plain", *attributes, *SOMEBODY)


def http_event(message_id: str, ttl_ms: int, path: str = "/") -> bytes:
    body = orjson.dumps(mesh_event(message_id, ttl_ms))
    return http_post(path, body, "content-type: application/cloudevents+json", *SOMEBODY)


def http_events(message_id: str, ttl_ms: int) -> bytes:
    body = orjson.dumps([mesh_event(message_id, ttl_ms)])
    return http_post("/", body, "content-type: application/cloudevents-batch+json", *SOMEBODY)


PATH = f"/eventmesh/publish/{QUEUE}"
HTTP_TIMED: dict[str, Callable[[str, int, int], bytes]] = {
    "code 104": lambda name, delay_ms, ttl_ms: http_form(104, topic=QUEUE, content="1", ttl=str(ttl_ms)),
    "code 104, CloudEvent": lambda name, delay_ms, ttl_ms: http_form(
        104, "protocoltype: cloudevents", content=orjson.dumps(mesh_event(name, ttl_ms)).decode()
    ),
    "code 102": lambda name, delay_ms, ttl_ms: http_batch(name, ttl_ms),
    "code 107": lambda name, delay_ms, ttl_ms: http_form(107, topic=QUEUE, content="1", ttl=str(ttl_ms)),
    "CloudEvent": lambda name, delay_ms, ttl_ms: http_event(name, ttl_ms),
    "CloudEvent in headers": lambda name, delay_ms, ttl_ms: http_event_of_headers(name, ttl_ms),
    "CloudEvents": lambda name, delay_ms, ttl_ms: http_events(name, ttl_ms),
    "CloudEvent to a path": lambda name, delay_ms, ttl_ms: http_event(name, ttl_ms, PATH),
    "any JSON to a path": lambda name, delay_ms, ttl_ms: http_post(
        PATH, b"{}", "content-type: application/json", f"ttl: {ttl_ms}", *SOMEBODY
    ),
}


EVENTMESH_HTTP = Dialect(
    name="EventMesh over HTTP",
    create=lambda context: EventMeshHttpSession.alone(context, EventMeshHttpSettings(create_topics=False)),
    # The first request logs in, as every other does whose credentials differ.
    hello=http_post("/eventmesh/subscribe/none", b"", *SOMEBODY),
    publish=http_publish,
    timed=HTTP_TIMED,
    has_delay=False,
    subscribe=lambda: http_post("/eventmesh/subscribe/none", b"", *SOMEBODY),
    publishes_alone=True,
    has_goodbye=False,
    keep_alive=lambda now: http_post("/eventmesh/subscribe/none", b"", *SOMEBODY),
    silence_ms=EventMeshHttpSettings().keep_alive_ms,
)
"""It has a part of the contract only: HTTP has no handshake, no goodbye and nothing that is delivered to its sender;
one request is answered before the next is looked at, and what cannot be read is answered, too. `HTTP_CHECKS` can be put
to it; subscriptions are the hub's, and tests/integration/test_eventmesh_push.py has them."""
HTTP_CHECKS = (
    connections.check_has_every_member,
    connections.check_silent_until_spoken_to,
    messages.check_publish_refused,
    connections.check_any_cut_is_the_same,
    connections.check_garbage,
    connections.check_end_of_stream,
    messages.check_relative_times_on_a_busy_connection,
    connections.check_silence_counts_from_the_last_word,
    connections.check_shutdown,
)


@pytest.mark.parametrize("check", HTTP_CHECKS, ids=lambda check: check.__name__)
def test_what_of_the_promises_fits_http(check) -> None:
    check(EVENTMESH_HTTP)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_session_keeps_its_promises(check, dialect) -> None:
    check(dialect)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_the_suite_as_a_whole(dialect) -> None:
    check_session(dialect)


@pytest.mark.parametrize("dialect", [NATIVE, *EVENTMESH, EVENTMESH_HTTP], ids=lambda dialect: dialect.name)
def test_a_protocol_with_a_ttl_shows_from_when_it_counts(dialect) -> None:
    with pytest.raises(AssertionError, match="with a delay or a ttl says them"):
        messages.check_relative_times_on_a_busy_connection(replace(dialect, timed={}))


class Without:
    """A session from outside, with all but one member, or with one that is something else."""

    def __init__(self, session: object, name: str, instead: object = None) -> None:
        self._session = session
        self._name = name
        self._instead = instead

    def __getattr__(self, name: str) -> object:
        if name != self._name:
            return getattr(self._session, name)
        if self._instead is None:
            raise AttributeError(name)
        return self._instead


@pytest.mark.parametrize(
    ("name", "instead", "said"),
    [
        ("keeps_back", None, "has no keeps_back, .*: inherit vibemq.protocols.session.OptionalVerbs"),
        ("bytes_at_once", None, "has no bytes_at_once"),
        ("unread", None, "has no unread, .*: write it"),
        ("unbegun", (), "unbegun of a session must be a method"),
        ("closing", bool, "closing of a session must be a property"),
    ],
)
def test_a_member_that_is_missing_or_something_else_is_told(name, instead, said) -> None:
    plain = DIALECTS[0]
    outside = replace(plain, create=lambda its: Without(plain.create(its), name, instead))
    with pytest.raises(AssertionError, match=said):
        check_session(outside)
