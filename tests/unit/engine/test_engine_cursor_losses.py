"""What a cursor's reader does not get: rejected, purged, expired, dropped, let go of."""

import pytest

from tests.simulation.engine_driver import Driver
from tests.unit.engine.cursor_verbs import alive, commit, cursor, join, reject, wanted
from vibemq.errors import GroupExpired, OffsetGone
from vibemq.model.commands import (
    ChangeQueue,
    JoinCursor,
    PurgeQueue,
    Quarantine,
    RejectAt,
    RemoveMessages,
    SeekGroup,
    StartAt,
)
from vibemq.model.effects import Rejected
from vibemq.model.options import DeliveryMode, Overflow, Retention


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    return driver


def test_a_range_below_what_was_released_is_refused(driver: Driver) -> None:
    driver.publish(5)
    join(driver)
    commit(driver, 4)
    with pytest.raises(OffsetGone, match="below 4"):
        wanted(driver, 3)


def test_what_a_log_has_let_go_of_within_the_hold_is_lost_to_a_batch_that_is_read_again() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG, retain_messages=4)
    join(driver, hold_ms=1000)
    for _ in range(4):
        driver.publish(1)
    assert commit(driver, 5, epoch=cursor(driver).epoch).committed == 5
    assert driver.engine.readers.span("q", "etl", 1, 5, None).lost == []
    for _ in range(2):
        driver.publish(1)
    span = driver.engine.readers.span("q", "etl", 1, 7, None)
    assert (span.lost, span.wanted) == ([(1, 2)], [(3, 6)])
    assert cursor(driver).lost == [], "to the query as it goes on nothing is"
    driver.check()


def test_a_message_is_rejected_once(driver: Driver) -> None:
    driver.publish(5)
    join(driver)
    assert reject(driver, 2, 4, 4) == Rejected(2, 1)
    assert reject(driver, 2, 4) == Rejected(0, 2)
    commit(driver, 6)
    assert reject(driver, 5, 9) == Rejected(0, 2, acknowledged=1), "and there is no 9"
    assert sorted(entry.facts.sequence for entry in driver.dead.entries.values()) == [2, 4]
    assert {entry.facts.error for entry in driver.dead.entries.values()} == {"bad row"}
    driver.check()


def test_what_was_rejected_is_still_part_of_a_batch_that_is_read_again(driver: Driver) -> None:
    driver.publish(3)
    join(driver)
    reject(driver, 2)
    span = driver.engine.readers.span("q", "etl", 1, 4, None)
    assert span.wanted == [(1, 1), (3, 3)]
    assert span.allowed == [(1, 3)]
    assert alive(driver, 2)
    driver.restart()
    assert driver.engine.readers.span("q", "etl", 1, 4, None).allowed == [(1, 3)]
    driver.ask(SeekGroup(9, None, "q", "etl", StartAt.BEGINNING))
    assert driver.engine.readers.span("q", "etl", 1, 4, None).allowed == [(1, 1), (3, 3)], "it begins anew"


