"""Whether the rows of a PublishMany are rows: a broken one would break the reader of whoever receives it.

A batch's rows usually look alike: ids of one length, the same headers. Then what frames them is known from the first
row, and the others are compared with it instead of being read:

    rows of one length    by columns, a strided comparison for the whole batch per framing byte
    of several lengths    by two lists, the framing before and the headers behind each payload
    anything else         row by row
"""

import struct
from itertools import pairwise, repeat
from typing import NamedTuple

from vibemq.errors import InvalidMessage
from vibemq.model.rows import Rows
from vibemq.model.steps import Steps
from vibemq.protocols.native.codec.headers import NO_HEADERS, HeaderReader

_FRAMING = 6
"""Bytes of a row that are neither id, payload nor headers."""
_HEADER_BYTES_AT_ONCE = 32_768
"""Of headers that are looked at one by one: about a millisecond of the shortest."""
_COLUMNS_FROM = 16
"""Rows from which on a comparison per column is quicker than reading each row."""


class _Shape(NamedTuple):
    id_size: int
    headers: bytes


def check_rows(rows: Rows, headers: HeaderReader) -> None:
    """Raises InvalidMessage naming the first row that is broken or has forbidden headers."""
    for _ in check_rows_in_steps(rows, headers):
        pass


def check_rows_in_steps(rows: Rows, headers: HeaderReader) -> Steps[None]:
    """The same, for very many headers that are all different."""
    if rows.count == 0:
        return
    shape = _shape_of_first(rows, headers)
    if shape is None or not _all_shaped(rows, shape):
        yield from _check_each(rows, headers)


def _shape_of_first(rows: Rows, headers: HeaderReader) -> _Shape | None:
    """None when the first row is broken; whoever reads row by row says how."""
    data, end = rows.data, int.from_bytes(rows.lengths[:4], "big")
    try:
        id_size = data[0] << 8 | data[1]
        payload_at = 2 + id_size + 4
        block = data[payload_at + int.from_bytes(data[payload_at - 4 : payload_at], "big") : end]
        headers.check(block)
    except (IndexError, InvalidMessage):
        return None
    return _Shape(id_size, block) if id_size else None


def _all_shaped(rows: Rows, shape: _Shape) -> bool:
    """True proves every row sound; False proves nothing."""
    if rows.count == 1:
        return True
    if rows.count >= _COLUMNS_FROM and rows.alike:
        return rows.common_headers() == shape.headers
    return _same_framing(rows, shape)


def _same_framing(rows: Rows, shape: _Shape) -> bool:
    data, offsets = rows.data, rows.offsets()
    id_size, block = shape
    around = _FRAMING + id_size + len(block)
    unpack = struct.Struct(f"!H{id_size}xI").unpack_from
    try:
        framing = list(map(unpack, repeat(data), offsets[:-1]))
    except struct.error:
        return False
    if framing != [(id_size, length - around) for length in rows.row_lengths()]:
        return False
    return [data[end - len(block) : end] for end in offsets[1:]] == [block] * rows.count


def _check_each(rows: Rows, headers: HeaderReader) -> Steps[None]:
    data, offsets = rows.data, rows.offsets()
    id_size = -1
    left = _HEADER_BYTES_AT_ONCE
    unpack = struct.Struct("!HI").unpack_from
    for index, (start, end) in enumerate(pairwise(offsets)):
        try:
            if data[start] << 8 | data[start + 1] != id_size:
                id_size = data[start] << 8 | data[start + 1]
                unpack = struct.Struct(f"!H{id_size}xI").unpack_from
            payload_end = start + 6 + id_size + unpack(data, start)[1]
        except (struct.error, IndexError):
            raise _broken(index) from None
        block = data[payload_end:end]
        if block != NO_HEADERS:
            _check_headers(block, headers, index)
            left -= len(block)
        if id_size == 0:
            raise _broken(index)
        if left <= 0:
            left = _HEADER_BYTES_AT_ONCE
            yield


def _check_headers(block: bytes, headers: HeaderReader, index: int) -> None:
    try:
        headers.check(block)
    except IndexError:
        raise _broken(index) from None
    except InvalidMessage as error:
        raise InvalidMessage(f"row {index}: {error}") from None


def _broken(index: int) -> InvalidMessage:
    return InvalidMessage(
        f"row {index} is not a row (id str16, payload u32 and bytes, headers u16 and pairs); nothing was published"
    )
