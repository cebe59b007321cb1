"""Fuzz target: one native session, driven by a script of frames, raw bytes, answers, deliveries and time.

    flags u8     1 the broker asks for credentials, 2 the peer begins logged in, 4 with every extension, 8 compressing
    items        verb u8 | size u8 | size bytes

A script can say everything that a peer, the engine and the clock can do to a session, in any order.
"""

import gzip
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import brotli

from tests.proof.fuzz_engine import Broken, Target
from tests.proof.fuzz_script import SessionScript, Verb, item, played
from tests.proof.fuzz_wire import JSON_WORDS, NOW, WORDS, recorded_bodies, recorded_streams
from vibemq.errors import AuthFailed, NoReply, QueueFull, QueueNotFound, VibeMQError
from vibemq.model.commands import DescribeQueue, ListQueues, Publish
from vibemq.model.effects import Deliver, Published, QueuePage, Reply, Responded
from vibemq.model.options import QueueOptions
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec import extensions as ext
from vibemq.protocols.native.codec.frames import HEADER, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.protocols.session import Authenticate, OperationRequest, Principal, SessionLimits
from vibemq.storage.kvstore.encoding import decode_batch, encode_batch
from vibemq.testing.session_conformance import SESSION, context

LIMITS = SessionLimits(body_bytes_max=16_384, handshake_bytes_max=512, idle_timeout_ms=10_000)
ALL_EXTENSIONS = ",".join(ext.EXTENSIONS)
_HELD = Rows.of([pack_row("h1", b"1"), pack_row("h2", b"\xff"), pack_row("h3", b'{"a":1}', [("k", "v")])])
_INFO = QueueInfo("q", 1, "ab", QueueOptions(message_ttl_ms=5), NOW, 1, 0, 0, 0, 1, 5, 1, 2, NOW)


class _Watched:
    """The session's own inflater, which must have nothing to do before the peer is known."""

    def __init__(self, session: NativeSession) -> None:
        self._session = session
        self._inflater = session._frame_parser._inflater

    def inflate(self, packed: bytes, flag: int) -> bytes:
        if self._session.principal is None:
            raise Broken("bytes of a stranger were decompressed")
        return self._inflater.inflate(packed, flag)


_ANSWERS: dict[str, Any] = {
    "user.list": {"users": [{"user": "a", "superuser": False, "created_at": NOW}], "next": None},
    "user.show": {"user": "a", "permissions": [{"queues": "q*", "actions": ["publish"]}]},
}
"""Of operations whose answers the session looks into."""


class Script(SessionScript):
    """A native session; a stranger's bytes are watched."""

    held = _HELD

    def __init__(self, flags: int) -> None:
        authentication = bool(flags & 1)
        session = NativeSession(
            context(authentication=authentication, limits=LIMITS),
            NativeSettings(prefetch=5, subscriptions_max=4, compression_threshold=20),
        )
        session._frame_parser._inflater = _Watched(session)  # type: ignore[assignment]
        super().__init__(session, NOW, authentication=authentication)
        self.reader = NativeFrameReader()
        if flags & 2:
            self.hear(encode_frame(_connect(extended=bool(flags & 4), compressing=bool(flags & 8))))

    def read(self) -> None:
        buffered = len(self.session._frame_parser._buffer)
        if self.session.principal is None and buffered > LIMITS.handshake_bytes_max + 256 + HEADER.size:
            raise Broken(f"{buffered} B of a stranger are kept")
        self.reader.receive_data(self.session.data_to_send())
        while bodies := self.reader.bodies():
            for body in bodies:
                self.kinds.add(("told", body[1]))
                decode_body(body) if body[1] < 60 or body[1] in (66, 99) else _PARSERS[body[1]](body)

    def authenticate(self, request: Authenticate) -> None:
        if not self.authentication or request.auth_token == "secret":
            self.session.authenticated(request.token, Principal("somebody", superuser=True))
        else:
            self.session.refused(request.token, AuthFailed("the token is not valid"))

    def asked(self, request: Any) -> None:
        if isinstance(request, Publish):
            _check_publish(request)
        super().asked(request)

    def effects(self, request: Any, well: bool) -> Iterator[Any]:
        yield Reply(SESSION, request.token, self.result(request) if well else QueueFull("q", "5 messages"))
        if isinstance(request, Publish) and request.requester is not None and well:
            said = request.rows if request.rows.size % 2 else NoReply("nobody has replied")
            yield Responded(SESSION, request.requester.token, said)

    def result(self, request: Any) -> Any:
        match request:
            case Publish():
                count = request.rows.count
                odd: dict[int, VibeMQError] | None = {count - 1: QueueFull("q", "5")} if count % 2 else None
                return Published(request.queue, 1, count, odd, {0: 7} if count > 1 else None)
            case DescribeQueue():
                return _INFO if request.queue == "q" else QueueNotFound(request.queue)
            case ListQueues():
                return QueuePage(["q"], [_INFO])
            case OperationRequest():
                return _ANSWERS.get(request.name, {})
            case _:
                return super().result(request)

    def delivery(self, consumer: int, number: int) -> Deliver:
        return Deliver(SESSION, consumer, "q", 1, 0, [(5, 7)], {6: 3}, settled=bool(number & 64))

    def verbs(self) -> Sequence[Verb]:
        _, _, _, _, *others = super().verbs()
        return (
            *(lambda verb, piece: self.hear(HEADER.pack(len(piece), 0) + piece),) * 5,
            lambda verb, piece: self.hear(piece),
            lambda verb, piece: self.hear(_packed(piece, verb)),
            *others,
        )


