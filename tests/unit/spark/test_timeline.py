"""What Spark calls, in Spark's order, against a real broker: who is acknowledged when, and what is read again."""

import copy
import time
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, facts, new_checkpoint, options_of, publish_at_three_instants
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import DataLoss, OptionError, Refused, Unreachable
from vibemq.spark.options import STREAM, parse
from vibemq.spark.read.fetching import read_task
from vibemq.spark.read.numbering import enter_batch
from vibemq.spark.read.offsets import QueuePosition
from vibemq.spark.read.plans import tag_of, text_of
from vibemq.spark.schema import read_schema

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


def refused(broker: BrokerProcess, queue: str, how: str, **more: object) -> str:
    """A query without its checkpoint; the value of `newCheckpoint` that it prints."""
    query = Query(broker, queue=queue, **{"newCheckpoint": how, **more})
    with pytest.raises(Refused, match="this query has no checkpoint") as error:
        query.live.initialOffset()
    return new_checkpoint(error.value, how.partition(":")[0])


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


def entered(
    broker: BrokerProcess, query: Query, offsets: tuple[dict[str, Any], dict[str, Any]], name: str, batch: int = 0
) -> None:
    """The tasks of that batch of the query with that id begin. The broker counts batches by the id, whatever the queue,
    so that each test takes ids of its own."""
    client = BrokerClient(parse(options_of(broker)))
    for task in query.live.partitions(*offsets):
        enter_batch(client, "etl", task.value["batch"], name, batch)


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


# -- checkpoints that are rolled back by hand -------------------------------------------------------------------------


def batches(query: Query, start: dict[str, Any], count: int) -> list[tuple[dict[str, Any], dict[str, Any], list[int]]]:
    """(start, end, numbers) of each; everything before the last end is acknowledged."""
    found = []
    for _ in range(count):
        end, numbers = query.batch(start)
        found.append((start, end, numbers))
        start = end
    query.latest(start)
    return found


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


@pytest.mark.parametrize(("start", "numbers"), [("earliest", [0, 1, 2, 3]), ("latest", []), ('{"Q": 3}', [2, 3])])
def test_where_a_new_group_begins(
    broker: BrokerProcess, queue: str, publish: Publish, start: str, numbers: list[int]
) -> None:
    publish(queue, 0, 4)
    query = Query(broker, queue=queue, startingOffsets=start.replace("Q", queue))
    assert query.batch(query.live.initialOffset())[1] == numbers


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


