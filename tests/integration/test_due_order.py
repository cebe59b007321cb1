"""In which order a consumer gets what falls due, from a real broker whose clock the tests move."""

import pytest

import vibemq
from vibemq.integrations.pytest.clock import BrokerClock


def taken(mq: vibemq.sync.Client, queue: str, most: int = 99) -> list[str]:
    found = mq.fetch(queue, max=most, timeout=9)
    for message in found:
        message.ack()
    return [message.body for message in found]


@pytest.mark.parametrize("way", ["delay", "deliver_at"])
def test_what_falls_due_first_comes_first_and_behind_what_was_ready(
    vibemq_client: vibemq.sync.Client, vibemq_queue: str, vibemq_clock: BrokerClock, way: str
) -> None:
    begin = vibemq_clock.now().timestamp()
    for body, seconds in (("a", 200), ("b", 100), ("c", 0)):
        when = {way: seconds if way == "delay" else begin + seconds} if seconds else {}
        vibemq_client.publish(vibemq_queue, body, **when)  # type: ignore[call-overload]
    vibemq_clock.advance(seconds=150)
    vibemq_client.publish(vibemq_queue, "d")
    vibemq_clock.advance(seconds=150)
    vibemq_client.publish(vibemq_queue, "e")
    assert taken(vibemq_client, vibemq_queue) == ["c", "b", "d", "a", "e"]


def test_what_failed_is_back_in_its_old_place(
    vibemq_client: vibemq.sync.Client, vibemq_queue: str, vibemq_clock: BrokerClock
) -> None:
    vibemq_client.publish(vibemq_queue, "delayed", delay=100)
    vibemq_client.publish_many(vibemq_queue, ["failed", "ready"])
    [message] = vibemq_client.fetch(vibemq_queue)
    message.retry(delay=200)
    vibemq_client.ping()
    vibemq_clock.advance(seconds=300)
    assert taken(vibemq_client, vibemq_queue) == ["failed", "ready", "delayed"]
