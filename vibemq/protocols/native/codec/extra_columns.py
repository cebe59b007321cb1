"""Extras of a frame by columns (extras/1): what all rows have in common is told once.

    columns   count u8, then each of them:
      name    u8      0 priority, 1 ttl_ms, 2 delay_ms, 3 deliver_at, 4 dedup_id
      shape   u8      0 = one value, which all rows have; 1 = one value for each row
      values  priority u8 each; ttl_ms, delay_ms and deliver_at u64 each;
              dedup_id (always for each row): a size u16 for each row, then the ids, joined

A row without the extra has the value that says so: priority 1, a time of 0, a dedup id of no bytes.

Source: docs/spec/native.md, "Extensions".
"""

import re
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any

from vibemq.errors import InvalidMessage, RemoteProtocolError
from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.instants import Values
from vibemq.model.options import PRIORITY_MAX, Priority

EXTRAS_EXTENSION = "extras/1"
EXTRA_ROWS_MAX = 2_048
"""Rows of a frame that may have extras: each costs some microseconds where it is read, kept and shown, and a frame is
shown at once. The clients send no more rows than that in a frame."""
INSTANT_MAX = 2**63 - 1
_LEAST = 8
"""Fewer rows are told in JSON: it is made and read by one call."""
_DENSE = 4
"""So are extras of less than one in so many rows."""


class ExtraName(IntEnum):
    """The columns, as they are called in JSON."""

    PRIORITY = 0
    TTL_MS = 1
    DELAY_MS = 2
    DELIVER_AT = 3
    DEDUP_ID = 4


_NAMES = {name.name.lower(): name for name in ExtraName}
_ABSENT: dict[str, int | str] = {"priority": int(Priority.NORMAL), "dedup_id": ""}
_SAME, _EACH = 0, 1
_COLUMN = struct.Struct("!BB")
_SHORT = "the extras of a frame end inside a column"


def encode_extras(
    count: int, extras: Mapping[int, Mapping[str, Any]], common: Mapping[str, Any] | None
) -> bytes | None:
    """None: JSON serves better.

    Args:
        count: of the rows.
        extras: as in JSON.
        common: what every row has; then there are no others.
    """
    if count < _LEAST or (common is None and len(extras) * _DENSE < count):
        return None
    if common is not None:
        return _joined([_COLUMN.pack(_NAMES[name], _SAME) + _packed(name, [value]) for name, value in common.items()])
    names = set().union(*extras.values())
    rows = [extras.get(index, _NONE) for index in range(count)]
    return _joined([_column(name, rows) for name in _NAMES if name in names])


_NONE: dict[str, Any] = {}


def _joined(columns: Sequence[bytes]) -> bytes:
    return bytes((len(columns),)) + b"".join(columns)


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    absent = _ABSENT.get(name, 0)
    values = [row.get(name, absent) for row in rows]
    if name == "dedup_id":
        ids = [value.encode() for value in values]
        return _COLUMN.pack(_NAMES[name], _EACH) + struct.pack(f"!{len(ids)}H", *map(len, ids)) + b"".join(ids)
    if values.count(values[0]) == len(values):
        return _COLUMN.pack(_NAMES[name], _SAME) + _packed(name, values[:1])
    return _COLUMN.pack(_NAMES[name], _EACH) + _packed(name, values)


def _packed(name: str, values: Sequence[int]) -> bytes:
    return bytes(values) if name == "priority" else struct.pack(f"!{len(values)}Q", *values)


def decode_extras(block: bytes, count: int) -> "WireColumns":
    """Raises RemoteProtocolError for what is no such block. Of too many rows it is not read: `WireColumns.at` refuses
    them."""
    if count > EXTRA_ROWS_MAX and block[:1] != b"\0":
        return WireColumns(None, block)
    found: dict[ExtraName, Any] = {}
    try:
        at = 1
        for _ in range(block[0]):
            number, shape = _COLUMN.unpack_from(block, at)
            if number >= len(ExtraName) or shape > _EACH or number in found:
                raise RemoteProtocolError(
                    f"the extras of a frame have a column {number} of the shape {shape}, or have it twice; known are"
                    f" the columns 0 to {len(ExtraName) - 1} and the shapes 0 and 1"
                )
            name = ExtraName(number)
            found[name], at = _read(block, at + _COLUMN.size, name, count if shape == _EACH else None)
    except (struct.error, IndexError):
        raise RemoteProtocolError(_SHORT) from None
    if at != len(block):
        raise RemoteProtocolError(f"the extras of a frame have {len(block) - at:,} bytes behind their last column")
    return WireColumns(found, block)