def test_without_a_dead_letter_queue_a_reject_drops(driver: Driver) -> None:
    driver.create("plain", dead_letter=False, mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.publish(2, "plain")
    driver.ask(JoinCursor(1, None, "plain", "etl"))
    assert driver.ask(RejectAt(1, None, "plain", "etl", [(1, "bad")])) == Rejected(1, 0)
    assert driver.info("plain").counters["dropped"] == 1
    driver.check()


def test_quarantined_runs_are_left_out_and_dead_lettered(driver: Driver) -> None:
    driver.publish(6)
    join(driver)
    assert driver.ask(Quarantine(1, None, "q", "etl", [(2, 3), (3, 99)])) == Rejected(5, 0)
    assert driver.ask(Quarantine(1, None, "q", "etl", [(2, 4), (99, 99)])) == Rejected(0, 3, unchanged=True)
    span = driver.engine.readers.span("q", "etl", 1, 7, None)
    assert (span.allowed, span.quarantined) == ([(1, 1)], [(2, 6)])
    driver.restart()
    assert driver.engine.readers.span("q", "etl", 1, 7, None).quarantined == [(2, 6)]
    commit(driver, 7)
    assert cursor(driver).quarantined == []
    driver.check()


def test_what_was_purged_before_it_was_read_is_lost_and_said_so(driver: Driver) -> None:
    driver.publish(6)
    join(driver)
    commit(driver, 2)
    driver.ask(RemoveMessages(9, None, "q", [(3, 3), (5, 5)]))
    driver.restart()
    assert cursor(driver).lost == [(3, 3), (5, 5)]
    reach, lost = driver.engine.readers.reach("q", "etl", 2, 0, 0, None)
    assert (reach.end, reach.messages, lost) == (7, 3, [(3, 3), (5, 5)])
    commit(driver, 4)
    assert cursor(driver).lost == [(5, 5)]
    driver.ask(PurgeQueue(9, None, "q"))
    assert cursor(driver).lost == [(4, 6)]
    driver.check()


@pytest.mark.parametrize("dead_letter", [True, False])
def test_what_its_sender_let_expire_is_skipped_and_counted(dead_letter: bool) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, dead_letter=dead_letter)
    driver.publish(2)
    driver.publish(1, expires_at=driver.now + 50)
    driver.publish(3)
    join(driver)
    driver.advance(60)
    assert (cursor(driver).lost, cursor(driver).expired_messages) == ([], 1)
    reach, lost = driver.engine.readers.reach("q", "etl", 1, 0, 0, None)
    assert (reach.end, reach.messages, lost) == (7, 5, [])
    assert driver.engine.readers.span("q", "etl", 1, 7, None).allowed == [(1, 2), (4, 6)]
    commit(driver, 7)
    driver.check()


def test_what_the_queue_let_expire_is_lost(driver: Driver) -> None:
    driver.ask(ChangeQueue(9, None, "q", {"message_ttl_ms": 50}))
    join(driver)
    driver.publish(2)
    driver.publish(1, expires_at=driver.now + 20)
    driver.advance(2000)
    assert (cursor(driver).lost, cursor(driver).expired_messages) == ([(1, 2)], 3)


def test_overflow_and_log_limits_lose_too() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, overflow=Overflow.DROP_OLDEST, max_messages=3)
    join(driver)
    driver.publish(5)
    assert cursor(driver).lost == [(1, 2)]
    driver.check()
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG, retain_messages=2)
    join(driver)
    for _ in range(5):
        driver.publish(1)
    assert cursor(driver).lost == [(1, 3)]
    for start, lost in ((1, [(1, 3)]), (3, [(3, 3)]), (4, []), (9, [])):
        assert driver.engine.readers.span("q", None, start, 99, None).lost == lost, "also to whoever has no group"
    driver.check()


@pytest.mark.parametrize("limits", [{"max_lag_bytes": 25}, {"max_lag_ms": 500}])
def test_a_group_that_lags_too_far_expires_and_holds_nothing_back(driver: Driver, limits: dict[str, int]) -> None:
    join(driver, **limits)
    driver.publish(3)
    driver.advance(3000)
    assert cursor(driver).expired
    for refused in (commit(driver, 2), join(driver), reject(driver, 1)):
        assert isinstance(refused, GroupExpired)
    with pytest.raises(GroupExpired, match="`vibemq-admin group seek q etl earliest`"):
        wanted(driver)
    driver.publish(2)
    driver.advance(2000)
    assert not any(alive(driver, sequence) for sequence in range(1, 6))
    driver.restart()
    assert cursor(driver).expired
    driver.ask(SeekGroup(1, None, "q", "etl", StartAt.NOW))
    driver.publish(1)
    assert not cursor(driver).expired
    assert wanted(driver, 6) == [(6, 6)]
    driver.check()


def test_what_could_not_be_stored_is_no_loss_and_no_message(driver: Driver) -> None:
    join(driver)
    driver.publish(2)
    driver.hold = True
    driver.publish(3)
    driver.refuse()
    driver.hold = False
    assert driver.engine.readers.tail("q") == 3
    driver.publish(1)
    assert driver.engine.readers.tail("q") == 7
    assert (wanted(driver), cursor(driver).lost) == ([(1, 2), (6, 6)], [])
    driver.check()
