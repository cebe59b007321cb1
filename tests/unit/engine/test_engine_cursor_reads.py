"""What a reader of ranges gets, and in which pieces."""

from itertools import pairwise

import pytest

from tests.simulation.engine_driver import Driver
from tests.unit.engine.cursor_verbs import join, wanted
from vibemq.engine.handlers.cursors import ranges
from vibemq.model.commands import RemoveMessages
from vibemq.model.options import DeliveryMode, Durability


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    return driver


def test_nothing_is_handed_out_and_nothing_is_in_flight(driver: Driver) -> None:
    join(driver)
    driver.publish(3)
    assert driver.take() == {}
    assert driver.info().in_flight == 0
    assert wanted(driver) == [(1, 3)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cursor_is_given_what_is_its_own(driver: Driver, restarted: bool) -> None:
    """Rows of others lie in the same blocks for a while yet."""
    driver.publish(6)
    driver.ask(RemoveMessages(9, None, "q", [(2, 3)]))
    join(driver)
    if restarted:
        driver.restart()
    span = driver.engine.readers.span("q", "etl", 1, 7, None)
    assert span.allowed == span.wanted == [(1, 1), (4, 6)]


def test_messages_are_read_once_they_are_as_safe_as_promised(driver: Driver) -> None:
    join(driver)
    driver.hold = True
    driver.publish(3)
    assert driver.engine.readers.tail("q") == 1
    assert wanted(driver) == []
    driver.keep()
    assert driver.engine.readers.tail("q") == 4


def test_a_reader_is_bounded_by_messages_and_by_bytes(driver: Driver) -> None:
    driver.publish(10, size=100)
    join(driver)
    readers = driver.engine.readers
    reach, _ = readers.reach("q", "etl", 3, 4, 0, None)
    assert (reach.end, reach.messages, reach.tail) == (7, 4, 11)
    reach, _ = readers.reach("q", "etl", 3, 0, 350, None)
    assert (reach.end, reach.messages, reach.size) == (6, 3, 300)
    reach, _ = readers.reach("q", "etl", 3, 0, 1, None)
    assert reach.end == 4, "one message at least"
    reach, _ = readers.reach("q", "etl", 11, 0, 0, None)
    assert (reach.end, reach.messages) == (11, 0)


@pytest.mark.parametrize("group", ["etl", None])
@pytest.mark.parametrize("limits", [(0, 0), (7, 0), (0, 130), (9, 250), (1000, 0), (0, 1)])
def test_scattered_messages_are_looked_at_piece_by_piece(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, group: str | None, limits: tuple[int, int]
) -> None:
    """So that the event loop is not held for as many runs as there are messages."""
    driver.publish(40)
    join(driver)
    driver.ask(RemoveMessages(9, None, "q", [(number, number) for number in range(2, 40, 3)]))
    readers = driver.engine.readers
    whole, lost = readers.reach("q", group, 1, *limits, None)
    assert not whole.more
    assert readers.span("q", group, 1, 41, None).end == 41
    monkeypatch.setattr(ranges, "RUNS_AT_ONCE", 3)
    reach, found = readers.reach("q", group, 1, *limits, None)
    while reach.more:
        assert reach.end < whole.end
        reach, more = readers.reach("q", group, 1, *limits, None, reach)
        found += more
    assert (reach, found) == (whole, lost)
    span = readers.span("q", group, 1, 41, None)
    assert (span.wanted, span.end) == ([(1, 1), (3, 4), (6, 7)], 8)
    assert readers.cuts("q", group, 1, 41, 4, None) == [1, 11, 21, 31, 41]


def test_cuts_balance_bytes_not_messages(driver: Driver) -> None:
    driver.publish(300, size=10)
    driver.publish(1, size=200_000)
    driver.publish(300, size=10)
    join(driver)
    readers = driver.engine.readers
    points = readers.cuts("q", "etl", 1, 602, 4, None)
    assert points[0] == 1
    assert points[-1] == 602
    assert points == sorted(set(points))
    sizes = [readers.size_between("q", first, end) for first, end in pairwise(points)]
    assert sum(sizes) == readers.size_between("q", 1, 602)
    assert readers.cuts("q", "etl", 5, 6, 8, None) == [5, 6]


@pytest.mark.parametrize("durability", [Durability.WEAK, Durability.ASYNC])
def test_after_a_restart_no_number_is_given_twice(durability: Durability, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "LEAP", 1000)
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, durability=durability)
    join(driver)
    driver.publish(5)
    driver.hold = True
    driver.publish(4)
    # A power cut takes 6 to 9, which a reader may have seen; its position is 10 now.
    driver.hold = False
    driver.restart()
    assert driver.engine.readers.tail("q") == 6
    reach, _ = driver.engine.readers.reach("q", "etl", 10, 100, 0, None)
    assert reach.end == 10, "it waits where it was"
    first = driver.publish(2).first_sequence
    assert first == 6 + 1000
    reach, lost = driver.engine.readers.reach("q", "etl", 10, 100, 0, None)
    assert (reach.end, reach.messages, lost) == (first + 2, 2, [])
    driver.check()
    driver.restart()
    assert wanted(driver) == [(1, 5), (first, first + 1)]
    driver.check()


def test_a_strong_queue_goes_on_counting(driver: Driver) -> None:
    join(driver)
    driver.publish(5)
    driver.restart()
    assert driver.publish(1).first_sequence == 6
