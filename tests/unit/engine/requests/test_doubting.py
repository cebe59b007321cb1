"""Requests that no group has any more, in a queue with very many groups."""

from collections.abc import Iterator

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver
from vibemq.errors import RequestFailed
from vibemq.model.commands import DeleteGroup, SeekGroup, StartAt
from vibemq.model.options import Overflow

STEP, GROUPS = 2, 40


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with steps_of(STEP):
        yield


def crowd(**options: object) -> Driver:
    driver = Driver()
    driver.create_crowd(GROUPS, **options)
    return driver


def failed(driver: Driver) -> list[str]:
    return sorted(
        address for address, told in driver.outcomes().items() if [type(each) for each in told] == [RequestFailed]
    )


def move_all(driver: Driver, *but: str) -> None:
    for name in driver.engine._state.queues["q"].groups:
        if name not in but:
            driver.ask(SeekGroup(9, None, "q", name, StartAt.NOW))


def test_a_request_that_each_of_very_many_groups_has_dropped_fails_at_once() -> None:
    driver = crowd(overflow=Overflow.DROP_OLDEST, max_messages=3)
    driver.request("dropped", timeout_ms=90_000)
    driver.request("kept", timeout_ms=90_000)
    driver.publish(2)
    driver.advance(10)
    assert failed(driver) == ["dropped"]
    assert driver.engine.next_deadline() != driver.now


def test_a_request_that_one_of_very_many_groups_still_has_waits_for_it() -> None:
    driver = crowd()
    driver.request("a", timeout_ms=90_000)
    move_all(driver, "g30")
    driver.advance(10)
    assert failed(driver) == []
    driver.ask(DeleteGroup(9, None, "q", "g30"))
    driver.advance(10)
    assert failed(driver) == ["a"]


def test_very_many_groups_are_asked_in_steps() -> None:
    driver = crowd()
    driver.request("a", timeout_ms=90_000)
    move_all(driver)
    ticks = 0
    while not failed(driver):
        driver.tick()
        ticks += 1
        assert ticks < 1_000
    assert ticks > 1


def test_a_group_that_has_got_it_back_meanwhile_is_asked_again() -> None:
    driver = crowd()
    driver.request("a", timeout_ms=90_000)
    move_all(driver, "g39")
    driver.tick()
    [doubt] = driver.engine._state.doubtful.values()
    assert doubt.asking is not None
    assert "g0" not in {group.name for group in doubt.asking.groups}
    driver.ask(SeekGroup(9, None, "q", "g0", StartAt.BEGINNING))
    move_all(driver, "g0")
    driver.advance(10)
    assert failed(driver) == []
    assert driver.engine._state.queues["q"].groups["g0"].waiting == 1


def test_more_requests_than_are_asked_about_together_fail() -> None:
    driver = crowd()
    for number in range(300):
        driver.request(f"{number:03}", timeout_ms=90_000)
    move_all(driver)
    driver.advance(10)
    assert len(failed(driver)) == 300
