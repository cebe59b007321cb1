"""Bodies of the native protocol: bytes to `WireMessage` and back. No sockets, no clock, no compression.

    version  u8                     1; carried, never checked
    type     u8                     CommandType
    id       str16                  never empty
    queue    str16                  empty = absent
    payload  u32 size | bytes       empty = absent
    headers  u16 count | count x (str16 key, str16 value)
    code     str16                  only in an Error
    message  str16                  only in an Error

str16 is a u16 byte length and UTF-8. All integers are big-endian. Bytes after the last field are ignored.

Source: docs/spec/native.md, "Body".
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from vibemq.errors import InvalidMessage, LocalProtocolError, RemoteProtocolError
from vibemq.model.rows import header_pairs

VERSION = 1

U16 = struct.Struct("!H")
U32 = struct.Struct("!I")
I64 = struct.Struct("!q")

STR16_MAX = 0xFFFF


class CommandType(IntEnum):
    """The type byte; 31, 32, 60 to 74 exist only where the handshake agreed on their extension."""

    CONNECT = 0
    CONNECT_ACK = 1
    DISCONNECT = 2
    PING = 10
    PONG = 11
    PUBLISH = 20
    PUBLISH_ACK = 21
    SUBSCRIBE = 22
    SUBSCRIBE_ACK = 23
    UNSUBSCRIBE = 24
    UNSUBSCRIBE_ACK = 25
    DELIVER = 26
    ACK = 30
    NACK = 31
    EXTEND = 32
    CREATE_QUEUE = 40
    DELETE_QUEUE = 41
    QUEUE_INFO = 42
    LIST_QUEUES = 43
    ADMIN_CREATE_USER = 50
    ADMIN_DELETE_USER = 51
    ADMIN_CHANGE_PASSWORD = 52
    ADMIN_GRANT_PERMISSION = 53
    ADMIN_REVOKE_PERMISSION = 54
    ADMIN_LIST_USERS = 55
    ADMIN_GET_USER_PERMISSIONS = 56
    PUBLISH_MANY = 60
    PUBLISH_MANY_ACK = 61
    DELIVER_MANY = 62
    SETTLE = 63
    EXTEND_MANY = 64
    FLOW = 65
    ADMIN = 66
    SUBSCRIPTION_ENDED = 67
    REQUEST = 68
    RESPONSE = 69
    CURSOR_REQUEST = 70
    CURSOR_REPLY = 71
    COLUMNS = 72
    STAGE = 73
    DELIVER_SCATTERED = 74
    ERROR = 99


@dataclass(slots=True)
class WireMessage:
    """One decoded body. `type` is a plain number, because unknown ones decode too."""

    type: int
    id: str
    queue: str = ""
    """Empty = absent."""
    payload: bytes | None = None
    """None = absent; the bytes are as they came, unchecked."""
    headers: dict[str, str] = field(default_factory=dict)
    error_code: str | None = None
    error_message: str | None = None
    version: int = VERSION


def body_type(body: bytes) -> int:
    """The type byte of a body. Raises RemoteProtocolError when the body is too short to have one."""
    if len(body) < 2:
        raise RemoteProtocolError(f"a body of {len(body)} B has no type; the smallest body has 13 B")
    return body[1]


class TooManyHeaders(InvalidMessage):
    """Not all of them were read."""

    def __init__(self, message_id: str, count: int) -> None:
        super().__init__(f"{count:,} headers are too many")
        self.message_id = message_id
        self.count = count


def decode_body(body: bytes, headers_read_max: int = STR16_MAX) -> WireMessage:
    """Decode one uncompressed body of any plain type (66 included, 60 to 65 and 67 to 69 not: see `extensions`).

    Invalid UTF-8 reads as U+FFFD; pairs with an empty key or value are left out; of equal keys the last wins.

    Raises:
        RemoteProtocolError: a field is cut short or the id is empty.
        TooManyHeaders: more than `headers_read_max`.
    """
    try:
        version, kind = body[0], body[1]
        message_id, at = read_str16(body, 2)
        queue, at = read_str16(body, at)
        (payload_size,) = U32.unpack_from(body, at)
        headers_at = at + 4 + payload_size
        payload = body[at + 4 : headers_at] if payload_size else None
        if body[headers_at : headers_at + 2] == b"\0\0":
            headers: dict[str, str] = {}
            at = headers_at + 2
        else:
            (count,) = U16.unpack_from(body, headers_at)
            if count > headers_read_max:
                check_id(message_id)
                raise TooManyHeaders(message_id, count)
            headers = dict(header_pairs(body, headers_at))
            at = headers_end(body, headers_at) if kind == CommandType.ERROR else 0
        check_id(message_id)
        if kind != CommandType.ERROR:
            return WireMessage(kind, message_id, queue, payload, headers, None, None, version)
        code, at = read_str16(body, at)
        sentence, at = read_str16(body, at)
    except (struct.error, IndexError):
        raise RemoteProtocolError(f"a body of {len(body)} B ends inside a field") from None
    return WireMessage(kind, message_id, queue, payload, headers, code, sentence, version)


def check_id(message_id: str) -> None:
    """Whether an answer can have it. Bytes that are no UTF-8 read as characters of three bytes each.

    Raises:
        RemoteProtocolError: it is empty, or too long by that.
    """
    if not message_id:
        raise RemoteProtocolError("a frame has an empty id; ids have 1 to 65,535 bytes")
    if len(message_id) > STR16_MAX // 3 and len(message_id.encode()) > STR16_MAX:
        raise RemoteProtocolError("a frame has an id that is no UTF-8, and too long to be repeated in an answer")


def encode_body(
    kind: int,
    message_id: str | bytes,
    queue: str = "",
    payload: bytes = b"",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    *,
    error_code: str | None = None,
    error_message: str | None = None,
) -> bytes:
    """Encode one body of a plain type; an Error always carries its two strings.

    Raises:
        LocalProtocolError: an empty id, a string of more than 65,535 bytes, or too many headers.
    """
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if not message_id:
        raise LocalProtocolError("a frame needs an id that is not empty")
    if len(pairs) > STR16_MAX:
        raise LocalProtocolError(f"at most {STR16_MAX:,} headers fit into a frame, not {len(pairs)}")
    parts = [bytes((VERSION, kind)), str16(message_id), str16(queue), U32.pack(len(payload)), payload]
    parts.append(U16.pack(len(pairs)))
    for key, value in pairs:
        parts += (str16(key), str16(value))
    if kind == CommandType.ERROR:
        parts += (str16(error_code or ""), str16(error_message or ""))
    return b"".join(parts)


def encode_message(message: WireMessage) -> bytes:
    """`decode_body` turned round (version included; bytes that were ignored do not come back)."""
    body = encode_body(
        message.type,
        message.id,
        message.queue,
        message.payload or b"",
        message.headers,
        error_code=message.error_code,
        error_message=message.error_message,
    )
    return body if message.version == VERSION else bytes((message.version,)) + body[1:]


def str16(text: str | bytes) -> bytes:
    """Length and UTF-8. Raises LocalProtocolError above 65,535 bytes instead of wrapping the length."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    if len(raw) > STR16_MAX:
        raise LocalProtocolError(
            f"a string of {len(raw):,} bytes does not fit; ids, names and headers have at most 65,535"
        )
    return U16.pack(len(raw)) + raw


def read_str16(data: bytes, at: int) -> tuple[str, int]:
    """(text, offset behind it). Raises struct.error or IndexError when it is cut short."""
    (size,) = U16.unpack_from(data, at)
    end = at + 2 + size
    if end > len(data):
        raise IndexError("string is cut short")
    return data[at + 2 : end].decode(errors="replace"), end


def headers_end(data: bytes, at: int) -> int:
    """Offset behind the header block at `at`. Raises struct.error or IndexError when it is cut short."""
    (count,) = U16.unpack_from(data, at)
    at += 2
    for _ in range(2 * count):
        at += 2 + U16.unpack_from(data, at)[0]
    if at > len(data):
        raise IndexError("header block is cut short")
    return at
