"""Limits of a queue that very many groups read."""

from typing import Any

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine import Batch
from vibemq.engine.handlers.overflow import LOOKS_PER_UNIT
from vibemq.model.commands import (
    ChangeQueue,
    CloseSession,
    Command,
    ImportMessages,
    MoveMessages,
    Publish,
    ReplayDead,
    SeekGroup,
    Settlement,
    StartAt,
)
from vibemq.model.effects import Imported, Moved, Replayed
from vibemq.model.options import Overflow
from vibemq.model.records import Settled

STEP, GROUPS = 8, 40


def crowd(**options: Any) -> Driver:
    driver = Driver()
    driver.create_crowd(GROUPS, **{"max_messages": 10, **options})
    driver.publish(8)
    driver.advance(10)
    return driver


def test_each_of_very_many_groups_drops_its_oldest_in_a_later_step() -> None:
    with steps_of(STEP):
        driver = crowd(overflow=Overflow.DROP_OLDEST)
        driver.subscribe(1, group="g7", capacity_messages=3)
        driver.advance(10)
        before = len(driver.records)
        outcome = driver.engine.advance(Batch([Publish(9, None, "q", rows_of(5))]), driver.now)
        assert not any(isinstance(record, Settled) for record in outcome.records)
        driver.submit(outcome)
        steps: list[int] = []
        while (at := driver.engine.next_deadline()) is not None and at <= driver.now:
            mark = len(driver.records)
            driver.tick()
            steps.append(sum(isinstance(record, Settled) for record in driver.records[mark:]))
        assert max(steps) <= STEP
        groups = driver.engine._state.queues["q"].groups
        # What a consumer holds does not count, so its group has nothing to drop.
        assert {group.waiting for group in groups.values()} == {10}
        assert sum(isinstance(record, Settled) for record in driver.records[before:]) == GROUPS - 1
        assert driver.engine.violations() == []


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.BLOCK_PUBLISHER])
def test_what_fits_beside_very_many_groups_is_counted_in_steps(overflow: Overflow) -> None:
    with steps_of(STEP):
        driver = crowd(overflow=overflow)
        batch = Batch([Publish(9, "published", "q", rows_of(5))])
        steps = 0
        while not batch.done:
            driver.submit(driver.engine.advance(batch, driver.now))
            steps += 1
        assert steps >= GROUPS // (LOOKS_PER_UNIT * STEP)
        queue = driver.engine._state.queues["q"]
        if overflow is Overflow.DROP_NEWEST:
            published = driver.answer("published")
            assert sorted(published.refused) == [2, 3, 4]
            return
        assert len(queue.parked) == 1
        for group in list(queue.groups):
            driver.ask(SeekGroup(9, None, "q", group, StartAt.NOW))
        driver.advance(100)
        assert driver.answer("published").refused is None


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.REDIRECT_TO_DLQ])
def test_bytes_on_their_way_to_the_disk_count_beside_very_many_groups(overflow: Overflow) -> None:
    with steps_of(STEP):
        driver = Driver()
        dead_letter = overflow is Overflow.REDIRECT_TO_DLQ
        driver.create_crowd(GROUPS, max_bytes=1_000, overflow=overflow, dead_letter=dead_letter)
        driver.hold = True
        for _ in range(3):
            in_steps(driver, Publish(9, None, "q", rows_of(90)))
        driver.hold = False
        driver.keep()
        queue = driver.engine._state.queues["q"]
        assert (queue.waiting(), queue.refused + queue.redirected) == (100, 170)


def full_then_read(**options: Any) -> Driver:
    """Nothing waits any more, and the last that was counted is that the queue was full."""
    driver = crowd(**options)
    in_steps(driver, Publish(9, "refused", "q", rows_of(3)))
    assert len(driver.answer("refused").refused) == 1
    for number in range(GROUPS):
        driver.ask(SeekGroup(9, None, "q", f"g{number}", StartAt.NOW))
    driver.advance(10)
    return driver


@pytest.mark.parametrize("by", ["move", "import"])
def test_what_enters_a_queue_with_very_many_groups_is_judged_by_what_waits_then(by: str) -> None:
    with steps_of(STEP):
        driver = full_then_read(overflow=Overflow.DROP_NEWEST)
        driver.create("source")
        driver.publish(12, "source")
        source = driver.info("source").incarnation
        due = [driver.now] * 12
        wanted: dict[str, Command] = {
            "move": MoveMessages(9, "asked", "source", source, "q", [*range(1, 13)], due, rows_of(12)),
            "import": ImportMessages(9, "asked", "q", "file", 0, rows_of(12)),
        }
        steps = in_steps(driver, wanted[by])
        assert driver.answer("asked") == {"move": Moved(10, 2), "import": Imported(10, 10, 0, 2)}[by]
        assert steps > 1
        driver.check()


