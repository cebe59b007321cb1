"""A peer's view of one native session, and the frames it writes."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from vibemq.model import commands as c
from vibemq.model.effects import Deliver, Reply, Subscribed
from vibemq.model.rows import Rows
from vibemq.model.stored import Slice
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import BODY_BYTES_MAX, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.json_check import values_in
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import WireMessage, decode_body, encode_body
from vibemq.protocols.session import Authenticate, Principal, Request, SessionLimits
from vibemq.testing.session_conformance import NOW, SESSION, context

ALL = "settle/1,batch/1,admin/1"
ROOT = Principal("root", superuser=True)


def frame(kind: int, message_id: str, queue: str = "", payload: bytes = b"", headers=()) -> bytes:
    return encode_frame(encode_body(kind, message_id, queue, payload, headers))


class ValuesRead:
    """Counts the values of the JSON that is read in place of `orjson.loads`; one turn at a time."""

    JSONDecodeError = orjson.JSONDecodeError
    dumps = staticmethod(orjson.dumps)

    def __init__(self) -> None:
        self.of_turns = [0]

    def loads(self, text: bytes) -> object:
        self.of_turns[-1] += values_in(text)
        return orjson.loads(text)

    def turn(self) -> None:
        self.of_turns.append(0)


class Peer:
    """A peer's view of one session."""

    def __init__(
        self,
        *,
        authentication: bool = False,
        connect: dict[str, str] | None = None,
        body_bytes_max: int = BODY_BYTES_MAX,
        **settings,
    ) -> None:
        limits = SessionLimits(handshake_bytes_max=1_000, body_bytes_max=body_bytes_max)
        self.is_read = True
        its = replace(context(authentication=authentication, limits=limits), is_read=lambda: self.is_read)
        self.session = NativeSession(its, NativeSettings(**settings))
        self.reader = NativeFrameReader(body_bytes_max=body_bytes_max)
        if connect is not None:
            [request] = self.hear(frame(T.CONNECT, "hello", headers=connect))
            assert isinstance(request, Authenticate)
            self.session.authenticated(request.token, ROOT)
            self.ack = self.one()

    def hear(self, data: bytes) -> Sequence[Request]:
        self.session.receive_data(data)
        return self.session.commands()

    def ask(self, *arguments, **named) -> Request:
        [request] = self.hear(frame(*arguments, **named))
        return request

    def bodies(self) -> list[bytes]:
        self.reader.receive_data(self.session.data_to_send())
        return self.reader.bodies()

    def frames(self) -> list[WireMessage]:
        return [decode_body(body) for body in self.bodies()]

    def one(self) -> WireMessage:
        [message] = self.frames()
        return message

    def answer(self, request: Request, result: object) -> WireMessage:
        self.session.apply([Reply(SESSION, request.token, result)])  # type: ignore[union-attr]
        return self.one()

    def subscribed(self, message_id: str, queue: str = "q", headers=()) -> int:
        request = self.ask(T.SUBSCRIBE, message_id, queue, headers=headers)
        assert isinstance(request, c.Subscribe)
        self.answer(request, Subscribed(queue, "g", request.consumer, 1))
        return request.consumer

    def deliver(self, consumer: int, first: int, *rows: bytes, queue_id: int = 1, **named) -> None:
        last = first + len(rows) - 1
        self.session.deliver(
            Deliver(SESSION, consumer, "q", queue_id, 0, [(first, last)], **named), [Slice(first, NOW, Rows.of(rows))]
        )


def plain(**settings) -> Peer:
    return Peer(connect={}, **settings)


def bulk(names: str = ALL, **settings) -> Peer:
    return Peer(connect={"supported-extensions": names}, **settings)


def publish_many(*rows: bytes, extras=None, queue: str = "q") -> bytes:
    return encode_frame(extensions.publish_many("r", queue, Rows.of(rows), extras))


def admin(verb: object, **arguments: object) -> bytes:
    return frame(T.ADMIN, "a", payload=orjson.dumps({"verb": verb, "arguments": arguments}))
