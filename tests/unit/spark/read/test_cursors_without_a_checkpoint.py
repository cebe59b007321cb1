"""Queries that have lost their checkpoints: what `newCheckpoint` decides, and for which loss."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, entered, facts, new_checkpoint, options_of, refused
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused
from vibemq.spark.options import parse

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


def test_without_its_checkpoint_a_query_says_what_it_wants(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    first = Query(broker, queue=queue, hold="10m", maxMessagesPerTrigger=4)
    end, _ = first.batch(first.live.initialOffset())
    first.latest(end)
    for _ in range(2):
        with pytest.raises(
            Refused, match=r"no checkpoint, but group 'etl' .* newCheckpoint=replay:.*newCheckpoint=continue:"
        ):
            Query(broker, queue=queue).live.initialOffset()
    assert first.batch(end)[1] == [4, 5, 6, 7], "whoever has the checkpoint goes on"
    value = refused(broker, queue, "continue")
    for number in (1, 2):
        at_the_cursor = Query(broker, queue=queue, newCheckpoint=value, maxMessagesPerTrigger=3 * number)
        found = at_the_cursor.batch(at_the_cursor.live.initialOffset())
        assert found[1] == [4, 5, 6], "a crash in the first batch changes nothing"
    at_the_cursor.latest(found[0])
    replay = Query(broker, queue=queue, newCheckpoint=refused(broker, queue, "replay"))
    start = replay.live.initialOffset()
    assert replay.batch(start)[1] == list(range(10))
    assert Query(broker, queue=queue).live.initialOffset() == start, "the first batch is not acknowledged yet"


@pytest.mark.parametrize("how", ["continue", "replay"])
def test_an_option_that_was_heeded_and_forgotten_does_not_count_again(
    broker: BrokerProcess, queue: str, publish: Publish, how: str
) -> None:
    """Also where the group stands exactly as it did when the checkpoint was lost the first time."""
    publish(queue, 0, 6)
    first = Query(broker, queue=queue, hold="10m")
    end, _ = first.batch(first.live.initialOffset())
    first.latest(end)
    value = refused(broker, queue, how)
    second = Query(broker, queue=queue, newCheckpoint=value)
    start = second.live.initialOffset()
    if how == "continue":
        publish(queue, 6, 8)
    end, numbers = second.batch(start)
    assert numbers == ([6, 7] if how == "continue" else list(range(6)))
    second.latest(end)
    assert second.latest(end) == end, "with its checkpoint a query does not mind the option"
    before = facts(broker, queue)["committed"]
    again = refused(broker, queue, value)
    assert again != value
    assert Query(broker, queue=queue, newCheckpoint=value).latest(end) == end
    with pytest.raises(Refused, match=f"newCheckpoint={value} does not count: it was for an earlier loss"):
        Query(broker, queue=queue, newCheckpoint=value).live.initialOffset()
    with pytest.raises(Refused, match=f"newCheckpoint={how} does not say for which loss"):
        Query(broker, queue=queue, newCheckpoint=how).live.initialOffset()
    assert facts(broker, queue)["committed"] == before
    third = Query(broker, queue=queue, newCheckpoint=refused(broker, queue, value))
    assert third.live.initialOffset()["q"][queue]["s"] == (before if how == "continue" else 1)


def test_a_reader_that_comes_between_makes_a_decision_void(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 6)
    first = Query(broker, queue=queue, hold="10m", maxMessagesPerTrigger=3)
    end, _ = first.batch(first.live.initialOffset())
    first.latest(end)
    value = refused(broker, queue, "replay")
    assert Query(broker, queue=queue).batch(end)[1] == [3, 4, 5], "the checkpoint was found again, and is lost again"
    assert refused(broker, queue, value) != value


def test_a_decision_is_for_all_queues_of_a_query(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    other, unread = f"{queue}.b", f"{queue}.c"
    for name in (other, unread):
        mq.create_queue(name, retention="log")
    for name in (queue, other):
        publish(name, 0, 4)
    both = f"{queue},{other},{unread}"
    first = Query(broker, queues=both, hold="10m")
    end, _ = first.batch(first.live.initialOffset())
    first.latest(end)
    lost = Query(broker, queues=both, newCheckpoint="replay")
    with pytest.raises(Refused, match=f"group 'etl' of queues '{queue}', '{other}' has been read") as error:
        lost.live.initialOffset()
    value = new_checkpoint(error.value, "replay")
    assert refused(broker, other, value) != value, "one of them alone is another decision"
    for _ in range(2):
        anew = Query(broker, queues=both, newCheckpoint=value)
        assert sorted(anew.batch(anew.live.initialOffset())[1]) == sorted([*range(4), *range(4)])


@pytest.mark.parametrize(("how", "expected"), [("continue", [6]), ("replay", [0, 1, 2, 3, 4, 5, 6])])
def test_a_decision_is_also_for_a_queue_in_which_nothing_has_moved(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, how: str, expected: list[int]
) -> None:
    """The first queue keeps the plans of all, and has had nothing new since the first decision."""
    other = f"{queue}.b"
    mq.create_queue(other, retention="log")
    publish(queue, 0, 2)
    publish(other, 2, 4)
    value = "refuse"
    for word, first in (("continue", 4), (how, 6)):
        query = Query(broker, queues=f"{queue},{other}", hold="10m", newCheckpoint=value)
        end, _ = query.batch(query.live.initialOffset())
        query.latest(end)
        publish(other, first, first + (2 if first == 4 else 1))
        with pytest.raises(Refused) as error:
            Query(broker, queues=f"{queue},{other}", newCheckpoint=value).live.initialOffset()
        value = new_checkpoint(error.value, word)
    for _ in range(2):
        anew = Query(broker, queues=f"{queue},{other}", newCheckpoint=value)
        assert sorted(anew.batch(anew.live.initialOffset())[1]) == expected, "a crash in the first batch"


def test_a_decision_that_was_heeded_in_half_is_asked_for_again(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """The driver died when it had joined the first of two queues."""
    other = f"{queue}.b"
    mq.create_queue(other, retention="log")
    for name in (queue, other):
        publish(name, 0, 4)
    first = Query(broker, queues=f"{queue},{other}", hold="10m")
    end, _ = first.batch(first.live.initialOffset())
    first.latest(end)
    with pytest.raises(Refused) as error:
        Query(broker, queues=f"{queue},{other}").live.initialOffset()
    value = new_checkpoint(error.value, "replay")
    join = {"group": "etl", "begin": "replay", "begin_epoch": facts(broker, queue)["epoch"]}
    BrokerClient(parse(options_of(broker))).call("group.join", queue, join)
    with pytest.raises(Refused, match=f"group 'etl' of queue '{other}' has been read") as error:
        Query(broker, queues=f"{queue},{other}", newCheckpoint=value).live.initialOffset()
    anew = Query(broker, queues=f"{queue},{other}", newCheckpoint=new_checkpoint(error.value, "replay"))
    assert sorted(anew.batch(anew.live.initialOffset())[1]) == sorted([*range(4), *range(4)])


def test_a_group_that_is_sought_is_read_from_there_without_a_checkpoint_once(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 6)
    query = Query(broker, queue=queue, hold="10m")
    for first in (5, 3):
        end, _ = query.batch(query.live.initialOffset())
        query.latest(end)
        value = refused(broker, queue, "continue")
        BrokerClient(parse(options_of(broker))).call(
            "group.seek", queue, {"group": "etl", "start": f"sequence:{first}"}
        )
        for option in ("refuse", value):
            query = Query(broker, queue=queue, newCheckpoint=option)
            assert query.batch(query.live.initialOffset())[1] == list(range(first - 1, 6))


def test_a_query_without_a_checkpoint_begins_though_the_broker_is_killed_before_its_first_task(
    broker_of_ones_own: BrokerProcess, publish_to: Any
) -> None:
    """Another query had read the batch, and lost its checkpoint before it was acknowledged."""
    broker = broker_of_ones_own
    publish_to(broker, "orders", 0, 4)
    for name in ("lost", "new"):
        query = Query(broker, queue="orders", maxMessagesPerTrigger=2)
        start = query.live.initialOffset()
        end = query.latest(start)
        if name == "new":
            broker.kill()
            broker.start()
        entered(broker, query, (start, end), name)
    entered(broker, query, (start, end), "new")
    again = Query(broker, queue="orders")
    again.latest(start)
    with pytest.raises(Refused, match="would have the rows that batch 0 of query new had"):
        entered(broker, again, (start, end), "lost")
