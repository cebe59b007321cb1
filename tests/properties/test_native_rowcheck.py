"""The shortcuts of the row check never differ from reading every row."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec.headers import HeaderReader
from vibemq.protocols.native.codec.row_check import check_rows

HEADERS_MAX = 3
UNITS_MAX = 200


def is_row(row: bytes) -> bool:
    """Read one row in the plainest way."""
    try:
        at = 2 + struct.unpack_from("!H", row)[0]
        if at == 2:
            return False
        at += 4 + struct.unpack_from("!I", row, at)[0]
        count = struct.unpack_from("!H", row, at)[0]
        at += 2
        if count > HEADERS_MAX:
            return False
        for _ in range(2 * count):
            size = struct.unpack_from("!H", row, at)[0]
            at += 2 + size
    except struct.error:
        return False
    return at == len(row)


def is_sound(rows: Rows) -> bool:
    try:
        check_rows(rows, HeaderReader(headers_max=HEADERS_MAX, value_units_max=UNITS_MAX))
    except InvalidMessage:
        return False
    return True


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Rows as a publisher sends them: ids of one length, one set of headers, payloads of one or of many lengths."""
    headers = draw(st.lists(st.tuples(st.just("key"), st.text("ab", min_size=1, max_size=90)), max_size=2))
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=9) | st.integers(1, 9).map(lambda n: [5] * n))
    return [pack_row(f"{index:04x}", bytes(size), headers) for index, size in enumerate(sizes)]


@given(alike())
def test_rows_that_look_alike_are_sound(rows: list[bytes]) -> None:
    assert is_sound(Rows.of(rows))


@settings(max_examples=300)
@given(alike(), st.data())
def test_a_changed_byte_is_judged_as_by_reading_every_row(rows: list[bytes], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(rows) - 1))
    at = data.draw(st.integers(0, len(rows[which]) - 1))
    row = bytearray(rows[which])
    row[at] = data.draw(st.integers(0, 255))
    rows[which] = bytes(row)
    assert is_sound(Rows.of(rows)) == all(map(is_row, rows))


@given(alike(), st.data())
def test_rows_cut_elsewhere_are_judged_as_by_reading_every_row(rows: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(rows)
    lengths = [len(row) for row in rows]
    giver, taker = (data.draw(st.integers(0, len(rows) - 1)) for _ in range(2))
    moved = data.draw(st.integers(0, lengths[giver]))
    lengths[giver] -= moved
    lengths[taker] += moved
    cut = Rows(len(rows), struct.pack(f"!{len(rows)}I", *lengths), whole)
    assert is_sound(cut) == all(map(is_row, cut))
