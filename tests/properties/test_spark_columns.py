"""Rows as the broker sends them in columns and Spark's reader takes them apart, beside each row read by itself."""

import struct
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.model.effects import Fetched
from vibemq.model.rows import Rows, RowView
from vibemq.model.stored import Slice
from vibemq.protocols.native.codec.columns import columns_frame
from vibemq.protocols.native.codec.frames import HEADER_SIZE
from vibemq.spark.connection import wire
from vibemq.spark.options import parse
from vibemq.spark.read.columns import Block, arrow_schema, record_batch, wire_columns
from vibemq.spark.schema import QUEUE_COLUMNS, read_schema

FRAME_BYTES = 1 << 20

_texts = st.one_of(st.sampled_from([b"key", b"content-type", b"x", b"\xff\xfe", "ä".encode()]), st.binary(max_size=6))
_sizes = st.sampled_from([0, 1, 7, 1000, 70_000])


def _row(message_id: bytes, payload: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """As `pack_row`, of what any peer may send."""
    parts = [struct.pack("!H", len(message_id)), message_id, struct.pack("!I", len(payload)), payload]
    parts.append(struct.pack("!H", len(headers)))
    parts += [struct.pack("!H", len(text)) + text for pair in headers for text in pair]
    return b"".join(parts)


@st.composite
def _mixed(draw: Any) -> list[bytes]:
    rows = st.builds(
        _row,
        st.binary(min_size=1, max_size=5),
        st.builds(lambda size, filler: filler * size, _sizes, st.binary(min_size=1, max_size=1)),
        st.lists(st.tuples(_texts, _texts), max_size=3),
    )
    return list(draw(st.lists(rows, min_size=1, max_size=6)))


def _exactly(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


@st.composite
def _alike(draw: Any) -> list[list[bytes]]:
    """Parts with rows of one shape, which may travel whole: the same keys, and values of the same sizes, or even the
    same values."""
    size, id_size = draw(st.sampled_from([1000, 2000, 70_000, 7, 0])), draw(st.integers(1, 40))
    usual = st.lists(st.sampled_from([b"key", b"content-type", b"x"]), min_size=1, unique=True)
    odd = st.lists(st.sampled_from([b"key", b"key", b"content-type", b"", b"\xff"]), max_size=3)
    keys = draw(st.one_of(usual, odd))
    value_sizes = [draw(st.sampled_from([1, 2, 3, 0])) for _ in keys]
    common = [draw(_exactly(length)) for length in value_sizes] if draw(st.booleans()) else None
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        rows = []
        for _ in range(draw(st.integers(1, 4))):
            values = common if common is not None else [draw(_exactly(length)) for length in value_sizes]
            payload = draw(_exactly(1)) * size
            rows.append(_row(draw(_exactly(id_size)), payload, list(zip(keys, values, strict=True))))
        parts.append(rows)
    return parts


def _expected(row: bytes, sequence: int, published_at: int, priority: int) -> dict[str, Any]:
    view = RowView(row)
    return {
        "queue": "orders",
        "seq": sequence,
        "message_id": view.message_id,
        "body": view.payload,
        "enqueued_at": published_at,
        "priority": priority,
        "attempts": 1,
        "key": view.headers.get("key"),
        "content_type": view.headers.get("content-type"),
        "headers": list(view.headers.items()),
    }


def _seen(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the record batch; values of headers are bytes, which are compared as the text that they stand for."""
    if "enqueued_at" in row:
        row["enqueued_at"] = round(row["enqueued_at"].timestamp() * 1000)
    if "headers" in row:
        row["headers"] = [(key, value.decode(errors="replace")) for key, value in row["headers"]]
    return row


@settings(max_examples=400)
@given(
    parts=st.one_of(st.lists(_mixed(), min_size=1, max_size=3), _alike()),
    names=st.one_of(
        st.just(sorted(QUEUE_COLUMNS)), st.lists(st.sampled_from(sorted(QUEUE_COLUMNS)), min_size=1, unique=True)
    ),
    compact=st.sampled_from([True, True, False]),
    urgent=st.sets(st.integers(1, 12), max_size=3),
)
def test_columns_are_the_rows(parts: list[list[bytes]], names: list[str], compact: bool, urgent: set[int]) -> None:
    slices, wanted, sequence = [], [], 1
    for number, rows in enumerate(parts):
        published_at = 1_767_225_600_123 + number
        slices.append(Slice(sequence, published_at, Rows.of(rows)))
        for index, row in enumerate(rows, sequence):
            wanted.append(_expected(row, index, published_at, 9 if index in urgent else 1))
        sequence += len(rows) + 1  # A number between two parts was never given, or is gone.
    schema = read_schema(parse({"endpoint": "h", "queue": "orders", "columns": ",".join(names)}))
    columns = frozenset(wire_columns(schema.names))
    priorities = dict.fromkeys(urgent, 9)
    fetched = Fetched(columns, 1, sequence, slices, [], "i", priorities, compact=compact, max_bytes=2 << 20)
    frame = columns_frame("7", "orders", fetched, body_bytes_max=FRAME_BYTES)
    block = Block(wire.reply(bytearray(frame[HEADER_SIZE:])))
    batch = record_batch(block, "orders", arrow_schema(schema))
    batch.validate(full=True)
    assert batch.num_rows == block.count == len(wanted)
    for got, row in zip(batch.to_pylist(), wanted, strict=True):
        assert _seen(got) == {name: row[name] for name in names}
