"""What people do to checkpoints and groups by hand, and what a real query then does: the same batches, or a refusal."""

import shutil
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark and pyarrow: pip install 'vibemq[spark]'")
pytest.importorskip("pyarrow", reason="needs pyspark and pyarrow: pip install 'vibemq[spark]'")

from pyspark.sql.functions import col, timestamp_seconds, window

from tests.spark.marks import OF_QUERIES
from tests.spark.queries import CEILING_S, World, failure_of
from tests.unit.spark.hand import new_checkpoint

pytestmark = OF_QUERIES
REFUSED = "BATCH_CHANGED"


def numbers_in(world: World, output: str) -> list[int]:
    return sorted(int(row.body) for row in world.spark.read.parquet(str(world.folder / output)).collect())


def finished(query: Any) -> None:
    assert query.awaitTermination(CEILING_S)
    assert query.exception() is None


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_checkpoint_that_was_rolled_back_by_hand")
def test_two_sources_have_the_same_batches_again_or_none(world: World) -> None:
    """Also those in which one of them had no rows. Where the offset does not tell how many of these were, the query is
    refused."""
    one, two = world.queue(*range(4)), world.queue(100, 101)

    def run() -> Any:
        how: dict[str, object] = {"hold": "15m", "maxMessagesPerTrigger": 1}
        first, second = (world.stream(queue=queue, **how).select("body") for queue in (one, two))
        return world.files(first.union(second), "c", "out")

    finished(run())
    assert sorted(int(file.name) for file in (world.folder / "c" / "commits").glob("[0-9]*")) == [0, 1, 2, 3]
    world.roll_back("c", 1, 2, 3)
    world.publish(two, 102, 103)
    finished(run())
    assert numbers_in(world, "out") == [0, 1, 2, 3, 100, 101, 102, 103]
    world.publish(one, 4)
    finished(run())
    newest = world.put_aside("c")
    world.roll_back("c", 6)
    world.publish(two, 104)
    said = failure_of(run())
    assert REFUSED in said
    assert "Use the newest checkpoint of the query" in said
    world.put_back(newest, "c")
    finished(run())
    assert numbers_in(world, "out") == [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]


@pytest.mark.long(
    covered_by="tests/unit/spark/read/test_empty.py::test_batches_without_rows_that_count_twice_are_forgotten_by_a_seek"
)
def test_batches_without_rows_that_count_twice_are_forgotten_by_a_seek(world: World) -> None:
    """As the page says: the sink has no batch with the number of the error, and the group is moved to where the
    checkpoint has the queue."""
    one, two = world.queue(*range(4)), world.queue(100, 101)

    def run() -> Any:
        how: dict[str, object] = {"hold": "15m", "maxMessagesPerTrigger": 1}
        first, second = (world.stream(queue=queue, **how).select("body") for queue in (one, two))
        return world.files(first.union(second), "c", "out")

    finished(run())
    world.roll_back("c", 2, 3)
    finished(run())
    world.publish(two, 102)
    assert "move the group 'etl' to where the checkpoint has this queue" in failure_of(run())
    assert sorted(file.name for file in (world.folder / "out" / "_spark_metadata").glob("[0-9]*")) == list("0123")
    world.mq.admin("group.seek", queue=two, group="etl", start="sequence:3")
    finished(run())
    assert numbers_in(world, "out") == [0, 1, 2, 3, 100, 101, 102]


@pytest.mark.long(
    covered_by="tests/unit/spark/test_losses.py::test_the_first_queue_of_a_pattern_is_deleted_after_one_batch"
)
def test_the_first_queue_of_a_pattern_is_deleted_after_one_batch(world: World) -> None:
    names = [f"pattern-{name}" for name in "ab"]
    for name in names:
        world.mq.create_queue(name, retention="log")
        world.publish(name, 1)

    def run() -> Any:
        frame = world.stream(queuePattern="pattern-*", failOnDataLoss="false").select("body")
        return world.files(frame, "c", "out")

    finished(run())
    world.mq.delete_queue(names[0])
    for number in (2, 3):
        world.publish(names[1], number)
        finished(run())
    assert numbers_in(world, "out") == [1, 1, 2, 3]


