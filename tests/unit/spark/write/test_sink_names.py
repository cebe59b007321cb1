"""Whose rows a committed version stands for: of which query, queue and run."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import copied, options_of, read
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import OptionError, SourceError
from vibemq.spark.options import parse
from vibemq.spark.source import DefaultSource
from vibemq.spark.write.identity import APP_BYTES_MAX, application, claim

pytestmark = pytest.mark.slow
BODY = StructType([StructField("body", BinaryType())])
ONCE = {"exactlyOnce": "true"}


@pytest.fixture(autouse=True)
def no_task_is_left() -> Iterator[None]:
    yield
    TaskContext._setTaskContext(None)


class Batch:
    """One run of a batch, as Spark tells its tasks of it."""

    def __init__(self, broker: BrokerProcess, query: str, number: int, run: str = "first") -> None:
        self._broker = broker
        self._told = {
            "sql.streaming.queryId": query,
            "streaming.sql.batchId": f"{number}",
            "spark.app.id": run,
            "spark.sql.execution.root.id": "1",
        }

    def stream(self, queue: str, *numbers: int) -> None:
        self.streamed(queue, *numbers)()

    def streamed(self, queue: str, *numbers: int, **more: int) -> Any:
        """As `stream`; the driver's part, for later."""
        writer = DefaultSource(options_of(self._broker, queue=queue, **ONCE)).streamWriter(BODY, False)
        messages = [self._task(writer, numbers, **more)]
        return lambda: copied(writer).commit(messages, int(self._told["streaming.sql.batchId"]))

    def named(self, queue: str, app: str, version: int, *numbers: int) -> None:
        """A write in `foreachBatch` that has been given a name."""
        self.staged(queue, app, version, *numbers)()

    def staged(self, queue: str, app: str, version: int, *numbers: int) -> Any:
        """Its tasks are done; the driver's part, for later."""
        options = options_of(self._broker, queue=queue, txnAppId=app, txnVersion=version, **ONCE)
        writer = DefaultSource(options).writer(BODY, False)
        messages = [self._task(writer, numbers)]
        return lambda: copied(writer).commit(messages)

    def _task(self, writer: Any, numbers: tuple[int, ...], **more: int) -> Any:
        context = TaskContext()
        context._localProperties = dict(self._told)
        TaskContext._setTaskContext(context)
        rows = [{"body": b"%d" % number, **more} for number in numbers]
        return copied(copied(writer).write(iter([pa.RecordBatch.from_pylist(rows)])))


@pytest.fixture
def other(mq: Any, queue: str) -> str:
    mq.create_queue(f"{queue}.other", retention="log")
    return f"{queue}.other"


@pytest.fixture
def query() -> str:
    return str(uuid4())


def found(broker: BrokerProcess, queue: str) -> list[int]:
    return [int(row["body"]) for row in read(broker, queue=queue)]


def call(broker: BrokerProcess, verb: str, **arguments: object) -> None:
    BrokerClient(parse(options_of(broker))).call(verb, "", arguments)


# -- streams --------------------------------------------------------------------------------------------------------


def test_a_copied_checkpoint_that_writes_elsewhere_takes_nothing_from_the_query(
    broker: BrokerProcess, queue: str, other: str, query: str
) -> None:
    Batch(broker, query, 0).stream(queue, 1)
    Batch(broker, query, 1, "the copy").stream(other, 20)
    Batch(broker, query, 1).stream(queue, 2, 3)
    Batch(broker, query, 1, "again").stream(queue, 2, 3)
    assert (found(broker, queue), found(broker, other)) == ([1, 2, 3], [20])


def test_another_target_gets_the_batches_that_are_repeated_for_it(
    broker: BrokerProcess, queue: str, other: str, query: str
) -> None:
    for number in range(3):
        Batch(broker, query, number).stream(queue, number)
    for number in (1, 2):
        Batch(broker, query, number, "rolled back").stream(other, number)
    assert found(broker, other) == [1, 2]


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_target_that_was_emptied_keeps_its_batches(
    broker: BrokerProcess, mq: Any, queue: str, query: str, made_anew: bool
) -> None:
    for number in (1, 2):
        Batch(broker, query, number).stream(queue, number)
    if made_anew:
        mq.delete_queue(queue)
        mq.create_queue(queue, retention="log")
    else:
        mq.purge_queue(queue)
    for number in (2, 3):
        Batch(broker, query, number, "rolled back").stream(queue, number)
    assert found(broker, queue) == [3]


def test_a_batch_that_was_committed_without_the_name_of_the_queue_is_refused(
    broker: BrokerProcess, queue: str, query: str
) -> None:
    """By an earlier version: whether this queue has its rows nobody knows."""
    call(broker, "transaction.commit", app=query, version=6, stages=[], tag="of an earlier version")
    for number in (5, 6):
        with pytest.raises(SourceError, match=rf"has committed version 6 of '{query}'.*{queue}.*transaction.forget"):
            Batch(broker, query, number).stream(queue, number)
    Batch(broker, query, 7).stream(queue, 7)
    assert found(broker, queue) == [7]


