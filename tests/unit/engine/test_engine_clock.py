"""A store that was written under a clock that was ahead, opened under the right one."""

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.handlers.transactions import STAGE_TTL_MS
from vibemq.engine.stage_names import stage_name
from vibemq.model.commands import Settlement, Stage
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Retention

YEAR_MS = 365 * 86_400_000
DAY_MS = 86_400_000


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_delay_until_tomorrow_waits_until_tomorrow(driver: Driver) -> None:
    driver.create()
    driver.now += YEAR_MS
    driver.publish()
    driver.restart(down_ms=-YEAR_MS)
    driver.publish(deliver_at=driver.now + DAY_MS)
    driver.subscribe(1, capacity_messages=10)
    assert driver.take() == {1: [1]}
    driver.settle(1, 1)
    driver.advance(DAY_MS - 1)
    assert driver.take() == {}
    driver.advance(1)
    assert driver.take() == {1: [2]}
    driver.check()


def test_a_ttl_counts_from_the_start_at_the_latest(driver: Driver) -> None:
    driver.create(message_ttl_ms=10_000, dead_letter=False)
    driver.now += YEAR_MS
    driver.publish(3)
    driver.restart(down_ms=-YEAR_MS)
    driver.publish(2)
    assert driver.info().oldest_at <= driver.now
    driver.advance(9_000)
    assert driver.info().ready == 5
    driver.advance(3_000)
    assert driver.info().ready == 0
    assert driver.info().counters["expired"] == 5


def test_a_message_of_the_future_is_no_younger_than_what_was_published_behind_it(driver: Driver) -> None:
    driver.create(message_ttl_ms=10_000, dead_letter=False)
    driver.now += YEAR_MS
    driver.publish(3)
    driver.restart(down_ms=-YEAR_MS)
    driver.publish(2)
    driver.advance(6_000)
    driver.restart()
    driver.advance(6_000)
    assert driver.info().ready == 0


def test_a_run_with_a_clock_that_was_behind_ends_nothing(driver: Driver) -> None:
    """As on a machine whose clock is wrong until it has a network."""
    driver.now += 2 * YEAR_MS
    driver.create(message_ttl_ms=DAY_MS, dead_letter=False)
    driver.publish(3)
    driver.restart(down_ms=-YEAR_MS)
    driver.publish(2)
    driver.restart(down_ms=YEAR_MS)
    driver.advance(DAY_MS - 1)
    assert driver.info().ready == 5
    driver.advance(DAY_MS // 50)
    assert driver.info().ready == 0
    driver.check()


def test_a_log_keeps_what_a_run_with_a_clock_that_was_behind_has_added_to(driver: Driver) -> None:
    driver.now += 2 * YEAR_MS
    driver.create(retention=Retention.LOG, retain_ms=DAY_MS)
    driver.publish(3)
    driver.restart(down_ms=-YEAR_MS)
    driver.publish(2)
    driver.restart(down_ms=YEAR_MS)
    driver.advance(DAY_MS - 1)
    assert driver.info().first_sequence == 1
    driver.advance(DAY_MS // 50)
    assert driver.info().first_sequence == 6


def test_a_queue_and_a_stage_were_made_at_the_start_at_the_latest(driver: Driver) -> None:
    driver.now += YEAR_MS
    driver.create()
    driver.ask(Stage(1, None, "q", "job", 0, "u1", 0, rows_of(1), {0: MessageExtra(2)}))
    driver.restart(down_ms=-YEAR_MS)
    assert driver.info().created_at == driver.now
    driver.advance(STAGE_TTL_MS)
    assert driver.engine.readers.old_stages() == []
    driver.advance(1)
    assert driver.engine.readers.old_stages() == [stage_name("job", 0, "u1")]


def test_a_retry_keeps_its_delay(driver: Driver) -> None:
    driver.create()
    driver.now += YEAR_MS
    driver.publish()
    driver.subscribe(1, capacity_messages=10)
    driver.take()
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=5_000, reason="x")
    driver.restart(down_ms=-YEAR_MS)
    driver.subscribe(1, capacity_messages=10)
    driver.advance(4_999)
    assert driver.take() == {}
    driver.advance(1)
    assert driver.take() == {1: [1]}


def test_a_dedup_window_is_no_longer_than_it_is(driver: Driver) -> None:
    driver.create(dedup_window_ms=60_000)
    driver.now += YEAR_MS
    driver.publish(dedup_id=b"a")
    driver.restart(down_ms=-YEAR_MS)
    assert driver.publish(dedup_id=b"a").duplicates == {0: 1}
    driver.advance(60_001)
    assert driver.publish(dedup_id=b"a").duplicates is None


def test_what_was_handed_out_after_its_retry_delay_does_not_wait_for_it_again(driver: Driver) -> None:
    driver.create()
    driver.publish()
    driver.subscribe(1, ack_timeout_ms=0)
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=DAY_MS)
    driver.advance(DAY_MS)
    assert driver.take() == {1: [1, 1]}
    driver.restart(down_ms=-DAY_MS // 2)
    driver.subscribe(1)
    assert driver.take() == {1: [1]}
    driver.check()
