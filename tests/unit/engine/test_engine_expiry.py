"""Time to live of messages."""

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver, sequences
from tests.unit.engine.test_engine_limits import dropped, letters
from vibemq.model.commands import (
    ChangeQueue,
    Settlement,
    StartAt,
)
from vibemq.model.options import DeliveryMode, Retention
from vibemq.model.records import Reason, Settled


def test_waiting_messages_expire_into_the_dlq() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.publish(2)
    driver.advance(999)
    assert driver.info().ready == 2
    driver.advance(1)
    assert letters(driver) == [(1, Reason.EXPIRED), (2, Reason.EXPIRED)]
    driver.check()


def test_without_a_dlq_they_are_dropped_and_counted() -> None:
    driver = Driver()
    driver.create(dead_letter=False)
    driver.publish(3, expires_at=driver.now + 100)
    driver.publish(1)
    driver.advance(100)
    assert dropped(driver) == [(Reason.EXPIRED, [1, 2, 3])]
    assert driver.info().counters["expired"] == 3
    assert driver.info().ready == 1
    driver.check()


def test_one_group_may_lose_what_another_still_holds() -> None:
    driver = Driver()
    driver.create(dead_letter=False, mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="busy")
    driver.subscribe(2, group="idle")
    driver.close(2, clean=True)
    driver.publish(1, expires_at=driver.now + 100)
    driver.advance(100)
    assert dropped(driver) == []
    assert [record.group_id for record in driver.records_of(Settled)] == [1]
    driver.settle(1, 1)
    driver.check()


def test_what_is_in_flight_expires_when_it_comes_back() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.subscribe(1)
    driver.publish(2)
    driver.publish(1, expires_at=driver.now + 500)
    driver.advance(5_000)
    assert driver.info().in_flight == 3
    driver.settle(1, 1)
    driver.settle(1, 2, 3, verb=Settlement.RELEASE)
    assert letters(driver) == [(2, Reason.EXPIRED), (3, Reason.EXPIRED)]
    driver.check()


@pytest.mark.parametrize("ttl_ms", [None, 60_000])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_in_flight_lives_as_long_as_the_queue_says_when_it_comes_back(
    ttl_ms: int | None, *, restarts: bool
) -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.subscribe(1, capacity_messages=2)
    driver.publish(3)
    driver.advance(5_000)
    assert letters(driver) == [(3, Reason.EXPIRED)]
    driver.ask(ChangeQueue(7, None, "q", {"message_ttl_ms": ttl_ms}))
    driver.take()
    driver.settle(1, 1, 2, verb=Settlement.RELEASE)
    if restarts:
        driver.restart()
        driver.subscribe(1, capacity_messages=2)
    assert driver.take()[1][:2] == [1, 2]
    driver.settle(1, 2)
    driver.advance(60_000)
    driver.close(1, clean=True)
    assert letters(driver) == [(3, Reason.EXPIRED)] + [(1, Reason.EXPIRED)] * (ttl_ms is not None)
    driver.check()


@pytest.mark.parametrize("crowded", [False, True])
def test_a_log_gives_what_has_not_expired_by_its_new_ttl_to_who_joins(*, crowded: bool) -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000, mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG)
    for name in ("a", "b", "c", "d"):
        driver.subscribe(1, group=name, consumer=ord(name), capacity_messages=0)
    driver.publish(1)
    driver.now += 3_000
    driver.publish(1)
    driver.now += 1_500
    with steps_of(2 if crowded else 150):
        # With very many groups the sweep is under way when the TTL changes.
        driver.tick()
        driver.ask(ChangeQueue(7, None, "q", {"message_ttl_ms": 4_000}))
        driver.advance(100)
        driver.subscribe(2, group="new", start=StartAt.BEGINNING)
    assert driver.take() == {2: [2]}
    driver.check()


def test_nothing_expired_is_handed_out_even_before_the_sweep() -> None:
    driver = Driver()
    driver.publish(1, expires_at=driver.now + 100)
    driver.now += 200
    driver.subscribe(1)
    assert driver.take() == {}


def test_time_to_live_goes_on_during_a_restart() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.publish(1)
    driver.publish(1, expires_at=driver.now + 100)
    driver.restart(down_ms=2_000)
    assert driver.info().dead == 2
    driver.check()


def test_a_restart_never_makes_messages_expire_early() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=3_000)
    driver.publish(1)
    driver.advance(900)
    driver.publish(1)
    driver.restart(down_ms=2_999)
    assert 2 in sequences(driver.engine.waiting_runs("q", 9))
    driver.advance(1_000)
    assert driver.info().dead == 2


def test_ages_are_kept_apart_to_a_hundredth_of_the_ttl() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=100_000)
    for _ in range(20):
        driver.publish(1)
        driver.advance(500)
    driver.advance(95_000)
    assert 7 <= driver.info().ready <= 11