def _check_publish(request: Publish) -> None:
    """What reaches the engine can be stored, and read by whoever gets it."""
    record = MessagesAdded(1, 1, NOW, request.rows, request.extras)
    stored = decode_batch(b"".join(encode_batch([record])))[0]
    if not isinstance(stored, MessagesAdded) or list(stored.rows) != list(request.rows):
        raise Broken("published rows do not survive the journal")
    if (stored.extras or {}) != (request.extras or {}):
        raise Broken("what was published with a message does not survive the journal")
    for row in request.rows:
        view = RowView(row)
        if not view.message_id or view.payload is None or view.headers is None:
            raise Broken("a published row cannot be read")


def native_session(data: bytes) -> Hashable:
    return played(Script, data, 15)


def _packed(body: bytes, verb: int) -> bytes:
    packed = gzip.compress(body, 1, mtime=0) if verb & 0x80 else brotli.compress(body, quality=1)
    return HEADER.pack(len(packed), 1 if verb & 0x80 else 2) + packed


_PARSERS: dict[int, Callable[[bytes], object]] = {
    CommandType.PUBLISH_MANY_ACK: ext.parse_publish_many_ack,
    CommandType.DELIVER_MANY: ext.parse_deliver_many,
    CommandType.SUBSCRIPTION_ENDED: ext.parse_subscription_ended,
    CommandType.RESPONSE: ext.parse_response,
}


def _connect(*, extended: bool = False, compressing: bool = False) -> bytes:
    headers = {"authToken": "secret"}
    if extended:
        headers["supported-extensions"] = ALL_EXTENSIONS
    if compressing:
        headers["supported-compression"] = "gzip,brotli"
    return encode_body(CommandType.CONNECT, "c", headers=headers)


def _seeds() -> Iterable[bytes]:
    answer, deliver, wait = item(0x87), item(8, b"12"), item(9, b"x" * 200)
    refuse, end = item(0x07), item(10)
    bodies = [body for body in recorded_bodies() if len(body) < 256]
    for flags in (0, 1):
        yield bytes((flags,)) + b"".join(item(0, body) for body in bodies[:6])
    for number, body in enumerate(bodies):
        yield bytes((2 + number % 2,)) + item(0, body) + answer
    for flags in (2, 6, 14):
        talk = [encode_body(22, "s1", "q"), encode_body(20, "m1", "q", b"1"), encode_body(20, "m2", "q", b"[2]")]
        yield bytes((flags,)) + b"".join(item(0, body) for body in talk) + answer + deliver + end + wait
        yield bytes((flags,)) + item(0, talk[0]) + answer + deliver + item(0, encode_body(30, "h1")) + refuse
    bulk = [
        ext.publish_many("r", "q", _HELD, {0: {"priority": 2, "ttl_ms": 5, "delay_ms": 9, "dedup_id": "d"}}),
        ext.settle("s1", 1, [(5, 6)], delay_ms=5, reason="why"),
        ext.extend_many("s1", [(5, 5)], ack_timeout_ms=9),
        ext.flow("s1", 5, 100, 3),
        encode_body(66, "a", payload=b'{"verb":"queue.create","arguments":{"queue":"q","options":{"max_attempts":2}}}'),
        encode_body(31, "h1", headers={"verb": "retry", "delay-ms": "5"}),
        encode_body(24, "u", "q", headers={"subscription-id": "s1"}),
    ]
    subscribe = encode_body(
        22, "s1", "q", headers={"prefetch": "5", "credit": "9", "start": "sequence:5", "group": "g"}
    )
    for body in bulk:
        yield b"\x06" + item(0, subscribe) + answer + deliver + item(0, body) + answer
        yield b"\x0e" + item(6, body) + item(0x86, subscribe) + answer + deliver + refuse
    yield b"\x01" + item(5, recorded_streams()[0][:9]) + wait + item(11)
    yield b"\x03" + item(0, encode_body(2, "bye")) + item(11)


TARGETS = [
    Target(
        "native-session",
        "a session: peer, engine and clock in any order",
        native_session,
        (),
        _seeds,
        WORDS + JSON_WORDS,
        1200,
    )
]
