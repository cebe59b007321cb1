"""Arrow rows as rows of the wire, read back by the broker's own code."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from vibemq.model.rows import RowView, pack_row
from vibemq.protocols.native.codec.extra_columns import EXTRA_ROWS_MAX as BROKER_EXTRA_ROWS_MAX
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.connection.wire import publish_many
from vibemq.spark.errors import SourceError
from vibemq.spark.options import parse
from vibemq.spark.write.bulk import Bulk, pieces
from vibemq.spark.write.publishing import EXTRA_ROWS_MAX, SPARE_BYTES, StagedChunk, Window, weight_of
from vibemq.spark.write.rows import Row, RowMaker


def rows_of(columns: dict[str, Any], *, dedup: bool = False, most: int = 1 << 20, queue: str = "orders") -> list[Any]:
    batch = pa.RecordBatch.from_pydict(columns)
    return list(RowMaker(queue, dedup=dedup, row_bytes_max=most).rows(batch))


def test_a_body_alone() -> None:
    rows = rows_of({"body": pa.array([b"one", None, b""], pa.binary())})
    assert [RowView(row.data).payload for row in rows] == [b"one", b"", b""]
    assert len({RowView(row.data).message_id for row in rows}) == 3
    assert all(row.queue == "orders" and row.extra is None and row.data.endswith(b"\0\0") for row in rows)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_bodies_of_every_type_also_in_the_middle_of_an_array(kind: Any) -> None:
    values = ["null", "ä", "", "three"]
    whole = pa.array(values if "string" in str(kind) else [value.encode() for value in values], kind)
    rows = rows_of({"body": whole.slice(1)})
    assert [RowView(row.data).payload for row in rows] == ["ä".encode(), b"", b"three"]


def test_names_of_messages_are_kept_or_made_up() -> None:
    given = rows_of({"body": [b"x", b"y"], "message_id": ["a", None]})
    assert RowView(given[0].data).message_id == "a"
    assert len(RowView(given[1].data).message_id) > 32


def test_made_up_names_differ_between_batches_and_tasks() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x", b"y"]})
    one, other = RowMaker("q", dedup=False, row_bytes_max=999), RowMaker("q", dedup=False, row_bytes_max=999)
    names = [RowView(row.data).message_id for maker in (one, one, other) for row in maker.rows(batch)]
    assert len(set(names)) == 6


def test_headers_key_and_content_type() -> None:
    rows = rows_of(
        {
            "body": [b"1", b"2", b"3"],
            "key": ["k", None, None],
            "content_type": [None, "text/plain", None],
            "headers": pa.array(
                [[("key", b"old"), ("x", "ä".encode())], [("gone", None), ("empty", b"")], None],
                pa.map_(pa.string(), pa.binary()),
            ),
        }
    )
    assert [RowView(row.data).headers for row in rows] == [
        {"key": "k", "x": "ä"},
        {"content-type": "text/plain"},
        {},
    ]


def test_headers_of_texts() -> None:
    headers = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    assert RowView(rows_of({"body": [b"1"], "headers": headers})[0].data).headers == {"a": "b"}


def test_extras() -> None:
    rows = rows_of(
        {
            "body": [b"1", b"2"],
            "priority": pa.array([3, None], pa.int8()),
            "ttl_ms": pa.array([None, 500], pa.int64()),
            "deliver_at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
        }
    )
    assert [row.extra for row in rows] == [{"priority": 3, "deliver_at": 1_767_225_600_000}, {"ttl_ms": 500}]


def test_dedup_ids_are_the_message_ids() -> None:
    rows = rows_of({"body": [b"1"], "message_id": ["a"], "priority": pa.array([2], pa.int32())}, dedup=True)
    assert rows[0].extra == {"priority": 2, "dedup_id": "a"}


def test_each_row_may_name_its_queue() -> None:
    rows = rows_of({"body": [b"1", b"2"], "queue": ["returns", None]})
    assert [row.queue for row in rows] == ["returns", "orders"]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"body": [b"x", b"y" * 200]}, r"row 1 .*message_id 'm1': it has 2\d\d bytes and does not fit: .* at most 100"),
        ({"body": [b"x", b"y"], "priority": [1, 32]}, "row 1 .*'m1': priority is 32; it must be 0 to 31"),
        ({"body": [b"x", b"y"], "ttl_ms": [None, 0]}, "row 1 .*'m1': ttl_ms is 0; it must be 1 to"),
        (
            {"body": [b"x", b"y"], "headers": [None, [("h", b"\xff")]]},
            "row 1 .*'m1': its header 'h' is not UTF-8",
        ),
        (
            {"body": [b"x", b"y"], "headers": [None, [("h", b"x" * 4097)]]},
            "row 1 .*'m1': its header 'h' has 4,097 characters",
        ),
        (
            {"body": [b"x", b"y"], "headers": [None, [("h", "\U0001f600".encode() * 2049)]]},
            "row 1 .*'m1': its header 'h' has 4,098 characters",
        ),
        (
            {"body": [b"x", b"y"], "headers": [None, [(str(n), b"x") for n in range(51)]]},
            "row 1 .*'m1': it has 51 headers; at most 50",
        ),
        (
            {"body": [b"x", b"y"], "headers": [None, [("h" * 65_536, b"x")]]},
            "row 1 .*'m1': its message_id, or the name of a header, is too long; at most 65,535 bytes",
        ),
        (
            {"body": [b"x", b"y"], "message_id": ["m0", "m" * 65_536]},
            "row 1 .*'m{80}': its message_id, or the name of a header, is too long",
        ),
    ],
)
def test_a_row_that_cannot_be_written_is_named(columns: dict[str, Any], sentence: str) -> None:
    if "headers" in columns:
        columns = {**columns, "headers": pa.array(columns["headers"], pa.map_(pa.string(), pa.binary()))}
    with pytest.raises(SourceError, match=sentence):
        rows_of({"message_id": ["m0", "m1"], **columns}, most=100)


def test_a_row_without_a_queue_is_named() -> None:
    with pytest.raises(SourceError, match=r"row 0 .*its column queue is null"):
        rows_of({"body": [b"x"], "queue": pa.array([None], pa.string())}, queue="")


def test_dedup_needs_every_message_id() -> None:
    with pytest.raises(SourceError, match="row 1 of this task has no message_id"):
        rows_of({"body": [b"x", b"y"], "message_id": ["a", None]}, dedup=True)


# Made when a test asks: the first array imports pandas, which takes a second.
BODIES: dict[str, Callable[[], Any]] = {
    "mixed": lambda: pa.array([b"one", None, b"", b"x" * 90], pa.binary()),
    "alike": lambda: pa.array([b"one", b"two", b"3rd", b"4th"], pa.binary()),
    "texts": lambda: pa.array(["é", None, "", "x" * 90], pa.string()),
    "a slice": lambda: pa.array([b"no", b"one", None, b"", b"x" * 90, b"no"], pa.binary()).slice(1, 4),
}
IDS: dict[str, Callable[[], Any]] = {
    "made up": lambda: None,
    "mixed": lambda: pa.array(["a", "bb", "é" * 9, "d"], pa.string()),
    "a slice": lambda: pa.array(["no", "a", "b", "c", "d"], pa.string()).slice(1),
}


@pytest.mark.parametrize("bodies", BODIES)
@pytest.mark.parametrize("ids", IDS)
def test_plain_rows_are_the_same_rows(bodies: str, ids: str) -> None:
    columns = {"body": BODIES[bodies]()} | ({"message_id": IDS[ids]()} if ids != "made up" else {})
    batch = pa.RecordBatch.from_pydict(columns)
    maker = RowMaker("orders", dedup=False, row_bytes_max=999)
    slow = [row.data for row in maker.rows(batch)]
    maker._count = 0
    assert cut(maker.plain(batch)) == slow
    again = cut(maker.plain(batch))
    assert len({RowView(row).message_id for row in [*slow, *again]}) == (8 if ids == "made up" else 4)


def cut(bulk: Bulk | None) -> list[bytes]:
    assert bulk is not None
    return [bytes(bulk.data[start:end]) for start, end in pairwise(bulk.ends)]


def test_a_batch_is_taken_in_pieces_whatever_its_rows_weigh() -> None:
    large = pa.RecordBatch.from_pydict({"body": pa.array([bytes(3 << 20)] * 5, pa.binary())})
    assert [piece.num_rows for piece in pieces(large)] == [1] * 5
    small = pa.RecordBatch.from_pydict({"body": pa.array([b"x"] * 5, pa.binary())})
    assert [piece.num_rows for piece in pieces(small)] == [5]
    assert list(pieces(small.slice(0, 0))) == []


def test_what_is_not_plain_goes_the_long_way() -> None:
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x" * 50], pa.binary())})
    assert RowMaker("q", dedup=True, row_bytes_max=999).plain(batch) is None
    assert RowMaker("", dedup=False, row_bytes_max=999).plain(batch) is None
    assert RowMaker("q", dedup=False, row_bytes_max=60).plain(batch) is None
    nameless = pa.RecordBatch.from_pydict({"body": pa.array([b"x", b"y"]), "message_id": ["a", None]})
    assert RowMaker("q", dedup=False, row_bytes_max=999).plain(nameless) is None
    keyed = pa.RecordBatch.from_pydict({"body": pa.array([b"x"]), "key": ["k"]})
    assert RowMaker("q", dedup=False, row_bytes_max=999).plain(keyed) is None


def test_a_chunk_has_no_more_rows_with_extras_than_a_frame_may_have() -> None:
    chunk = StagedChunk("q", rows_left=100_000, bytes_left=1 << 30)
    for number in range(EXTRA_ROWS_MAX):
        assert chunk.rows_left
        chunk.add(Row("q", b"row", {"delay_ms": number}), 7)
    assert not chunk.rows_left
    assert EXTRA_ROWS_MAX == BROKER_EXTRA_ROWS_MAX


@pytest.mark.parametrize("dedup_id", ["m" * 40, "订单" * 20, "\U0001f600" * 20, '"\\' * 20, "\t" * 40])
def test_a_chunk_weighs_extras_as_they_are_sent(dedup_id: str) -> None:
    extra = {"priority": 31, "ttl_ms": 2**62, "deliver_at": 2**62, "dedup_id": dedup_id}
    chunk = StagedChunk("q", rows_left=2_000, bytes_left=10_000_000)
    row = Row("q", b"", extra)
    for _ in range(1_000):
        chunk.add(row, weight_of(row))
    sent = publish_many("1", "q", chunk.lengths, [], chunk.extras)
    assert sum(map(len, sent)) <= 10_000_000 - chunk.bytes_left + SPARE_BYTES


@pytest.mark.parametrize("letters", [500, 2_000, 8_000])
def test_rows_with_extras_fill_no_frame_beyond_its_limit(letters: int) -> None:
    settings, frames = parse({"endpoint": "h"}), list[int]()

    class Sent(Window):
        def _send(self, chunk: StagedChunk) -> None:
            sent = publish_many("1" * 20, "q", chunk.lengths, chunk.data, chunk.extras)
            frames.append(sum(map(len, sent)) - 5)

    window = Sent(BrokerClient.__new__(BrokerClient), settings)
    name = "漢" * letters
    for number in range(400):
        window.add(Row("q", pack_row(name, b"x" * (number % 97)), {"dedup_id": name}))
    window.finish()
    assert max(frames) <= settings.frame_bytes
