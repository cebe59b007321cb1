"""Messages in bulk, as the bytes that travel and that are stored.

A *row* is one message without its queue:

    id       u16 BE length | UTF-8 bytes          1..65,535 bytes
    payload  u32 BE length | bytes                0 = absent
    headers  u16 BE count  | count x (u16 length | key | u16 length | value)

It is the native protocol's Publish and Deliver body minus version, type and queue, so the broker moves rows from
socket to disk to socket without decoding them. `Rows` is a run of consecutive rows: the lengths as packed
big-endian u32 and the rows joined. The engine never looks inside: it counts rows and bytes.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

LARGE_ROW_BYTES = 1 << 20
"""A row above this travels alone, and takes steps of its own through the broker."""
HEADERS_MAX = 50
"""Of a message that is published."""
HEADER_VALUE_UNITS_MAX = 4_096
"""In UTF-16 units, which clients in .NET, Java and JavaScript count, too."""

_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
_COLUMNS_MAX = 128
"""Header bytes compared by columns; longer ones are quicker compared row by row."""


class Rows:
    """An immutable run of rows.

    Args:
        count: how many rows.
        lengths: `count` packed big-endian u32, the byte length of each row.
        data: the rows, joined. Owned by this object (a real `bytes`, never a view into a buffer that is reused).
    """

    __slots__ = ("_looked_at", "_offsets", "_shape_found", "count", "data", "lengths")

    def __init__(self, count: int, lengths: bytes, data: bytes) -> None:
        self.count = count
        self.lengths = lengths
        self.data = data
        self._offsets: Sequence[int] | None = None
        self._looked_at = False

    @classmethod
    def of(cls, rows: Sequence[bytes]) -> "Rows":
        return cls(len(rows), struct.pack(f"!{len(rows)}I", *map(len, rows)), b"".join(rows))

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.lengths == other.lengths and self.data == other.data

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Rows(count={self.count}, bytes={len(self.data)})"

    @property
    def size(self) -> int:
        """Bytes of all rows together."""
        return len(self.data)

    @property
    def alike(self) -> bool:
        """Whether all rows are of one length, as in most bulk."""
        # Read from a damaged block, the count may be anything: no such string is made before it is known to fit.
        return len(self.lengths) == 4 * self.count and self.lengths == self.lengths[:4] * self.count

    def _repeats(self, columns: Iterable[int]) -> bool:
        """Whether rows that are `alike` hold the first row's byte at each of these offsets: one comparison a column."""
        data, count = self.data, self.count
        length = len(data) // count
        return all(data[column::length] == data[column : column + 1] * count for column in columns)

    def row_lengths(self) -> tuple[int, ...]:
        return struct.unpack(f"!{self.count}I", self.lengths)

    def offsets(self) -> Sequence[int]:
        """`count + 1` positions in `data`; row i is data[offsets[i]:offsets[i + 1]]."""
        if self._offsets is None:
            size = _U32.unpack_from(self.lengths)[0] if self.count and self.alike else 0
            if size:
                # From what the lengths say: whoever reads rows from a disk compares the last offset with the data.
                self._offsets = range(0, size * self.count + 1, size)
            else:
                self._offsets = list(accumulate(self.row_lengths(), initial=0))
        return self._offsets

    def __getitem__(self, index: int) -> bytes:
        offsets = self.offsets()
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.data[offsets[index] : offsets[index + 1]]

    def __iter__(self) -> Iterator[bytes]:
        data = self.data
        offsets = self.offsets()
        return iter([data[a:b] for a, b in pairwise(offsets)])

    def shape(self) -> tuple[int, int, int] | None:
        """Bytes of id, payload and headers, when all rows are framed like the first; else None."""
        if not self._looked_at:
            self._looked_at = True
            self._shape_found = self._look()
        return self._shape_found

    def _look(self) -> tuple[int, int, int] | None:
        if not self.count or not self.alike:
            return None
        data = self.data
        id_size = _U16.unpack_from(data)[0]
        at = 2 + id_size
        size = _U32.unpack_from(data, at)[0]
        tail = len(data) // self.count - at - 4 - size
        if tail < 2 or not self._repeats((0, 1, at, at + 1, at + 2, at + 3)):
            return None
        return id_size, size, tail

    def _cut(self, wanted: str) -> list[bytes] | None:
        """One part of every row (`sxx` the id, `xsx` the payload, `xxs` the headers) when all rows are framed like the
        first; else None. One struct for all rows is several times as fast as one for each."""
        shape = self.shape()
        if shape is None:
            return None
        id_size, size, tail = shape
        row = f"2x{id_size}{wanted[0]}4x{size}{wanted[1]}{tail}{wanted[2]}"
        return list(struct.Struct(row * self.count).unpack(self.data))

    def ids(self) -> list[bytes]:
        """Every id in order, as it came."""
        ids = self._cut("sxx")
        if ids is None:
            data = self.data
            ids = [data[row + 2 : row + 2 + (data[row] << 8 | data[row + 1])] for row in self.offsets()[:-1]]
        return ids

    def payloads(self) -> list[bytes]:
        """Every payload in order, without cutting the rows apart."""
        payloads = self._cut("xsx")
        if payloads is None:
            data = self.data
            payloads = [data[at + 4 : at + 4 + _U32.unpack_from(data, at)[0]] for at in self._payload_sizes()]
        return payloads

    def header_blocks(self) -> list[bytes]:
        """Every row's headers in order, as they came: count and pairs."""
        blocks = self._cut("xxs")
        if blocks is None:
            data, starts, ends = self.data, self._payload_sizes(), self.offsets()[1:]
            blocks = [data[at + 4 + _U32.unpack_from(data, at)[0] : end] for at, end in zip(starts, ends, strict=True)]
        return blocks

    def common_headers(self) -> bytes | None:
        """The header block of every row, when all rows are framed like the first and have the same one; None when that
        is not so, or not known at a glance."""
        shape = self.shape()
        if shape is None:
            return None
        length, tail = len(self.data) // self.count, shape[2]
        block = self.data[length - tail : length]
        if tail <= _COLUMNS_MAX:
            return block if self._repeats(range(length - tail, length)) else None
        blocks = self._cut("xxs")
        return block if blocks and blocks.count(block) == len(blocks) else None

    def header_places(self) -> tuple[tuple[bytes, int, int], ...] | None:
        """(key, offset of the value in the row, its size) of each header, when all rows are framed like the first and
        have the same keys in the same order, with values of the same sizes; None when that is not so, or not known at
        a glance."""
        shape = self.shape()
        if shape is None:
            return None
        length, tail = len(self.data) // self.count, shape[2]
        places = tuple(header_values(self.data, length - tail))
        values = {column for _, at, size in places for column in range(at, at + size)}
        framing = [column for column in range(length - tail, length) if column not in values]
        return places if len(framing) <= _COLUMNS_MAX and self._repeats(framing) else None

    def _payload_sizes(self) -> list[int]:
        """Where each row says how large its payload is."""
        data = self.data
        return [row + 2 + (data[row] << 8 | data[row + 1]) for row in self.offsets()[:-1]]

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows [start, stop), sharing nothing that could change."""
        if start == 0 and stop >= self.count:
            return self
        stop = min(stop, self.count)
        if self.count and self.alike:
            size = _U32.unpack_from(self.lengths)[0]
            return Rows(stop - start, self.lengths[4 * start : 4 * stop], self.data[size * start : size * stop])
        offsets = self.offsets()
        return Rows(stop - start, self.lengths[4 * start : 4 * stop], self.data[offsets[start] : offsets[stop]])


class LargeRow(Rows):
    """One row above `LARGE_ROW_BYTES`."""

    __slots__ = ("memory", "origin", "part", "prepared")

    def __init__(
        self,
        data: bytes,
        memory: Any = None,
        origin: tuple[int, int] | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(1, _U32.pack(len(data)), data)
        self.origin = origin
        """Queue and sequence, by which it can be read again from a store."""
        self.memory = memory
        """What holds its part of the broker's memory for large bodies; given back when it is dropped."""
        self.part = part
        """From where to where it is sent to a peer that is sent a part of it only; None: the whole row."""
        self.prepared: Any = None
        """The place where a storage provider has written it ahead of its record."""


