"""Arrow columns to rows of the wire.

row    id str16 | payload u32 size and bytes | headers u16 count and pairs of str16
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from vibemq.spark.connection.wire import utf16_units
from vibemq.spark.errors import SourceError
from vibemq.spark.write.bulk import ID_BYTES_MAX, Bulk, joined, numbered, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

PRIORITY_MAX = 31
HEADERS_MAX = 50
HEADER_VALUE_UNITS_MAX = 4096
_NO_HEADERS = b"\0\0"
_TOO_LONG = f"its message_id, or the name of a header, is too long; at most {ID_BYTES_MAX:,} bytes"
_NUMBERED_MAX = 0xFFFF_FFFF
"""Rows of one task whose made-up ids are of one length."""


class Row(NamedTuple):
    queue: str
    data: bytes
    extra: dict[str, Any] | None
    """priority, ttl_ms, delay_ms, deliver_at, dedup_id; None = none of them."""


class RowMaker:
    """Turns the record batches of one task into rows; counts them, so that an error can say which row it means."""

    def __init__(self, queue: str, *, dedup: bool, row_bytes_max: int) -> None:
        self._queue = queue
        self._dedup = dedup
        self._row_bytes_max = row_bytes_max
        self._prefix = uuid4().hex.encode() + b"-"
        """Of the id of a row that has none; the row's number follows."""
        self._count = 0

    def rows(self, batch: "pa.RecordBatch") -> Iterator[Row]:
        """Raises SourceError naming the row that cannot be written."""
        count = batch.num_rows
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        ids = self._ids(columns.get("message_id"), count)
        bodies = _blobs(columns["body"])
        headers = _Headers.of(columns)
        queues = _values(columns.get("queue"))
        extras = _extras(columns, count)
        most = self._row_bytes_max
        for index, (message_id, body) in enumerate(zip(ids, bodies, strict=True)):
            try:
                block = headers.block(index) if headers else _NO_HEADERS
                data = b"".join(
                    (len(message_id).to_bytes(2, "big"), message_id, len(body).to_bytes(4, "big"), body, block)
                )
                if len(data) > most:
                    raise ValueError(
                        f"it has {len(data):,} bytes and does not fit: a row has at most {most:,}. Raise the broker's"
                        " limits.body_bytes_max and the option frameBytes, or make the row smaller"
                    )
                queue = (queues[index] if queues else None) or self._queue
                if not queue:
                    raise ValueError("its column queue is null, and there is no option queue")
                extra = extras[index]() if extras else None
                if self._dedup:
                    extra = {**(extra or {}), "dedup_id": message_id.decode()}
            except (ValueError, OverflowError) as error:
                name = message_id.decode(errors="replace")[:80]
                why = _TOO_LONG if isinstance(error, OverflowError) else error
                raise SourceError(f"row {self._count} of this task, message_id {name!r}: {why}") from None
            self._count += 1
            yield Row(queue, data, extra)

    def plain(self, batch: "pa.RecordBatch") -> Bulk | None:
        """All rows at once, for one queue and without extras, when there is nothing but bodies and perhaps ids; else
        None, as when one of them is too large: `rows` says which."""
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        if self._dedup or not self._queue or not columns.keys() <= {"body", "message_id"}:
            return None
        numbers = range(self._count, self._count + batch.num_rows)
        if numbers.stop > _NUMBERED_MAX:
            return None
        bodies = texts_of(columns["body"])
        ids = texts_of(columns["message_id"]) if "message_id" in columns else numbered(self._prefix, numbers)
        bulk = None if bodies is None or ids is None else joined(ids, bodies, self._row_bytes_max)
        if bulk is not None:
            self._count = numbers.stop
        return bulk

    def _ids(self, column: "pa.Array | None", count: int) -> list[bytes]:
        first, made_up = self._count, self._prefix + b"%08x"
        if column is None:
            return [made_up % number for number in range(first, first + count)]
        given = _values(column)
        assert given is not None
        if self._dedup and not all(given):
            row = first + next(index for index, value in enumerate(given) if not value)
            raise SourceError(f"row {row} of this task has no message_id; dedup=true needs one for each row")
        return [value.encode() if value else made_up % number for number, value in enumerate(given, first)]


