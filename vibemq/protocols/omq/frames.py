"""Frames from the broker, and the handshake.

    length   u32 BE   counts the type and the payload
    type     u8       0 Error · 1 Ping · 2 Message · 3 Subscribed · 4 Unsubscribed
    payload

Source: docs/spec/omq.md, "Frames".
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from vibemq.model.rows import Rows
from vibemq.protocols.omq.commands import NotACommand
from vibemq.protocols.omq.scalars import int64_of_text
from vibemq.protocols.omq.sexp import Sexp, SexpReader, print_sexp

VERSION = 1
HANDSHAKE = struct.Struct("!q")
ACCEPTED = HANDSHAKE.pack(VERSION)
REFUSED = HANDSHAKE.pack(-1)

_HEAD = struct.Struct("!IB")
_PING = struct.Struct("!IBI")
_MESSAGE = struct.Struct("!IBQI")
_MESSAGE_BYTES = 13
"""Of a Message with an empty body, without the length."""
_U32 = struct.Struct("!I")


class FrameType(IntEnum):
    ERROR = 0
    PING = 1
    MESSAGE = 2
    SUBSCRIBED = 3
    UNSUBSCRIBED = 4


@dataclass(frozen=True, slots=True)
class Topic:
    """`{ id : Id.t; topic : string }`, the payload of Subscribed and Unsubscribed."""

    id: int
    topic: bytes


def print_topic(topic: Topic) -> bytes:
    return print_sexp(((b"id", b"%d" % topic.id), (b"topic", topic.topic)))


def parse_topic(value: Sexp) -> Topic:
    """Fields in any order. Raises NotACommand when one is missing, unknown or there twice."""
    fields: dict[bytes, bytes] = {}
    for pair in value if isinstance(value, tuple) else ():
        match pair:
            case (bytes() as name, bytes() as text) if name in (b"id", b"topic") and name not in fields:
                fields[name] = text
            case _:
                raise NotACommand("a topic is ((id N)(topic NAME))")
    if len(fields) != 2:
        raise NotACommand("a topic is ((id N)(topic NAME))")
    try:
        return Topic(int64_of_text(fields[b"id"].decode("latin-1")), fields[b"topic"])
    except ValueError as error:
        raise NotACommand(f"id: {error}") from None


def error_frame(text: str) -> bytes:
    return _frame(FrameType.ERROR, text.encode("utf-8", errors="replace"))


def ping_frame(second: int) -> bytes:
    """`second` since 1970; beyond 2106 its lower 32 bits."""
    return _PING.pack(5, FrameType.PING, second & 0xFFFF_FFFF)


def subscribed_frame(topic: Topic) -> bytes:
    return _frame(FrameType.SUBSCRIBED, print_topic(topic))


def unsubscribed_frame(topic: Topic) -> bytes:
    return _frame(FrameType.UNSUBSCRIBED, print_topic(topic))


def _frame(kind: FrameType, payload: bytes) -> bytes:
    return _HEAD.pack(1 + len(payload), kind) + payload


def message_frames(rows: Rows, first_id: int, topic_id: int) -> bytes:
    """One Message for each row, its payload as it was published, numbered from `first_id` on."""
    data, offset = rows.data, 0
    pack, size_at = _MESSAGE.pack, _U32.unpack_from
    parts: list[bytes] = []
    add = parts.append
    for number, length in enumerate(rows.row_lengths(), first_id):
        at = offset + 2 + (data[offset] << 8 | data[offset + 1])
        (size,) = size_at(data, at)
        add(pack(_MESSAGE_BYTES + size, 2, number, topic_id))
        add(data[at + 4 : at + 4 + size])
        offset += length
    return b"".join(parts)


# -- the client's side ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Error:
    text: str


@dataclass(frozen=True, slots=True)
class Ping:
    second: int


@dataclass(frozen=True, slots=True)
class MessageFrame:
    id: int
    topic_id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SubscribedFrame:
    topic: Topic


@dataclass(frozen=True, slots=True)
class UnsubscribedFrame:
    topic: Topic


Frame = Error | Ping | MessageFrame | SubscribedFrame | UnsubscribedFrame


class OmqFrameReader:
    """Cuts what a broker sends (behind the handshake) into frames, however the network cut it first."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> None:
        self._buffer += data

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    def frames(self) -> Iterator[Frame]:
        """Yield each whole frame. Raises ValueError for one that breaks the protocol."""
        at = 0
        try:
            while len(self._buffer) - at >= _HEAD.size:
                size, kind = _HEAD.unpack_from(self._buffer, at)
                if size < 1:
                    raise ValueError("a frame of no length")
                end = at + 4 + size
                if len(self._buffer) < end:
                    break
                payload = bytes(self._buffer[at + _HEAD.size : end])
                at = end
                yield decode_frame(kind, payload)
        finally:
            del self._buffer[:at]


def decode_frame(kind: int, payload: bytes) -> Frame:
    """Raises ValueError."""
    match FrameType(kind):
        case FrameType.ERROR:
            return Error(payload.decode())
        case FrameType.PING:
            if len(payload) != 4:
                raise ValueError(f"a Ping of {len(payload)} bytes")
            return Ping(int.from_bytes(payload, "big"))
        case FrameType.MESSAGE:
            if len(payload) < 12:
                raise ValueError(f"a Message of {len(payload)} bytes")
            return MessageFrame(int.from_bytes(payload[:8], "big"), int.from_bytes(payload[8:12], "big"), payload[12:])
        case FrameType.SUBSCRIBED:
            return SubscribedFrame(parse_topic(_only_value(payload)))
        case FrameType.UNSUBSCRIBED:
            return UnsubscribedFrame(parse_topic(_only_value(payload)))


def _only_value(text: bytes) -> Sexp:
    reader = SexpReader(bytes_max=len(text) + 1)
    reader.receive_data(text)
    values = list(reader.values())
    if len(values) != 1 or reader.unfinished:
        raise ValueError("one S-expression and nothing else is expected")
    return values[0]
