"""Many messages become the same rows, in the same frames, as one by one."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.client.publishing.outbox import FRAME_BYTES_MAX, FRAME_ROWS_MAX, PublishBatch
from vibemq.client.publishing.outgoing import ROW_BYTES_MAX, Outgoing, RowPacker, extra_of
from vibemq.client.publishing.packing import packed_batches
from vibemq.errors import LocalProtocolError, MessageTooLarge

ID_END = 34
"""Of the length of an id and the id itself, with which a row begins."""

BODIES: st.SearchStrategy[Any] = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=40).map(lambda raw: b"\xff" + raw),
    st.sampled_from([b"", b"{}", b'{"a": 1}', b"[1", "text", {"a": [1, 2]}, None, 7, bytearray(b"\x01\x02")]),
    st.sampled_from([60_000, 130_000, FRAME_BYTES_MAX]).map(lambda size: b"\xff" * size),
)
MESSAGES = st.lists(
    st.one_of(
        BODIES,
        BODIES.map(lambda body: Outgoing(body, headers={"a": "b"})),
        BODIES.map(lambda body: Outgoing(body, ttl=5, dedup_id="d")),
    ),
    max_size=30,
)


def _one_by_one(messages: list[Any]) -> list[PublishBatch]:
    packer = RowPacker(lambda: ROW_BYTES_MAX)
    batches = [PublishBatch("q")]
    for item in messages:
        message = item if isinstance(item, Outgoing) else Outgoing(item)
        row, extra = packer.row(message), extra_of(message)
        if not batches[-1].offer(row, extra):
            batches.append(PublishBatch("q"))
            batches[-1].offer(row, extra)
    return [batch for batch in batches if batch.count]


def _seen(batch: PublishBatch) -> Any:
    return batch.count, batch.size, [row[ID_END:] for row in batch.rows], batch.extras, batch.own_dedup


@given(MESSAGES)
def test_as_one_by_one(messages: list[Any]) -> None:
    packed = list(packed_batches(RowPacker(lambda: ROW_BYTES_MAX), "q", iter(messages), None, dedup=False))
    assert [_seen(batch) for batch in packed] == [_seen(batch) for batch in _one_by_one(messages)]


def test_ids_are_different_and_of_one_length() -> None:
    packer = RowPacker()
    batches = list(
        packed_batches(packer, "q", [b"\xff", {"a": 1}, Outgoing(b"\xff", ttl=1), b"\xff"], None, dedup=False)
    )
    ids = {row[:ID_END] for batch in batches for row in batch.rows}
    assert len(ids) == 4
    assert {row[:2] for row in ids} == {b"\0\x20"}
    assert all(row[2:].isalnum() for row in ids)


@pytest.mark.parametrize("size", [1, 90, 1_000])
def test_frames_keep_their_bounds(size: int) -> None:
    batches = list(packed_batches(RowPacker(), "q", [b"\xff" * size] * 5_000, None, dedup=False))
    assert sum(batch.count for batch in batches) == 5_000
    for batch in batches:
        assert batch.count == len(batch.rows) <= FRAME_ROWS_MAX
        assert batch.size == sum(map(len, batch.rows)) <= FRAME_BYTES_MAX
    for batch in batches[:-1]:
        assert batch.full or batch.size + len(batch.rows[0]) > FRAME_BYTES_MAX


def test_nothing_is_taken_before_it_is_packed() -> None:
    """Large bodies are made one at a time, and go before the next is made."""
    taken = 0

    def bodies() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(5):
            taken += 1
            yield b"\xff" * 600_000

    batches = packed_batches(RowPacker(), "q", bodies(), None, dedup=False)
    for number in range(4):
        assert next(batches).count == 1
        assert taken == number + 2


@pytest.mark.parametrize("bad", [b"\xff" * (ROW_BYTES_MAX + 1), b'"' + b"x" * ROW_BYTES_MAX + b'"'])
def test_a_body_that_is_too_large_stops_before_the_frame_that_waits(bad: bytes) -> None:
    batches = packed_batches(RowPacker(lambda: ROW_BYTES_MAX), "q", [b"\xff", bad], None, dedup=False)
    with pytest.raises(MessageTooLarge):
        next(batches)


def test_a_body_that_has_no_form_stops() -> None:
    batches = packed_batches(RowPacker(), "q", [*[b"\xff"] * (FRAME_ROWS_MAX + 5), object()], None, dedup=False)
    assert next(batches).count == FRAME_ROWS_MAX
    with pytest.raises(LocalProtocolError):
        next(batches)


def test_dedup_ids_of_their_own() -> None:
    (batch,) = packed_batches(RowPacker(), "q", [b"\xff", Outgoing(b"\xff", dedup_id="mine"), {}], None, dedup=True)
    assert batch.own_dedup == {0, 2}
    assert batch.extras[1] == {"dedup_id": "mine"}
    assert len({batch.extras[index]["dedup_id"] for index in range(3)}) == 3


def test_what_all_have_in_common() -> None:
    (batch,) = packed_batches(RowPacker(), "q", [b"\xff", {}], Outgoing(None, ttl=2), dedup=False)
    assert batch.extras == {0: {"ttl_ms": 2_000}, 1: {"ttl_ms": 2_000}}
