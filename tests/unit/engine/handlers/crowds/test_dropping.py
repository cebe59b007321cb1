from collections.abc import Iterator

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver
from vibemq.engine import Batch
from vibemq.model.commands import Command, DeleteQueue, PurgeQueue, RemoveListed, RemoveMessages, SeekGroup, StartAt
from vibemq.model.effects import Counted, Removed, Reply
from vibemq.model.options import Retention
from vibemq.model.records import Settled
from vibemq.model.runs import RunSet

STEP, GROUPS = 8, 40


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with steps_of(STEP):
        yield


def crowd(**options: object) -> Driver:
    driver = Driver()
    driver.create_crowd(GROUPS, **options)
    driver.publish(10)
    driver.advance(10)
    return driver


def in_steps(driver: Driver, command: Command) -> tuple[object, list[int]]:
    """The answer, and how many groups each step has looked at."""
    command.token = "asked"  # type: ignore[union-attr]
    batch = Batch([command])
    settled: list[int] = []
    while not batch.done:
        outcome = driver.engine.advance(batch, driver.now)
        settled.append(sum(isinstance(record, Settled) for record in outcome.records))
        driver.submit(outcome)
    [answer] = [e.result for e in driver.effects if isinstance(e, Reply) and e.token == "asked"]
    return answer, settled


@pytest.mark.parametrize("retention", list(Retention))
def test_a_purge_goes_through_very_many_groups_in_steps(retention: Retention) -> None:
    driver = crowd(retention=retention)
    answer, settled = in_steps(driver, PurgeQueue(9, None, "q"))
    assert answer == Counted(10)
    assert max(settled) <= STEP
    assert len(settled) >= GROUPS // STEP
    info = driver.engine.queue_info("q")
    assert info is not None
    assert info.ready == 0
    assert info.counters["dropped"] == 10 * GROUPS
    driver.restart()
    info = driver.engine.queue_info("q")
    assert info is not None
    assert info.ready == 0
    assert driver.engine.violations() == []


def test_what_is_removed_of_very_many_groups_leaves_what_a_consumer_holds() -> None:
    driver = crowd()
    driver.subscribe(1, group="g7", capacity_messages=3)
    driver.advance(10)
    removed = Removed([(2, 5)], [(2, 3)])
    dry, _ = in_steps(driver, RemoveListed(9, None, "q", [2, 3, 4, 5], dry_run=True))
    assert dry == removed
    driver.effects.clear()
    done, settled = in_steps(driver, RemoveListed(9, None, "q", [2, 3, 4, 5], dry_run=False))
    assert (done, max(settled) <= STEP) == (removed, True)
    driver.effects.clear()
    counted, _ = in_steps(driver, RemoveMessages(9, None, "q", [(1, 6)], None))
    assert counted == Counted(2)
    group = driver.engine._state.queues["q"].groups["g7"]
    assert (group.waiting, group.in_flight) == (4, 3)


def test_a_group_that_comes_meanwhile_has_its_turn_and_one_that_goes_is_passed_over() -> None:
    driver = crowd()
    batch = Batch([PurgeQueue(9, "purged", "q")])
    driver.submit(driver.engine.advance(batch, driver.now))
    driver.ask(SeekGroup(9, None, "q", "late", StartAt.BEGINNING))
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
    assert {group.waiting for group in driver.engine._state.queues["q"].groups.values()} == {0}
    assert driver.engine.violations() == []


@pytest.mark.parametrize("retention", list(Retention))
@pytest.mark.parametrize("name", ["g0", "g20", f"g{GROUPS - 1}"])
def test_a_group_that_is_moved_meanwhile_has_another_turn(retention: Retention, name: str) -> None:
    driver = crowd(retention=retention)
    batch = Batch([PurgeQueue(9, "purged", "q")])
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
        if not batch.done:
            driver.ask(SeekGroup(9, None, "q", name, StartAt.BEGINNING))
    assert driver.answer("purged") == Counted(10)
    driver.check()
    assert {group.waiting for group in driver.engine._state.queues["q"].groups.values()} == {0}
    driver.subscribe(1, group=name)
    driver.advance(10)
    assert driver.take() == {}
    driver.restart()
    assert driver.info().ready == 0


def test_what_a_moved_group_held_before_leaves_the_log() -> None:
    driver = crowd(retention=Retention.LOG)
    driver.subscribe(1, group="g0", capacity_messages=3)
    driver.advance(10)
    batch = Batch([PurgeQueue(9, "purged", "q")])
    driver.submit(driver.engine.advance(batch, driver.now))
    driver.close(1)
    driver.ask(SeekGroup(9, None, "q", "g0", StartAt.BEGINNING))
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
    assert driver.engine._state.queues["q"].log == RunSet()
    driver.check()


def test_a_queue_that_is_deleted_meanwhile_ends_the_purge() -> None:
    driver = crowd()
    batch = Batch([PurgeQueue(9, "purged", "q")])
    driver.submit(driver.engine.advance(batch, driver.now))
    driver.ask(DeleteQueue(9, None, "q"))
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
    assert isinstance(driver.answer("purged"), Counted)
