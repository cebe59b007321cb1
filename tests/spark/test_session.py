"""The source and the sink inside a real Spark."""

import json
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark and pyarrow: pip install 'vibemq[spark]'")
pytest.importorskip("pyarrow", reason="needs pyspark and pyarrow: pip install 'vibemq[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql.functions import col

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import running
from tests.spark import mutants
from tests.spark.marks import OF_QUERIES
from tests.spark.queries import CEILING_S, World, failure_of, until
from tests.spark.torture.hands import Hands, checkpoint_of
from tests.unit.spark.hand import new_checkpoint, restored
from tests.waiting import wait_until
from vibemq.spark import REGISTRY_LOGGER, DefaultSource, LagListener, failed_batch, lag, register
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.options import parse

pytestmark = OF_QUERIES
MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"


@pytest.fixture(scope="module", autouse=True)
def quick_checkpoints(spark: Any) -> Iterator[None]:
    """No query here has state, and no driver is killed: see docs/howto/spark/latency.md. The other modules write their
    checkpoints as Spark does where nothing is set."""
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", f"{MANAGERS}.FileSystemBasedCheckpointFileManager")
    yield
    spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")


# -- batch ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_written_and_read(world: World) -> None:
    queue = world.queue()
    rows = [(f"{n}", f"m-{n}", f"k-{n % 3}", {"x": b"y"} if n % 2 else None) for n in range(1000)]
    world.write(
        world.spark.createDataFrame(rows, "body STRING, message_id STRING, key STRING, headers MAP<STRING, BINARY>"),
        queue=queue,
    )
    frame = world.read(queue=queue, minPartitions=3)
    assert frame.count() == 1000
    assert frame.where("key = 'k-1' and seq > 0").count() == 333
    row = frame.where("message_id = 'm-7'").first()
    assert (bytes(row.body), row.key, row.headers["x"], row.attempts) == (b"7", "k-1", b"y", 1)
    pruned = world.spark.read.format("vibemq").schema("seq BIGINT, key STRING").options(**world.options(queue=queue))
    assert pruned.load().agg({"seq": "max"}).collect()[0][0] == 1000
    assert world.read(queue=world.queue()).count() == 0, "no partitions at all"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "q", "grop": "x"}, "unknown option 'grop'; did you mean 'group'?"),
        ({"queue": "q", "maxMessagesPerTrigger": "1"}, "belongs to a streaming read; this is a batch read"),
        ({"queue": "nowhere"}, "queue 'nowhere' does not exist"),
        ({"queue": "q", "endpoint": "127.0.0.1:1", "retryTimeout": "0"}, "cannot reach the broker at 127.0.0.1:1"),
    ],
)
def test_a_read_that_cannot_be(world: World, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PySparkException) as caught:
        world.read(**options).collect()
    assert sentence in str(caught.value)


def test_a_write_that_cannot_be(world: World) -> None:
    queue = world.queue()
    two = world.spark.createDataFrame([("m-1", "x" * 1_100_000)], "message_id STRING, body STRING")
    for frame, mode, sentence in (
        (two.withColumnRenamed("body", "value"), "append", "needs a column 'body'"),
        (two.withColumn("colour", col("body")), "append", "nothing can be done with column 'colour'"),
        (two, "overwrite", "a queue cannot be overwritten"),
        (two, "append", "row 0 of this task, message_id 'm-1': it has 1,100,0"),
    ):
        with pytest.raises(PySparkException) as caught:
            frame.write.format("vibemq").options(**world.options(queue=queue)).mode(mode).save()
        assert sentence in str(caught.value)
    assert world.numbers(queue) == []


def test_dead_letters_are_read_and_redriven(world: World) -> None:
    queue = world.queue(*range(6))
    world.drain(world.stream(queue=queue, ackOn="never").select("body"), world.queue(), "c")
    bad = world.spark.createDataFrame([(2, "odd"), (4, "odd"), (6, "odder")], "seq BIGINT, reason STRING")
    with pytest.raises(PySparkException, match="action=reject needs the option group"):
        world.write(bad, queue=queue, action="reject")
    world.write(bad, queue=queue, action="reject", group="etl")
    letters = world.read(queue=queue, deadLetters="true")
    found = [(row.origin_seq, row.detail) for row in letters.orderBy("seq").collect()]
    assert found == [(2, "odd"), (4, "odd"), (6, "odder")]
    world.write(letters.where("detail = 'odd'"), queue=queue, action="redrive")
    assert [row.detail for row in world.read(queue=queue, deadLetters="true").collect()] == ["odder"]
    assert sorted(world.numbers(queue)[6:]) == [1, 3]