def single_rows(lengths: bytes, data: bytes, indexes: Iterable[int], at: int = 0) -> Iterator[Rows]:
    """Rows of these indexes, which ascend, each on its own: the places of the others are not worked out, nor kept.

    Args:
        lengths: of all rows, as in `Rows`.
        at: where in `data` the first row begins.

    Raises:
        IndexError, ValueError: the lengths do not have the index, or are cut short.
    """
    sizes = array("I", lengths)
    if sys.byteorder == "little":
        sizes.byteswap()
    before = 0
    for index in indexes:
        at += sum(sizes[before:index])
        before = index
        yield Rows(1, lengths[4 * index : 4 * index + 4], data[at : at + sizes[index]])


def join_rows(parts: Iterable[Rows]) -> Rows:
    """One run out of several, in order."""
    runs = list(parts)
    if len(runs) == 1:
        return runs[0]
    return Rows(sum(r.count for r in runs), b"".join(r.lengths for r in runs), b"".join(r.data for r in runs))


def pack_row(message_id: str | bytes, payload: bytes, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """Build one row from its parts.

    Raises:
        ValueError: an id, key or value of more than 65,535 UTF-8 bytes, an empty id, or more than 65,535 headers.
    """
    raw_id = message_id.encode() if isinstance(message_id, str) else message_id
    if not 0 < len(raw_id) <= 0xFFFF:
        raise ValueError(f"a message id has 1 to 65,535 bytes, not {len(raw_id)}")
    if len(headers) > 0xFFFF:
        raise ValueError(f"at most 65,535 headers, not {len(headers)}")
    parts = [_U16.pack(len(raw_id)), raw_id, _U32.pack(len(payload)), payload, _U16.pack(len(headers))]
    for pair in headers:
        for text in pair:
            raw = text.encode()
            if len(raw) > 0xFFFF:
                raise ValueError(f"a header key or value has at most 65,535 bytes, not {len(raw)}")
            parts += (_U16.pack(len(raw)), raw)
    return b"".join(parts)


def with_headers(row: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
    """A sound row with these headers instead of its own. Raises ValueError as `pack_row` does."""
    block = pack_row(b"-", b"", headers)
    return b"".join((memoryview(row)[: RowView(row).headers_at], memoryview(block)[RowView(block).headers_at :]))


def add_headers(row: bytes, pairs: Sequence[tuple[str, str]]) -> bytes:
    """A sound row with more headers, which win over equal ones.

    Raises:
        ValueError: there would be more than 65,535.
    """
    at = RowView(row).headers_at
    count = _U16.unpack_from(row, at)[0] + len(pairs)
    if count > 0xFFFF:
        raise ValueError(f"at most 65,535 headers, not {count}")
    parts = [row[:at], _U16.pack(count), row[at + 2 :]]
    for pair in pairs:
        for text in pair:
            raw = text.encode()
            parts += (_U16.pack(len(raw)), raw)
    return b"".join(parts)


class RowView:
    """One row, decoded on demand.

    Invalid UTF-8 reads as U+FFFD (as the .NET peer does); pairs with an empty key or value are left out; of
    duplicate keys the last wins.
    """

    __slots__ = ("_payload_at", "row")

    def __init__(self, row: bytes) -> None:
        self.row = row
        self._payload_at = 2 + _U16.unpack_from(row)[0]

    @property
    def message_id(self) -> str:
        return self.row[2 : self._payload_at].decode(errors="replace")

    @property
    def payload_size(self) -> int:
        return int(_U32.unpack_from(self.row, self._payload_at)[0])

    @property
    def payload(self) -> bytes:
        start = self._payload_at + 4
        return self.row[start : start + _U32.unpack_from(self.row, self._payload_at)[0]]

    @property
    def payload_view(self) -> memoryview:
        """The payload where it lies, uncopied."""
        start = self._payload_at + 4
        return memoryview(self.row)[start : start + self.payload_size]

    def payload_part(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes of the payload, from `offset` on."""
        start = self._payload_at + 4
        end = start + self.payload_size
        return self.row[min(start + offset, end) : min(start + offset + size, end)]

    @property
    def headers_at(self) -> int:
        """Offset of the header count in `row`."""
        return int(self._payload_at + 4 + _U32.unpack_from(self.row, self._payload_at)[0])

    @property
    def headers(self) -> dict[str, str]:
        return dict(header_pairs(self.row, self.headers_at))


def header_values(data: bytes, offset: int) -> Iterator[tuple[bytes, int, int]]:
    """(key, where its value stands, the value's size) of each header in the sound block at `offset`."""
    at = offset + 2
    for _ in range(data[offset] << 8 | data[offset + 1]):
        key_end = at + 2 + (data[at] << 8 | data[at + 1])
        size = data[key_end] << 8 | data[key_end + 1]
        yield data[at + 2 : key_end], key_end + 2, size
        at = key_end + 2 + size


def header_pairs(data: bytes, offset: int) -> list[tuple[str, str]]:
    """Decode a header block at `offset`. Raises struct.error or IndexError when it is cut short."""
    (count,) = _U16.unpack_from(data, offset)
    at = offset + 2
    pairs: list[tuple[str, str]] = []
    for _ in range(count):
        key_at = at + 2
        key_end = key_at + (data[at] << 8 | data[at + 1])
        value_at = key_end + 2
        at = value_at + (data[key_end] << 8 | data[key_end + 1])
        if at > len(data):
            raise IndexError("header block is cut short")
        if key_at < key_end and value_at < at:
            pairs.append((data[key_at:key_end].decode(errors="replace"), data[value_at:at].decode(errors="replace")))
    return pairs
