"""Fan-out queues in which only the subscribers of the highest priority receive."""

import pytest

from tests.simulation.engine_driver import Driver, sequences
from vibemq.errors import InvalidOptions
from vibemq.model.commands import SetCapacity, Unsubscribe
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.runs import END
from vibemq.model.selector import Selector

LIVE = DeliveryMode.FAN_OUT_WITHOUT_ACK
EVEN = Selector.parse("n % 2 == 0")


def _driver(mode: DeliveryMode = LIVE) -> Driver:
    driver = Driver()
    driver.create(mode=mode, highest_priority_only=True)
    return driver


def _given(driver: Driver) -> dict[tuple[int, int], list[int]]:
    """(session, consumer) -> sequences, since the last look."""
    found: dict[tuple[int, int], list[int]] = {}
    for deliver in driver.delivers():
        found.setdefault((deliver.session, deliver.consumer), []).extend(sequences(deliver.runs))
    driver.take()
    return found


def test_each_of_the_highest_priority_is_given_every_message_and_the_others_none() -> None:
    driver = _driver()
    for session, priority in ((1, 5), (2, 1), (3, 5), (4, 0)):
        driver.subscribe(session, priority=priority)
    driver.publish(3)
    assert driver.take() == {1: [1, 2, 3], 3: [1, 2, 3]}
    assert driver.info().ready == 0
    driver.check()


def test_the_next_ones_take_over_from_then_on() -> None:
    driver = _driver()
    driver.subscribe(1, priority=5)
    driver.subscribe(2, priority=1)
    driver.publish(2)
    driver.close(1)
    driver.publish(2)
    assert driver.take() == {1: [1, 2], 2: [3, 4]}
    driver.subscribe(3, priority=2)
    driver.publish(1)
    assert driver.take() == {3: [5]}
    driver.check()


def test_selectors_are_honoured_within_the_highest_priority() -> None:
    driver = _driver()
    driver.subscribe(1, priority=5, where=EVEN)
    driver.subscribe(2, priority=1)
    driver.subscribe(3, priority=5)
    driver.publish(4)
    assert driver.take() == {1: [2, 4], 3: [1, 2, 3, 4]}
    assert driver.info().ready == 0
    driver.check()


def test_a_named_group_is_no_part_of_it() -> None:
    driver = _driver(DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, priority=5)
    driver.subscribe(2, group="audit", priority=0)
    driver.subscribe(3, priority=1)
    driver.publish(2)
    assert driver.take() == {1: [1, 2], 2: [1, 2]}
    driver.check()


def test_one_without_room_is_not_given_what_came_while_it_was_outranked() -> None:
    driver = _driver()
    driver.subscribe(1, priority=5)
    driver.subscribe(2, priority=1, capacity_messages=0)
    driver.publish(2)
    assert driver.info().ready == 0
    driver.check()


def test_without_the_option_everybody_is_given_every_message() -> None:
    driver = Driver()
    driver.create(mode=LIVE)
    driver.subscribe(1, priority=5)
    driver.subscribe(2, priority=1)
    driver.publish(1)
    assert driver.take() == {1: [1], 2: [1]}


def test_it_is_an_option_of_fan_out_queues() -> None:
    with pytest.raises(InvalidOptions, match="highest_priority_only"):
        QueueOptions(highest_priority_only=True).check_together()


@pytest.mark.parametrize("mode", [LIVE, DeliveryMode.FAN_OUT_WITH_ACK])
def test_what_was_published_before_a_higher_one_came_is_still_given(mode: DeliveryMode) -> None:
    driver = _driver(mode)
    driver.subscribe(1, priority=0, capacity_messages=2)
    driver.publish(5)
    first = driver.take()
    driver.subscribe(2, priority=5)
    driver.publish(2)
    got = first.get(1, [])
    others: list[int] = []
    for _ in range(5):
        held = got[-2:]
        if mode is DeliveryMode.FAN_OUT_WITH_ACK:
            driver.settle(1, *held)
        told = driver.take()
        others += told.get(2, [])
        got = got + told.get(1, [])
    assert (got, others) == ([1, 2, 3, 4, 5], [6, 7])
    driver.check()