# -- streams --------------------------------------------------------------------------------------------------------


def test_available_now_acknowledges_all_of_it(world: World) -> None:
    source, target = world.queue(*range(1000)), world.queue()
    batches = world.drain(world.stream(queue=source, maxMessagesPerTrigger=400).select("body"), target, "c")
    assert batches == [400, 400, 200]
    assert sorted(world.numbers(target)) == list(range(1000))
    assert world.committed(source) == 1001


@pytest.mark.long(
    covered_by="tests/unit/spark/read/test_stream_acknowledgements.py::test_ack_on_commit_waits_for_the_next_batch"
)
def test_progress_that_spark_notes_later_repeats_batches_as_they_were(world: World) -> None:
    source = world.queue(*range(10), mode="fan_out_with_ack", retention="settled")

    def run(limit: int) -> list[int]:
        """The rows of each batch, until everything is read."""
        frame = world.stream(queue=source, ackOn="commit", maxMessagesPerTrigger=limit).select("body")
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(world.folder / "c"))
        late = {"asyncProgressTrackingEnabled": True, "asyncProgressTrackingCheckpointIntervalMs": 3_600_000}
        query = writer.options(**late).start()
        until(lambda: bool(query.lastProgress) and ends(query.lastProgress)[-1] == 11, query)
        query.stop()
        return [report.numInputRows for report in query.recentProgress if report.numInputRows]

    def ends(progress: Any) -> list[int]:
        return [json.loads(one["endOffset"])["q"][source]["s"] for one in progress["sources"]]

    assert run(2) == [2] * 5
    assert len(list((world.folder / "c" / "commits").glob("[0-9]*"))) < 5, "Spark has noted the first ones only"
    again = run(100)
    assert set(again) == {2}
    assert len(again) > 1


@pytest.mark.long(covered_by="tests/unit/spark/read/test_admission.py::test_several_queues_share_the_limits")
def test_byte_limits_and_several_queues(world: World) -> None:
    one, two, target = world.queue(*range(100)), world.queue(*range(100, 200)), world.queue()
    frame = world.stream(queues=f"{one},{two}", maxBytesPerTrigger="6k").select("body")
    assert len(world.drain(frame, target, "c")) >= 2
    assert sorted(world.numbers(target)) == list(range(200))


def test_a_running_query_its_lag_and_a_lost_checkpoint(world: World) -> None:
    source, target = world.queue(*range(50)), world.queue()
    listener = LagListener()
    world.spark.streams.addListener(listener)
    try:
        query = world.into(world.stream(queue=source).select("body"), target, "c").queryName("copy").start()
        until(lambda: world.committed(source) == 51, query)  # Idle, and yet acknowledged.
        until(lambda: "copy" in listener.lags, query)
        assert 'vibemq_spark_lag_messages{query="copy",queue="' in listener.prometheus()
        found = lag(query.lastProgress)
        assert found is not None
        assert found.messages in (0, 50)
        query.stop()
        assert query.exception() is None
    finally:
        world.spark.streams.removeListener(listener)
    world.publish(source, *range(50, 80))
    shutil.rmtree(world.folder / "c")
    said = failure_of(world.into(world.stream(queue=source).select("body"), target, "c").start())
    assert "this query has no checkpoint" in said
    shutil.rmtree(world.folder / "c")
    value = new_checkpoint(said, "continue")
    world.drain(world.stream(queue=source, newCheckpoint=value).select("body"), target, "c")
    assert sorted(world.numbers(target)) == list(range(80)), "nothing lost, nothing twice"


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_replayed_batch_is_published_once")
def test_another_target_gets_the_batches_that_are_repeated_for_it(world: World) -> None:
    source, target, other = world.queue(*range(3)), world.queue(), world.queue()
    frame = world.stream(queue=source, hold="15m", maxMessagesPerTrigger=1).select("body")
    world.drain(frame, target, "c", exactlyOnce="true")
    for number in (1, 2):
        world.forget_batch("c", number)
        world.forget_batch("c", number, "offsets")
    assert world.drain(frame, other, "c", exactlyOnce="true") == [1, 1]
    assert (world.numbers(target), world.numbers(other)) == ([0, 1, 2], [1, 2])


