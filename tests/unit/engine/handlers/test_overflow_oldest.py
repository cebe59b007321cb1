"""Where the oldest messages go for new ones."""

from tests.simulation.engine_driver import Driver
from tests.unit.engine.test_engine_limits import dropped
from vibemq.model.commands import SetCapacity, Settlement
from vibemq.model.options import DeliveryMode, Overflow
from vibemq.model.records import Reason


def test_drop_oldest_makes_room_at_the_head() -> None:
    driver = Driver()
    driver.create(max_messages=3, overflow=Overflow.DROP_OLDEST)
    driver.publish(3)
    assert driver.publish(2).refused is None
    assert dropped(driver) == [(Reason.OVERFLOW, [1, 2])]
    driver.subscribe(1)
    assert driver.take() == {1: [3, 4, 5]}
    driver.check()


def test_drop_oldest_by_bytes() -> None:
    driver = Driver()
    driver.create(max_bytes=1_000, overflow=Overflow.DROP_OLDEST)
    driver.publish(25, size=100)
    assert driver.info().ready == 10
    assert driver.info().first_sequence == 16


def test_large_messages_that_are_oldest_go_without_the_small_ones_behind_them() -> None:
    driver = Driver()
    driver.create(max_bytes=2_000_000, overflow=Overflow.DROP_OLDEST)
    for _ in range(15):
        driver.publish(1, size=100_000)
    driver.publish(4_000, size=100)
    driver.publish(1, size=150_000)
    assert dropped(driver) == [(Reason.OVERFLOW, [1])]
    assert driver.info().ready == 15 + 4_000
    driver.check()


def test_as_many_small_messages_go_as_make_room_for_a_large_one() -> None:
    driver = Driver()
    driver.create(max_bytes=2_000_000, overflow=Overflow.DROP_OLDEST)
    driver.publish(4_000, size=100)
    for _ in range(17):
        driver.publish(1, size=100_000)
    assert driver.info().ready == 3_000 + 17
    driver.check()


def test_small_messages_do_not_go_for_large_ones_that_a_consumer_holds() -> None:
    driver = Driver()
    driver.create(max_bytes=1_000_000, overflow=Overflow.DROP_OLDEST)
    driver.subscribe(1, capacity_messages=9)
    for _ in range(9):
        driver.publish(1, size=500_000)
    driver.take()
    driver.publish(200, size=100)
    driver.ask(SetCapacity(1, None, 1, 209))
    held = driver.take()[1]
    driver.ask(SetCapacity(1, None, 1, 0))
    # So many single runs that their bytes are not added up: told by the average, they are far above the limit.
    driver.settle(1, 1, *held[1::2])
    driver.settle(1, 1, *held[::2], verb=Settlement.RELEASE)
    driver.publish(1, size=100)
    assert driver.info().ready == 101
    driver.check()


def test_of_two_limits_the_one_that_asks_for_more_decides() -> None:
    driver = Driver()
    driver.create(max_bytes=700_000, max_messages=3, overflow=Overflow.DROP_OLDEST)
    for _ in range(4):
        driver.publish(1, size=200_000)
    assert driver.info().ready == 3
    driver.publish(1, size=600_000)
    assert driver.info().ready == 1
    driver.check()


def test_drop_oldest_leaves_what_another_group_holds() -> None:
    driver = Driver()
    driver.create(max_messages=2, overflow=Overflow.DROP_OLDEST, mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="fast")
    driver.subscribe(2, group="slow", capacity_messages=1)
    driver.publish(2)
    driver.publish(2)
    assert dropped(driver) == []
    assert driver.info().counters["dropped"] == 1
    driver.settle(1, 1, 2, 3, 4)
    driver.check()
