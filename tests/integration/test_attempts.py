"""What a client is told of earlier attempts, by a real broker."""

from pathlib import Path

import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from vibemq.integrations.pytest.clock import BrokerClock


def test_failures_are_counted_and_releases_are_not(vibemq_client: vibemq.sync.Client, vibemq_queue: str) -> None:
    vibemq_client.publish_many(vibemq_queue, ["a", "b"])
    seen = []
    for verb in ("release", "retry", "release", "retry", "ack"):
        messages = {message.body: message for message in vibemq_client.fetch(vibemq_queue, max=2, timeout=9)}
        seen.append((messages["a"].attempt, messages["a"].failures))
        assert (messages["b"].attempt, messages["b"].failures) == (len(seen), 0)
        messages["b"].release()
        if verb == "retry":
            messages["a"].retry(delay=0)
        else:
            getattr(messages["a"], verb)()
    assert seen == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)]


@pytest.mark.vibemq(retry_base_ms=1, retry_max_ms=1)
def test_the_handle_of_an_earlier_hand_out_is_lost(
    vibemq_client: vibemq.sync.Client, vibemq_queue: str, vibemq_clock: BrokerClock
) -> None:
    """Its connection goes on, and the same consumer has the message again."""
    vibemq_client.publish(vibemq_queue, "a")
    with vibemq_client.subscribe(vibemq_queue, ack_timeout=600) as messages:
        first = next(iter(messages))
        assert not first.lost
        vibemq_clock.advance(minutes=10)
        again = next(iter(messages))
        assert (again.attempt, again.failures) == (2, 1)
        assert (first.lost, first.stale, again.lost) == (True, False, False)
        again.ack()
        vibemq_client.ping()
    info = vibemq_client.queue_info(vibemq_queue)
    assert info is not None
    assert (info.ready, info.in_flight) == (0, 0)


@pytest.mark.slow
def test_failures_are_known_after_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with vibemq.sync.connect(broker.url) as mq:
            mq.create_queue("q", durability="strong")
            mq.publish("q", "a")
            [message] = mq.fetch("q", timeout=9)
            message.retry(delay=0)
            mq.publish("q", "the settlement is flushed with this one")
            mq.ping()
        broker.kill()
        broker.start()
        with vibemq.sync.connect(broker.url) as mq:
            [message] = mq.fetch("q", timeout=9)
            assert (message.body, message.failures) == ("a", 1)
    finally:
        broker.stop()