@pytest.mark.parametrize(
    "sink",
    [
        "parquet",
        pytest.param("exactlyOnce", marks=pytest.mark.long),
        pytest.param("foreachBatch", marks=pytest.mark.long),
    ],
)
def test_a_checkpoint_that_was_rolled_back_by_hand(world: World, sink: str) -> None:
    """The newest two of offsets and commits are deleted, and more is published: no sink may take a larger batch for
    one that it has."""
    source, target = world.queue(*range(35)), world.queue()
    done: dict[int, list[int]] = {}

    def note(frame: Any, batch_id: int) -> None:
        done.setdefault(batch_id, [int(row.body) for row in frame.collect()])

    def run(limit: int) -> None:
        frame = world.stream(queue=source, hold="15m", maxMessagesPerTrigger=limit).select("body")
        if sink == "exactlyOnce":
            world.drain(frame, target, "c", exactlyOnce="true")
            return
        writer = frame.writeStream.option("checkpointLocation", str(world.folder / "c")).trigger(availableNow=True)
        files = writer.format("parquet").option("path", str(world.folder / "out"))
        query = files.start() if sink == "parquet" else writer.foreachBatch(note).start()
        assert query.awaitTermination(CEILING_S)
        assert query.exception() is None

    run(7)
    for number in (3, 4):
        world.forget_batch("c", number)
        world.forget_batch("c", number, "offsets")
    world.publish(source, *range(35, 65))
    run(100)
    if sink == "parquet":
        found = [int(row.body) for row in world.spark.read.parquet(str(world.folder / "out")).collect()]
    else:
        found = world.numbers(target) if sink == "exactlyOnce" else [n for numbers in done.values() for n in numbers]
    assert sorted(found) == list(range(65)), "nothing missing, nothing twice"
    assert world.committed(source) == 66


@pytest.mark.parametrize(
    ("sink", "kinds"),
    [
        pytest.param("once", ["", "roll back", "older copy", "replay", "roll back", "replay"], marks=pytest.mark.long),
        ("files", ["", "roll back", "continue", "roll back", "continue"]),
    ],
)
@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_checkpoint_that_was_rolled_back_by_hand")
def test_whatever_is_done_to_checkpoints_between_runs(world: World, sink: str, kinds: list[str]) -> None:
    """A short form of `make spark-torture`, without the kills."""
    source = f"work.{sink}"
    world.mq.create_queue(source, retention="log")
    hands = Hands(world.folder, [sink], random.Random(0), "15m", lambda sentence: None)
    query = hands.queries[sink]

    def output(number: int) -> str:
        return f"{source}-{number}" if sink == "once" else str(world.folder / f"files-{number}")

    def run() -> str:
        options = {"hold": "15m", "maxMessagesPerTrigger": 4, "newCheckpoint": query.decision or "refuse"}
        frame = world.stream(queue=source, group=sink, **options).select("body")
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint_of(world.folder, sink, query.output)))
        if sink == "once":
            writer = writer.format("vibemq").options(**world.options(queue=output(query.output), exactlyOnce="true"))
        else:
            writer = writer.format("parquet").option("path", output(query.output))
        try:
            assert writer.trigger(availableNow=True).start().awaitTermination(CEILING_S)
        except PySparkException as error:
            return str(error)
        return ""

    for step, kind in enumerate(kinds):
        world.publish(source, *range(6 * step, 6 * step + 6))
        if kind:
            hands.do(sink, kind)
            query = hands.queries[sink]
        if why := run():
            assert hands.was_refused(why), why
            assert run() == ""
        if step == 0:
            hands.copy(sink)
    assert hands.done == Counter(filter(None, kinds))
    found = [
        world.numbers(output(number))
        if sink == "once"
        else [int(row.body) for row in world.spark.read.parquet(output(number)).collect()]
        for number in range(query.output + 1)
    ]
    assert [sorted(numbers) for numbers in found] == [sorted(set(numbers)) for numbers in found], "nothing twice in one"
    assert set().union(*found) == set(range(6 * len(kinds)))
    assert world.committed(source, sink) == 6 * len(kinds) + 1


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_replayed_batch_is_published_once")
def test_a_batch_that_changed_code_repeats_stays_as_it_was_written(world: World) -> None:
    source, target = world.queue(1, 2), world.queue()
    frame = world.stream(queue=source, hold="15m", maxMessagesPerTrigger=1)
    world.drain(frame.select("body"), target, "c", exactlyOnce="true")
    world.forget_batch("c", 1)
    world.publish(source, 3)
    changed = frame.selectExpr("concat(cast(body AS STRING), '0') AS body")
    world.drain(changed, target, "c", exactlyOnce="true")
    assert sorted(world.numbers(target)) == [1, 2, 30]


