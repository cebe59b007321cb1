"""Frames of the native protocol for a blocking client: bytes out, `WireReply` in. No sockets.

    frame   size u32 | flag u8 | body          body   version u8 | type u8 | id str16 | queue str16 | …

Own code instead of `vibemq.protocols.native`, which needs orjson and more than executors have.

Source: docs/spec/native.md and docs/spec/cursor.md.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vibemq.spark.errors import ConnectionLost, SourceError

CONNECT, CONNECT_ACK, DISCONNECT, PING, PONG, LIST_QUEUES = 0, 1, 2, 10, 11, 43
ADMIN = 66
PUBLISH_MANY, PUBLISH_MANY_ACK, CURSOR_REQUEST, CURSOR_REPLY, COLUMNS, STAGE, ERROR = 60, 61, 70, 71, 72, 73, 99

HEAD_BYTES = 5
ROWS_OVERHEAD_BYTES = 2 + 2 + 36 + 2 + 1024 + 4 + 1024 + 1 + 4 + 4
"""More than a frame of rows has beside rows, their lengths and extras: ids, the queue's name, the stage."""

_HEAD = "!IB"
_U16 = "!H"
_U32 = "!I"
_ACKED = "!QIB"
"""Formats as texts: a `struct.Struct` cannot be pickled, and this module is, when it is shipped with a plan."""


Blob = bytes | memoryview
Frame = list[Blob]
"""In pieces: rows are megabytes, and are copied by nobody but the kernel."""


class WireReply(NamedTuple):
    """One body. `rest` is what lies behind the queue field, at offset `at`; it shares memory with `body`."""

    kind: int
    id: str
    body: bytearray
    at: int

    @property
    def rest(self) -> memoryview:
        return memoryview(self.body)[self.at :]


@dataclass(frozen=True)
class Acked:
    """What became of the rows of one PublishMany."""

    count: int
    refused: dict[int, tuple[str, str]]
    """Index -> (code, sentence)."""
    duplicates: int


