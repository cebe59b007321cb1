"""What rings again and again leaves nothing behind, whatever else waits for long."""

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.timing.alarms import Behind, PartAlarms, arm, disarm, ring
from vibemq.model import commands as ask
from vibemq.model.options import UNLIMITED_ATTEMPTS, QueueOptions
from vibemq.model.runs import END

DAY_MS = 24 * 3_600_000


def entries(driver: Driver) -> int:
    state = driver.engine._state
    return len(state.timers) + len(state.queues["q"].alarms)


def test_the_one_behind_counts_when_the_nearer_one_has_rung() -> None:
    queue = Queue(1, "q", QueueOptions(), 0, "")
    for at in (9_000, 800, 700, 60):
        arm(queue, at)
    seen = [queue.armed_at]
    for now in (60, 750, 800, 9_000):
        ring(queue, now)
        seen.append(queue.armed_at)
    assert seen == [60, 700, 800, 9_000, END]
    assert not disarm(queue)


class Part:
    """Counts how often somebody looks at one of them."""

    looks = 0

    def __init__(self, number: int) -> None:
        self.number = number
        self.at = END
        self.armed_behind: Behind = None

    @property
    def armed_at(self) -> int:
        Part.looks += 1
        return self.at

    @armed_at.setter
    def armed_at(self, at: int) -> None:
        self.at = at


def test_who_goes_from_a_large_crowd_has_few_others_looked_at() -> None:
    alarms = PartAlarms[Part]()
    parts = [Part(number) for number in range(20_000)]
    for part in parts:
        arm(part, part.number * 7 % 1_000)
        alarms.set(part.at, part.number, part)
    most = 0
    for part in parts[:19_000]:
        Part.looks = 0
        alarms.disarm(part)
        most = max(most, Part.looks)
    assert most < 600
    assert len(alarms) < 2_500
    seen: list[Part] = []
    while (at := alarms.next()) < END:
        Part.looks = 0
        seen += alarms.pop_due(at, 10)
        assert Part.looks < 200
    assert sorted(part.number for part in seen) == [part.number for part in parts[19_000:]]
    assert not alarms


@pytest.mark.parametrize("far", ["delayed", "expires", "queue expires"])
def test_retries_beside_what_waits_for_a_month_take_no_memory(far: str) -> None:
    driver = Driver()
    ttl_ms = 30 * DAY_MS if far == "queue expires" else None
    driver.create(max_attempts=UNLIMITED_ATTEMPTS, message_ttl_ms=ttl_ms)
    at = driver.now + 30 * DAY_MS
    driver.publish(1, deliver_at=at if far == "delayed" else 0, expires_at=at if far == "expires" else 0)
    driver.publish(1)
    driver.subscribe(1)
    for _ in range(50):
        driver.settle(1, 2, verb=ask.Settlement.RETRY, delay_ms=10)
        driver.advance(10)
    assert len(driver.delivers()) > 50
    assert entries(driver) <= 6
    driver.close(1, clean=True)
    driver.advance(30 * DAY_MS)
    assert driver.info().ready + driver.info().dead == 2


def test_a_consumer_that_has_gone_is_not_kept_until_its_messages_would_have_been_overdue() -> None:
    driver = Driver()
    driver.create()
    driver.publish(500)
    driver.subscribe(2, capacity_messages=1, ack_timeout_ms=DAY_MS)
    for number in range(1, 500):
        driver.subscribe(1, consumer=number, credit=1, ack_timeout_ms=DAY_MS)
        driver.handle(ask.Settle(1, None, number, ask.Settlement.ACK, [(1, 500)]), ask.Unsubscribe(1, None, number))
    assert entries(driver) < 150
    driver.advance(DAY_MS)
    assert driver.info().in_flight == 0
    assert driver.info().delayed == 1
