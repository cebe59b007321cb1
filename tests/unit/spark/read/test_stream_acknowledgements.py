"""Who is acknowledged when, and what is read again. Spark's calls in Spark's order, against a real broker."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, facts
from vibemq.spark.errors import Refused, Unreachable
from vibemq.spark.read.cursors import QueryCursors

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


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


def test_what_was_acknowledged_is_not_acknowledged_again_by_the_commit_that_follows(
    broker_of_ones_own: BrokerProcess, publish_to: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_to(broker_of_ones_own, "orders", 0, 10)
    query = Query(broker_of_ones_own, queue="orders", maxMessagesPerTrigger=4)
    end, _ = query.batch(query.live.initialOffset())
    after, _ = query.batch(end)
    assert facts(broker_of_ones_own, "orders")["committed"] == 5
    broker_of_ones_own.kill()
    query.live.commit(end)
    assert capsys.readouterr().err == "", "Spark commits what the batch began with: nobody is asked"
    query.live.commit(after)
    assert "waits for the next batch" in capsys.readouterr().err


def test_a_broker_that_is_away_is_waited_for_once(
    broker_of_ones_own: BrokerProcess, publish_to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledgement that was asked for would be waited for as long again."""
    publish_to(broker_of_ones_own, "orders", 0, 10)
    query = Query(broker_of_ones_own, queue="orders", retryTimeout="0")
    end, _ = query.batch(query.live.initialOffset())
    query.latest(end)
    waits: list[Any] = []
    monkeypatch.setattr(QueryCursors, "acknowledged", lambda cursors, asked: waits.append(asked))
    query.latest(end)
    broker_of_ones_own.kill()
    with pytest.raises(Unreachable, match="cannot reach the broker"):
        query.latest(end)
    assert len(waits) == 1, "of the poll before"


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


def test_a_query_that_never_acknowledges_cuts_the_same_batches_without_its_checkpoint(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 10)
    first = Query(broker, queue=queue, ackOn="never", maxMessagesPerTrigger=4)
    offset = first.live.initialOffset()
    seen = []
    for _ in range(3):
        offset, numbers = first.batch(offset)
        seen.append(numbers)
    publish(queue, 10, 20)
    again = Query(broker, queue=queue, ackOn="never", maxMessagesPerTrigger=7)
    offset = again.live.initialOffset()
    for numbers in seen:
        offset, found = again.batch(offset)
        assert found == numbers


def test_a_batch_that_nobody_has_read_is_acknowledged_only_if_that_is_allowed(
    broker: BrokerProcess, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark asks for its tasks and runs none, as in a join with an empty table."""
    publish(queue, 0, 3)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    end = query.latest(start)
    assert query.live.partitions(start, end)
    publish(queue, 3, 5)
    for _ in range(2):
        with pytest.raises(Refused, match=r"a join with a table that has no rows.*set unreadBatches=allow") as refused:
            query.latest(end)
        assert refused.value.code == "BATCH_CHANGED"
        assert facts(broker, queue)["committed"] == 1
        query = Query(broker, queue=queue)
    assert Query(broker, queue=queue, unreadBatches="allow").batch(end)[1] == [3, 4]
    assert facts(broker, queue)["committed"] == 4
    assert "no task has read it (unreadBatches=allow)" in capfd.readouterr().err


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


def test_a_report_asks_all_queues_at_once_and_leaves_out_those_that_have_not_entered(
    broker: BrokerProcess,
    mq: Any,
    queue: str,
    publish: Publish,
    monkeypatch: pytest.MonkeyPatch,
    asked_and_answered: list[str],
) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    publish(f"{queue}.b", 0, 3)
    query = Query(broker, queuePattern=f"{queue}*")
    query.live.prepareForTriggerAvailableNow()
    start = query.live.initialOffset()
    mq.create_queue(f"{queue}.c", retention="log")
    monkeypatch.setattr("vibemq.spark.read.stream.DISCOVERY_S", 0.0)
    query.latest(start)
    asked_and_answered.clear()
    found = query.live.reportLatestOffset()["q"]
    assert {name: entry["backlog"] for name, entry in found.items()} == {queue: 0, f"{queue}.b": 3}
    assert asked_and_answered == ["ask"] * 3 + ["answer"] * 3
