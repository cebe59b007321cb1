"""What tests with a real Spark share: a broker, a session, and ways to look into queues."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from vibemq.demos.spark import tidy

CEILING_S = 120.0
"""Spark needs a minute for a first query that takes seconds, where a dozen others want the same two cores."""

needs_spark = pytest.mark.skipif(bool(tidy.why_no_spark()), reason=tidy.why_no_spark())


@contextmanager
def running_broker(folder: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(folder / "broker")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def endpoint(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.port}"


def drained(mq: vibemq.sync.Client, queue: str) -> list[dict[str, Any]]:
    """The JSON of every message that waits in an ordinary queue; they are acknowledged."""
    found: list[dict[str, Any]] = []
    while messages := mq.fetch(queue, max=1000, timeout=0.2):
        for message in messages:
            found.append(json.loads(message.payload))
            message.ack()
    return found
