"""A Columns frame as an Arrow RecordBatch, without copying: the wire is laid out as Arrow wants it.

    version u8 | type u8 | id str16 | queue str16 | meta size u32 | meta JSON | zeros to a multiple of 8 | buffers

Every function imports pyarrow for itself, here and in the other modules: it takes longer than all the rest, and most of
Spark's planning processes, several fresh ones for each micro-batch, need none of it.

Source: docs/spec/cursor.md, "Columns".
"""

import json
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from vibemq.spark.errors import SourceError
from vibemq.spark.wire import Reply

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

    def __init__(self, answer: Reply) -> None:
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
        self._looked_for_lone = False
        self._lone: tuple[str, pa.Array] | None = None
        self.gaps: list[tuple[int, int, str]] = [(first, last, why) for first, last, why in self.meta.get("gaps", ())]

    def buffers(self, name: str) -> list["pa.Buffer"]:
        pieces = self.meta["buffers"][name]
        if pieces and isinstance(pieces[0], int):
            pieces = [pieces]
        return [self._memory.slice(self._base + offset, size) for offset, size in pieces]

    def array(self, name: str, kind: "pa.DataType") -> "pa.Array":
        """A column of numbers, or of texts or bytes, which are offsets and another buffer."""
        import pyarrow as pa

        return pa.Array.from_buffers(kind, self.count, [None, *self.buffers(name)])

    def headers(self) -> "pa.Array":
        import pyarrow as pa

        kind = pa.map_(pa.string(), pa.binary())
        offsets, key_offsets, keys, value_offsets, values = self.buffers("headers")
        count = key_offsets.size // 4 - 1
        entries = pa.StructArray.from_arrays(
            [
                pa.Array.from_buffers(pa.string(), count, [None, key_offsets, keys]),
                pa.Array.from_buffers(pa.binary(), count, [None, value_offsets, values]),
            ],
            fields=[kind.key_field, kind.item_field],
        )
        return pa.Array.from_buffers(kind, self.count, [None, offsets], children=[entries])

    @property
    def has_headers(self) -> bool:
        return bool(self.buffers("headers")[1].size > 4)

    @property
    def lone_header(self) -> "tuple[str, pa.Array] | None":
        """(key, the rows' values) when every row has one header and all have the same key, as most do."""
        # No cached_property: before Python 3.12 it holds a lock, and code that is shipped is pickled whole.
        if not self._looked_for_lone:
            self._looked_for_lone = True
            self._lone = self._find_lone_header()
        return self._lone

    def _find_lone_header(self) -> "tuple[str, pa.Array] | None":
        import pyarrow as pa
        import pyarrow.compute as pc

        offsets, key_offsets, keys, value_offsets, values = self.buffers("headers")
        count = self.count
        if not count or key_offsets.size != 4 * count + 4:
            return None
        if offsets.to_pybytes() != struct.pack(f"<{count + 1}i", *range(count + 1)):
            return None
        names = pa.Array.from_buffers(pa.string(), count, [None, key_offsets, keys])
        if not pc.all(pc.equal(names, names[0])).as_py():
            return None
        return names[0].as_py(), pa.Array.from_buffers(pa.binary(), count, [None, value_offsets, values])

    def facts(self, name: str, kind: "pa.DataType") -> "pa.Array":
        import pyarrow as pa

        at = _FACTS.index(name)
        return pa.array([row[at] for row in self.meta["facts"]], kind)


def wire_columns(names: Iterable[str]) -> list[str]:
    """What to ask the broker for; never nothing, so that rows are counted."""
    return sorted({WIRE_COLUMNS[name] for name in names if name in WIRE_COLUMNS}) or ["sequence"]


def arrow_schema(schema: StructType) -> "pa.Schema":
    """What Spark compares the first batch with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 and 4.1
        return to_arrow_schema(schema)


def record_batch(block: Block, queue: str, schema: "pa.Schema", *, dead: bool = False) -> "pa.RecordBatch":
    """The rows of a block as columns of `schema`."""
    import pyarrow as pa

    makers = _DEAD_MAKERS if dead else _MAKERS
    arrays = []
    for field in schema:
        made = makers[field.name](block, queue, pa)
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
    def make(block: Block, _: str, pa: Any) -> Any:
        if not block.has_headers:
            return pa.nulls(block.count, pa.string())
        if block.lone_header is not None:
            key, values = block.lone_header
            return values.cast(pa.string()) if key == name else pa.nulls(block.count, pa.string())
        import pyarrow.compute as pc

        # Of equal keys the last wins, as everywhere in this protocol.
        return pc.map_lookup(block.headers(), pa.scalar(name), "last").cast(pa.string())

    return make


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
    "message_id": lambda block, _, pa: block.array("message_id", pa.string()),
    "body": lambda block, _, pa: block.array("body", pa.binary()),
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