@pytest.mark.parametrize("sink", ["files", pytest.param("exactlyOnce", marks=pytest.mark.long)])
@pytest.mark.long(
    covered_by="tests/unit/spark/read/test_empty.py::test_batches_without_rows_that_count_twice_are_forgotten_by_a_seek"
)
def test_batches_without_data_are_batches(world: World, sink: str) -> None:
    """Spark makes one when a watermark has moved. Of a batch that its file sink leaves out it does not see how far the
    watermark moves, and does not make the next one again: then the query is refused when it goes on."""
    source, target = world.queue(1, 2, 15, 16), world.queue()

    def run() -> Any:
        rows = world.stream(queue=source, hold="15m", maxMessagesPerTrigger=2)
        times = rows.select(timestamp_seconds(col("body").cast("string").cast("long")).alias("at"))
        counts = times.withWatermark("at", "0 seconds").groupBy(window("at", "10 seconds")).count()
        starts = counts.where("count = 2").select(col("window.start").cast("long").cast("string").alias("body"))
        if sink == "files":
            return world.files(starts, "c", "out")
        return world.into(starts, target, "c", exactlyOnce="true").trigger(availableNow=True).start()

    def found() -> list[int]:
        return numbers_in(world, "out") if sink == "files" else sorted(world.numbers(target))

    finished(run())
    assert found() == [0]
    newest = world.put_aside("c")
    world.roll_back("c", 1, 2)
    world.publish(source, 31, 32)
    finished(run())
    if sink == "files":
        assert REFUSED in failure_of(run())
        world.put_back(newest, "c")
        finished(run())
    assert found() == [0, 10]
    newest = world.put_aside("c")
    world.roll_back("c", 4)
    world.publish(source, 51, 52)
    assert REFUSED in failure_of(run())
    world.put_back(newest, "c")
    finished(run())
    assert found() == [0, 10, 30]


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_checkpoint_that_was_rolled_back_by_hand")
def test_a_query_that_counts_from_0_again_under_its_id_is_refused(world: World) -> None:
    """Both logs were deleted, and `metadata` was not."""
    source, target = world.queue(*range(10)), world.queue()

    def run(**more: object) -> Any:
        frame = world.stream(queue=source, hold="15m", **more).select("body")
        return world.into(frame, target, "c", exactlyOnce="true").trigger(availableNow=True).start()

    def lose() -> None:
        for log in ("offsets", "commits"):
            shutil.rmtree(world.folder / "c" / log)

    finished(run())
    newest = world.put_aside("c")
    world.publish(source, *range(10, 20))
    lose()
    value = new_checkpoint(failure_of(run()), "continue")
    lose()
    assert REFUSED in failure_of(run(newCheckpoint=value))
    lose()
    assert REFUSED in failure_of(run(group="another"))
    lose()
    world.mq.admin("group.seek", queue=source, group="etl", start="sequence:11")
    said = failure_of(run())
    assert REFUSED in said
    assert "delete the whole folder, with its file metadata" in said
    assert world.numbers(target) == list(range(10))
    world.put_back(newest, "c")
    finished(run())
    assert sorted(world.numbers(target)) == list(range(20)), "the newest checkpoint goes on"


@pytest.mark.long(
    covered_by="tests/unit/spark/read/test_empty.py::test_a_first_batch_without_rows_is_not_followed_by_one_of_its_number"
)
def test_a_query_that_began_on_an_empty_queue_and_counts_from_0_again_is_refused(world: World) -> None:
    """Batch 0 had no rows. The sink knows its number all the same."""
    source, target = world.queue(), world.queue()

    def run() -> Any:
        frame = world.stream(queue=source, hold="15m").select("body")
        return world.into(frame, target, "c", exactlyOnce="true").trigger(availableNow=True).start()

    finished(run())
    assert (world.folder / "c" / "commits" / "0").exists()
    newest = world.put_aside("c")
    world.publish(source, 1, 2)
    for log in ("offsets", "commits"):
        shutil.rmtree(world.folder / "c" / log)
    assert REFUSED in failure_of(run())
    assert world.committed(source) == 1
    world.put_back(newest, "c")
    finished(run())
    assert world.numbers(target) == [1, 2]


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_checkpoint_that_was_rolled_back_by_hand")
def test_a_group_that_was_sought_to_where_the_checkpoint_was_rolled_back(world: World) -> None:
    source = world.queue(*range(21))

    def run(limit: int) -> Any:
        frame = world.stream(queue=source, hold="15m", maxMessagesPerTrigger=limit).select("body")
        return world.files(frame, "c", "out")

    finished(run(7))
    newest = world.put_aside("c")
    world.roll_back("c", 1, 2)
    world.mq.admin("group.seek", queue=source, group="etl", start="sequence:8")
    world.publish(source, *range(21, 28))
    assert REFUSED in failure_of(run(100))
    world.put_back(newest, "c")
    world.mq.admin("group.seek", queue=source, group="etl", start="sequence:22")
    finished(run(100))
    assert numbers_in(world, "out") == list(range(28)), "where the newest checkpoint stands, it may be sought"


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_checkpoint_that_was_rolled_back_by_hand")
def test_an_old_checkpoint_that_is_put_back_does_not_repeat_the_batches_of_the_new_one(world: World) -> None:
    source, target = world.queue(*range(7)), world.queue()

    def run(**more: object) -> Any:
        frame = world.stream(queue=source, hold="15m", **more).select("body")
        return world.into(frame, target, "c", exactlyOnce="true").trigger(availableNow=True).start()

    finished(run())
    old = world.put_aside("c")
    shutil.rmtree(world.folder / "c")
    world.publish(source, *range(7, 14))
    value = new_checkpoint(failure_of(run()), "continue")
    shutil.rmtree(world.folder / "c")
    finished(run(newCheckpoint=value))
    new = world.put_aside("c")
    world.put_back(old, "c")
    said = failure_of(run())
    assert REFUSED in said
    assert "would have the rows that batch 0 of query" in said
    world.put_back(new, "c")
    world.publish(source, 14)
    finished(run())
    assert sorted(world.numbers(target)) == list(range(15))


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_sink_that_confuses_writes_is_noticed")
def test_writes_of_a_batch_that_were_changed_between_its_runs_are_refused(world: World) -> None:
    """Nothing but their order tells writes to one queue apart, and what they have."""
    source, target = world.queue(*range(5)), world.queue()

    def run(*selections: str, dies: bool = False) -> Any:
        def write(frame: Any, batch_id: int) -> None:
            for selection in selections:
                world.write(frame.where(selection), queue=target, exactlyOnce="true")
            assert not dies, "before the batch is done"

        frame = world.stream(queue=source).select("body")
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(world.folder / "c"))
        return writer.trigger(availableNow=True).start()

    good, bad = "body < '3'", "body >= '3'"
    assert "before the batch is done" in failure_of(run(good, bad, dies=True))
    said = failure_of(run(bad, good))
    assert "write 1 of batch 0 to queue" in said
    assert "that one had 3 rows, this one has 2" in said
    assert sorted(world.numbers(target)) == list(range(5))
    finished(run(good, bad))
    assert sorted(world.numbers(target)) == list(range(5))