def test_dead_letters_go_back_into_a_queue_with_very_many_groups_as_far_as_they_fit() -> None:
    with steps_of(STEP):
        driver = crowd(overflow=Overflow.DROP_OLDEST, dead_letter=True)
        driver.create("source", max_attempts=1)
        driver.publish(4, "source")
        driver.subscribe(1, "source", capacity_messages=4)
        driver.advance(10)
        driver.settle(1, 1, 2, 3, 4, verb=Settlement.REJECT)
        assert in_steps(driver, ReplayDead(9, "asked", "q", [1, 2, 3, 4], rows_of(4))) > 1
        assert driver.answer("asked") == Replayed(2, 2)
        driver.check()


def test_publishers_that_waited_go_on_with_one_count_of_very_many_groups() -> None:
    with steps_of(STEP):
        driver = crowd(overflow=Overflow.BLOCK_PUBLISHER)
        for token in "abc":
            in_steps(driver, Publish(9, token, "q", rows_of(6)))
        queue = driver.engine._state.queues["q"]
        assert len(queue.parked) == 3
        for group in list(queue.groups):
            driver.ask(SeekGroup(9, None, "q", group, StartAt.NOW))
        driver.advance(100)
        assert [driver.answer(token) is not None for token in "abc"] == [True, False, False]
        assert queue.waiting() == 6
        driver.advance(60_000)
        assert [len(driver.answer(token).refused or ()) for token in "abc"] == [0, 6, 6]


def in_steps(driver: Driver, command: Command) -> int:
    """How many these were."""
    batch = Batch([command])
    steps = 0
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("options", "size", "limit"),
    [
        ({"max_messages": 3}, 10, "messages"),
        ({"max_bytes": 35}, 10, "bytes"),
        ({"max_messages": 3, "max_bytes": 1_000}, 10, "messages"),
        ({"max_messages": 30, "max_bytes": 35}, 10, "bytes"),
    ],
)
def test_the_refusal_says_which_limit_was_met(options: dict[str, int], size: int, limit: str) -> None:
    driver = Driver()
    driver.create(**options)
    driver.publish(3, size=size)
    for number in (1, 2):
        refused = driver.publish(number, size=size).refused
        assert [error.limited_by for error in refused.values()] == number * [limit]


def nearly_full_crowd(**options: int) -> Driver:
    """Only the first group still has something waiting, as much as leaves no room for five more."""
    driver = crowd(overflow=Overflow.BLOCK_PUBLISHER, **options)
    for group in list(driver.engine._state.queues["q"].groups)[1:]:
        driver.ask(SeekGroup(9, None, "q", group, StartAt.NOW))
    driver.advance(10)
    return driver


@pytest.mark.parametrize("options", [{}, {"max_messages": 0, "max_bytes": 10 * rows_of(1).size}])
def test_what_is_handed_out_while_very_many_groups_are_looked_at_wakes_a_publisher(options: dict[str, int]) -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd(**options)
        queue = driver.engine._state.queues["q"]
        first, other, *_ = queue.groups
        in_steps(driver, Publish(9, "asked", "q", rows_of(5)))
        assert len(queue.parked) == 1
        driver.ask(SeekGroup(9, None, "q", other, StartAt.NOW))
        assert queue.count is not None, "the first group was looked at, others are not yet"
        driver.subscribe(1, group=first, capacity_messages=100)
        assert queue.waiting() == 0
        driver.advance(1_000)
        assert driver.answer("asked").refused is None
        assert queue.count is None


@pytest.mark.parametrize("options", [{}, {"max_messages": 0, "max_bytes": 10 * rows_of(1).size}])
def test_what_is_handed_out_before_a_publisher_begins_to_wait_wakes_it(options: dict[str, int]) -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd(**options)
        queue = driver.engine._state.queues["q"]
        batch = Batch([Publish(9, "asked", "q", rows_of(5))])
        driver.submit(driver.engine.advance(batch, driver.now))
        assert not batch.done, "the first group was looked at, others are not yet"
        driver.subscribe(1, group=next(iter(queue.groups)), capacity_messages=100)
        while not batch.done:
            driver.submit(driver.engine.advance(batch, driver.now))
        driver.advance(1_000)
        assert driver.answer("asked").refused is None


def test_the_count_of_a_publisher_that_has_gone_goes_with_it() -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd()
        queue = driver.engine._state.queues["q"]
        in_steps(driver, Publish(3, "gone", "q", rows_of(5)))
        driver.ask(SeekGroup(9, None, "q", list(queue.groups)[-1], StartAt.NOW))
        assert queue.count is not None
        driver.handle(CloseSession(3, False))
        assert queue.count is None


def test_a_count_that_is_not_needed_any_more_is_not_gone_on_with_later() -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd()
        queue = driver.engine._state.queues["q"]
        in_steps(driver, Publish(9, "asked", "q", rows_of(5)))
        driver.ask(SeekGroup(9, None, "q", list(queue.groups)[-1], StartAt.NOW))
        assert queue.count is not None
        driver.ask(ChangeQueue(9, None, "q", {"max_messages": 8}))
        driver.advance(10)
        assert len(queue.parked) == 1
        assert queue.count is None, "it is known that nothing fits"
