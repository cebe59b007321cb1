"""Checkpoints that are rolled back by hand: the batches are the same, or the query is refused."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, batches, facts
from vibemq.spark.errors import DataLoss, Refused
from vibemq.spark.read.offsets import QueuePosition
from vibemq.spark.read.plans import tag_of, text_of

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


@pytest.mark.parametrize("ack_on", ["auto", "commit", "never"])
def test_a_checkpoint_that_was_rolled_back_has_the_same_batches(
    broker: BrokerProcess, queue: str, publish: Publish, ack_on: str
) -> None:
    publish(queue, 0, 35)
    how: dict[str, object] = {"queue": queue, "hold": "15m", "ackOn": ack_on}
    query = Query(broker, **how, maxMessagesPerTrigger=7)
    done = batches(query, query.live.initialOffset(), 5)
    for _, end, _ in done[:-1]:
        query.live.commit(end)
    publish(queue, 35, 65)
    for back in (3, 0, 4):
        again = Query(broker, **how, maxMessagesPerTrigger=1000)
        for start, end, numbers in done[back:]:
            assert again.latest(start) == end, "whatever the limits and the backlog are now"
            assert again.numbers(start, end) == numbers
        assert again.batch(done[-1][1])[1] == list(range(35, 65))


def test_a_rolled_back_batch_is_the_same_for_available_now(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue, hold="15m", maxMessagesPerTrigger=6)
    ((start, end, numbers),) = batches(query, query.live.initialOffset(), 1)
    again = Query(broker, queue=queue)
    again.live.prepareForTriggerAvailableNow()
    assert again.latest(start) == end
    assert again.batch(end)[1] == [6, 7, 8, 9]
    assert numbers == [0, 1, 2, 3, 4, 5]


def test_another_version_of_spark_may_write_offsets_in_another_way(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """Keys in another order, numbers and text as they are: the same position, and the same plan."""
    mq.create_queue(f"{queue}.b", retention="log")
    for name in (queue, f"{queue}.b"):
        publish(name, 0, 4)
    how = {"queues": f"{queue},{queue}.b", "hold": "15m"}
    query = Query(broker, **how, maxMessagesPerTrigger=4)
    ((start, end, numbers), *_) = batches(query, query.live.initialOffset(), 2)

    def turned(offset: dict[str, Any]) -> dict[str, Any]:
        return {key: turned(value) if isinstance(value, dict) else value for key, value in reversed(offset.items())}

    again = Query(broker, **how)
    assert list(turned(start)) != list(start)
    assert again.batch(turned(start)) == (end, numbers)


def test_the_name_of_a_position_is_the_same_in_every_version() -> None:
    """Of this source: brokers keep plans under it."""
    positions = {"b": QueuePosition("2f", 7), "a": QueuePosition("1e", 1 << 40)}
    assert text_of(positions) == '{"q":{"a":{"i":"1e","s":1099511627776},"b":{"i":"2f","s":7}},"v":1}'
    assert tag_of(positions) == "6bd0822f1c80eedc"


def test_plans_survive_the_broker(broker_of_ones_own: BrokerProcess, publish_to: Any) -> None:
    broker = broker_of_ones_own
    publish_to(broker, "orders", 0, 10)
    query = Query(broker, queue="orders", hold="15m", maxMessagesPerTrigger=3)
    done = batches(query, query.live.initialOffset(), 2)
    planned = query.latest(done[-1][1])
    broker.kill()
    broker.start()
    publish_to(broker, "orders", 10, 30)
    again = Query(broker, queue="orders")
    for start, end, numbers in done:
        assert again.batch(start) == (end, numbers)
    assert again.latest(done[-1][1]) == planned, "it was durable before anybody saw it"


def test_a_rollback_beyond_the_hold_is_refused(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 9)
    query = Query(broker, queue=queue, maxMessagesPerTrigger=3)
    done = batches(query, query.live.initialOffset(), 3)
    with pytest.raises((DataLoss, Refused), match=r"acknowledged already|rolled back further than group 'etl'"):
        Query(broker, queue=queue).latest(done[0][0])


def test_a_start_that_nobody_planned_is_refused(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    """A copy of the checkpoint ran ahead elsewhere, or somebody wrote an offset by hand."""
    publish(queue, 0, 9)
    query = Query(broker, queue=queue, hold="15m", maxMessagesPerTrigger=3)
    done = batches(query, query.live.initialOffset(), 2)
    strange = copy.deepcopy(done[-1][1])
    strange["q"][queue]["s"] -= 1
    ahead = copy.deepcopy(done[-1][1])
    ahead["q"][queue]["s"] += 2
    for offset in (strange, ahead):
        for ack_on in ("auto", "commit"):
            other = Query(broker, queue=queue, ackOn=ack_on)
            other.live.commit(offset)
            with pytest.raises(Refused, match=r"rolled back further than group 'etl' remembers, or it is a copy"):
                other.latest(offset)
    assert facts(broker, queue)["committed"] == 7, "nothing is acknowledged for it"
    careless = Query(broker, queue=queue, failOnDataLoss="false")
    assert careless.batch(strange)[1] == [5, 6, 7, 8]


def test_a_rollback_of_several_queues(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    """One is idle, and keeps the plans."""
    for name in ("b", "c"):
        mq.create_queue(f"{queue}.{name}", retention="log")
    how = {"queues": f"{queue},{queue}.b,{queue}.c", "hold": "15m"}
    query = Query(broker, **how, maxMessagesPerTrigger=4)
    publish(f"{queue}.b", 0, 9)
    done = batches(query, query.live.initialOffset(), 3)
    assert facts(broker, queue)["plans"] >= 3
    for name in ("", ".b", ".c"):
        publish(f"{queue}{name}", 10, 20)
    again = Query(broker, **how)
    for start, end, numbers in done:
        assert again.batch(start) == (end, numbers)
    assert len(again.batch(done[-1][1])[1]) == 30


def test_a_rollback_to_before_a_queue_entered(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vibemq.spark.read.stream.DISCOVERY_S", 0.0)
    how = {"queuePattern": f"{queue}*", "hold": "15m"}
    query = Query(broker, **how)
    publish(queue, 0, 2)
    done = batches(query, query.live.initialOffset(), 1)
    mq.create_queue(f"{queue}.b", retention="log")
    publish(f"{queue}.b", 5, 7)
    done += batches(query, done[-1][1], 2)
    assert [numbers for _, _, numbers in done] == [[0, 1], [], [5, 6]]
    mq.create_queue(f"{queue}.a", retention="log")
    publish(f"{queue}.a", 8, 9)
    publish(queue, 2, 4)
    again = Query(broker, **how)
    for start, end, numbers in done:
        assert again.batch(start) == (end, numbers)
    (entered,) = batches(again, done[-1][1], 1)
    assert (entered[2], sorted(entered[1]["q"])) == ([], [queue, f"{queue}.a", f"{queue}.b"])
    assert sorted(again.batch(entered[1])[1]) == [2, 3, 8]