def _read(block: bytes, at: int, name: ExtraName, count: int | None) -> tuple[Any, int]:
    """(values, where they end). `count` None: one value for all. Values for each that are all the same are one."""
    if name is ExtraName.DEDUP_ID:
        if count is None:
            raise RemoteProtocolError("the extras of a frame give one dedup_id to all rows; it needs the shape 1")
        sizes = struct.unpack_from(f"!{count}H", block, at)
        ends = list(accumulate(sizes, initial=at + 2 * count))
        if ends[-1] > len(block):
            raise RemoteProtocolError(_SHORT)
        return [block[start:end] for start, end in pairwise(ends)], ends[-1]
    letter, size = ("B", 1) if name is ExtraName.PRIORITY else ("Q", 8)
    values = struct.unpack_from(f"!{1 if count is None else count}{letter}", block, at)
    same = count is None or (count > 0 and values[0] == values[-1] and values.count(values[0]) == count)
    return (values[0] if same else values), at + size * len(values)


class WireColumns:
    """Extras as they came, by columns; their values are unchecked."""

    __slots__ = ("_columns", "block")

    def __init__(self, columns: Mapping[ExtraName, Any] | None, block: bytes) -> None:
        """`columns` None: of too many rows; these may have come as JSON, too."""
        self._columns = columns
        self.block = block
        """What they were read from."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WireColumns) and self.block == other.block

    __hash__ = None  # type: ignore[assignment]

    def at(self, now: int, count: int) -> ExtraColumns | None:
        """For rows that came then; None when they are plain.

        Raises:
            InvalidMessage: a time that is none, with the row that has it; or too many rows.
        """
        columns = self._columns
        if columns is None:
            raise too_many_extras(f"{count:,}" if count > EXTRA_ROWS_MAX else f"more than {EXTRA_ROWS_MAX:,}")
        for name in (ExtraName.TTL_MS, ExtraName.DELAY_MS, ExtraName.DELIVER_AT):
            _check(columns.get(name, 0), name)
        if not columns or not count:
            return None
        priorities = columns.get(ExtraName.PRIORITY, int(Priority.NORMAL))
        delays = _later(columns.get(ExtraName.DELAY_MS, 0), now)
        return ExtraColumns(
            range(count),
            _at_most(priorities, PRIORITY_MAX),
            _later(columns.get(ExtraName.TTL_MS, 0), now),
            _first_of(columns.get(ExtraName.DELIVER_AT, 0), delays, count),
            columns.get(ExtraName.DEDUP_ID, ()),
        )


def has_too_many(text: bytes) -> bool:
    """Whether extras as JSON are more than a frame may have: found out without parsing them, which would hold up
    everybody. What is not more, or no JSON, is parsed in a few milliseconds."""
    if text.count(b"{") + text.count(b"[") <= _BRACKETS_MAX and text.count(b",") <= _COMMAS_MAX:
        return False
    # Some of them may stand in strings.
    brackets = 0
    for marks, found in enumerate(_STRINGS_AND_MARKS.finditer(text), 1):
        brackets += text[found.start()] in _BRACKETS
        if brackets > _BRACKETS_MAX or marks > _MARKS_MAX:
            return True
    return False


_BRACKETS = b"{["
_BRACKETS_MAX = EXTRA_ROWS_MAX + 1
"""An object of each row and the one around them; lists are none of what a row may have, and as long work to read."""
_COMMAS_MAX = EXTRA_ROWS_MAX * len(ExtraName)
_MARKS_MAX = _BRACKETS_MAX + _COMMAS_MAX + EXTRA_ROWS_MAX * (len(ExtraName) + 2)
"""With the strings: the number of each row, the names of what it has, and its dedup_id."""
# A string without an end is one, too, and not looked through again from each of its quotation marks.
_STRINGS_AND_MARKS = re.compile(rb'"(?:[^"\\]+|\\.)*+"?|[{\[,]', re.DOTALL)


def too_many_extras(count: str) -> InvalidMessage:
    return InvalidMessage(
        f"{count} rows of this frame have a priority, ttl_ms, delay_ms, deliver_at or dedup_id, and a frame may have "
        f"{EXTRA_ROWS_MAX:,} such rows; nothing was accepted. Send them in several frames"
    )


def _check(values: Values, name: ExtraName) -> None:
    if (values if isinstance(values, int) else max(values, default=0)) <= INSTANT_MAX:
        return
    each = [values] if isinstance(values, int) else list(values)
    row = next(index for index, value in enumerate(each) if value > INSTANT_MAX)
    raise InvalidMessage(f"{name.name.lower()} of row {row} is {each[row]}; it must be at most {INSTANT_MAX}")


def _at_most(values: Values, most: int) -> Values:
    if isinstance(values, int):
        return min(values, most)
    return values if max(values) <= most else [min(value, most) for value in values]


def _later(values: Values, now: int) -> Values:
    """Instants of these times from now; 0 stays 0."""
    if isinstance(values, int):
        return now + values if values else 0
    if min(values):
        return [now + value for value in values]
    return [now + value if value else 0 for value in values]


def _first_of(values: Values, others: Values, count: int) -> Values:
    """The first ones, and where they are 0 the others."""
    if isinstance(values, int):
        return values or others
    if min(values):
        return values
    each = [others] * count if isinstance(others, int) else others
    return [value or other for value, other in zip(values, each, strict=True)]
