"""Columns frames: golden bytes, and any rows."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.cursor_peer import columns
from vibemq.errors import LocalProtocolError
from vibemq.model.effects import Fetched
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.native.codec.columns import COLUMNS_EXCESS, columns_frame
from vibemq.protocols.native.codec.frames import HEADER_SIZE

ALL = frozenset({"sequence", "published_at", "message_id", "body", "priority", "headers"})


def body_of(fetched: Fetched, body_bytes_max: int = 1 << 20) -> bytes:
    frame = columns_frame("r1", "q", fetched, body_bytes_max=body_bytes_max)
    assert int.from_bytes(frame[:4], "big") == len(frame) - HEADER_SIZE
    assert frame[4] == 0
    return frame[HEADER_SIZE:]


def test_the_layout_byte_for_byte() -> None:
    rows = Rows.of([pack_row("ab", b"xyz", [("k", "v")]), pack_row("c", b"")])
    fetched = Fetched(frozenset({"sequence", "body", "message_id"}), 7, 9, [Slice(7, 5, rows)], [], "i")
    body = body_of(fetched)
    meta = (
        b'{"count":2,"first":7,"next":9,"gaps":[],"incarnation":"i","buffers":{"sequence":[0,16],'
        b'"message_id":[[16,12],[32,3]],"body":[[40,12],[56,3]]}}'
    )
    start = b"\x01\x48\0\x02r1\0\x01q" + struct.pack(">I", len(meta)) + meta
    start += bytes(-len(start) % 8)
    buffers = (
        struct.pack("<2q", 7, 8)
        + struct.pack("<3i", 0, 2, 3) + bytes(4)
        + b"abc" + bytes(5)
        + struct.pack("<3i", 0, 3, 3) + bytes(4)
        + b"xyz" + bytes(5)
    )  # fmt: skip
    assert body == start + buffers


def test_the_compact_layout_byte_for_byte() -> None:
    rows = [pack_row(name, body, [("k", "v")]) for name, body in (("ab", b"xyz"), ("cd", b"123"))]
    names = frozenset({"sequence", "body", "message_id", "priority", "headers"})
    fetched = Fetched(names, 7, 9, [Slice(7, 5, Rows.of(rows))], [], "i", compact=True)
    meta = (
        b'{"count":2,"first":7,"next":9,"gaps":[],"incarnation":"i","buffers":{'
        b'"priority":{"same":1},"headers":{"same":[["k","v"]]},"sequence":[0,16],'
        b'"message_id":[[16,12],[32,4]],"body":[[40,12],[56,6]]}}'
    )
    assert meta in body_of(fetched), "small bodies: whole rows would be mostly waste"
    rows = [pack_row(name, body * 30, [("k", "v")]) for name, body in (("ab", b"xyz"), ("cd", b"123"))]
    fetched = replace(fetched, slices=[Slice(7, 5, Rows.of(rows[:1])), Slice(8, 6, Rows.of(rows[1:]))])
    body = body_of(fetched)
    meta = (
        b'{"count":2,"first":7,"next":9,"gaps":[],"incarnation":"i","buffers":{'
        b'"message_id":{"rows":[0,212],"width":106,"at":2,"size":2},'
        b'"body":{"rows":[0,212],"width":106,"at":8,"size":90},'
        b'"priority":{"same":1},"headers":{"same":[["k","v"]]},"sequence":[216,16]}}'
    )
    start = b"\x01\x48\0\x02r1\0\x01q" + struct.pack(">I", len(meta)) + meta
    start += bytes(-len(start) % 8)
    assert body == start + b"".join(rows) + bytes(4) + struct.pack("<2q", 7, 8)


def test_nothing_at_all() -> None:
    decoded = columns(body_of(Fetched(ALL, 1, 5, [], [(1, 4, "absent")], "i")))
    assert decoded.meta["gaps"] == [[1, 4, "absent"]]
    assert all(values == [] for values in decoded.values.values())


@pytest.mark.parametrize(
    ("headers", "whole"),
    [
        ([("key", "k%d")], True),
        ([("key", "k%d"), ("t", "const")], True),
        ([("t", "const"), ("é", "ü%d")], True),
        ([("key", "k%d"), ("key", "again")], False),
        ([("key", "k%d"), ("empty", "")], False),
        ([("key", "k%d"), ("long", "x" * 300)], True),
        ([("a" * 130, "k%d")], False),
    ],
)
def test_headers_at_the_same_place_of_every_row_are_cut_out_of_it(headers: list[tuple[str, str]], whole: bool) -> None:
    rows = []
    for number in range(10, 13):
        pairs = [(key, value.replace("%d", str(number))) for key, value in headers]
        rows.append(pack_row(f"m{number}", b"body" * 90, pairs))
    slices = [Slice(1, 5, Rows.of(rows[:2])), Slice(3, 5, Rows.of(rows[2:]))]
    got = columns(body_of(Fetched(ALL, 1, 4, slices, [], "i", compact=True)))
    assert isinstance(got.meta["buffers"]["headers"], dict) == whole
    plain = columns(body_of(Fetched(ALL, 1, 4, slices, [], "i")))
    assert got.values == plain.values
    assert "headers" in got.values


def test_headers_of_another_order_or_size_are_not_cut_out() -> None:
    one, other = (
        pack_row("m1", b"body" * 90, [("a", "1"), ("b", "2")]),
        pack_row("m2", b"body" * 90, [("b", "1"), ("a", "2")]),
    )
    for slices in ([Slice(1, 5, Rows.of([one, other]))], [Slice(1, 5, Rows.of([one])), Slice(2, 5, Rows.of([other]))]):
        got = columns(body_of(Fetched(ALL, 1, 3, slices, [], "i", compact=True)))
        assert got.values["headers"] == [{b"a": b"1", b"b": b"2"}, {b"b": b"1", b"a": b"2"}]


def test_compact_columns_are_for_those_who_ask() -> None:
    rows = Rows.of([pack_row("ab", b"xyz" * 30)] * 3)
    plain = columns(body_of(Fetched(ALL, 1, 4, [Slice(1, 5, rows)], [], "i")))
    assert not any(isinstance(place, dict) for place in plain.meta["buffers"].values())


def test_rows_travel_whole_only_when_most_of_them_is_wanted() -> None:
    rows = Rows.of([pack_row("ab", b"xyz" * 30)] * 3)
    for names, whole in (("message_id", False), ("body", True), ("body message_id", True), ("sequence", False)):
        fetched = Fetched(frozenset(names.split()), 1, 4, [Slice(1, 5, rows)], [], "i", compact=True)
        places = columns(body_of(fetched)).meta["buffers"]
        assert any("rows" in place for place in places.values()) == whole, names


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
messages = st.tuples(texts, st.binary(max_size=20), st.lists(st.tuples(texts, texts), max_size=3))


alike = st.builds(
    lambda bodies, headers: [("id", body, headers) for body in bodies],
    st.integers(0, 40).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=5)),
    st.lists(st.tuples(texts, texts), max_size=3),
)


@given(
    st.lists(st.lists(messages, min_size=1, max_size=5) | alike, max_size=4) | alike.map(lambda part: [part, part]),
    st.integers(1, 1 << 40),
    st.booleans(),
)
def test_any_rows_come_back_as_columns(
    parts: list[list[tuple[str, bytes, list[tuple[str, str]]]]], first: int, compact: bool
) -> None:
    slices = []
    at = first
    for index, part in enumerate(parts):
        slices.append(Slice(at, 1000 + index, Rows.of([pack_row(*message) for message in part])))
        at += len(part) + 3
    decoded = columns(body_of(Fetched(ALL, first, at, slices, [], "i", {first: 3}, compact=compact)))
    every = [message for part in parts for message in part]
    assert decoded.values["message_id"] == [message_id.encode() for message_id, _, _ in every]
    assert decoded.values["body"] == [payload for _, payload, _ in every]
    assert decoded.values["headers"] == [
        {key.encode(): value.encode() for key, value in headers} for _, _, headers in every
    ]
    assert decoded.values["published_at"] == [1000 + index for index, part in enumerate(parts) for _ in part]
    assert decoded.sequences == [part.first_sequence + n for part in slices for n in range(part.rows.count)]
    assert decoded.values["priority"] == [3 if index == 0 else 1 for index in range(len(every))]


@pytest.mark.parametrize("headers", [(), (("k", "v"),)])
def test_rows_of_one_shape_take_the_short_way_to_the_same_columns(headers: tuple[tuple[str, str], ...]) -> None:
    alike = [pack_row(f"m{n}", bytes([n]) * 50, headers) for n in range(9)]
    mixed = [*alike, pack_row("odd one", b"", [("a", "b"), ("a", "c")])]
    short = columns(body_of(Fetched(ALL, 1, 10, [Slice(1, 5, Rows.of(alike))], [], "i")))
    long = columns(body_of(Fetched(ALL, 1, 11, [Slice(1, 5, Rows.of(mixed))], [], "i")))
    assert {name: values[:9] for name, values in long.values.items()} == short.values
    assert long.values["headers"][9] == {b"a": b"c"}


def test_what_is_no_text_is_told_as_text() -> None:
    rows = Rows.of([pack_row(b"\xff", b"1", ()), pack_row("é", b"2")])
    decoded = columns(body_of(Fetched(ALL, 1, 3, [Slice(1, 5, rows)], [], "i")))
    assert decoded.values["message_id"] == ["\ufffd".encode(), "é".encode()]


def test_the_largest_message_fits_and_a_larger_one_is_refused() -> None:
    rows = Rows.of([pack_row("m", bytes(1 << 20))])
    fetched = Fetched(ALL, 1, 2, [Slice(1, 5, rows)], [], "i")
    assert len(body_of(fetched)) <= (1 << 20) + COLUMNS_EXCESS
    with pytest.raises(LocalProtocolError, match="does not fit"):
        body_of(fetched, body_bytes_max=1 << 19)


def test_rows_that_weigh_more_as_columns_are_left_for_the_next_fetch() -> None:
    small = [Slice(1, 5, Rows.of([pack_row("m", b"")] * 4000)), Slice(4010, 6, Rows.of([pack_row("n", b"")] * 4000))]
    gaps = [(4001, 4009, "absent"), (8010, 8010, "lost")]
    fetched = Fetched(ALL, 1, 8011, small, gaps, "i")
    got = columns(body_of(fetched, body_bytes_max=100_000))
    assert 2000 < got.meta["count"] < 8000
    assert got.meta["next"] == got.sequences[-1] + 1
    assert all(first < got.meta["next"] for first, _, _ in got.meta["gaps"])
    letters = Fetched(ALL, 1, 8001, small, [], "i", {}, [[number, "x" * 100] for number in range(1, 8001)])
    got = columns(body_of(letters, body_bytes_max=100_000))
    assert len(got.meta["facts"]) == got.meta["count"] == got.meta["next"] - 1


def test_a_reader_gets_as_much_as_it_asks_for_whatever_other_frames_hold() -> None:
    rows = [Slice(1, 5, Rows.of([pack_row("m", bytes(1000))] * 2000))]
    asked = Fetched(ALL, 1, 2001, rows, [], "i", max_bytes=2 << 20)
    assert columns(body_of(asked, body_bytes_max=1 << 20)).meta["count"] == 2000
    not_asked = Fetched(ALL, 1, 2001, rows, [], "i")
    assert columns(body_of(not_asked, body_bytes_max=1 << 20)).meta["count"] < 2000