def _values(column: "pa.Array | None") -> list[Any] | None:
    return None if column is None else column.to_pylist()


def _blobs(column: "pa.Array") -> list[Any]:
    """Bytes of a binary or string column; null is empty. Slices of the column's own memory where its layout allows."""
    if str(column.type) not in ("binary", "string") or column.null_count:
        return [value.encode() if isinstance(value, str) else value or b"" for value in column.to_pylist()]
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return [b""] * len(column)
    at = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1].tolist()
    view = memoryview(data)
    return [view[start:end] for start, end in pairwise(at)]


class _Headers:
    """Header blocks of a batch's rows, made when they are asked for, so that an error names the row."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._maps = _values(columns.get("headers"))
        self._named = [
            (header, values)
            for header, column in (("key", "key"), ("content-type", "content_type"))
            if (values := _values(columns.get(column))) is not None
        ]
        self._priorities = _values(columns.get("priority"))
        self._known: dict[tuple[tuple[str, Any], ...], bytes] = {}

    @classmethod
    def of(cls, columns: dict[str, Any]) -> "_Headers | None":
        """None when no row has any."""
        wanted = [columns[name] for name in ("headers", "key", "content_type", "priority") if name in columns]
        return cls(columns) if any(column.null_count < len(column) for column in wanted) else None

    def block(self, index: int) -> bytes:
        """Raises ValueError."""
        pairs = dict(self._maps[index]) if self._maps is not None and self._maps[index] else {}
        pairs.update((header, values[index]) for header, values in self._named if values[index])
        if self._priorities is not None and self._priorities[index] is not None:
            # As every client does: a delivery tells its priority in this header.
            pairs.setdefault("priority", str(self._priorities[index]))
        key = tuple(pairs.items())
        block = self._known.get(key)
        if block is None:
            block = _block(key)
            if len(self._known) < 1024:  # Rows repeat themselves; those that do not shall not fill the memory.
                self._known[key] = block
        return block


def _block(pairs: tuple[tuple[str, Any], ...]) -> bytes:
    parts: list[bytes] = []
    for name, value in pairs:
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise ValueError(f"its header {name!r} is not UTF-8, and headers are texts") from None
        if not name or not text:
            continue
        units = utf16_units(text)
        if units > HEADER_VALUE_UNITS_MAX:
            raise ValueError(f"its header {name!r} has {units:,} characters; at most {HEADER_VALUE_UNITS_MAX:,}")
        for raw in (name.encode(), text.encode()):
            parts += (len(raw).to_bytes(2, "big"), raw)
    if len(parts) > 4 * HEADERS_MAX:
        raise ValueError(f"it has {len(parts) // 4} headers; at most {HEADERS_MAX}")
    return (len(parts) // 4).to_bytes(2, "big") + b"".join(parts)


class _Extra:
    """The extras of one row, checked when they are asked for, so that an error names the row."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __call__(self) -> dict[str, Any] | None:
        for name, value in self._values.items():
            most = PRIORITY_MAX if name == "priority" else 2**62
            if not (1 if name == "ttl_ms" else 0) <= value <= most:
                raise ValueError(f"{name} is {value}; it must be {1 if name == 'ttl_ms' else 0} to {most}")
        return self._values or None


def _extras(columns: dict[str, Any], count: int) -> list[_Extra] | None:
    given = {
        name: columns[name].to_pylist() if name != "deliver_at" else _epoch_ms(columns[name])
        for name in ("priority", "delay_ms", "ttl_ms", "deliver_at")
        if name in columns and columns[name].null_count < count
    }
    if not given:
        return None
    return [
        _Extra({name: values[index] for name, values in given.items() if values[index] is not None})
        for index in range(count)
    ]


def _epoch_ms(column: "pa.Array") -> list[int | None]:
    import pyarrow as pa

    ticks: list[int | None] = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if tick is None else tick // 1000 for tick in ticks]
