"""A Columns frame as an Arrow RecordBatch: the wire is laid out as Arrow wants it, or as rows that its kernels cut.

    version u8 | type u8 | id str16 | queue str16 | meta size u32 | meta JSON | zeros to a multiple of 8 | buffers

Every function imports pyarrow for itself, here and in the other modules: it takes longer than all the rest, and most of
Spark's planning processes, several fresh ones for each micro-batch, need none of it.

Source: docs/spec/cursor.md, "Columns" and "Compact columns".
"""

import json
import struct
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from vibemq.spark.connection.wire import WireReply
from vibemq.spark.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

_FACTS = ("dead_id", "group", "reason", "error", "attempts", "failed", "first_failed_at", "dead_at")

WIRE_COLUMNS = {
    "seq": "sequence",
    "origin_seq": "sequence",
    "message_id": "message_id",
    "body": "body",
    "enqueued_at": "published_at",
    "priority": "priority",
    "key": "headers",
    "content_type": "headers",
    "headers": "headers",
}


class Block:
    """One answer to a fetch. Its arrays keep the frame's memory alive."""

    def __init__(self, answer: WireReply) -> None:
        import pyarrow as pa

        body = answer.body
        (size,) = struct.unpack_from("!I", body, answer.at)
        meta_end = answer.at + 4 + size
        try:
            self.meta: dict[str, Any] = json.loads(body[answer.at + 4 : meta_end])
        except ValueError:
            raise SourceError("the meta of a Columns frame is not JSON") from None
        self._base = meta_end + -meta_end % 8
        self._memory = pa.py_buffer(body)
        self.count = int(self.meta["count"])
        self.next = int(self.meta["next"])
        self.gaps: list[tuple[int, int, str]] = [(first, last, why) for first, last, why in self.meta.get("gaps", ())]

    def array(self, name: str, kind: "pa.DataType") -> "pa.Array":
        """A column of numbers."""
        import pyarrow as pa

        place = self._place(name)
        if isinstance(place, dict):
            return pa.repeat(pa.scalar(place["same"], kind), self.count)
        return pa.Array.from_buffers(kind, self.count, [None, self._buffer(place)])

    def blobs(self, name: str) -> "pa.Array":
        """A column of bytes."""
        import pyarrow as pa

        place = self._place(name)
        if isinstance(place, dict):
            return self._cut(**place)
        return pa.Array.from_buffers(pa.binary(), self.count, [None, *map(self._buffer, place)])

    def _cut(self, rows: list[int], width: int, at: int, size: int) -> "pa.Array":
        """What stands at the same place of every row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = pa.Array.from_buffers(pa.binary(width), self.count, [None, self._buffer(rows)])
        data = pc.binary_slice(whole, at, at + size).buffers()[1]
        return pa.Array.from_buffers(pa.binary(), self.count, [None, _even_offsets(size, self.count), data])

    def header(self, name: str) -> "pa.Array":
        """The value of one header in each row, or null. Of equal keys the last wins, as everywhere in this protocol."""
        import pyarrow as pa
        import pyarrow.compute as pc

        place = self._place("headers")
        if not isinstance(place, dict):
            return pc.map_lookup(self.headers(), pa.scalar(name), "last").cast(pa.string())
        if "pairs" in place:
            for key, at, size in place["pairs"]:
                if key == name:
                    return text(self._cut(place["rows"], place["width"], at, size))
        return pa.repeat(pa.scalar(dict(place.get("same", ())).get(name), pa.string()), self.count)

    def headers(self) -> "pa.Array":
        import pyarrow as pa

        kind = pa.map_(pa.string(), pa.binary())
        place = self._place("headers")
        offsets, keys, values = self._compact_entries(place) if isinstance(place, dict) else self._entries(place)
        entries = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, self.count, [None, offsets], children=[entries])

    def _entries(self, places: list[list[int]]) -> "tuple[pa.Buffer, pa.Array, pa.Array]":
        """Offsets of the rows' pairs, keys, values."""
        import pyarrow as pa

        offsets, key_offsets, keys, value_offsets, values = map(self._buffer, places)
        count = key_offsets.size // 4 - 1
        return (
            offsets,
            pa.Array.from_buffers(pa.string(), count, [None, key_offsets, keys]),
            pa.Array.from_buffers(pa.binary(), count, [None, value_offsets, values]),
        )

    def _compact_entries(self, place: dict[str, Any]) -> "tuple[pa.Buffer, pa.Array, pa.Array]":
        """The same, of rows that have the same keys."""
        import pyarrow as pa

        if "pairs" in place:
            keys = [key for key, _, _ in place["pairs"]]
            cut = [self._cut(place["rows"], place["width"], at, size) for _, at, size in place["pairs"]]
            values = _by_row(cut, self.count)
        else:
            keys = [key for key, _ in place["same"]]
            values = _over_and_over([value.encode() for _, value in place["same"]], pa.binary(), self.count)
        return _even_offsets(len(keys), self.count), _over_and_over(keys, pa.string(), self.count), values

    def _place(self, name: str) -> Any:
        """Where a column is: [offset, size], or a list of such pairs, or how to have it without."""
        return self.meta["buffers"][name]

    def _buffer(self, place: list[int]) -> "pa.Buffer":
        return self._memory.slice(self._base + place[0], place[1])

    def facts(self, name: str, kind: "pa.DataType") -> "pa.Array":
        import pyarrow as pa

        at = _FACTS.index(name)
        return pa.array([row[at] for row in self.meta["facts"]], kind)


