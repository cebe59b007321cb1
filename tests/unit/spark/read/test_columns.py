"""Columns frames as record batches, checked by Spark's own code."""

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from tests.unit.spark.frames import bytes_of, columns_body, header_pairs, longs, texts
from vibemq.spark.connection import wire
from vibemq.spark.options import parse
from vibemq.spark.read.columns import Block, arrow_schema, record_batch, wire_columns
from vibemq.spark.schema import read_schema
from vibemq.spark.source import DefaultSource

FULL = {
    "sequence": longs(100, 101, 104),
    "published_at": longs(1_767_225_600_123, 1_767_225_600_124, 0),
    "message_id": texts(b"a", b"bb", "ä".encode()),
    "body": texts(b"one", b"", b"\xff\x00three"),
    "priority": bytes_of(1, 3, 31),
    "headers": header_pairs(
        [(b"key", b"k1"), (b"x", b"y")], [], [(b"content-type", b"text/plain"), (b"key", b"old"), (b"key", b"new")]
    ),
}


def block(body: bytearray) -> Block:
    return Block(wire.reply(body))


def schema_of(**options: str) -> StructType:
    return read_schema(parse({"endpoint": "h", "queue": "orders", **options}))


def batch_of(body: bytearray, schema: StructType, *, dead: bool = False) -> Any:
    made = record_batch(block(body), "orders", arrow_schema(schema), dead=dead)
    # Spark's own check of types and nullability.
    (checked,) = records_to_arrow_batches(iter([made]), 10_000, schema, DefaultSource({}))
    checked.validate(full=True)
    return checked


