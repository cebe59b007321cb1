"""Queues that are purged or deleted only while they have at most so many messages."""

from collections.abc import Iterator

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver
from vibemq.engine.pacing import Batch
from vibemq.errors import PreconditionFailed, VibeMQError
from vibemq.model.commands import DeleteQueue, PurgeQueue, RemoveMessages
from vibemq.model.effects import Reply

Kind = type[PurgeQueue] | type[DeleteQueue]

STEP = 8
"""Units of a step."""
FEW, MANY = STEP // 2, 12 * STEP
"""Groups that are looked at in one step, and in many."""

pytestmark = pytest.mark.parametrize("kind", [PurgeQueue, DeleteQueue])


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with steps_of(STEP):
        yield


def test_the_guard_of_a_queue_with_many_groups_looks_at_them_in_steps(kind: Kind) -> None:
    driver = Driver()
    driver.create_crowd(MANY)
    driver.publish(3)
    batch, steps = Batch([kind(1, 7, "q", at_most=2)]), 0
    while not batch.done:
        driver.engine.advance(batch, driver.now)
        steps += 1
    assert steps > 2
    assert isinstance(driver.ask(kind(1, None, "q", at_most=2)), PreconditionFailed)
    assert driver.info("q").ready == 3
    assert not isinstance(driver.ask(kind(1, None, "q", at_most=3)), VibeMQError)


def done_while_one_is_published(kind: Kind, groups: int, behind: int) -> tuple[int, int]:
    """How many messages were published, behind that step of the guard and the change, and how many are there."""
    driver = Driver()
    driver.create("other", dead_letter=False)
    driver.publish(2 * STEP, queue="other")
    driver.create_crowd(groups)
    scattered = [(sequence, sequence) for sequence in range(1, 2 * STEP - 2, 2)]
    batch, steps, published = Batch([RemoveMessages(1, 6, "other", scattered), kind(1, 7, "q", at_most=0)]), 0, 0
    while not batch.done:
        driver.engine.advance(batch, driver.now)
        if steps == behind and not batch.done and driver.engine.queue_info("q") is not None:
            driver.publish(1)
            published = 1
        steps += 1
    info = driver.engine.queue_info("q")
    return published, 0 if info is None else info.ready


@pytest.mark.parametrize("groups", [FEW, MANY])
def test_nothing_that_is_published_comes_between_the_guard_and_the_change(kind: Kind, groups: int) -> None:
    outcomes = [done_while_one_is_published(kind, groups, behind) for behind in range(MANY // STEP)]
    assert [ready for _, ready in outcomes] == [published for published, _ in outcomes]
    assert any(published for published, _ in outcomes) is (groups == MANY)


def test_a_queue_that_is_deleted_while_its_groups_are_looked_at_is_gone(kind: Kind) -> None:
    driver = Driver()
    driver.create_crowd(MANY)
    driver.publish(3)
    batch = Batch([kind(1, 7, "q", at_most=0)])
    driver.engine.advance(batch, driver.now)
    assert not batch.done
    driver.ask(DeleteQueue(9, None, "q"))
    answers: list[object] = []
    while not batch.done:
        answers += [each.result for each in driver.engine.advance(batch, driver.now).effects if isinstance(each, Reply)]
    assert not [answer for answer in answers if isinstance(answer, VibeMQError)]
