"""Writes against a real broker, with the tasks and the driver played by hand."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import running
from tests.unit.spark.hand import Query, copied, options_of, read
from vibemq.spark.errors import DataLoss, OptionError, Refused, SourceError, Unreachable
from vibemq.spark.options import parse
from vibemq.spark.read.columns import arrow_schema
from vibemq.spark.source import DefaultSource
from vibemq.spark.write.bulk import Bulk
from vibemq.spark.write.publishing import StagedChunk, Window
from vibemq.spark.write.rows import Row

pytestmark = pytest.mark.slow
Rows = list[dict[str, Any]]

TYPES: dict[str, DataType] = {
    "body": BinaryType(),
    "queue": StringType(),
    "message_id": StringType(),
    "key": StringType(),
    "content_type": StringType(),
    "priority": IntegerType(),
    "delay_ms": LongType(),
    "deliver_at": TimestampType(),
    "ttl_ms": LongType(),
    "headers": MapType(StringType(), BinaryType()),
    "seq": LongType(),
    "reason": StringType(),
    "dead_id": LongType(),
    "to": StringType(),
}


def schema_of(rows: Rows) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in rows[0]])


def batches(rows: Rows, size: int = 100) -> Any:
    fields = arrow_schema(schema_of(rows))
    return iter(pa.RecordBatch.from_pylist(rows[at : at + size], schema=fields) for at in range(0, len(rows), size))


class Write:
    """One batch write: any number of tasks, then the driver."""

    def __init__(self, broker: BrokerProcess, like: Rows, **more: object) -> None:
        writer = copied(DefaultSource(options_of(broker, **more))).writer(schema_of(like), False)
        self._writer = writer
        self._pickled = copied(writer)

    def task(self, rows: Rows) -> Any:
        return copied(copied(self._pickled).write(batches(rows)))

    def commit(self, *messages: Any) -> None:
        copied(self._writer).commit(list(messages))

    def abort(self, *messages: Any) -> None:
        copied(self._writer).abort(list(messages))


def write(broker: BrokerProcess, rows: Rows, **more: object) -> int:
    job = Write(broker, rows, **more)
    message = job.task(rows)
    job.commit(message)
    return int(message.rows)


def numbered(*numbers: int) -> Rows:
    return [{"body": f"{number}".encode()} for number in numbers]


def bodies(broker: BrokerProcess, queue: str) -> list[int]:
    return [int(row["body"]) for row in read(broker, queue=queue)]


def test_what_is_written_is_read(broker: BrokerProcess, mq: Any, queue: str) -> None:
    name = f"{queue}.urgent"
    mq.create_queue(name, mode="priority_based", retention="log")
    row = {
        "body": b"\xff\x00",
        "queue": name,
        "message_id": "m-1",
        "key": "k",
        "content_type": "text/plain",
        "priority": 3,
        "ttl_ms": 3_600_000,
        "headers": {"x": "ä".encode()},
    }
    assert write(broker, [row]) == 1
    (found,) = read(broker, queue=name)
    assert {name: found[name] for name in ("body", "message_id", "key", "content_type", "priority")} == {
        "body": b"\xff\x00",
        "message_id": "m-1",
        "key": "k",
        "content_type": "text/plain",
        "priority": 3,
    }
    assert dict(found["headers"]) == {"key": b"k", "content-type": b"text/plain", "priority": b"3", "x": "ä".encode()}


def test_names_of_columns_may_be_in_capitals(broker: BrokerProcess, queue: str) -> None:
    source = DefaultSource(options_of(broker, queue=queue))
    rows = [{"BODY": b"1", "Message_ID": "m-1", "KEY": "k"}]
    schema = StructType([StructField(name, TYPES[name.lower()]) for name in rows[0]])
    for writer in (source.writer(schema, False), source.streamWriter(schema, False)):
        assert writer.write(iter([pa.RecordBatch.from_pylist(rows)])).rows == 1
    (found, _) = read(broker, queue=queue, columns="BODY, message_id, Key")
    assert found == {"body": b"1", "message_id": "m-1", "key": "k"}
    reader = source.reader(StructType([StructField("SEQ", LongType()), StructField("Body", BinaryType())]))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [batch.to_pylist() for batch in batches] == [[{"SEQ": 1, "Body": b"1"}, {"SEQ": 2, "Body": b"1"}]]
    twice = StructType([StructField("body", BinaryType()), StructField("BODY", BinaryType())])
    with pytest.raises(OptionError, match="the same name but for its case: body, BODY"):
        source.writer(twice, False)


def test_many_rows_in_small_frames(broker: BrokerProcess, queue: str) -> None:
    rows = numbered(*range(5000))
    assert write(broker, rows, queue=queue, batchMessages=70, batchBytes="2k", maxInFlight=3) == 5000
    assert bodies(broker, queue) == list(range(5000))


def test_rows_in_bulk_are_cut_into_frames_like_single_ones() -> None:
    class Noting(Window):
        def frame(self, chunk: Any) -> Any:
            raise AssertionError

        def _send(self, chunk: Any) -> None:
            sent.append((len(chunk), sum(chunk.lengths) + 4 * len(chunk)))
            gone.extend(chunk.row(index) for index in range(len(chunk)))

    sent: list[tuple[int, int]] = []
    gone: list[bytes] = []
    settings = parse({"endpoint": "h", "queue": "q", "batchMessages": "7", "batchBytes": "2000"})
    rows = [bytes([number]) * size for number, size in enumerate([10] * 20 + [400] * 9 + [3000, 5] + [10] * 3)]
    bulk = Noting(cast(Any, None), settings)
    for part in (rows[:11], rows[11:30], rows[30:-3], rows[-3:]):
        ends = list(accumulate(map(len, part), initial=0))
        alike = range(0, ends[-1] + 1, ends[1]) if len(set(map(len, part))) == 1 else ends
        bulk.add_bulk("q", Bulk(alike, memoryview(b"".join(part))))
    bulk.finish()
    assert gone == rows
    assert all(count <= 7 for count, _ in sent)
    assert all(size + 512 <= 2000 for count, size in sent if count > 1)
    one_by_one, sent = list(sent), []
    single = Noting(cast(Any, None), settings)
    for row in rows:
        single.add(Row("q", row, None))
    single.finish()
    assert [count for count, _ in one_by_one] == [count for count, _ in sent]


def test_rows_for_many_queues_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibemq.spark.write.publishing.FILLING_BYTES_MAX", 10_000)

    class Noting(Window):
        def _send(self, chunk: StagedChunk) -> None:
            sent.append((chunk.queue, len(chunk)))

    sent: list[tuple[str, int]] = []
    window = Noting(cast(Any, None), parse({"endpoint": "h"}))
    for number in range(30):
        window.add(Row(f"q{number % 3}", bytes(996), None))
    assert sent == [("q0", 4), ("q1", 5), ("q2", 6), ("q0", 5)], "the one that was begun first"
    window.finish()
    assert sum(count for _, count in sent) == 30


def test_rows_for_several_queues(broker: BrokerProcess, mq: Any, queue: str) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    rows = [{"body": b"%d" % n, "queue": f"{queue}.b" if n % 3 == 0 else None} for n in range(9)]
    assert write(broker, rows, queue=queue) == 9
    assert (bodies(broker, queue), bodies(broker, f"{queue}.b")) == ([1, 2, 4, 5, 7, 8], [0, 3, 6])


def test_delays(broker: BrokerProcess, mq: Any, queue: str) -> None:
    write(broker, [{"body": b"1", "delay_ms": 3_600_000}, {"body": b"2", "delay_ms": None}], queue=queue)
    write(broker, [{"body": b"3", "deliver_at": datetime(2100, 1, 1, tzinfo=UTC)}], queue=queue)
    assert mq.queue_info(queue).ready + mq.queue_info(queue).delayed == 3
    assert mq.queue_info(queue).delayed == 2


def test_dedup_by_message_id(broker: BrokerProcess, queue: str) -> None:
    rows = [{"body": b"%d" % n, "message_id": f"m-{n}"} for n in range(5)]
    write(broker, rows[:3], queue=queue, dedup="true")
    write(broker, rows, queue=queue, dedup="true")
    assert bodies(broker, queue) == list(range(5))


def test_the_largest_row_and_one_that_is_too_large(broker: BrokerProcess, queue: str) -> None:
    fits, too_large = 1_046_400, 1_048_576
    write(broker, [{"body": b"x" * fits}], queue=queue)
    assert [len(row["body"]) for row in read(broker, queue=queue)] == [fits]
    rows = [{"body": b"x", "message_id": "small"}, {"body": b"x" * too_large, "message_id": "huge"}]
    with pytest.raises(
        SourceError, match=r"row 1 of this task, message_id 'huge': it has 1,048,\d+ bytes and does not fit"
    ):
        write(broker, rows, queue=queue)


def test_a_full_queue_is_waited_for(broker: BrokerProcess, mq: Any, queue: str) -> None:
    name = f"{queue}.full"
    mq.create_queue(name, max_messages=3, overflow="drop_newest")

    def drain() -> None:
        with vibemq.sync.connect(broker.url) as consumer:
            taken = 0
            while taken < 5:
                for message in consumer.fetch(name, max=10, timeout=1):
                    message.ack()
                    taken += 1

    consumer = threading.Thread(target=drain)
    consumer.start()
    try:
        assert write(broker, numbered(*range(5)), queue=name) == 5
    finally:
        consumer.join(60)
    write(broker, numbered(1, 2, 3), queue=name)
    with pytest.raises(Refused, match=r"was refused, and still is after 0.3 s"):
        write(broker, numbered(4), queue=name, retryTimeout="300ms")


def test_a_broker_that_is_killed_while_rows_are_on_their_way(tmp_path: Path) -> None:
    with running(BrokerProcess(tmp_path / "data")) as broker:
        with vibemq.sync.connect(broker.url) as mq:
            mq.create_queue("orders", retention="log")

        def rows() -> Any:
            for first in range(0, 3000, 100):
                if first == 1500:
                    broker.kill()
                    broker.start()
                yield from batches(numbered(*range(first, first + 100)))

        writer = DefaultSource(options_of(broker, queue="orders", batchMessages=50)).writer(
            schema_of(numbered(1)), False
        )
        assert writer.write(rows()).rows == 3000
        assert sorted(set(bodies(broker, "orders"))) == list(range(3000))


def test_without_a_broker_a_write_fails(broker: BrokerProcess) -> None:
    with pytest.raises(Unreachable, match=r"gave up after 0.1 s"):
        write(broker, numbered(1), queue="q", endpoint="127.0.0.1:1", retryTimeout="100ms")


# -- exactly once ---------------------------------------------------------------------------------------------------


def test_staged_rows_are_seen_together(broker: BrokerProcess, mq: Any, queue: str) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    job = Write(broker, [{"body": b"", "queue": ""}], atomic="true", batchMessages=10)
    rows = [{"body": b"%d" % n, "queue": f"{queue}.b" if n % 2 else queue} for n in range(100)]
    one, two, failed = job.task(rows[:50]), job.task(rows[50:]), job.task(rows[:50])
    assert failed.transaction != one.transaction
    assert bodies(broker, queue) == []
    job.commit(one, two)
    assert sorted(bodies(broker, queue)) == list(range(0, 100, 2))
    assert sorted(bodies(broker, f"{queue}.b")) == list(range(1, 100, 2))


def test_a_version_is_published_once(broker: BrokerProcess, queue: str, capfd: pytest.CaptureFixture[str]) -> None:
    for version, number in ((0, 0), (1, 1), (1, 2), (0, 3), (2, 4)):
        write(broker, numbered(number), queue=queue, exactlyOnce="true", txnAppId=f"app-{queue}", txnVersion=version)
    assert bodies(broker, queue) == [0, 1, 4]
    assert capfd.readouterr().err.count("was published before: this is a replay") == 2


def test_a_version_that_was_left_out_is_no_replay(broker: BrokerProcess, queue: str) -> None:
    options = {"queue": queue, "exactlyOnce": "true", "txnAppId": f"app-{queue}"}
    for version in (5, 20261122):
        write(broker, numbered(version), **options, txnVersion=version)
    for version in (6, 20261121):
        with pytest.raises(SourceError, match=r"was never committed, and the later version 20261122 was"):
            write(broker, numbered(version), **options, txnVersion=version)
    assert bodies(broker, queue) == [5, 20261122]


def test_plain_batch_writes_are_never_taken_for_replays(broker: BrokerProcess, queue: str) -> None:
    for number in range(3):
        write(broker, numbered(number), queue=queue, atomic="true")
    assert bodies(broker, queue) == [0, 1, 2]


def test_a_write_without_a_name_is_refused_before_a_row_is_written(broker: BrokerProcess, mq: Any, queue: str) -> None:
    with pytest.raises(SourceError, match=r"needs the name of the batch.*txnAppId and txnVersion.*atomic=true"):
        write(broker, numbered(1), queue=f"{queue}.none", exactlyOnce="true")
    assert mq.queue_info(f"{queue}.none") is None


def test_an_aborted_write_leaves_nothing(broker: BrokerProcess, queue: str) -> None:
    job = Write(broker, numbered(1), queue=queue, atomic="true")
    message = job.task(numbered(1))
    job.abort(message, None)
    with pytest.raises(Refused, match=r"the stages of this batch have expired.*STAGE_NOT_FOUND"):
        job.commit(message)
    assert bodies(broker, queue) == []


@pytest.mark.parametrize("named", [False, True])
def test_an_atomic_commit_without_an_answer_says_that_it_may_have_been_published(
    broker_of_ones_own: BrokerProcess, *, named: bool
) -> None:
    name = {"exactlyOnce": "true", "txnAppId": "app", "txnVersion": 1} if named else {"atomic": "true"}
    job = Write(broker_of_ones_own, numbered(1), queue="orders", retryTimeout="100ms", **name)
    message = job.task(numbered(1))
    broker_of_ones_own.kill()
    with pytest.raises(Unreachable, match="cannot reach the broker at") as error:
        job.commit(message)
    assert ("may have been published: look for its rows" in str(error.value)) is not named


def test_tasks_without_rows_have_no_stage(broker: BrokerProcess, queue: str) -> None:
    job = Write(broker, numbered(1), queue=queue, atomic="true")
    empty = copied(job._pickled).write(iter(()))
    job.commit(empty)
    job.commit(empty, job.task(numbered(7)))
    assert bodies(broker, queue) == [7]


def test_a_transaction_survives_a_killed_broker(tmp_path: Path) -> None:
    with running(BrokerProcess(tmp_path / "data")) as broker:
        with vibemq.sync.connect(broker.url) as mq:
            mq.create_queue("orders", retention="log")
        job = Write(broker, numbered(1), queue="orders", atomic="true")
        message = job.task(numbered(*range(500)))
        broker.kill()
        broker.start()
        job.commit(message)
        broker.kill()
        broker.start()
        assert sorted(bodies(broker, "orders")) == list(range(500))


def test_a_frame_larger_than_the_brokers_is_refused_at_once(broker: BrokerProcess, queue: str) -> None:
    rows: Rows = [{"body": bytes(600_000)}] * 2
    with pytest.raises(Refused, match=r"is frameBytes larger than its limits.body_bytes_max\?"):
        write(broker, rows, queue=queue, frameBytes="4m", batchBytes="4m")


# -- reject, redrive ------------------------------------------------------------------------------------------------


def test_rejected_rows_are_dead_once(broker: BrokerProcess, queue: str, publish: Callable[..., None]) -> None:
    publish(queue, 0, 5)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    rejects: Rows = [{"seq": 2, "reason": "odd"}, {"seq": 4, "reason": None}]
    for _ in range(2):  # A replayed batch.
        assert write(broker, rejects, action="reject", queue=queue, group="etl") == 2
    letters = read(broker, queue=queue, deadLetters="true")
    assert [(row["seq"], row["detail"]) for row in letters] == [(2, "odd"), (4, "rejected by Spark")]
    end = query.latest(start)
    assert query.numbers(start, end) == [0, 1, 2, 3, 4], "a replayed batch has the same rows"


def test_rows_that_were_acknowledged_before_they_are_rejected_fail_the_write(
    broker: BrokerProcess, queue: str, publish: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    publish(queue, 0, 6)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    end, _ = query.batch(start)
    early: Rows = [{"seq": 1, "reason": "odd"}]
    late: Rows = [{"seq": n, "reason": "late"} for n in (2, 3, 4, 5)]
    action = {"action": "reject", "queue": queue, "group": "etl"}
    assert write(broker, early, **action) == 1
    query.live.commit(end)
    told = f"4 rows of queue '{queue}' were not rejected, because they are below the position of group 'etl': ack"
    job = Write(broker, late, **action)
    with pytest.raises(DataLoss, match=f"{told}.* failOnDataLoss=false to go on"):
        job.commit(job.task(late[:3]), job.task(late[3:]))
    assert "were not rejected" not in capfd.readouterr().err
    assert write(broker, late, **action, failOnDataLoss="false") == 4
    assert told in capfd.readouterr().err
    assert [row["seq"] for row in read(broker, queue=queue, deadLetters="true")] == [1]


def test_a_batch_that_is_read_again_within_the_hold_is_rejected_again_without_an_error(
    broker: BrokerProcess, queue: str, publish: Callable[..., None]
) -> None:
    publish(queue, 0, 3)
    query = Query(broker, queue=queue, hold="1h")
    start = query.live.initialOffset()
    end, _ = query.batch(start)
    rejects: Rows = [{"seq": 1, "reason": "odd"}]
    action = {"action": "reject", "queue": queue, "group": "etl"}
    assert write(broker, rejects, **action) == 1
    query.live.commit(end)
    again = Query(broker, queue=queue, hold="1h")
    assert again.numbers(start, end) == [0, 1, 2]
    assert write(broker, rejects, **action) == 1


def test_rejects_with_long_reasons_fit_into_frames(
    broker: BrokerProcess, queue: str, publish: Callable[..., None]
) -> None:
    """The letters of JSON that are not ASCII take six bytes each."""
    publish(queue, 0, 50)
    Query(broker, queue=queue).live.initialOffset()
    rejects: Rows = [{"seq": n, "reason": "ü" * 4_000} for n in range(1, 51)]
    assert write(broker, rejects, action="reject", queue=queue, group="etl", retryTimeout="0") == 50
    assert [row["seq"] for row in read(broker, queue=queue, deadLetters="true")] == [*range(1, 51)]


def test_redriven_letters_are_messages_again(
    broker: BrokerProcess, mq: Any, queue: str, publish: Callable[..., None]
) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    publish(queue, 0, 3)
    Query(broker, queue=queue).live.initialOffset()
    write(broker, [{"seq": n, "reason": "x"} for n in (1, 2, 3)], action="reject", queue=queue, group="etl")
    letters = [row["dead_id"] for row in read(broker, queue=queue, deadLetters="true")]
    back: Rows = [{"dead_id": letters[0], "to": None}, {"dead_id": letters[1], "to": f"{queue}.b"}]
    for _ in range(2):
        write(broker, back, action="redrive", queue=queue)
    assert [row["dead_id"] for row in read(broker, queue=queue, deadLetters="true")] == letters[2:]
    with pytest.raises(Refused, match=r"queue 'nowhere' does not exist \(any more\)"):
        write(broker, [{"dead_id": letters[2]}], action="redrive", queue=queue, to="nowhere")
    assert (bodies(broker, queue)[-1], bodies(broker, f"{queue}.b")) == (0, [1])