def test_a_query_without_its_checkpoint_writes_no_file_less(world: World) -> None:
    """Spark's file sink skips the batch numbers that it has, and a source that went on would acknowledge their rows."""
    source = world.queue(1, 2)
    out, checkpoint = world.folder / "out", world.folder / "c"

    def start(**more: object) -> Any:
        frame = world.stream(queue=source, hold="15m", **more).select("body")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        return writer.option("path", str(out)).trigger(availableNow=True).start()

    assert start().awaitTermination(CEILING_S)
    shutil.rmtree(checkpoint)
    world.publish(source, 3, 4)
    said = failure_of(start())
    assert "a file sink skips the batch numbers that its _spark_metadata has" in said
    assert world.committed(source) == 3, "nothing is acknowledged"
    for folder in (checkpoint, out):
        shutil.rmtree(folder, ignore_errors=True)
    assert start(newCheckpoint=new_checkpoint(said, "replay")).awaitTermination(CEILING_S)
    assert sorted(int(row.body) for row in world.spark.read.parquet(str(out)).collect()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("sink", "how"),
    [
        ("exactlyOnce", "continue"),
        pytest.param("parquet", "replay", marks=pytest.mark.long),
        pytest.param("parquet", "continue", marks=pytest.mark.long),
        pytest.param("exactlyOnce", "replay", marks=pytest.mark.long),
    ],
)
@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_query_without_its_checkpoint_writes_no_file_less")
def test_an_option_that_was_forgotten_does_not_lose_or_double_rows_with_the_next_checkpoint(
    world: World, sink: str, how: str
) -> None:
    """`newCheckpoint` stays set as the job was deployed; the checkpoint is lost twice, the second output is kept."""
    source, target, checkpoint = world.queue(1, 2), world.queue(), world.folder / "c"

    def run(output: str, value: str) -> str:
        """The error, if it is refused."""
        frame = world.stream(queue=source, hold="15m", newCheckpoint=value).select("body")
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        if sink == "parquet":
            writer = writer.format("parquet").option("path", str(world.folder / output))
        else:
            writer = writer.format("vibemq").options(**world.options(queue=f"{target}.{output}", exactlyOnce="true"))
        try:
            assert writer.start().awaitTermination(CEILING_S)
        except PySparkException as error:
            return str(error)
        return ""

    def written(output: str) -> list[int]:
        if sink == "exactlyOnce":
            return sorted(world.numbers(f"{target}.{output}"))
        return sorted(int(row.body) for row in world.spark.read.parquet(str(world.folder / output)).collect())

    for output in ("first", "second", "third"):
        world.mq.create_queue(f"{target}.{output}", retention="log")
    assert run("first", "refuse") == ""
    shutil.rmtree(checkpoint)
    value = new_checkpoint(run("second", how), how)
    shutil.rmtree(checkpoint)
    world.publish(source, 3, 4)
    for _ in range(2):
        assert run("second", value) == "", "the option does no harm while there is a checkpoint"
    first = [3, 4] if how == "continue" else [1, 2, 3, 4]
    assert written("second") == first
    shutil.rmtree(checkpoint)
    world.publish(source, 5, 6)
    said = run("second", value)
    assert f"newCheckpoint={value} does not count: it was for an earlier loss" in said
    assert (written("second"), world.committed(source)) == (first, 5), "nothing is written, nothing acknowledged"
    shutil.rmtree(checkpoint)
    world.mq.admin("group.seek", queue=source, group="etl", start="sequence:5")
    assert run("third", value) == "", "an operator has moved the group: the query begins there"
    assert written("third") == [5, 6]


def test_a_replayed_batch_is_published_once(world: World) -> None:
    source, target = world.queue(*range(100)), world.queue()
    frame = world.stream(queue=source, ackOn="never").select("body")
    for _ in range(2):
        assert world.drain(frame, target, "c", exactlyOnce="true") == [100]
        world.forget_batch("c", 0)
    assert sorted(world.numbers(target)) == list(range(100))


