"""Batches without rows, and first batches: their starts are in no checkpoint."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, at, entered, facts, options_of
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused
from vibemq.spark.options import parse

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


def test_batches_without_rows_that_count_twice_are_forgotten_by_a_seek(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    """The checkpoint was rolled back to batch 0; batches 1 and 2 were repeated, and the query was started again."""
    query_id = f"of-{queue}"
    publish(queue, 0, 2)
    query = Query(broker, queue=queue, hold="15m")
    start = query.live.initialOffset()
    end = query.latest(start)
    entered(broker, query, (start, end), query_id)
    for again in (query, Query(broker, queue=queue, hold="15m")):
        for _ in range(2):
            assert again.latest(end) == end
            again.live.commit(end)
    publish(queue, 2, 4)
    third = Query(broker, queue=queue, hold="15m")
    after = third.latest(end)
    with pytest.raises(Refused, match=r"as far as is known.*with `vibemq-admin group seek`: that forgets"):
        entered(broker, third, (end, after), query_id, 3)
    seek = {"group": "etl", "start": f"sequence:{at(end, queue)}"}
    BrokerClient(parse(options_of(broker))).call("group.seek", queue, seek)
    fourth = Query(broker, queue=queue, hold="15m")
    entered(broker, fourth, (end, after), query_id, 3)
    assert fourth.latest(after) == after
    assert facts(broker, queue)["committed"] == 5


def test_the_first_batch_of_a_pattern_is_repeated_when_queues_have_come(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 4)
    how = {"queuePattern": f"{queue}*"}
    first = Query(broker, **how)
    end, numbers = first.batch(first.live.initialOffset())
    mq.create_queue(f"{queue}.b", retention="log")
    publish(f"{queue}.b", 4, 6)
    again = Query(broker, **how)
    assert again.numbers(again.live.initialOffset(), end) == numbers
    entered, numbers = again.batch(end)
    assert (numbers, again.batch(entered)[1]) == ([], [4, 5])


def test_a_first_batch_that_was_planned_and_never_noted_takes_in_queues_that_have_come(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """The driver was killed before Spark had written the plan; nobody has read anything."""
    publish(queue, 0, 2)
    how = {"queuePattern": f"{queue}*"}
    first = Query(broker, **how)
    first.latest(first.live.initialOffset())
    mq.create_queue(f"{queue}.b", retention="log")
    publish(f"{queue}.b", 2, 4)
    for _ in range(2):
        again = Query(broker, **how)
        start = again.live.initialOffset()
        end = again.latest(start)
    assert sorted(again.numbers(start, end)) == [0, 1, 2, 3]
    mq.create_queue(f"{queue}.c", retention="log")
    lost = Query(broker, **how)
    with pytest.raises(Refused, match=r"query without a checkpoint.*move the group in each queue with .*group seek"):
        lost.latest(lost.live.initialOffset())
    for name in (queue, f"{queue}.b", f"{queue}.c"):
        BrokerClient(parse(options_of(broker))).call("group.seek", name, {"group": "etl", "start": "earliest"})
    sought = Query(broker, **how)
    assert sorted(sought.batch(sought.live.initialOffset())[1]) == [0, 1, 2, 3]


def test_an_empty_first_batch_is_repeated(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    """Another source of the query had rows."""
    publish(queue, 0, 4)
    start = Query(broker, queue=queue, startingOffsets="latest").live.initialOffset()
    again = Query(broker, queue=queue, startingOffsets="latest")
    assert again.live.initialOffset() == start
    assert again.rows(start, start) == []


def test_a_first_batch_without_rows(broker: BrokerProcess, queue: str) -> None:
    """Spark runs it, and asks for its start once more when it has planned it."""
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    end = query.live.latestOffset(start, query.live.getDefaultReadLimit())
    assert end == start
    assert query.live.initialOffset() == start
    assert query.rows(start, end) == []


def test_a_first_batch_without_rows_is_not_followed_by_one_of_its_number(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    """The checkpoint was rolled back to its beginning. A query with another id begins."""
    query_id, another_id = f"of-{queue}", f"another-{queue}"
    query = Query(broker, queue=queue, hold="15m")
    start = query.live.initialOffset()
    assert query.latest(start) == start
    entered(broker, query, (start, start), query_id)
    again = Query(broker, queue=queue, hold="15m")
    assert again.live.initialOffset() == start
    entered(broker, again, (start, start), query_id)
    publish(queue, 0, 2)
    back = Query(broker, queue=queue, hold="15m")
    assert back.live.initialOffset() == start
    end = back.latest(start)
    with pytest.raises(Refused, match=r"batch 0 of query \S+ was run before.*these rows were planned later"):
        entered(broker, back, (start, end), query_id)
    entered(broker, back, (start, end), query_id, batch=1)
    other = Query(broker, queue=queue, hold="15m")
    assert other.live.initialOffset() == start
    entered(broker, other, (start, other.latest(start)), another_id)


def test_a_first_batch_without_rows_is_one_task_that_reads_nothing(broker: BrokerProcess, queue: str) -> None:
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    assert query.latest(start) == start
    [task] = query.live.partitions(start, start)
    assert task.value["first"] == task.value["end"]
    assert query.numbers(start, start) == []
