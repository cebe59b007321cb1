"""The second connection of a blocking client, with a real broker."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import running
from tests.integration.test_publish_connection import direct, in_a_thread, used, waiting
from tests.waiting import wait_until
from vibemq.errors import RateLimited
from vibemq.sync import direct_publishes


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(BrokerProcess(tmp_path_factory.mktemp("publishes"), provider="memory")) as process:
        yield process


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_publishes, "WORTHWHILE", 1)


@contextmanager
def with_two_connections(broker: BrokerProcess, **options: Any) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(broker.url, **options) as mq:
        mq.publish("warm", 0)
        wait_until(lambda: direct(mq)._made)
        yield mq


def bodies(mq: vibemq.sync.Client, queue: str, count: int) -> list[Any]:
    """Of the next messages, which are settled. Fewer when there are no more."""
    with mq.subscribe(queue) as messages:
        found: list[Any] = []
        while len(found) < count and (batch := messages.next_batch()) is not None:
            found += [message.body for message in batch]
            batch.ack_all()
        return found


def test_a_publisher_that_waits_for_room_keeps_its_place(broker: BrokerProcess) -> None:
    with with_two_connections(broker, command_timeout=5) as mq, vibemq.sync.connect(broker.url) as other:
        mq.create_queue("full", max_messages=1, overflow="block-publisher", durability="transient")
        mq.publish("full", "before")
        made = direct(mq)._made
        assert made is not None
        first, _ = in_a_thread(lambda: mq.publish("full", "first"))
        wait_until(lambda: waiting(mq))
        other.ping()
        second, _ = in_a_thread(lambda: other.publish("full", "second"))
        wait_until(lambda: made.pings)
        assert bodies(other, "full", 3) == ["before", "first", "second"]
        first.join()
        second.join()
        assert direct(mq)._made is made


def test_a_broker_that_stands_still_for_a_while_has_the_message_once(broker: BrokerProcess) -> None:
    """Without a dedup window nothing else would keep it from having it twice."""
    with with_two_connections(broker, command_timeout=5) as mq:
        mq.create_queue("plain", dedup_window=0, durability="transient")
        made = direct(mq)._made
        assert made is not None
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            thread, _ = in_a_thread(lambda: mq.publish("plain", "once"))
            wait_until(lambda: made.pings)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        thread.join()
        mq.publish("plain", "next")
        assert (used(mq), mq.queue_info("plain").ready) == (2, 2)  # type: ignore[union-attr]


def test_the_rate_limit_is_not_got_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBEMQ_LIMITS__MESSAGES_PER_CLIENT_PER_SECOND", "5")
    with (
        running(BrokerProcess(tmp_path / "data", provider="memory")) as broker,
        with_two_connections(broker) as mq,
    ):
        made, refused = set(), 0
        for number in range(1_000):
            try:
                mq.publish("orders", number)
            except RateLimited:
                refused += 1
            made.add(direct(mq)._made)
        # Two buckets, and what has come into the second one meanwhile.
        assert (len(made), refused > 500) == (1, True)
