"""Brokers that are away."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, options_of
from vibemq.spark.connection.client import VERBS_AT_ONCE, BrokerClient
from vibemq.spark.errors import Refused, Unreachable
from vibemq.spark.options import parse
from vibemq.spark.read.planning import queues_of

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


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
    # It is much later than the first call, and no time passes: a slow machine has as much patience.
    clock = SimpleNamespace(monotonic=lambda: 1e12, sleep=lambda seconds: broker.start())
    monkeypatch.setattr("vibemq.spark.connection.client.DIAL_LEAST_S", 60.0)
    monkeypatch.setattr("vibemq.spark.connection.client.time", clock)
    assert query.batch(start)[1] == [0, 1]


def test_the_second_endpoint_is_tried_when_the_first_is_silent(
    broker: BrokerProcess, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 2)
    query = Query(broker, queue=queue, endpoint=f"127.0.0.1:1,127.0.0.1:{broker.port}")
    assert query.batch(query.live.initialOffset())[1] == [0, 1]


def test_more_requests_than_the_broker_carries_out_at_a_time_are_not_refused(broker: BrokerProcess, queue: str) -> None:
    """As a query of many queues asks them, also when it acknowledges without patience."""
    client = BrokerClient(parse(options_of(broker)))
    tickets = [client.ask_verb("group.offsets", queue, {}, patient=False) for _ in range(3 * VERBS_AT_ONCE)]
    assert {client.json(ticket, patient=False)["tail"] for ticket in tickets} == {1}


def test_more_names_than_a_frame_takes_are_read_in_pages(
    broker: BrokerProcess, mq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerClient, "_all_queues", _too_many)
    monkeypatch.setattr("vibemq.spark.connection.client.PAGE_QUEUES", 2)
    names = [f"paged{end}" for end in ("", "-", "-a", "-b", "-c", "-d", ".e")]
    for name in names:
        mq.create_queue(name)
    client = BrokerClient(parse(options_of(broker)))
    assert queues_of(client, parse({"queuePattern": "paged-*"})) == (
        "paged-",
        "paged-a",
        "paged-b",
        "paged-c",
        "paged-d",
    )
    assert set(names) <= set(queues_of(client, parse({"queuePattern": "*"})))
    assert queues_of(client, parse({"queuePattern": "paged-a"})) == ("paged-a",)
    assert queues_of(client, parse({"queuePattern": "paged-[!abc]"})) == ("paged-d",)
    assert queues_of(client, parse({"queuePattern": "pagee*"})) == ()


def _too_many(client: BrokerClient) -> list[str]:
    raise Refused("MESSAGE_TOO_LARGE", "the answer is too large")