def test_all_queues_are_asked_for_their_tasks_before_an_answer_is_waited_for(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [queue, f"{queue}.b", f"{queue}.c"]
    for name in names[1:]:
        mq.create_queue(name, retention="log")
    for name in names:
        publish(name, 0, 3)
    query = Query(broker, queues=",".join(names))
    start = query.live.initialOffset()
    end = query.latest(start)
    query.live.partitions(start, end)
    seen: list[str] = []
    for word in ("ask", "answer"):
        real = getattr(BrokerClient, word)

        def told(*arguments: Any, word: str = word, real: Any = real, **more: Any) -> Any:
            seen.append(word)
            return real(*arguments, **more)

        monkeypatch.setattr(BrokerClient, word, told)
    assert len(query.live.partitions(start, end)) == 3
    assert seen == ["ask"] * 3 + ["answer"] * 3


def test_what_a_batch_asks_goes_out_before_an_answer_is_waited_for(
    broker: BrokerProcess, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait is part of every trigger, however short the batch is."""
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    for number in range(2):
        publish(queue, number, number + 1)
        # From the third batch on nobody asks any more whether the batch before was read.
        start, numbers = query.batch(start)
        assert numbers == [number]
    publish(queue, 3, 6)
    seen: list[str] = []
    ask, wait = BrokerClient.ask_verb, BrokerClient.answer

    def asked(self: Any, verb: str, *arguments: Any, **more: Any) -> Any:
        seen.append(verb)
        return ask(self, verb, *arguments, **more)

    def waited(self: Any, ticket: Any, **more: Any) -> Any:
        seen.append("-" if ticket.answer is None else "there")
        return wait(self, ticket, **more)

    monkeypatch.setattr(BrokerClient, "ask_verb", asked)
    monkeypatch.setattr(BrokerClient, "answer", waited)
    end = query.latest(start)
    before = [verb for verb in seen if verb.startswith("group.")]
    assert before == ["group.commit", "group.advance", "group.split"]
    assert seen.index("-") > seen.index("group.advance"), "the look does not wait for the acknowledgement"
    (task,) = query.live.partitions(start, end)
    assert seen.count("group.split") == 1, "it was asked while Spark wrote its file"
    seen.clear()
    assert [int(row["body"]) for row in query.task(task)] == [3, 4, 5]
    assert seen[:3] == ["group.enter", "group.fetch", "-"]


def test_a_task_whose_entry_is_refused_gives_no_row(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    """Although its rows are on their way by then."""
    publish(queue, 0, 3)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    (task,) = query.live.partitions(start, query.latest(start))
    settings = parse(options_of(broker, queue=queue, group="etl", columns="seq,body"), STREAM)
    asked: list[str] = []

    def entry(client: BrokerClient) -> Callable[[], None]:
        asked.append("entry")

        def refused() -> None:
            raise Refused("BATCH_CHANGED", "other rows")

        return refused

    rows = read_task(task.value, settings, read_schema(settings), entry)
    with pytest.raises(Refused, match="other rows"):
        next(rows)
    assert asked == ["entry"]
    assert query.task(task), "the connection with the answer that nobody has read is not used again"


def test_who_is_fenced_is_told_so_and_not_what_it_found(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    """The look does not wait for the refusal of the acknowledgement; here it finds that the messages are gone."""
    publish(queue, 0, 6)
    older = Query(broker, queue=queue, maxMessagesPerTrigger=2)
    start, _ = older.batch(older.live.initialOffset())
    newer = Query(broker, queue=queue)
    end, numbers = newer.batch(start)
    assert numbers == [2, 3, 4, 5]
    newer.latest(end)
    with pytest.raises(Refused) as refused:
        older.latest(start)
    assert refused.value.code == "GROUP_FENCED"


def test_a_batch_that_spark_does_not_make_leaves_no_question_open(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 4)
    query = Query(broker, queue=queue, maxMessagesPerTrigger=2)
    start = query.live.initialOffset()
    for _ in range(3):
        end = query.latest(start)
    assert query.numbers(start, end) == [0, 1]
    assert query.numbers(start, end) == [0, 1], "each answer serves once"
    assert query.live._live._client.is_idle


def test_a_first_batch_without_rows_is_one_task_that_reads_nothing(broker: BrokerProcess, queue: str) -> None:
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    assert query.latest(start) == start
    [task] = query.live.partitions(start, start)
    assert task.value["first"] == task.value["end"]
    assert query.numbers(start, start) == []


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


def test_a_call_after_one_that_gave_up_is_as_patient(
    broker_of_ones_own: BrokerProcess, publish_to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = broker_of_ones_own
    publish_to(broker, "orders", 0, 2)
    query = Query(broker, queue="orders", retryTimeout="100ms")
    start = query.live.initialOffset()
    broker.kill()
    with pytest.raises(Unreachable, match=r"gave up after 0.1 s"):
        query.latest(start)
    # It comes back while the next call makes its first pause.
    # Not of the whole process: other threads sleep, too.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: broker.start())
    monkeypatch.setattr("vibemq.spark.connection.client.time", clock)
    assert query.batch(start)[1] == [0, 1]


def test_the_second_endpoint_is_tried_when_the_first_is_silent(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 2)
    query = Query(broker, queue=queue, endpoint=f"127.0.0.1:1,127.0.0.1:{broker.port}")
    assert query.batch(query.live.initialOffset())[1] == [0, 1]