def test_a_batch_that_had_no_rows_when_it_was_run_before_is_refused(
    broker: BrokerProcess, queue: str, query: str
) -> None:
    for number in (1, 3):
        Batch(broker, query, number).stream(queue, number)
    with pytest.raises(SourceError, match=r"batch 2 of this query had no rows for queue.*VERSION_SKIPPED"):
        Batch(broker, query, 2, "rolled back").stream(queue, 2)
    assert found(broker, queue) == [1, 3]


def test_a_commit_that_is_refused_for_another_reason_says_which(broker: BrokerProcess, queue: str, query: str) -> None:
    """Delayed rows, and a cursor that has come since they were staged."""
    commit = Batch(broker, query, 1).streamed(queue, 1, delay_ms=3_600_000)
    BrokerClient(parse(options_of(broker))).call("group.join", queue, {"group": "etl"})
    with pytest.raises(SourceError, match="is read by the cursor 'etl'") as refused:
        commit()
    assert "had no rows" not in str(refused.value)


def test_a_stream_is_not_given_one_version_for_all_batches(queue: str) -> None:
    options = {"endpoint": "h", "queue": queue, "txnAppId": "mine", "txnVersion": "1", **ONCE}
    with pytest.raises(OptionError, match="the version would be the same for every batch"):
        DefaultSource(options).streamWriter(BODY, False)


# -- names that are given -------------------------------------------------------------------------------------------


def test_one_given_name_serves_every_queue(broker: BrokerProcess, queue: str, other: str, query: str) -> None:
    for run in ("first", "again"):
        batch = Batch(broker, query, 0, run)
        batch.named(queue, query, 0, 1)
        batch.named(other, query, 0, 2)
    assert (found(broker, queue), found(broker, other)) == ([1], [2])


def test_a_second_write_under_a_given_name_is_refused_in_every_run(
    broker: BrokerProcess, queue: str, query: str
) -> None:
    for run in ("first", "again", "and again"):
        batch = Batch(broker, query, 0, run)
        batch.named(queue, query, 0, 1)
        with pytest.raises(SourceError, match=f"another write of this batch to queue '{queue}' has had txnAppId"):
            batch.named(queue, query, 0, 2)
    assert found(broker, queue) == [1]


def test_of_two_writes_at_the_same_time_under_a_given_name_one_is_refused(
    broker: BrokerProcess, queue: str, query: str
) -> None:
    for run in ("first", "again"):
        batch = Batch(broker, query, 0, run)
        one, two = batch.staged(queue, query, 0, 1), batch.staged(queue, query, 0, 2)
        one()
        with pytest.raises(SourceError, match=r"has had txnAppId|STAGE_NOT_FOUND"):
            two()
    assert found(broker, queue) == [1]


def test_versions_of_a_given_name_go_up_within_a_run(broker: BrokerProcess, queue: str, query: str) -> None:
    Batch(broker, query, 0).named(queue, query, 1, 1)
    again = Batch(broker, query, 0, "again")
    again.named(queue, query, 1, 1)
    again.named(queue, query, 2, 2)
    with pytest.raises(SourceError, match="has had txnAppId"):
        again.named(queue, query, 1, 3)
    last = Batch(broker, query, 0, "and again")
    for version in (1, 2):
        last.named(queue, query, version, version)
    with pytest.raises(SourceError, match="has had txnAppId"):
        last.named(queue, query, 1, 3)
    assert found(broker, queue) == [1, 2]


def test_a_version_that_was_committed_under_the_given_name_alone_is_refused(
    broker: BrokerProcess, queue: str, query: str
) -> None:
    call(broker, "transaction.commit", app=query, version=6, stages=[])
    with pytest.raises(SourceError, match="it is not certain whether queue"):
        Batch(broker, query, 6).named(queue, query, 6, 6)
    Batch(broker, query, 7).named(queue, query, 7, 7)
    assert found(broker, queue) == [7]


def test_a_claim_that_is_asked_for_again_is_the_same(broker: BrokerProcess, query: str) -> None:
    """The answer may have been lost with its connection."""
    client = BrokerClient(parse(options_of(broker)))
    register = application(f"{query}.replays", "q")
    assert [claim(client, register, 3, "run", stage) for stage in ("a", "a", "b")] == [True, True, False]
    assert claim(client, register, 3, "another run", "b")


def test_the_longest_names_fit() -> None:
    options = {"endpoint": "h", "queue": "q" * 256, "txnAppId": "a" * 180, "txnVersion": "1", **ONCE}
    settings = parse(options, "a write")
    assert len(application(f"{settings.txn_app_id}.replays", settings.queue).encode()) <= APP_BYTES_MAX
