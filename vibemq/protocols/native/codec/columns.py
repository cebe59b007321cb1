"""Columns (72): rows of a range laid out as Apache Arrow wants them, built once, wrapped by the reader without a copy.

    version u8 | type u8 | id str16 | queue str16 | meta size u32 | meta JSON | zero bytes to a multiple of 8 | buffers

Each buffer is padded to a multiple of 8; numbers in them are little-endian. Source: docs/spec/cursor.md, "Columns".
Columns that need no buffers of their own are told by `compact`.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import orjson

from vibemq.errors import LocalProtocolError
from vibemq.model.effects import Fetched
from vibemq.model.rows import header_pairs, header_values
from vibemq.protocols.native.codec.compact import NORMAL_PRIORITY, Buffer, Place, compact_places
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.frames import HEADER
from vibemq.protocols.native.codec.wire import U32, VERSION, CommandType, str16

COLUMNS_EXCESS = 64 * 1024
"""How much larger than other frames, or than its rows, this one may be: what could be published must fit, with what
goes round it."""


def columns_frame(message_id: str, queue: str, fetched: Fetched, *, body_bytes_max: int) -> bytes:
    """The whole frame, put together in one copy; never compressed. Of rows that are too many for it, the first ones.

    Raises:
        LocalProtocolError: a single row is more than the peer accepts.
    """
    most = max(body_bytes_max, fetched.max_bytes) + COLUMNS_EXCESS
    while True:
        body = _body(message_id, queue, fetched)
        size = sum(map(len, body))
        if size <= most:
            return b"".join((HEADER.pack(size, Compression.NONE), *body))
        if fetched.count <= 1:
            raise LocalProtocolError(f"a message of {size:,} B in columns does not fit into a frame")
        # Small rows weigh more as columns than as rows.
        fetched = fetched.only(max(1, fetched.count * most // size * 9 // 10))


def _body(message_id: str, queue: str, fetched: Fetched) -> list[bytes]:
    """In pieces."""
    buffers = _Buffers()
    places = compact_places(fetched, buffers.add) if fetched.compact else {}
    for name, build in _BUILDERS.items():
        if name in fetched.columns and name not in places:
            spans = [buffers.add(buffer) for buffer in build(fetched)]
            places[name] = spans[0] if len(spans) == 1 else spans
    return [_start(message_id, queue, fetched, places), *buffers.parts]


class _Buffers:
    """Buffers one behind the other, each padded."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._size = 0

    def add(self, buffer: Buffer) -> Place:
        at, size = self._size, sum(map(len, buffer))
        self.parts += buffer
        self.parts.append(bytes(-size % 8))
        self._size += size + -size % 8
        return [at, size]


def _start(message_id: str, queue: str, fetched: Fetched, places: dict[str, Any]) -> bytes:
    """Everything before the buffers."""
    meta: dict[str, Any] = {
        "count": fetched.count,
        "first": fetched.first,
        "next": fetched.next,
        "gaps": fetched.gaps,
        "incarnation": fetched.incarnation,
        "buffers": places,
    }
    if fetched.facts is not None:
        meta["facts"] = fetched.facts
    text = orjson.dumps(meta)
    start = bytes((VERSION, CommandType.COLUMNS)) + str16(message_id) + str16(queue) + U32.pack(len(text)) + text
    return start + bytes(-len(start) % 8)


def _little(code: str, values: Sequence[int]) -> bytes:
    """Numbers of one `struct` type; several times as fast as `array`, which takes them one by one."""
    return struct.pack(f"<{len(values)}{code}", *values)


def _sequences(fetched: Fetched) -> list[Buffer]:
    parts = fetched.slices
    return [[_little("q", range(part.first_sequence, part.first_sequence + part.rows.count)) for part in parts]]


def _instants(fetched: Fetched) -> list[Buffer]:
    return [[part.published_at.to_bytes(8, "little") * part.rows.count for part in fetched.slices]]


def _priorities(fetched: Fetched) -> list[Buffer]:
    known = fetched.priorities
    if not known:
        return [[bytes((NORMAL_PRIORITY,)) * sum(part.rows.count for part in fetched.slices)]]
    each = (part.first_sequence + index for part in fetched.slices for index in range(part.rows.count))
    return [[bytes([known.get(sequence, NORMAL_PRIORITY) for sequence in each])]]


def _ids(fetched: Fetched) -> list[Buffer]:
    ids = [message_id for part in fetched.slices for message_id in part.rows.ids()]
    joined = b"".join(ids)
    if joined.isascii():
        return [[_offsets(ids)], [joined]]
    # Publishers may send what is no UTF-8; readers are promised text.
    return _texts([message_id.decode(errors="replace").encode() for message_id in ids])


def _bodies(fetched: Fetched) -> list[Buffer]:
    return _texts([payload for part in fetched.slices for payload in part.rows.payloads()])


def _texts(values: list[bytes]) -> list[Buffer]:
    """Offsets and bytes of one column."""
    return [[_offsets(values)], values]


def _offsets(values: Sequence[Any]) -> bytes:
    sizes = set(map(len, values))
    if len(sizes) == 1:
        size, count = sizes.pop(), len(values)
        return _spread(size, count)
    return _little("i", list(accumulate(map(len, values), initial=0)))


def _spread(size: int, count: int) -> bytes:
    """Offsets of values of one size."""
    return _little("i", range(0, size * count + 1, size)) if size else bytes(4 * count + 4)


def _headers(fetched: Fetched) -> list[Buffer]:
    common = {part.rows.common_headers() for part in fetched.slices}
    block = common.pop() if len(common) == 1 else None
    if block is not None and len(one := _pairs(block)) <= 1:
        return _same_headers(fetched.count, one)
    blocks = [block for part in fetched.slices for block in part.rows.header_blocks()]
    # Most messages of a queue have the same few headers.
    known = {block: _pairs(block) for block in dict.fromkeys(blocks)}
    pairs = [known[block] for block in blocks]
    keys = [key for each in pairs for key, _ in each]
    values = [value for each in pairs for _, value in each]
    return [[_offsets(pairs)], *_texts(keys), *_texts(values)]


def _same_headers(count: int, pairs: list[tuple[bytes, bytes]]) -> list[Buffer]:
    """None, or the same one in every row: nothing is done row by row."""
    if not pairs:
        return [[bytes(4 + 4 * count)], *_texts([]), *_texts([])]
    ((key, value),) = pairs
    return [
        [_spread(1, count)],
        [_spread(len(key), count)],
        [key * count],
        [_spread(len(value), count)],
        [value * count],
    ]


def _pairs(block: bytes) -> list[tuple[bytes, bytes]]:
    """Without empty sides; of equal keys the last wins."""
    if not block.isascii():
        return [(key.encode(), value.encode()) for key, value in dict(header_pairs(block, 0)).items()]
    # As there, but nothing is decoded to be encoded again: keys of messages make every block another one.
    found = {key: block[at : at + size] for key, at, size in header_values(block, 0) if key and size}
    return list(found.items())


_BUILDERS: dict[str, Callable[[Fetched], list[Buffer]]] = {
    "sequence": _sequences,
    "published_at": _instants,
    "message_id": _ids,
    "body": _bodies,
    "priority": _priorities,
    "headers": _headers,
}
"""In the order of their buffers."""