def str16(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 0xFFFF:
        raise SourceError(f"a text of {len(raw):,} bytes does not fit into a frame; at most 65,535")
    return struct.pack(_U16, len(raw)) + raw


def frame_size(head: bytes, *, most: int) -> int:
    """The size of the body that follows.

    Raises:
        ConnectionLost: this client cannot read it.
        SourceError: this is another protocol, and will be tomorrow.
    """
    size, flag = struct.unpack(_HEAD, head)
    if head.startswith(b"HTTP"):
        raise SourceError("this port answers in HTTP; name that of the native listener, usually 2925")
    if head.startswith(b"\x15\x03"):
        raise SourceError("this port speaks TLS; write vibemqs:// in the option endpoint")
    if flag or not 2 <= size <= most:
        raise ConnectionLost(f"a frame of {size:,} bytes with flag {flag}; is this the native listener of a VibeMQ?")
    return int(size)


def plain(
    kind: int, request_id: str, queue: str = "", payload: bytes = b"", headers: Mapping[str, str] | None = None
) -> Frame:
    pairs = headers or {}
    block = b"".join(str16(key) + str16(value) for key, value in pairs.items())
    return _framed(
        _start(kind, request_id, queue), struct.pack(_U32, len(payload)), payload, struct.pack(_U16, len(pairs)), block
    )


def cursor_request(request_id: str, queue: str, verb: str, arguments: Mapping[str, Any]) -> Frame:
    return plain(CURSOR_REQUEST, request_id, queue, _json({"verb": verb, "arguments": arguments}))


def admin_request(request_id: str, verb: str, arguments: Mapping[str, Any]) -> Frame:
    return plain(ADMIN, request_id, "", _json({"verb": verb, "arguments": arguments}))


def publish_many(
    request_id: str, queue: str, lengths: Sequence[int], data: Sequence[Blob], extras: Mapping[int, Any]
) -> Frame:
    """`data`: the rows joined, in pieces; `lengths`: of each row."""
    return _framed(_start(PUBLISH_MANY, request_id, queue), *_extras_and_rows(lengths, data, extras))


def stage(
    request_id: str,
    queue: str,
    about: Mapping[str, Any],
    lengths: Sequence[int],
    data: Sequence[Blob],
    extras: Mapping[int, Any],
) -> Frame:
    text = _json(about)
    head = _start(STAGE, request_id, queue), struct.pack(_U32, len(text)), text
    return _framed(*head, *_extras_and_rows(lengths, data, extras))


def _start(kind: int, request_id: str, queue: str) -> bytes:
    return bytes((1, kind)) + str16(request_id) + str16(queue)


def _extras_and_rows(lengths: Sequence[int], data: Sequence[Blob], extras: Mapping[int, Any]) -> tuple[Blob, ...]:
    text = _json({str(index): extra for index, extra in extras.items()}) if extras else b""
    flagged = b"\x01" + struct.pack(_U32, len(text)) + text if extras else b"\0"
    return flagged, struct.pack(f"!I{len(lengths)}I", len(lengths), *lengths), *data


def _framed(*parts: Blob) -> Frame:
    return [struct.pack(_HEAD, sum(map(len, parts)), 0), *parts]


def json_size(value: Any) -> int:
    """Bytes of it in a list, with the comma."""
    return len(_json(value)) + 1


def utf16_units(text: str) -> int:
    """The length of a text as the broker counts it: an emoji is two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def text_size_max(text: str) -> int:
    """At least the bytes of it inside JSON: two for a letter or sign of ASCII, six for each UTF-16 unit of others."""
    return 2 * len(text) if text.isascii() and text.isprintable() else 6 * utf16_units(text)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def reply(body: bytearray) -> WireReply:
    try:
        request_id, at = _read_str16(body, 2)
        _, at = _read_str16(body, at)
    except struct.error:
        raise ConnectionLost("a frame ends inside a field") from None
    return WireReply(body[1], request_id, body, at)


def payload(answer: WireReply) -> bytes:
    (size,) = struct.unpack_from(_U32, answer.body, answer.at)
    return bytes(answer.body[answer.at + 4 : answer.at + 4 + size])


def json_payload(answer: WireReply) -> Any:
    try:
        return json.loads(payload(answer) or b"null")
    except ValueError:
        raise ConnectionLost("an answer's payload is not JSON") from None


def headers(answer: WireReply) -> dict[str, str]:
    return _headers(answer)[0]


def error(answer: WireReply) -> tuple[str, str]:
    """(code, sentence) of an Error."""
    _, at = _headers(answer)
    code, at = _read_str16(answer.body, at)
    return code, _read_str16(answer.body, at)[0]


def acked(answer: WireReply) -> Acked:
    _, count, flags = struct.unpack_from(_ACKED, answer.body, answer.at)
    detail: dict[str, Any] = {}
    if flags & 1:
        at = answer.at + struct.calcsize(_ACKED)
        (size,) = struct.unpack_from(_U32, answer.body, at)
        detail = json.loads(answer.body[at + 4 : at + 4 + size])
    refused = {int(index): (code, sentence) for index, (code, sentence) in detail.get("refused", {}).items()}
    # [[code, [first, last, first, last, …]], …] instead, when there are too many to name each.
    for code, numbers in detail.get("refused_runs", ()):
        for first, last in zip(numbers[::2], numbers[1::2], strict=True):
            refused.update(dict.fromkeys(range(first, last + 1), (code, "")))
    return Acked(count, refused, len(detail.get("duplicates", {})))


def _headers(answer: WireReply) -> tuple[dict[str, str], int]:
    body = answer.body
    at = answer.at + 4 + struct.unpack_from(_U32, body, answer.at)[0]
    (count,) = struct.unpack_from(_U16, body, at)
    at += 2
    found: dict[str, str] = {}
    for _ in range(count):
        key, at = _read_str16(body, at)
        found[key], at = _read_str16(body, at)
    return found, at


def _read_str16(body: bytearray, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(_U16, body, at)
    return body[at + 2 : at + 2 + size].decode(errors="replace"), at + 2 + size
