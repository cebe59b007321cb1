"""Whether the rows of a PublishMany are rows: a broken one would break the reader of whoever receives it.

Rows of one length with ids of one length and no headers, the usual bulk, are checked by columns: the bytes that frame
the first row must repeat in every row, which takes eight strided comparisons for the whole batch. Otherwise it is one
`struct` call a row.
"""

import struct
from itertools import pairwise

from vibemq.errors import InvalidMessage
from vibemq.model.rows import Rows
from vibemq.protocols.native.headers import NO_HEADERS, HeaderReader

_SMALLEST = 9
"""id length 2, id 1, payload length 4, header count 2."""


def check_rows(rows: Rows, headers: HeaderReader) -> None:
    """Raises InvalidMessage naming the first row that is broken or has forbidden headers."""
    if rows.count == 0:
        return
    if not _all_like_the_first(rows):
        _check_each(rows, headers)


def _all_like_the_first(rows: Rows) -> bool:
    """True proves every row sound; False proves nothing."""
    data, count = rows.data, rows.count
    if rows.lengths != rows.lengths[:4] * count:
        return False
    length = len(data) // count
    if length < _SMALLEST:
        return False
    id_end = 2 + (data[0] << 8 | data[1])
    payload_end = length - 2
    if not 2 < id_end <= payload_end - 4 or data[payload_end:length] != NO_HEADERS:
        return False
    if int.from_bytes(data[id_end : id_end + 4], "big") != payload_end - id_end - 4:
        return False
    framing = (0, 1, *range(id_end, id_end + 4), payload_end, payload_end + 1)
    return all(data[column::length] == data[column : column + 1] * count for column in framing)


def _check_each(rows: Rows, headers: HeaderReader) -> None:
    data, offsets = rows.data, rows.offsets()
    id_size = -1
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
        if id_size == 0:
            raise _broken(index)


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
