"""Queues of a query, and the tasks of a batch."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, at, options_of
from vibemq.operations.groups.arguments import PLAN_END_MAX
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import OptionError, Refused
from vibemq.spark.options import STREAM, parse
from vibemq.spark.read.fetching import read_task
from vibemq.spark.read.offsets import QueuePosition
from vibemq.spark.read.planning import queues_of
from vibemq.spark.read.plans import PLAN_CHARACTERS_MAX, text_of, text_to_keep
from vibemq.spark.schema import read_schema

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


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
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, asked_and_answered: list[str]
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
    asked_and_answered.clear()
    assert len(query.live.partitions(start, end)) == 3
    assert asked_and_answered == ["ask"] * 3 + ["answer"] * 3
    more = Query(broker, queues=",".join(names), minPartitions=7)
    assert len(more.live.partitions(start, more.latest(start))) == 9, "at least 7, as many of each queue"


def test_more_tasks_than_the_broker_divides_a_queue_into_may_be_asked_for(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 3)
    query = Query(broker, queue=queue, minPartitions=100_000, maxPartitions=100_000)
    start = query.live.initialOffset()
    assert len(query.live.partitions(start, query.latest(start))) == 3


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


def test_a_new_queue_of_a_pattern_is_read_from_its_first_message(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the others were to be read from now on: nobody else has what came before it was discovered."""
    monkeypatch.setattr("vibemq.spark.read.stream.DISCOVERY_S", 0.0)
    publish(queue, 0, 2)
    options = {"queuePattern": f"{queue}*", "startingOffsets": "latest"}
    Query(broker, **options).live.initialOffset()
    mq.create_queue(f"{queue}.before-the-first-batch", retention="log")
    publish(f"{queue}.before-the-first-batch", 3, 5)
    query = Query(broker, **options)
    offset, numbers = query.batch(query.live.initialOffset())
    assert numbers == [], "a start that ended before its first batch is none: the query begins as it is asked to"
    for name, first in (("while-it-runs", 5), ("between-two-runs", 7)):
        mq.create_queue(f"{queue}.{name}", retention="log")
        publish(f"{queue}.{name}", first, first + 2)
        entered, _ = query.batch(offset)
        offset, numbers = query.batch(entered)
        assert numbers == [first, first + 1]
        query = Query(broker, **options)


def test_queues_of_connections_and_of_the_broker_are_left_out_of_a_pattern(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vibemq.spark.read.stream.DISCOVERY_S", 0.0)
    mq.create_queue(f"{queue}.reply", exclusive=True)
    query = Query(broker, queuePattern=f"{queue}*")
    publish(queue, 0, 2)
    offset, numbers = query.batch(query.live.initialOffset())
    assert numbers == [0, 1]
    mq.create_queue(f"{queue}.another-reply", exclusive=True)
    publish(queue, 2, 4)
    offset, numbers = query.batch(offset)
    assert (numbers, list(offset["q"])) == ([2, 3], [queue])
    assert list(query.live.reportLatestOffset()["q"]) == [queue]
    monkeypatch.setattr(BrokerClient, "_all_queues", lambda client: ["~eventmesh", queue])
    client = BrokerClient(parse(options_of(broker)))
    assert queues_of(client, parse({"queuePattern": "*"})) == (queue,)


def test_a_checkpoint_of_other_queues_is_refused(broker: BrokerProcess, mq: Any, queue: str) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    start = Query(broker, queue=queue).live.initialOffset()
    with pytest.raises(OptionError, match=f"checkpoint of other queues: it knows {queue},"):
        Query(broker, queue=f"{queue}.b").latest(start)


def test_a_pattern_that_does_not_match_a_queue_of_the_checkpoint_is_refused(
    broker: BrokerProcess, mq: Any, queue: str
) -> None:
    """Its queue was read on, whatever the pattern."""
    mq.create_queue(f"{queue}.b", retention="log")
    query = Query(broker, queuePattern=f"{queue}*")
    end, _ = query.batch(query.live.initialOffset())
    with pytest.raises(OptionError, match=f"checkpoint of other queues: it knows {queue},.*queuePattern"):
        Query(broker, queuePattern=f"{queue}.*").latest(end)
    with pytest.raises(OptionError, match="checkpoint of other queues"):
        Query(broker, queuePattern=f"{queue}.*").live.partitions(end, end)
    assert Query(broker, queuePattern=f"{queue}**").latest(end) == end, "another pattern of the same queues"


def test_more_queues_than_the_broker_keeps_a_position_of() -> None:
    positions = {f"tenant-{number:023}": QueuePosition("0" * 32, 123_456) for number in range(3_000)}
    assert text_to_keep(positions) == text_of(positions)
    more = {f"more-{number:023}": QueuePosition("0" * 32, 123_456) for number in range(200)}
    with pytest.raises(OptionError, match=r"the query reads 3,200 queues, .* with several queries"):
        text_to_keep(positions | more)
    assert PLAN_CHARACTERS_MAX == PLAN_END_MAX