def _even_offsets(size: int, count: int) -> "pa.Buffer":
    """Of `count` values of one size."""
    import pyarrow as pa

    ends = range(0, size * count + 1, size) if size else bytes(count + 1)
    return pa.py_buffer(struct.pack(f"<{count + 1}i", *ends))


def _over_and_over(values: list[Any], kind: "pa.DataType", count: int) -> "pa.Array":
    import pyarrow as pa

    if len(values) == 1:  # As for most messages.
        return pa.repeat(pa.scalar(values[0], kind), count)
    return pa.array(values, kind).take(_indices(list(range(len(values))) * count))


def _by_row(columns: "list[pa.Array]", count: int) -> "pa.Array":
    """The first value of each column, then the second of each, and so on."""
    import pyarrow as pa

    if len(columns) == 1:
        return columns[0]
    each = (range(row, len(columns) * count, count) for row in range(count))
    return pa.concat_arrays(columns).take(_indices(list(chain.from_iterable(each))))


def _indices(numbers: list[int]) -> "pa.Array":
    import pyarrow as pa

    # Twice as fast as `pa.array`.
    packed = pa.py_buffer(struct.pack(f"<{len(numbers)}i", *numbers))
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, packed])


def text(column: "pa.Array") -> "pa.Array":
    """A column of bytes as text. Publishers may send what is no UTF-8."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode(errors="replace") for value in column.to_pylist()], pa.string())


def wire_columns(names: Iterable[str]) -> list[str]:
    """What to ask the broker for; never nothing, so that rows are counted."""
    return sorted({WIRE_COLUMNS[name] for name in map(str.lower, names) if name in WIRE_COLUMNS}) or ["sequence"]


def arrow_schema(schema: StructType) -> "pa.Schema":
    """What Spark compares the first batch with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def record_batch(block: Block, queue: str, schema: "pa.Schema", *, dead: bool = False) -> "pa.RecordBatch":
    """The rows of a block as columns of `schema`."""
    import pyarrow as pa

    makers = _DEAD_MAKERS if dead else _MAKERS
    arrays = []
    for field in schema:
        made = makers[field.name.lower()](block, queue, pa)
        # Types differ in the nullability of map values, if the user asks for it.
        arrays.append(made if made.type.equals(field.type) else made.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_Maker = Callable[[Block, str, Any], Any]
"""(block, queue, the module pyarrow) to an array."""


def _queue(block: Block, queue: str, pa: Any) -> Any:
    return pa.repeat(pa.scalar(queue, pa.string()), block.count)


def _enqueued_at(block: Block, _: str, pa: Any) -> Any:
    return _microseconds(block.array("published_at", pa.int64()), pa)


def _header(name: str) -> _Maker:
    return lambda block, _, pa: block.header(name)


def _instants(name: str) -> _Maker:
    """0 is never."""

    def make(block: Block, _: str, pa: Any) -> Any:
        known = [value or None for value in block.facts(name, pa.int64()).to_pylist()]
        return _microseconds(pa.array(known, pa.int64()), pa)

    return make


def _microseconds(milliseconds: Any, pa: Any) -> Any:
    return milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


_MAKERS: dict[str, _Maker] = {
    "queue": _queue,
    "seq": lambda block, _, pa: block.array("sequence", pa.int64()),
    "message_id": lambda block, _, pa: text(block.blobs("message_id")),
    "body": lambda block, _, pa: block.blobs("body"),
    "enqueued_at": _enqueued_at,
    "priority": lambda block, _, pa: block.array("priority", pa.int8()),
    "attempts": lambda block, _, pa: pa.repeat(pa.scalar(1, pa.int32()), block.count),
    "key": _header("key"),
    "content_type": _header("content-type"),
    "headers": lambda block, _, pa: block.headers(),
}
_DEAD_MAKERS: dict[str, _Maker] = _MAKERS | {
    "attempts": lambda block, _, pa: block.facts("attempts", pa.int32()),
    "dead_id": lambda block, _, pa: block.facts("dead_id", pa.int64()),
    "origin_queue": _queue,
    "origin_seq": _MAKERS["seq"],
    "origin_group": lambda block, _, pa: block.facts("group", pa.string()),
    "reason": lambda block, _, pa: block.facts("reason", pa.string()),
    "detail": lambda block, _, pa: block.facts("error", pa.string()),
    "failed": lambda block, _, pa: block.facts("failed", pa.int32()),
    "first_failed_at": _instants("first_failed_at"),
    "dead_at": _instants("dead_at"),
}
