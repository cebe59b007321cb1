"""Where groups begin and batches end."""

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, at, facts, publish_at_three_instants
from vibemq.spark.errors import DataLoss

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


@pytest.mark.parametrize(("start", "numbers"), [("earliest", [0, 1, 2, 3]), ("latest", []), ('{"Q": 3}', [2, 3])])
def test_where_a_new_group_begins(
    broker: BrokerProcess, queue: str, publish: Publish, start: str, numbers: list[int]
) -> None:
    publish(queue, 0, 4)
    query = Query(broker, queue=queue, startingOffsets=start.replace("Q", queue))
    assert query.batch(query.live.initialOffset())[1] == numbers


def test_a_group_that_begins_behind_the_end_of_its_queue_is_told_once(
    broker: BrokerProcess, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    """An idle query polls several times a second."""
    publish(queue, 0, 4)
    how = {"queue": queue, "startingOffsets": f'{{"{queue}": 7}}'}
    query = Query(broker, **how)
    start = query.live.initialOffset()
    with pytest.raises(DataLoss, match="ends at 5, and the query stands at 7"):
        query.latest(start)
    careless = Query(broker, **how, failOnDataLoss="false")
    for _ in range(3):
        assert careless.latest(start) == start
    assert capfd.readouterr().err.count("ends at 5, and the query stands at 7") == 1
    publish(queue, 4, 8)
    assert careless.batch(start)[1] == [6, 7]


def test_a_new_group_may_begin_at_an_instant(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    _, (second, *numbers), (_, *later) = publish_at_three_instants(broker, publish, queue)
    query = Query(broker, queue=queue, startingTimestamp=second)
    assert query.batch(query.live.initialOffset())[1] == [*numbers, *later]


def test_limits_of_messages_and_bytes(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 100, size=1000)
    assert Query(broker, queue=queue, maxMessagesPerTrigger=30).live.getDefaultReadLimit() == ReadMaxRows(30)

    def first_end(limit: Any = None, **more: object) -> int:
        """Of a group of its own: how a group's batches are cut stays as it is."""
        query = Query(broker, queue=queue, group=f"etl-{next(groups)}", **more)
        return at(query.latest(query.live.initialOffset(), limit), queue)

    groups = count()
    assert first_end(maxMessagesPerTrigger=30) == 31
    both: dict[str, object] = {"maxMessagesPerTrigger": 30, "maxBytesPerTrigger": "10k"}
    assert 2 <= first_end(**both) <= 12, "the byte limit holds too"
    assert first_end(ReadMaxRows(3), **both) == 4, "Spark's own limit wins"
    assert first_end(ReadAllAvailable(), **both) == 101, "and so does none"
    assert first_end(maxBytesPerTrigger=1) == 2, "always one message"


@pytest.mark.parametrize("limits", [{}, {"maxMessagesPerTrigger": 0, "maxBytesPerTrigger": 0}])
def test_fewer_larger_batches(broker: BrokerProcess, queue: str, publish: Publish, limits: dict[str, object]) -> None:
    publish(queue, 0, 5)
    patient = Query(broker, queue=queue, minMessagesPerTrigger=8, **limits)
    start = patient.live.initialOffset()
    assert patient.latest(start) == start
    publish(queue, 5, 8)
    assert at(patient.latest(start), queue) == 9
    hasty = Query(broker, queue=queue, minMessagesPerTrigger=50, maxTriggerDelay="0")
    assert at(hasty.latest(start), queue) == 9


def test_a_batch_that_another_limit_cuts_is_not_too_small(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    publish(queue, 0, 20, size=1000)
    by_bytes = Query(broker, queue=queue, minMessagesPerTrigger=10, maxBytesPerTrigger="5k")
    start = by_bytes.live.initialOffset()
    assert 2 < at(by_bytes.latest(start), queue) < 10
    publish(f"{queue}.b", 100, 110)
    queues = f"{queue},{queue}.b"
    shared = Query(broker, queues=queues, group="both", minMessagesPerTrigger=7, maxMessagesPerTrigger=7)
    start = shared.live.initialOffset()
    assert len(shared.batch(start)[1]) == 6, "each queue's share is rounded down"


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


def test_an_idle_poll_of_more_queues_than_can_be_waited_for_takes_no_longer(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    monkeypatch.setattr("vibemq.spark.read.admission.VERBS_AT_ONCE", 1)
    pauses: list[float] = []
    monkeypatch.setattr("vibemq.spark.read.admission.time", SimpleNamespace(sleep=pauses.append))
    query = Query(broker, queues=f"{queue},{queue}.b", pollTimeout="250ms")
    start = query.live.initialOffset()
    assert query.latest(start) == start
    assert pauses == [0.25], "one wait for all"
    publish(queue, 0, 3)
    assert query.batch(start)[1] == [0, 1, 2]
