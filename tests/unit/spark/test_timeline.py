"""What Spark calls, in Spark's order, against a real broker: who is acknowledged when, and what is read again."""

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, facts, options_of
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import OptionError, Refused, Unreachable
from vibemq.spark.options import parse

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


def at(offset: dict[str, Any], queue: str) -> int:
    return int(offset["q"][queue]["s"])


def test_the_last_batch_is_acknowledged_without_another_one(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    end, numbers = query.batch(start)
    assert numbers == list(range(10))
    assert facts(broker, queue)["committed"] == 1, "nothing is acknowledged while the batch may fail"
    assert query.latest(end) == end, "an idle query asks again"
    assert facts(broker, queue)["committed"] == 11


def test_ack_on_commit_waits_for_the_next_batch(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue, ackOn="commit")
    end, _ = query.batch(query.live.initialOffset())
    query.latest(end)
    assert facts(broker, queue)["committed"] == 1
    query.live.commit(end)
    assert facts(broker, queue)["committed"] == 11


def test_ack_on_never_moves_nothing(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue, ackOn="never")
    end, _ = query.batch(query.live.initialOffset())
    query.latest(end)
    query.live.commit(end)
    assert facts(broker, queue)["committed"] == 1


def test_a_crashed_batch_is_read_again_as_it_was(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    first = Query(broker, queue=queue, maxMessagesPerTrigger=4)
    start = first.live.initialOffset()
    end, numbers = first.batch(start)
    publish(queue, 10, 20)
    again = Query(broker, queue=queue, maxMessagesPerTrigger=4)
    assert again.live.initialOffset() == start, "batch 0's start is not in the checkpoint: it must not have moved"
    assert again.numbers(start, end) == numbers == [0, 1, 2, 3]
    assert again.batch(end)[1] == [4, 5, 6, 7]


def test_without_its_checkpoint_a_query_goes_on_at_the_cursor(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 10)
    first = Query(broker, queue=queue)
    first.latest(first.batch(first.live.initialOffset())[0])
    publish(queue, 10, 15)
    second = Query(broker, queue=queue)
    assert second.batch(second.live.initialOffset())[1] == [10, 11, 12, 13, 14]


def test_a_deleted_group_begins_where_the_checkpoint_stands(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 10)
    first = Query(broker, queue=queue, maxMessagesPerTrigger=4)
    end, _ = first.batch(first.live.initialOffset())
    BrokerClient(parse(options_of(broker))).call("group.delete", queue, {"group": "etl"})
    again = Query(broker, queue=queue, startingOffsets="latest")
    assert again.batch(end)[1] == [4, 5, 6, 7, 8, 9]
    assert facts(broker, queue)["committed"] == 5


@pytest.mark.parametrize(("start", "numbers"), [("earliest", [0, 1, 2, 3]), ("latest", []), ('{"Q": 3}', [2, 3])])
def test_where_a_new_group_begins(
    broker: BrokerProcess, queue: str, publish: Publish, start: str, numbers: list[int]
) -> None:
    publish(queue, 0, 4)
    query = Query(broker, queue=queue, startingOffsets=start.replace("Q", queue))
    assert query.batch(query.live.initialOffset())[1] == numbers


def test_a_new_group_may_begin_at_an_instant(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 2)
    time.sleep(0.01)  # Instants are milliseconds.
    now = int(time.time() * 1000)
    publish(queue, 2, 4)
    query = Query(broker, queue=queue, startingTimestamp=now)
    assert query.batch(query.live.initialOffset())[1] == [2, 3]


def test_limits_of_messages_and_bytes(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 100, size=1000)
    by_rows = Query(broker, queue=queue, maxMessagesPerTrigger=30)
    start = by_rows.live.initialOffset()
    assert by_rows.live.getDefaultReadLimit() == ReadMaxRows(30)
    assert at(by_rows.latest(start), queue) == 31
    both = Query(broker, queue=queue, maxMessagesPerTrigger=30, maxBytesPerTrigger="10k")
    assert 2 <= at(both.latest(start), queue) <= 12, "the byte limit holds too"
    assert at(both.latest(start, ReadMaxRows(3)), queue) == 4, "Spark's own limit wins"
    assert at(both.latest(start, ReadAllAvailable()), queue) == 101, "and so does none"
    assert at(Query(broker, queue=queue, maxBytesPerTrigger=1).latest(start), queue) == 2, "always one message"


def test_fewer_larger_batches(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 5)
    patient = Query(broker, queue=queue, minMessagesPerTrigger=8)
    start = patient.live.initialOffset()
    assert patient.latest(start) == start
    publish(queue, 5, 8)
    assert at(patient.latest(start), queue) == 9
    hasty = Query(broker, queue=queue, minMessagesPerTrigger=50, maxTriggerDelay="0")
    assert at(hasty.latest(start), queue) == 9


def test_available_now_reads_what_was_there(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue, maxMessagesPerTrigger=4)
    query.live.prepareForTriggerAvailableNow()
    publish(queue, 10, 20)
    offset, seen = query.live.initialOffset(), []
    while (end := query.latest(offset)) != offset:
        seen.append(query.numbers(offset, end))
        offset = end
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert facts(broker, queue)["committed"] == 11


def test_tasks_are_balanced_by_bytes(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 200, size=1000)
    query = Query(broker, queue=queue, targetPartitionBytes="50k", maxPartitions=64)
    start = query.live.initialOffset()
    tasks = query.live.partitions(start, query.latest(start))
    rows = [query.task(task) for task in tasks]
    assert 3 <= len(rows) <= 6
    assert [row["seq"] for task in rows for row in task] == list(range(1, 201))
    few = Query(broker, queue=queue, targetPartitionBytes="1g", minPartitions=2, maxPartitions=2)
    assert len(few.live.partitions(start, few.latest(start))) == 2


def test_nothing_to_read_is_no_task(broker: BrokerProcess, queue: str) -> None:
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    assert query.live.partitions(start, start) == []


def test_several_queues_share_the_limits(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    publish(queue, 0, 90)
    publish(f"{queue}.b", 100, 110)
    query = Query(broker, queues=f"{queue},{queue}.b", maxMessagesPerTrigger=50)
    start = query.live.initialOffset()
    end = query.latest(start)
    assert (at(end, queue), at(end, f"{queue}.b")) == (42, 9), "each by what it has"
    offset, seen = start, []
    while (end := query.latest(offset)) != offset:
        seen += query.numbers(offset, end)
        offset = end
    assert sorted(seen) == [*range(90), *range(100, 110)]


def test_a_pattern_takes_in_new_queues(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vibemq.spark.read.stream.DISCOVERY_S", 0.0)
    query = Query(broker, queuePattern=f"{queue}*")
    publish(queue, 0, 2)
    offset, numbers = query.batch(query.live.initialOffset())
    assert numbers == [0, 1]
    mq.create_queue(f"{queue}.new", retention="log")
    publish(f"{queue}.new", 5, 7)
    entered, numbers = query.batch(offset)
    assert (numbers, at(entered, f"{queue}.new")) == ([], 1), (
        "it enters in a batch without rows, so that its start is kept"
    )
    assert query.batch(entered)[1] == [5, 6]


def test_a_checkpoint_of_other_queues_is_refused(broker: BrokerProcess, mq: Any, queue: str) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    start = Query(broker, queue=queue).live.initialOffset()
    with pytest.raises(OptionError, match=f"checkpoint of other queues: it knows {queue},"):
        Query(broker, queue=f"{queue}.b").latest(start)


def test_the_older_query_of_a_group_is_fenced(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    older = Query(broker, queue=queue)
    end, _ = older.batch(older.live.initialOffset())
    newer = Query(broker, queue=queue)
    start = newer.live.initialOffset()
    older.live.commit(end)  # Says nothing, but in the log.
    with pytest.raises(Refused, match=r"group 'etl' of queue .* is another query's now"):
        older.latest(end)
    assert newer.batch(start)[1] == list(range(10)), "the newer one goes on"


@pytest.mark.parametrize("ack_on", ["commit", "never"])
def test_a_query_that_does_not_acknowledge_is_fenced_too(broker: BrokerProcess, queue: str, ack_on: str) -> None:
    older = Query(broker, queue=queue, ackOn=ack_on)
    start = older.live.initialOffset()
    assert older.latest(start) == start
    Query(broker, queue=queue).live.initialOffset()
    with pytest.raises(Refused, match="is another query's now"):
        older.latest(start)


def test_a_report_tells_the_lag(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    told = query.live.reportLatestOffset()["q"][queue]
    assert (told["s"], told["backlog"]) == (11, 10)
    assert told["bytes"] > 0
    query.latest(query.batch(start)[0])
    told = query.live.reportLatestOffset()["q"][queue]
    assert (told["backlog"], told["age_ms"]) == (0, 0)


def test_a_standstill_is_told_and_names_no_messages(
    broker: BrokerProcess, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(queue, 0, 10)
    for _ in range(3):
        query = Query(broker, queue=queue)
        query.batch(query.live.initialOffset())
    said = capfd.readouterr().err
    assert said.count("no progress: group 'etl'") == 1
    assert "If drivers were killed, nothing is wrong" in said
    assert "1-10" not in said
    BrokerClient(parse(options_of(broker))).call("group.quarantine", queue, {"group": "etl", "runs": [[3, 5]]})
    query = Query(broker, queue=queue)
    assert query.batch(query.live.initialOffset())[1] == [0, 1, 5, 6, 7, 8, 9]


def test_without_a_broker_every_call_says_where_it_looked(broker: BrokerProcess, queue: str) -> None:
    query = Query(broker, queue=queue, endpoint="127.0.0.1:1", retryTimeout="100ms")
    with pytest.raises(Unreachable, match=r"cannot reach the broker at 127.0.0.1:1: .*; gave up after 0.1 s"):
        query.live.initialOffset()
    query.live.commit({"q": {queue: {"i": "x", "s": 1}}, "v": 1})
    assert query.live.reportLatestOffset() is None


def test_the_second_endpoint_is_tried_when_the_first_is_silent(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 2)
    query = Query(broker, queue=queue, endpoint=f"127.0.0.1:1,127.0.0.1:{broker.port}")
    assert query.batch(query.live.initialOffset())[1] == [0, 1]