def test_who_wants_other_messages_outranks_nobody() -> None:
    """As in a work queue with selectors: of those who want the same, the highest priority counts."""
    driver = _driver()
    driver.subscribe(1, priority=5, where=EVEN)
    driver.subscribe(2, priority=1)
    driver.subscribe(3, priority=1, where=EVEN)
    driver.publish(4)
    assert driver.take() == {1: [2, 4], 2: [1, 2, 3, 4]}
    driver.close(1)
    driver.publish(2)
    assert driver.take() == {2: [5, 6], 3: [6]}
    assert driver.info().ready == 0
    driver.check()


def test_consumers_beside_each_other_share_what_passes() -> None:
    driver = _driver()
    for number, where, priority in ((1, EVEN, 1), (2, Selector.parse("n > 2"), 1), (3, Selector.parse("n == 4"), 2)):
        driver.subscribe(1, consumer=number, where=where, priority=priority, beside=None if number == 1 else 1)
    driver.subscribe(2, beside=1)
    driver.publish(6)
    assert _given(driver) == {(1, 1): [2, 6], (1, 2): [3, 5], (1, 3): [4], (2, 1): [1, 2, 3, 4, 5, 6]}
    assert driver.info().ready == 0, "what is for none of them does not wait"
    for number in (1, 2, 3):
        driver.ask(Unsubscribe(1, None, number))
    driver.publish(1)
    assert _given(driver) == {(2, 1): [7]}
    assert driver.info().ready == 0
    driver.check()


@pytest.mark.parametrize(
    ("before", "after", "given"),
    [(None, None, [1, 2, 3]), (None, EVEN, [2]), (EVEN, None, [1, 2, 3]), (EVEN, Selector.parse("n > 2"), [3])],
)
def test_who_comes_in_place_of_another_gets_what_waited_for_it(
    before: Selector | None, after: Selector | None, given: list[int]
) -> None:
    driver = _driver()
    driver.subscribe(1, consumer=1, where=before)
    driver.ask(SetCapacity(1, None, 1, 0))
    driver.publish(3)
    driver.subscribe(1, consumer=2, where=after, priority=-1, capacity_messages=0, beside=1)
    driver.ask(Unsubscribe(1, None, 1))
    driver.ask(SetCapacity(1, None, 2, END))
    assert _given(driver) == {(1, 2): given}
    assert driver.info().ready == 0, "what only the other wanted does not wait"
    driver.check()


def test_what_only_one_of_several_wanted_goes_with_it() -> None:
    driver = _driver()
    for number, where in ((1, EVEN), (2, Selector.parse("n > 2"))):
        driver.subscribe(1, consumer=number, where=where, capacity_messages=0, beside=None if number == 1 else 1)
    driver.publish(4)
    driver.ask(Unsubscribe(1, None, 1))
    driver.ask(SetCapacity(1, None, 2, END))
    assert _given(driver) == {(1, 2): [3, 4]}
    assert driver.info().ready == 0
    driver.check()


def test_nothing_is_kept_for_whoever_comes_where_it_is_not_settled_by_consumers() -> None:
    driver = _driver()
    driver.publish(300)
    assert driver.info().ready == 0
    driver.subscribe(1, capacity_messages=0)
    driver.publish(2)
    assert driver.info().ready == 2
    driver.close(1)
    assert driver.info().ready == 0
    driver.subscribe(2)
    driver.publish(1)
    assert driver.take() == {2: [303]}
    driver.check()


def test_what_consumers_settle_waits_for_the_first_of_them() -> None:
    driver = _driver(DeliveryMode.FAN_OUT_WITH_ACK)
    driver.publish(2)
    driver.subscribe(1)
    assert driver.take() == {1: [1, 2]}
