from collections.abc import Iterator

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver
from vibemq.engine.handlers.crowds.log_trimming import SURPLUS_PART
from vibemq.model.commands import DeleteQueue, JoinCursor, SeekGroup, StartAt
from vibemq.model.options import Retention
from vibemq.model.records import Dropped, Settled

STEP, GROUPS = 8, 40


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with steps_of(STEP):
        yield


def crowd(**options: object) -> Driver:
    driver = Driver()
    driver.create_crowd(GROUPS, retention=Retention.LOG, **options)
    driver.publish(10)
    driver.advance(10)
    return driver


def tick(driver: Driver) -> bool:
    """Whether something was due."""
    at = driver.engine.next_deadline()
    if at is None or at > driver.now:
        return False
    driver.tick()
    return True


def logged(driver: Driver) -> int:
    log = driver.engine._state.queues["q"].log
    assert log is not None
    return len(log)


def waiting(driver: Driver) -> set[int]:
    return {group.waiting for group in driver.engine._state.queues["q"].groups.values()}


def test_a_publish_looks_at_no_group_and_each_lets_go_in_a_later_step() -> None:
    driver = crowd(retain_messages=10)
    driver.subscribe(1, group="g7", capacity_messages=3)
    driver.advance(10)
    before = len(driver.records)
    driver.publish(4)
    assert not any(isinstance(record, Settled | Dropped) for record in driver.records[before:])
    steps: list[int] = []
    mark = len(driver.records)
    while tick(driver):
        steps.append(sum(isinstance(record, Settled) for record in driver.records[mark:]))
        mark = len(driver.records)
    assert max(steps) <= STEP
    assert sum(steps) == GROUPS
    [dropped] = [record for record in driver.records[before:] if isinstance(record, Dropped)]
    assert dropped.runs == [(1, 4)]
    assert (logged(driver), waiting(driver)) == (10, {10, 7})
    driver.check()
    driver.restart()
    assert (logged(driver), waiting(driver)) == (10, {10})


def test_a_little_more_than_the_limit_stays() -> None:
    driver = crowd(retain_messages=SURPLUS_PART)
    driver.publish(SURPLUS_PART - 10 + 1)
    while tick(driver):
        pass
    assert logged(driver) == SURPLUS_PART + 1
    driver.publish(1)
    while tick(driver):
        pass
    assert (logged(driver), waiting(driver)) == (SURPLUS_PART, {SURPLUS_PART})


def test_what_is_too_old_goes_in_steps() -> None:
    driver = crowd(retain_ms=5_000)
    driver.now += 6_000
    steps = 0
    while tick(driver):
        steps += 1
    assert steps >= GROUPS // STEP
    assert (logged(driver), waiting(driver)) == (0, {0})
    driver.check()


@pytest.mark.parametrize("name", ["g0", "g20", f"g{GROUPS - 1}", "late"])
def test_a_group_that_is_moved_or_comes_meanwhile_lets_go_as_well(name: str) -> None:
    driver = crowd(retain_messages=10)
    driver.publish(5)
    while tick(driver):
        if driver.engine._state.queues["q"].log_trim is not None:
            driver.ask(SeekGroup(9, None, "q", name, StartAt.BEGINNING))
    assert (logged(driver), waiting(driver)) == (10, {10})
    driver.check()


def test_a_cursor_is_told_once_of_what_it_will_never_read() -> None:
    driver = crowd(retain_messages=10)
    driver.ask(JoinCursor(9, None, "q", "reader"))
    driver.publish(5)
    while tick(driver):
        pass
    cursor = driver.engine._state.queues["q"].groups["reader"].cursor
    assert cursor is not None
    assert cursor.lost.runs() == [(1, 5)]
    driver.restart()
    assert driver.engine.violations() == []


def test_what_is_published_meanwhile_is_trimmed_behind_it() -> None:
    driver = crowd(retain_messages=10)
    for _ in range(20):
        driver.publish(1)
        tick(driver)
    while tick(driver):
        pass
    assert (logged(driver), waiting(driver)) == (10, {10})


def test_a_queue_that_is_deleted_meanwhile_is_gone() -> None:
    driver = crowd(retain_messages=10)
    driver.publish(5)
    assert tick(driver)
    driver.ask(DeleteQueue(9, None, "q"))
    while tick(driver):
        pass
    driver.check()
    driver.restart()
    assert driver.engine.queue_info("q") is None
