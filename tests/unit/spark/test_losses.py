"""Messages, queues and groups that are gone: what fails, and what goes on with `failOnDataLoss=false`."""

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

pytest.importorskip("pyspark")

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, entered, facts, new_checkpoint, options_of, restored
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import DataLoss, Refused, SourceError
from vibemq.spark.options import parse

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


def test_loss_before_reading_fails_or_is_told(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    mq.purge_queue(queue)
    publish(queue, 10, 12)
    with pytest.raises(DataLoss, match=r"messages are gone before they were read .*failOnDataLoss=false"):
        query.latest(start)
    careless = Query(broker, queue=queue, failOnDataLoss="false")
    assert careless.batch(start)[1] == [10, 11]
    assert "messages are gone before they were read" in capfd.readouterr().err


def test_a_message_that_an_operator_has_removed_is_told_as_that(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 3)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    mq.admin("message.remove", queue=queue, sequences=[2])
    with pytest.raises(DataLoss, match=r"\(sequences 2\): they expired, were removed or purged"):
        query.latest(start)


def test_loss_between_planning_and_reading_fails_or_is_told(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    end = query.latest(start)
    tasks = query.live.partitions(start, end)
    mq.purge_queue(queue)
    with pytest.raises(DataLoss, match=r"10 messages are gone before they were read \(sequences 1-10\)"):
        query.task(tasks[0])
    careless = Query(broker, queue=queue, failOnDataLoss="false")
    assert careless.numbers(start, end) == []
    assert "10 messages are gone before they were read" in capfd.readouterr().err


def test_a_checkpoint_that_is_too_old(broker: BrokerProcess, mq: Any, publish: Publish, queue: str) -> None:
    name = f"{queue}.settled"
    mq.create_queue(name, mode="fan_out_with_ack")
    keeper = Query(broker, queue=name)
    start = keeper.live.initialOffset()
    publish(name, 0, 10)
    end, _ = keeper.batch(start)
    assert keeper.latest(end) == end
    publish(name, 10, 12)
    with pytest.raises(DataLoss, match="has been acknowledged already by group 'etl'"):
        Query(broker, queue=name).batch(start)
    careless = Query(broker, queue=name, failOnDataLoss="false")
    offset, seen = start, []
    while (until := careless.latest(offset)) != offset:
        seen += careless.numbers(offset, until)
        offset = until
    assert seen == [10, 11]


def test_a_task_that_comes_too_late(broker: BrokerProcess, mq: Any, publish: Publish, queue: str) -> None:
    name = f"{queue}.settled"
    mq.create_queue(name, mode="fan_out_with_ack")
    query = Query(broker, queue=name)
    start = query.live.initialOffset()
    publish(name, 0, 10)
    (task,) = query.live.partitions(start, query.latest(start))
    now = facts(broker, name)
    done = {"group": "etl", "epoch": now["epoch"], "sequence": 7}
    BrokerClient(parse(options_of(broker))).call("group.commit", name, done)
    with pytest.raises(DataLoss, match="has been acknowledged already by group 'etl'"):
        query.task(task)
    careless = Query(broker, queue=name, failOnDataLoss="false")
    assert [int(row["body"]) for row in careless.task(task)] == [6, 7, 8, 9]


def test_a_hold_keeps_what_was_acknowledged(broker: BrokerProcess, mq: Any, publish: Publish, queue: str) -> None:
    name = f"{queue}.held"
    mq.create_queue(name, mode="fan_out_with_ack")
    first = Query(broker, queue=name, hold="10m")
    start = first.live.initialOffset()
    publish(name, 0, 10)
    end, _ = first.batch(start)
    assert first.latest(end) == end
    assert Query(broker, queue=name).batch(start)[1] == list(range(10)), "a checkpoint that was rolled back by hand"


def test_a_group_that_lags_too_far_expires(broker: BrokerProcess, mq: Any, publish: Publish, queue: str) -> None:
    name = f"{queue}.lag"
    mq.create_queue(name, mode="fan_out_with_ack")
    start = Query(broker, queue=name, maxLagBytes="1k").live.initialOffset()
    publish(name, 0, 3000, size=1000)

    def expired() -> bool:
        try:
            Query(broker, queue=name).batch(start)
        except Refused as error:
            assert "has expired: it lagged more than its limit" in str(error)  # noqa: PT017
            return True
        return False

    wait_until(expired)


def test_a_queue_made_anew(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    query = Query(broker, queue=queue)
    offset, _ = query.batch(query.live.initialOffset())
    query.latest(offset)
    mq.delete_queue(queue)
    mq.create_queue(queue, retention="log")
    publish(queue, 20, 23)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        query.latest(offset)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        Query(broker, queue=queue).latest(offset)
    joined = Query(broker, queue=queue)
    joined.live.initialOffset()
    with pytest.raises(DataLoss, match="was deleted and created again"):
        joined.latest(offset)
    careless = Query(broker, queue=queue, failOnDataLoss="false")
    entered, numbers = careless.batch(offset)
    assert numbers == []
    assert careless.batch(entered)[1] == [20, 21, 22]


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.long_where(stopped=False)
def test_a_broker_that_was_restored_from_a_backup(
    broker_of_ones_own: BrokerProcess, publish_to: Any, tmp_path: Path, stopped: bool
) -> None:
    """Under the offsets of the checkpoint there are other messages than those that were read."""
    broker = broker_of_ones_own
    publish_to(broker, "orders", 0, 6)
    query = Query(broker, queue="orders", maxMessagesPerTrigger=3)
    first, numbers = query.batch(query.live.initialOffset())
    offset, more = query.batch(first)
    assert numbers + more == [0, 1, 2, 3, 4, 5]
    with vibemq.sync.connect(broker.url) as mq:
        mq.admin("storage.backup", target=str(tmp_path / "backup"))
    publish_to(broker, "orders", 6, 9)
    offset, _ = query.batch(offset)
    query.latest(offset)
    restored(broker, tmp_path)
    publish_to(broker, "orders", 20, 25)
    if stopped:
        query = Query(broker, queue="orders")
    with pytest.raises(DataLoss, match=r"data were restored from a backup.*new checkpoint.*newCheckpoint=replay"):
        query.latest(offset)
    with pytest.raises(DataLoss, match="data were restored from a backup"):
        query.rows(first, offset)
    with pytest.raises(Refused, match=r"newCheckpoint=replay.*newCheckpoint=continue") as refused:
        Query(broker, queue="orders").live.initialOffset()
    for how in ("continue", "replay"):
        anew = Query(broker, queue="orders", newCheckpoint=new_checkpoint(refused.value, how))
        assert anew.batch(anew.live.initialOffset())[1] == [3, 4, 5, 20, 21, 22, 23, 24]
    careless = Query(broker, queue="orders", failOnDataLoss="false")
    entered, numbers = careless.batch(offset)
    assert numbers == []
    assert careless.batch(entered)[1] == [3, 4, 5, 20, 21, 22, 23, 24], "where the group was"


def test_a_deleted_queue(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    mq.create_queue(f"{queue}.b", retention="log")
    named, pattern = Query(broker, queue=queue), Query(broker, queuePattern=f"{queue}*", group="other")
    careless = Query(broker, queuePattern=f"{queue}*", group="third", failOnDataLoss="false")
    offset, _ = named.batch(named.live.initialOffset())
    of_pattern, _ = pattern.batch(pattern.live.initialOffset())
    of_careless, _ = careless.batch(careless.live.initialOffset())
    mq.delete_queue(queue)
    publish(f"{queue}.b", 5, 7)
    with pytest.raises(Refused, match=r"does not exist \(any more\)"):
        named.latest(offset)
    with pytest.raises(DataLoss, match=f"queue '{queue}' was deleted; what the query had not read is gone"):
        pattern.latest(of_pattern)
    assert careless.batch(of_careless)[1] == [5, 6]


def test_the_first_queue_of_a_pattern_is_deleted_after_one_batch(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """It kept the plans; the other one was told of the first alone."""
    other = f"{queue}.b"
    mq.create_queue(other, retention="log")
    for name in (queue, other):
        publish(name, 0, 2)
    query = Query(broker, queuePattern=f"{queue}*", failOnDataLoss="false")
    end, numbers = query.batch(query.live.initialOffset())
    assert numbers == [0, 1, 0, 1]
    mq.delete_queue(queue)
    publish(other, 2, 4)
    for again in (query, Query(broker, queuePattern=f"{queue}*", failOnDataLoss="false")):
        after, numbers = again.batch(end)
        assert numbers == [2, 3]
    publish(other, 4, 5)
    assert again.batch(after)[1] == [4]


def test_a_deleted_queue_of_a_pattern_leaves_the_offset_with_the_next_rows(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """Where queues come and go, the offset would become larger than the broker keeps one."""
    gone, other, names = f"{queue}.a", f"{queue}.b", f"of-{queue}"
    how = {"queuePattern": f"{queue}.*", "hold": "15m"}
    for name in (gone, other):
        mq.create_queue(name, retention="log")
        publish(name, 0, 2)
    query = Query(broker, **how)
    start = query.live.initialOffset()
    first, _ = query.batch(start)
    query.latest(first)
    mq.delete_queue(gone)
    careless = Query(broker, **how, failOnDataLoss="false")
    assert careless.latest(first) == first, "not a batch for that alone"
    publish(other, 2, 4)
    second, numbers = careless.batch(first)
    assert (list(second["q"]), numbers) == ([other], [2, 3])
    entered(broker, careless, (first, second), names, 1)
    again = Query(broker, **how, failOnDataLoss="false")
    entered(broker, again, (first, second), names, 1)
    assert again.numbers(first, second) == [2, 3], "after a crash in that batch"
    assert Query(broker, **how).latest(second) == second, "the option is not needed any more"
    back = Query(broker, **how, failOnDataLoss="false")
    assert back.batch(first) == (second, [2, 3]), "a checkpoint that was rolled back"
    mq.create_queue(gone, retention="log")
    publish(gone, 5, 7)
    last = Query(broker, **how)
    with_both, numbers = last.batch(second)
    assert (list(with_both["q"]), numbers, last.batch(with_both)[1]) == ([gone, other], [], [5, 6])


def deleting(mq: Any, queue: str, when: int, patch: pytest.MonkeyPatch, *, anew: bool) -> list[int]:
    """Before so many requests; the list counts down to it."""
    left = [when]
    real = BrokerClient.ask

    def ask(self: Any, *arguments: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            mq.delete_queue(queue)
            if anew:
                mq.create_queue(queue, retention="log")
        return real(self, *arguments, **more)

    patch.setattr(BrokerClient, "ask", ask)
    return left


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("careless", [False, True])
@pytest.mark.long_where(careless=True, anew=True)
@pytest.mark.long_where(careless=False, anew=False)
def test_a_queue_is_deleted_between_any_two_requests(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, anew: bool, careless: bool
) -> None:
    """Of a pattern: the query goes on with the others, or says which was deleted."""
    how = {"queuePattern": f"{queue}.*", "failOnDataLoss": str(not careless).lower(), "columns": "queue,body"}
    gone, other, left = f"{queue}.a", f"{queue}.b", [0]
    for name in (gone, other):
        mq.create_queue(name, retention="log")
    for when in count(1):
        for name in (gone, other):
            publish(name, 0, 2)
        query = Query(broker, **how, group=f"etl-{when}")
        offset = query.live.initialOffset()
        with pytest.MonkeyPatch.context() as patch:
            left = deleting(mq, gone, when, patch, anew=anew)
            said, seen = "", []
            try:
                while (end := query.latest(offset)) != offset:
                    seen += [int(row["body"]) for row in query.rows(offset, end) if row["queue"] == other]
                    offset = end
            except SourceError as error:
                said = str(error)
        assert not (said and careless), said
        if said:
            assert re.search(f"queue '{gone}' (was deleted|is not the one that the checkpoint knows)", said)
        else:
            assert seen == [0, 1] * when
        if left[0] > 0:
            break
        if not anew:
            mq.create_queue(gone, retention="log")
    assert when > 8, "requests of two batches and one that is empty"


def killing(broker: BrokerProcess, when: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Before so many requests; the list counts down to it."""
    left = [when]
    real = BrokerClient.ask

    def ask(self: Any, *arguments: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            broker.kill()
            broker.start()
        return real(self, *arguments, **more)

    patch.setattr(BrokerClient, "ask", ask)
    return left


@pytest.mark.long(
    covered_by="tests/unit/spark/read/test_cursors_without_a_checkpoint.py::"
    "test_a_query_without_a_checkpoint_begins_though_the_broker_is_killed_before_its_first_task"
)
@pytest.mark.parametrize("durability", ["strong", "async"])
def test_a_broker_is_killed_between_any_two_requests(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, durability: str
) -> None:
    """The query goes on, and reads every message once: also where the last thing that happened is a join."""
    queues = [f"{queue}.a", f"{queue}.b"]
    for name in queues:
        mq.create_queue(name, retention="log", durability=durability)
        publish(name, 0, 2)
    for when in count(1):
        with pytest.MonkeyPatch.context() as patch:
            left = killing(broker, when, patch)
            query = Query(broker, queues=",".join(queues), group=f"etl-{when}", columns="queue,body", hold="15m")
            offset, seen = query.live.initialOffset(), []
            while (end := query.latest(offset)) != offset:
                seen += [(row["queue"], int(row["body"])) for row in query.rows(offset, end)]
                offset = end
        assert sorted(seen) == [(name, number) for name in queues for number in (0, 1)], when
        if left[0] > 0:
            break
    assert when > 8, "requests of a batch and one that is empty"
