"""Rows of the wire made column by column: Arrow's kernels put them together, and nothing is done row by row.

row    id str16 | payload u32 size and bytes | headers u16 count, which is 0
"""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 1 << 20
"""About as much is put together at once: a batch of Spark's has 10,000 rows, however large they are."""
ID_BYTES_MAX = 65_535
_NO_HEADERS = b"\0\0"


class Bulk(NamedTuple):
    """Rows one behind the other."""

    ends: Sequence[int]
    """One more than there are rows: row i is data[ends[i]:ends[i + 1]]."""
    data: memoryview


def pieces(batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
    """The batch in slices of about PIECE_BYTES."""
    rows = max(1, batch.num_rows * PIECE_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def texts_of(column: "pa.Array | None") -> "pa.Array | None":
    """A column of bytes or text as bytes, null as empty; None if it is neither."""
    import pyarrow as pa

    if column is None or column.type not in (pa.binary(), pa.string()):
        return None
    values = column.cast(pa.binary())
    return values.fill_null(b"") if values.null_count else values


def numbered(prefix: bytes, numbers: range) -> "pa.Array":
    """Ids that end in a number of eight hexadecimal digits."""
    import pyarrow as pa

    row = prefix + b"%08x"
    count = len(numbers)
    # One format for all of them is twice as fast as one for each.
    data = (row * count) % tuple(numbers)
    size = len(prefix) + 8
    offsets = struct.pack(f"<{count + 1}i", *range(0, size * count + 1, size))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def joined(ids: "pa.Array", bodies: "pa.Array", row_bytes_max: int) -> Bulk | None:
    """Rows of these ids and bodies, both bytes without nulls; None when one of them is too large, or an id empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(bodies):
        return Bulk([0], memoryview(b""))
    id_sizes, sizes = pc.binary_length(ids), pc.binary_length(bodies)
    shortest, longest = pc.min_max(id_sizes).as_py().values()
    if not shortest or longest > ID_BYTES_MAX:
        return None
    parts = (_big_endian(id_sizes, "H"), ids, _big_endian(sizes, "I"), bodies, pa.scalar(_NO_HEADERS, pa.binary()))
    rows = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
    least, most = pc.min_max(pc.binary_length(rows)).as_py().values()
    if most > row_bytes_max:
        return None
    _, offsets, data = rows.buffers()
    count = len(rows)
    if least == most:
        ends: Sequence[int] = range(0, count * most + 1, most)
    else:
        ends = memoryview(offsets).cast("i")[: count + 1].tolist()
    return Bulk(ends, memoryview(data)[: ends[-1]])


def _big_endian(numbers: "pa.Array", code: str) -> Any:
    """Each number as the bytes that `struct` makes of it: one scalar when all are the same."""
    import pyarrow as pa

    least, most = pa.compute.min_max(numbers).as_py().values()
    if least == most:
        return pa.scalar(struct.pack(f"!{code}", most), pa.binary())
    packed = struct.pack(f"!{len(numbers)}{code}", *numbers.to_pylist())
    width = struct.calcsize(f"!{code}")
    return pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(packed)]).cast(pa.binary())