@pytest.mark.parametrize(
    ("rows", "keys", "types"),
    [
        ([[(b"key", b"a")], [(b"key", "ä".encode())]], ["a", "ä"], [None, None]),
        ([[(b"content-type", b"t")], [(b"content-type", b"t")]], [None, None], ["t", "t"]),
        ([[(b"key", b"a")], [(b"content-type", b"t")]], ["a", None], [None, "t"]),
        ([[(b"key", b"a"), (b"content-type", b"t")], []], ["a", None], ["t", None]),
        ([[(b"x", b"y")], [(b"x", b"z")]], [None, None], [None, None]),
    ],
)
def test_headers_that_are_columns(rows: Any, keys: list[str | None], types: list[str | None]) -> None:
    columns = {name: [buffer[: len(buffer) // 3 * 2] for buffer in FULL[name]] for name in ("sequence", "published_at")}
    columns |= {"message_id": texts(b"a", b"b"), "body": texts(b"", b""), "priority": bytes_of(1, 1)}
    made = batch_of(columns_body(2, columns | {"headers": header_pairs(*rows)}), schema_of())
    assert made.column("key").to_pylist() == keys
    assert made.column("content_type").to_pylist() == types


def test_all_columns_of_a_queue() -> None:
    rows = batch_of(columns_body(3, FULL), schema_of()).to_pylist()
    assert rows[0] == {
        "queue": "orders",
        "seq": 100,
        "message_id": "a",
        "body": b"one",
        "enqueued_at": datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC),
        "priority": 1,
        "attempts": 1,
        "key": "k1",
        "content_type": None,
        "headers": [("key", b"k1"), ("x", b"y")],
    }
    assert rows[1] | {"enqueued_at": None} == {
        "queue": "orders",
        "seq": 101,
        "message_id": "bb",
        "body": b"",
        "enqueued_at": None,
        "priority": 3,
        "attempts": 1,
        "key": None,
        "content_type": None,
        "headers": [],
    }
    assert rows[2]["message_id"] == "ä"
    assert rows[2]["body"] == b"\xff\x00three"
    assert rows[2]["priority"] == 31
    assert rows[2]["key"] == "new", "of equal keys the last wins"
    assert rows[2]["content_type"] == "text/plain"


def strided(at: int, *rows: bytes, size: int) -> dict[str, Any]:
    return {"rows": b"".join(rows), "width": len(rows[0]), "at": at, "size": size}


@pytest.mark.parametrize(
    ("pairs", "key", "content_type"),
    [
        ([], None, None),
        ([["content-type", "text/plain"]], None, "text/plain"),
        ([["key", "ä"], ["x", "y"]], "ä", None),
        ([["key", "k"], ["content-type", "t"], ["x", "y"]], "k", "t"),
    ],
)
def test_compact_columns(pairs: list[list[str]], key: str | None, content_type: str | None) -> None:
    rows = [b"..%cb....one....." % 97, b"..%cb....two....." % 98]
    compact: dict[str, Any] = {
        "sequence": longs(7, 8),
        "published_at": longs(0, 0),
        "message_id": strided(2, *rows, size=2),
        "body": strided(8, *rows, size=3),
        "priority": {"same": 1},
        "headers": {"same": pairs},
    }
    made = batch_of(columns_body(2, compact), schema_of()).to_pylist()
    assert [(row["message_id"], row["body"], row["priority"]) for row in made] == [("ab", b"one", 1), ("bb", b"two", 1)]
    assert [(row["key"], row["content_type"]) for row in made] == [(key, content_type)] * 2
    assert [row["headers"] for row in made] == [[(name, value.encode()) for name, value in pairs]] * 2


@pytest.mark.parametrize("count", [1, 2])
def test_headers_that_are_cut_out_of_the_rows(count: int) -> None:
    rows = [b"..k1...t1.", b"..k2...t2."]
    pairs = [["key", 2, 2], ["content-type", 7, 2]][:count]
    made = batch_of(
        columns_body(2, {"headers": {"rows": b"".join(rows), "width": 10, "pairs": pairs}}),
        schema_of(columns="headers,key,content_type"),
    ).to_pylist()
    types = ["t1", "t2"] if count == 2 else [None, None]
    assert [(row["key"], row["content_type"]) for row in made] == list(zip(["k1", "k2"], types, strict=True))
    wanted = [[("key", b"k1"), ("content-type", b"t1")], [("key", b"k2"), ("content-type", b"t2")]]
    assert [row["headers"] for row in made] == [row[:count] for row in wanted]


def test_ids_that_are_no_text_are_told_as_text() -> None:
    rows = [b"\xffbody", b"abody"]
    made = batch_of(columns_body(2, {"message_id": strided(0, *rows, size=1)}), schema_of(columns="message_id"))
    assert made.to_pydict() == {"message_id": ["\ufffd", "a"]}


@pytest.mark.parametrize("name", ["o", "or", "orders", "orders7", "a-queue-with-a-rather-long-name"])
def test_buffers_begin_at_a_multiple_of_eight_of_the_body(name: str) -> None:
    body = columns_body(3, FULL, queue=name, request_id="1" * len(name))
    assert batch_of(body, schema_of(columns="seq,body")).to_pydict() == {
        "seq": [100, 101, 104],
        "body": [b"one", b"", b"\xff\x00three"],
    }


def test_bodies_are_not_copied() -> None:
    body = columns_body(3, FULL)
    data = batch_of(body, schema_of(columns="body")).column(0).buffers()[2]
    whole = pa.py_buffer(body)
    assert whole.address <= data.address < whole.address + whole.size


def test_rows_without_any_headers() -> None:
    body = columns_body(2, {"headers": header_pairs([], [])})
    rows = batch_of(body, schema_of(columns="headers,key,content_type")).to_pylist()
    assert rows == [{"headers": [], "key": None, "content_type": None}] * 2


def test_only_what_is_wanted_is_asked_for() -> None:
    assert wire_columns(["seq", "body"]) == ["body", "sequence"]
    assert wire_columns(["key", "headers", "content_type"]) == ["headers"]
    assert wire_columns(["enqueued_at", "priority", "message_id"]) == ["message_id", "priority", "published_at"]


def test_columns_that_cost_nothing_still_count_rows() -> None:
    assert wire_columns(["queue", "attempts"]) == ["sequence"]
    body = columns_body(3, {"sequence": longs(1, 2, 3)})
    assert batch_of(body, schema_of(columns="queue,attempts")).to_pylist() == [{"queue": "orders", "attempts": 1}] * 3


def test_columns_that_may_not_be_null_are_told_so() -> None:
    headers = MapType(StringType(), BinaryType(), valueContainsNull=False)
    schema = StructType([StructField("seq", LongType(), False), StructField("headers", headers, False)])
    assert batch_of(columns_body(3, FULL), schema).num_rows == 3


def test_dead_letters() -> None:
    body = columns_body(
        2,
        {"sequence": longs(5, 9), "body": texts(b"x", b"y")},
        facts=[[70, "etl", "rejected", "not JSON", 3, 2, 0, 1_767_225_600_000], [71, None, "expired", "", 0, 0, 5, 6]],
    )
    names = "dead_id,origin_queue,origin_seq,origin_group,reason,detail,attempts,failed,first_failed_at,dead_at,body"
    rows = batch_of(body, schema_of(deadLetters="true", columns=names), dead=True).to_pylist()
    assert rows[0] == {
        "dead_id": 70,
        "origin_queue": "orders",
        "origin_seq": 5,
        "origin_group": "etl",
        "reason": "rejected",
        "detail": "not JSON",
        "attempts": 3,
        "failed": 2,
        "first_failed_at": None,
        "dead_at": datetime(2026, 1, 1, tzinfo=UTC),
        "body": b"x",
    }
    assert rows[1]["origin_group"] is None
    assert rows[1]["first_failed_at"] == datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)


def test_gaps_and_where_to_go_on() -> None:
    found = block(columns_body(0, {"sequence": longs()}, next=9, gaps=[[1, 4, "lost"], [5, 8, "absent"]]))
    assert (found.count, found.next, found.gaps) == (0, 9, [(1, 4, "lost"), (5, 8, "absent")])