def test_the_older_query_of_a_group_fails(world: World) -> None:
    source, target = world.queue(1), world.queue()
    frame = world.stream(queue=source).select("body")
    older = world.into(frame, target, "older").start()
    until(lambda: world.committed(source) == 2, older)
    refused = failure_of(world.into(world.stream(queue=source).select("body"), target, "newer").start())
    shutil.rmtree(world.folder / "newer")
    frame = world.stream(queue=source, newCheckpoint=new_checkpoint(refused, "continue")).select("body")
    newer = world.into(frame, target, "newer").start()
    said = failure_of(older)
    assert "is another query's now" in said
    assert "give this one a group of its own" in said
    world.publish(source, 2)
    until(lambda: world.committed(source) == 3, newer)
    newer.stop()
    assert sorted(world.numbers(target)) == [1, 2]


@pytest.mark.long(covered_by="tests/spark/test_examples.py::test_rejects_and_what_becomes_of_them")
def test_rows_are_sorted_into_good_and_bad(world: World) -> None:
    source, target = world.queue(*range(40)), world.queue()

    def sort(frame: Any, batch_id: int) -> None:
        frame.persist()
        bad = col("body").cast("string").cast("int") % 10 == 3
        world.write(frame.where(~bad).select("body"), queue=target, exactlyOnce="true")
        world.write(
            frame.where(bad).selectExpr("seq", "'ends in 3' AS reason"), queue=source, action="reject", group="etl"
        )
        frame.unpersist()

    for _ in range(2):
        writer = world.stream(queue=source, ackOn="never", maxMessagesPerTrigger=15).writeStream.foreachBatch(sort)
        query = writer.option("checkpointLocation", str(world.folder / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(CEILING_S)
        world.forget_batch("c", 2)
    assert sorted(world.numbers(target)) == [n for n in range(40) if n % 10 != 3]
    letters = world.read(queue=source, deadLetters="true").orderBy("seq").collect()
    assert [(row.seq, row.detail) for row in letters] == [(n, "ends in 3") for n in (4, 14, 24, 34)]


class Batches:
    """A stream whose batches a function writes; it can be made to fail on its way, as a driver that dies there."""

    def __init__(self, world: World, source: str, target: str) -> None:
        self.world = world
        self.source = source
        self.target = target
        self.breaks: str | None = None

    def once(self, frame: Any, first: int, **more: object) -> None:
        """The numbers, and `first` added to each."""
        bodies = frame.selectExpr(f"cast(cast(cast(body AS STRING) AS INT) + {first} AS STRING) AS body")
        self.world.write(bodies, queue=self.target, **{"exactlyOnce": "true", **more})

    def point(self, name: str) -> None:
        if self.breaks == name:
            raise RuntimeError(f"broken {name}")

    def run(self, function: Callable[[Any, int], None], breaks: str | None = None) -> str:
        """Until everything is read; what ended it."""
        self.breaks = breaks
        frame = self.world.stream(queue=self.source)
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(self.world.folder / "c"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(CEILING_S)
        except PySparkException as error:
            return str(error)
        return ""


def two_writes_in_three_runs(batches: Batches) -> list[int]:
    """What is in the target when a run has died after the first write, one at the end, and one has not."""

    def thrice(frame: Any, batch_id: int) -> None:
        batches.once(frame, 0)
        batches.point("after the first")
        batches.once(frame.limit(0), 1000)
        batches.once(frame, 2000)
        batches.point("at the end")

    for breaks in ("after the first", "at the end", None):
        said = batches.run(thrice, breaks)
        assert f"broken {breaks}" in said if breaks else said == ""
    return sorted(batches.world.numbers(batches.target))


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_sink_that_confuses_writes_is_noticed")
def test_writes_of_one_batch_to_one_queue_are_told_apart_in_every_run(world: World) -> None:
    batches = Batches(world, world.queue(*range(40)), world.queue())
    expected = [*range(40), *range(2000, 2040)]
    assert two_writes_in_three_runs(batches) == expected
    world.publish(batches.source, 40, 41)
    assert two_writes_in_three_runs(batches) == sorted([*expected, 40, 41, 2040, 2041])


@pytest.mark.parametrize(
    ("mutant", "found"),
    [
        (mutants.NewNames, [0, 0, 0, 1, 1, 1, 2000, 2000, 2001, 2001]),
        pytest.param(mutants.OneName, [0, 1], marks=pytest.mark.long),
        pytest.param(mutants.CountsOn, [0, 0, 0, 1, 1, 1, 2000, 2000, 2001, 2001], marks=pytest.mark.long),
    ],
)
def test_a_sink_that_confuses_writes_is_noticed(world: World, mutant: type[mutants.Mutant], found: list[int]) -> None:
    batches = Batches(world, world.queue(0, 1), world.queue())
    with mutants.registered(world.spark, mutant):
        assert two_writes_in_three_runs(batches) == found != [0, 1, 2000, 2001]


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_writes_of_one_batch_at_the_same_time_need_names")
def test_a_write_after_one_that_failed_needs_a_name_in_every_run(world: World) -> None:
    batches = Batches(world, world.queue(*range(4)), world.queue())

    def go_on(frame: Any, batch_id: int) -> None:
        with pytest.raises(PySparkException, match="does not fit"):
            world.write(frame.selectExpr("repeat('x', 1100000) AS body"), queue=batches.target, exactlyOnce="true")
        batches.once(frame, 0)

    for _ in range(2):
        said = batches.run(go_on)
        assert "it runs at the same time, or it has failed" in said
        assert "Give each write of the batch a txnAppId of its own" in said
    assert world.numbers(batches.target) == []


def test_writes_of_one_batch_at_the_same_time_need_names(world: World) -> None:
    from pyspark import InheritableThread
    from pyspark.sql.functions import udf

    batches = Batches(world, world.queue(*range(4)), world.queue())
    gate = world.folder / "gate"
    broker = BrokerClient(parse(world.options()))

    @udf("string")
    def late(body: bytes) -> str:
        deadline = time.monotonic() + CEILING_S
        while not gate.exists():
            assert time.monotonic() < deadline
        return body.decode()

    def at_once(frame: Any, batch_id: int) -> None:
        query = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))

        def slow() -> None:
            register(frame.sparkSession)
            world.write(frame.coalesce(1).select(late("body").alias("body")), queue=batches.target, exactlyOnce="true")

        thread = InheritableThread(target=slow)
        thread.start()
        deadline = time.monotonic() + CEILING_S
        while not broker.call("transaction.last", "", {"app": f"{query}.writes/{batches.target}"})["version"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        try:
            batches.once(frame, 100)
        finally:
            gate.touch()
            thread.join()

    said = batches.run(at_once)
    assert "it runs at the same time, or it has failed" in said
    assert sorted(world.numbers(batches.target)) == list(range(4)), "the first write counts, the second is refused"


@pytest.mark.long(covered_by="tests/unit/spark/write/test_identity.py::test_what_is_not_certain_is_refused")
def test_a_name_that_is_given_is_one_write_to_one_queue(world: World) -> None:
    batches = Batches(world, world.queue(0, 1), world.queue())
    other = Batches(world, batches.source, world.queue())

    def to_two_queues(frame: Any, batch_id: int) -> None:
        batches.once(frame, 0, txnAppId=batches.target, txnVersion=batch_id)
        other.once(frame, 100, txnAppId=batches.target, txnVersion=batch_id)
        batches.point("between")
        batches.once(frame, 200, txnAppId=batches.target, txnVersion=batch_id)

    for breaks, said in (("between", "broken between"), (None, "another write of this batch"), (None, "of its own")):
        assert said in batches.run(to_two_queues, breaks)
    assert (sorted(world.numbers(batches.target)), sorted(world.numbers(other.target))) == ([0, 1], [100, 101])


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_writes_of_one_batch_at_the_same_time_need_names")
def test_a_thread_of_a_batch_has_no_name_and_may_be_given_one(world: World) -> None:
    batches = Batches(world, world.queue(*range(4)), world.queue())
    errors: list[str] = []

    def in_a_thread(frame: Any, batch_id: int) -> None:
        def write() -> None:
            register(frame.sparkSession)
            try:
                batches.once(frame, 0)
            except PySparkException as error:
                errors.append(str(error))
            batches.once(frame, 100, txnAppId=f"{batches.target}/hundreds", txnVersion=batch_id)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        batches.point("at the end")

    assert "broken at the end" in batches.run(in_a_thread, "at the end")
    assert batches.run(in_a_thread) == ""
    assert len(errors) == 2
    assert all("exactlyOnce needs the name of the batch" in error for error in errors)
    assert sorted(world.numbers(batches.target)) == [100, 101, 102, 103]


def test_a_batch_write_is_atomic_or_has_a_name(world: World) -> None:
    target = world.queue()
    rows = world.spark.createDataFrame([("1",), ("2",)], "body STRING")
    with pytest.raises(PySparkException, match=r"exactlyOnce needs the name of the batch.*atomic=true"):
        world.write(rows, queue=target, exactlyOnce="true")
    world.write(rows, queue=target, atomic="true")
    assert sorted(world.numbers(target)) == [1, 2]
    with pytest.raises(PySparkException, match="does not fit"):
        world.write(rows.selectExpr("repeat(body, 1100000 * (int(body) - 1)) AS body"), queue=target, atomic="true")
    assert sorted(world.numbers(target)) == [1, 2]
    frame = world.stream(queue=target).select("body")
    assert "atomic belongs to batch writes" in failure_of(world.into(frame, target, "c", atomic="true").start())


@pytest.mark.long(covered_by="tests/spark/test_examples.py::test_rejects_and_what_becomes_of_them")
def test_the_messages_of_a_batch_that_fails_are_named(world: World) -> None:
    source, target = world.queue(1, 2), world.queue()
    numbers = world.stream(queue=source).selectExpr("cast(cast(cast(body AS STRING) AS INT) AS STRING) AS body")
    world.drain(numbers, target, "c")
    world.mq.publish_many(source, [b"3", b"four", b"5"])
    for _ in range(2):
        said = failed_batch(failure_of(world.into(numbers, target, "c").start()), "etl")
        assert said.endswith(f"vibemq-admin group quarantine {source} etl 3-5")
    world.mq.admin("group.quarantine", queue=source, group="etl", runs=[[4, 4]])
    world.drain(numbers, target, "c")
    assert set(world.numbers(target)) == {1, 2, 3, 5}


def test_queues_that_are_not_what_they_were(world: World) -> None:
    source, target = world.queue(*range(10)), world.queue()
    frame = world.stream(queue=source).select("body")
    world.drain(frame, target, "c")
    world.publish(source, 10, 11)
    world.mq.purge_queue(source)
    world.publish(source, 12)
    assert "messages are gone before they were read" in failure_of(world.into(frame, target, "c").start())
    careless = world.stream(queue=source, failOnDataLoss="false").select("body")
    world.drain(careless, target, "c")
    assert sorted(world.numbers(target)) == [*range(10), 12]
    world.mq.delete_queue(source)
    assert f"queue '{source}' does not exist" in failure_of(world.into(frame, target, "c").start())
    world.mq.create_queue(source, retention="log")
    world.publish(source, 20)
    assert "was deleted and created again" in failure_of(world.into(frame, target, "c").start())


@pytest.mark.long(covered_by="tests/unit/spark/test_losses.py::test_a_broker_that_was_restored_from_a_backup")
def test_a_broker_that_is_restored_from_its_backup_under_a_query(world: World, tmp_path: Path) -> None:
    with running(BrokerProcess(tmp_path / "data")) as broker, vibemq.sync.connect(broker.url) as mq:
        inner = World(broker, world.spark, mq, world.folder)
        source, first, second = inner.queue(*range(5)), inner.queue(), inner.queue()
        frame = inner.stream(queue=source).select("body")
        query = inner.into(frame, first, "c", exactlyOnce="true").start()
        wait_until(lambda: inner.committed(source) == 6)
        mq.admin("storage.backup", target=str(tmp_path / "backup"))
        inner.publish(source, 5, 6)
        wait_until(lambda: inner.committed(source) == 8)
        restored(broker, tmp_path)
        inner.publish(source, 20, 21, 22)
        said = failure_of(query)
        assert "the broker's data were restored from a backup" in said
        assert "newCheckpoint=continue" in said
        assert "the broker's data were restored" in failure_of(
            inner.into(frame, first, "c", exactlyOnce="true").start()
        )
        refused = failure_of(inner.into(frame, second, "d", exactlyOnce="true").start())
        shutil.rmtree(world.folder / "d")
        anew = inner.stream(queue=source, newCheckpoint=new_checkpoint(refused, "continue")).select("body")
        inner.drain(anew, second, "d", exactlyOnce="true")
        assert inner.numbers(second) == [20, 21, 22]
        assert sorted(inner.numbers(first)) == [0, 1, 2, 3, 4]


def test_a_stream_needs_a_group(world: World) -> None:
    frame = world.spark.readStream.format("vibemq").options(**world.options(queue=world.queue())).load()
    said = failure_of(world.into(frame.select("body"), world.queue(), "c").start())
    assert "needs the option group" in said
    assert "UnboundLocalError" not in said


@pytest.mark.long(covered_by="tests/unit/spark/test_pickling.py::test_code_is_shipped_whole")
def test_the_code_can_be_shipped(world: World) -> None:
    from pyspark import cloudpickle

    source, target = world.queue(*range(20)), world.queue()
    register(world.spark, ship=True)
    try:
        world.drain(world.stream(queue=source).select("body"), target, "c", exactlyOnce="true")
        assert sorted(world.numbers(target)) == list(range(20))
    finally:
        for name in cloudpickle.list_registry_pickle_by_value():  # type: ignore[no-untyped-call]
            cloudpickle.unregister_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
        register(world.spark)


def test_a_source_is_registered_again_without_a_warning(world: World) -> None:
    jvm: Any = world.spark._jvm
    log4j = jvm.org.apache.logging.log4j
    seen = jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.newBuilder().setName("seen").setTarget(seen).build()
    appender.start()
    root = log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    world.spark.sparkContext.setLogLevel("WARN")
    log4j.core.config.Configurator.setLevel(REGISTRY_LOGGER, log4j.Level.WARN)
    try:
        world.spark.dataSource.register(DefaultSource)
        # Others may warn meanwhile of what is theirs.
        warning = "The data source vibemq replaced"
        assert str(seen.toString()).count(warning) == 1, "Spark warns no more; then neither need we"
        register(world.spark)
        assert str(seen.toString()).count(warning) == 1
    finally:
        world.spark.sparkContext.setLogLevel("OFF")
        root.removeAppender(appender)


def test_the_checkpoint_is_what_the_reference_says(world: World) -> None:
    source = world.queue(1, 2)
    world.drain(world.stream(queue=source).select("body"), world.queue(), "c")
    written = (world.folder / "c" / "offsets" / "0").read_text().splitlines()[-1]
    offset = json.loads(written)
    assert offset == {"q": {source: {"i": offset["q"][source]["i"], "s": 3}}, "v": 1}


class CheckpointFiles:
    """One of Spark's classes for files of a checkpoint, with settings of Hadoop's."""

    def __init__(self, spark: Any, folder: Path, manager: str, **hadoop: str) -> None:
        jvm = spark._jvm
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        for key, value in hadoop.items():
            settings.set(key.replace("__", "."), value)
        self._folder, self._path = folder, jvm.org.apache.hadoop.fs.Path
        managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing
        self._files = getattr(managers, manager)(self._path(folder.as_uri()), settings)

    def write(self, text: str, *, replace: bool) -> None:
        stream = self._files.createAtomic(self._path((self._folder / "7").as_uri()), replace)
        stream.write(text.encode())
        stream.close()

    def read(self) -> str:
        stream = self._files.open(self._path((self._folder / "7").as_uri()))
        found = bytes(stream.readAllBytes()).decode()
        stream.close()
        return found


CONTEXT, WITHOUT_CHECKSUMS = "FileContextBasedCheckpointFileManager", "org.apache.hadoop.fs.local.RawLocalFs"


@pytest.mark.parametrize(
    ("manager", "hadoop", "replaces"),
    [
        (CONTEXT, {}, True),
        (CONTEXT, {"fs__AbstractFileSystem__file__impl": WITHOUT_CHECKSUMS}, True),
        ("FileSystemBasedCheckpointFileManager", {}, False),
    ],
)
def test_checkpoint_files_on_a_local_disk_are_as_the_latency_page_says(
    world: World, tmp_path: Path, manager: str, hadoop: dict[str, str], replaces: bool
) -> None:
    """The page advises the last for queries without state only; Spark replaces files of state, and no others."""
    files = CheckpointFiles(world.spark, tmp_path, manager, **hadoop)
    files.write("first", replace=False)
    with pytest.raises(Exception, match="AlreadyExists"):
        files.write("second", replace=False)
    files.write("third", replace=True)
    assert (tmp_path / "7").read_text() == files.read() == ("third" if replaces else "first")
    assert (tmp_path / ".7.crc").exists() == (not hadoop)


def test_checkpoint_files_with_and_without_checksums_read_each_other(world: World, tmp_path: Path) -> None:
    default = CheckpointFiles(world.spark, tmp_path, CONTEXT)
    without = CheckpointFiles(world.spark, tmp_path, CONTEXT, fs__AbstractFileSystem__file__impl=WITHOUT_CHECKSUMS)
    default.write("first", replace=False)
    assert without.read() == "first"
    without.write("other", replace=True)
    assert default.read() == "other"
    default.write("third", replace=True)
    assert without.read() == default.read() == "third"
