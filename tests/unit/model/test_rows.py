"""Rows: bulk bytes that cut, join and decode without loss."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.rows import Rows, RowView, header_pairs, join_rows, pack_row

texts = st.text(min_size=1, max_size=20)
headers = st.lists(st.tuples(texts, texts), max_size=4)


@given(texts, st.binary(max_size=100), headers)
def test_a_row_reads_back_what_was_packed(message_id: str, payload: bytes, pairs: list[tuple[str, str]]) -> None:
    view = RowView(pack_row(message_id, payload, pairs))
    assert (view.message_id, view.payload, view.headers) == (message_id, payload, dict(pairs))


@given(st.lists(st.binary(max_size=20), max_size=10), st.data())
def test_slices_hold_the_same_rows(parts: list[bytes], data: st.DataObject) -> None:
    rows = Rows.of(parts)
    start = data.draw(st.integers(0, len(parts)))
    stop = data.draw(st.integers(start, len(parts)))
    assert list(rows.slice(start, stop)) == parts[start:stop]
    assert join_rows([rows.slice(0, start), rows.slice(start, len(parts))]) == rows


def test_rows_that_do_not_add_up_can_be_told() -> None:
    for lengths in ((0, 0, 0), (3, 3, 3), (1, 2, 3)):
        rows = Rows(3, struct.pack("!3I", *lengths), bytes(50))
        assert rows.offsets()[-1] == sum(lengths) != rows.size
    assert Rows(0, b"", b"").slice(0, 0) == Rows(0, b"", b"")


def test_an_index_beyond_the_end_is_refused() -> None:
    with pytest.raises(IndexError):
        Rows.of([b"a"])[1]


@pytest.mark.parametrize("message_id", ["", "x" * 65_536])
def test_an_id_must_fit_its_length_field(message_id: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        pack_row(message_id, b"")


def test_a_header_that_does_not_fit_is_refused_instead_of_wrapped() -> None:
    with pytest.raises(ValueError, match="header"):
        pack_row("m", b"", [("k", "v" * 65_536)])


def test_pairs_with_an_empty_half_are_left_out_and_the_last_duplicate_wins() -> None:
    row = pack_row("m", b"", [("", "x"), ("k", ""), ("a", "1"), ("a", "2")])
    assert RowView(row).headers == {"a": "2"}


@given(st.binary(max_size=40))
def test_garbage_headers_raise_only_what_is_documented(data: bytes) -> None:
    try:
        header_pairs(data, 0)
    except (struct.error, IndexError):
        pass


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=3), st.binary(max_size=3)), max_size=6))
def test_payloads_are_those_of_the_rows(messages: list[tuple[str, bytes]]) -> None:
    rows = Rows.of([pack_row(message_id, payload, [("k", "v")]) for message_id, payload in messages])
    assert rows.payloads() == [payload for _, payload in messages]


@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 6))
def test_payloads_of_rows_that_are_alike(id_size: int, size: int, count: int) -> None:
    payloads = [bytes((number,)) * size for number in range(count)]
    rows = Rows.of([pack_row("x" * id_size, payload) for payload in payloads])
    assert rows.alike
    assert rows.payloads() == payloads
