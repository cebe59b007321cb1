"""Groups that were sought, deleted or made anew under a checkpoint."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, at, batches, entered, facts, options_of
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import DataLoss, Refused
from vibemq.spark.options import parse

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


def test_a_group_that_was_sought_does_not_follow_the_checkpoint(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    """An operator wants the messages again; the checkpoint would acknowledge them unread."""
    publish(queue, 0, 9)
    query = Query(broker, queue=queue, maxMessagesPerTrigger=3)
    done = batches(query, query.live.initialOffset(), 2)
    seek = {"group": "etl", "start": "earliest"}
    BrokerClient(parse(options_of(broker))).call("group.seek", queue, seek)
    with pytest.raises(Refused, match="is another query's now, or an operator has moved it"):
        query.latest(done[-1][1])
    with pytest.raises(DataLoss, match=r"stands at 1, the checkpoint at 7.*begin with a new one"):
        Query(broker, queue=queue).latest(done[-1][1])
    assert facts(broker, queue)["committed"] == 1
    anew = Query(broker, queue=queue)
    assert anew.batch(anew.live.initialOffset())[1] == list(range(9)), "without the checkpoint it reads them"
    BrokerClient(parse(options_of(broker))).call("group.seek", queue, {"group": "etl", "start": "sequence:7"})
    assert Query(broker, queue=queue).batch(done[-1][1])[1] == [6, 7, 8]


def test_a_group_that_was_sought_past_the_checkpoint_is_told_as_one(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    """An operator skips messages; nobody has acknowledged them."""
    publish(queue, 0, 9)
    query = Query(broker, queue=queue, maxMessagesPerTrigger=3)
    ((_, end, _),) = batches(query, query.live.initialOffset(), 1)
    seek = {"group": "etl", "start": "sequence:8"}
    BrokerClient(parse(options_of(broker))).call("group.seek", queue, seek)
    with pytest.raises(DataLoss, match=r"stands at 8, the checkpoint at 4: an operator has moved the group"):
        Query(broker, queue=queue).latest(end)
    careless = Query(broker, queue=queue, failOnDataLoss="false")
    behind, numbers = careless.batch(end)
    assert (numbers, careless.batch(behind)[1]) == ([], [7, 8])


def test_a_checkpoint_of_a_deleted_group_is_refused(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    """Nobody held messages for it, and how its batches were cut is forgotten."""
    publish(queue, 0, 10)
    first = Query(broker, queue=queue, maxMessagesPerTrigger=4)
    end, _ = first.batch(first.live.initialOffset())
    BrokerClient(parse(options_of(broker))).call("group.delete", queue, {"group": "etl"})
    with pytest.raises(Refused, match="its group was deleted: messages may have gone meanwhile"):
        Query(broker, queue=queue).latest(end)
    careless = Query(broker, queue=queue, startingOffsets="latest", failOnDataLoss="false")
    assert careless.batch(end)[1] == [4, 5, 6, 7, 8, 9]
    assert facts(broker, queue)["committed"] == 5


@pytest.mark.parametrize("published", [0, 5])
def test_the_first_batch_is_not_repeated_by_a_group_made_anew(
    broker: BrokerProcess, queue: str, publish: Publish, published: int
) -> None:
    """Its start is in no checkpoint: the new group begins behind what the batch was to read."""
    publish(queue, 0, 4)
    how = {"queue": queue, "startingOffsets": "latest"}
    first = Query(broker, **how)
    start = first.live.initialOffset()
    publish(queue, 4, 10)
    end, numbers = first.batch(start)
    assert numbers == [4, 5, 6, 7, 8, 9]
    again = Query(broker, **how)
    assert again.numbers(again.live.initialOffset(), end) == numbers, "Spark does not ask for the end again"
    BrokerClient(parse(options_of(broker))).call("group.delete", queue, {"group": "etl"})
    publish(queue, 10, 10 + published)
    anew = Query(broker, **how)
    with pytest.raises(DataLoss, match=r"has planned its first batch, and group 'etl' .* does not know it"):
        anew.rows(anew.live.initialOffset(), end)
    careless = Query(broker, **how, failOnDataLoss="false")
    assert careless.rows(careless.live.initialOffset(), end) == []


def test_the_first_batch_is_not_repeated_by_a_group_that_was_sought(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 4)
    first = Query(broker, queue=queue, maxMessagesPerTrigger=2)
    end, _ = first.batch(first.live.initialOffset())
    BrokerClient(parse(options_of(broker))).call("group.seek", queue, {"group": "etl", "start": "sequence:2"})
    again = Query(broker, queue=queue)
    with pytest.raises(DataLoss, match=r"has planned its first batch, and group 'etl' .* does not know it"):
        again.rows(again.live.initialOffset(), end)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_any_queue_of_a_query_that_was_sought_is_noticed(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, acknowledged: bool
) -> None:
    """The second queue keeps no plans of the query."""
    second = f"{queue}.b"
    mq.create_queue(second, retention="log")
    how = {"queues": f"{queue},{second}"}
    for name in (queue, second):
        publish(name, 0, 3)
    query = Query(broker, **how)
    start = query.live.initialOffset()
    end, numbers = query.batch(start)
    assert numbers == [0, 1, 2, 0, 1, 2]
    if acknowledged:
        query.latest(end)
    again = Query(broker, **how)
    assert again.latest(end) == end, "whether the last batch was acknowledged or not"
    BrokerClient(parse(options_of(broker))).call("group.seek", second, {"group": "etl", "start": "sequence:2"})
    with pytest.raises(Refused, match="is another query's now, or an operator has moved it"):
        again.latest(end)
    with pytest.raises(DataLoss, match=r"stands at 2, the checkpoint at 4.*begin with a new one"):
        Query(broker, **how).latest(end)
    repeats = Query(broker, **how)
    assert repeats.live.partitions(start, end), "the batch was planned and not finished"
    with pytest.raises(DataLoss, match=r"stands at 2, the checkpoint at 4.*begin with a new one"):
        repeats.latest(end)
    assert facts(broker, second)["committed"] == 2


@pytest.mark.parametrize("ack_on", ["auto", "commit", "never"])
def test_a_seek_does_not_count_any_more_when_a_checkpoint_has_gone_on_there(
    broker: BrokerProcess, queue: str, publish: Publish, ack_on: str
) -> None:
    """The sink has batches of the query, and a new one would count from 0."""
    publish(queue, 0, 3)
    query = Query(broker, queue=queue)
    end, _ = query.batch(query.live.initialOffset())
    query.latest(end)
    seek = {"group": "etl", "start": f"sequence:{at(end, queue)}"}
    BrokerClient(parse(options_of(broker))).call("group.seek", queue, seek)
    assert Query(broker, queue=queue, ackOn=ack_on).latest(end) == end
    publish(queue, 3, 5)
    with pytest.raises(Refused, match="this query has no checkpoint"):
        Query(broker, queue=queue).live.initialOffset()


def test_a_query_does_not_go_in_a_circle_when_its_queue_is_made_anew(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """Its first batch had no rows and is not done: Spark asks for its tasks, with a start in the new queue."""
    end = Query(broker, queue=queue).live.initialOffset()
    mq.delete_queue(queue)
    mq.create_queue(queue, retention="log")
    publish(queue, 0, 2)
    careless = Query(broker, queue=queue, failOnDataLoss="false")
    assert careless.rows(careless.live.initialOffset(), end) == []
    new_queue, numbers = careless.batch(end)
    assert (numbers, careless.batch(new_queue)[1]) == ([], [0, 1])


def test_a_first_batch_is_read_but_for_a_queue_that_was_made_anew(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """It was planned and noted, and nobody has read it."""
    mq.create_queue(f"{queue}.b", retention="log")
    publish(queue, 0, 2)
    how = {"queues": f"{queue},{queue}.b"}
    query = Query(broker, **how)
    end = query.latest(query.live.initialOffset())
    mq.delete_queue(f"{queue}.b")
    mq.create_queue(f"{queue}.b", retention="log")
    publish(f"{queue}.b", 2, 4)
    careless = Query(broker, **how, failOnDataLoss="false")
    assert careless.numbers(careless.live.initialOffset(), end) == [0, 1]
    new_queue, numbers = careless.batch(end)
    assert (numbers, careless.batch(new_queue)[1]) == ([], [2, 3])


def test_a_batch_that_was_read_goes_on_without_the_queue_that_kept_its_plan(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    publish(f"{queue}.b", 0, 2)
    query = Query(broker, queuePattern=f"{queue}*")
    start = query.live.initialOffset()
    end = query.latest(start)
    entered(broker, query, (start, end), f"of-{queue}")
    mq.delete_queue(queue)
    strict = Query(broker, queuePattern=f"{queue}*")
    start = strict.live.initialOffset()
    with pytest.raises(DataLoss):
        strict.live.partitions(start, end)
    careless = Query(broker, queuePattern=f"{queue}*", failOnDataLoss="false")
    entered(broker, careless, (careless.live.initialOffset(), end), f"of-{queue}")
