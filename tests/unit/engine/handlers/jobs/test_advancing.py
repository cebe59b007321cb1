"""What a step of a job counts stands in the batch of the letters that it has moved."""

from dataclasses import replace

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import rows_of
from tests.unit.engine.handlers.jobs.jobs_driver import JobsDriver
from vibemq.errors import Blocked, JobStateConflict, QueueNotFound
from vibemq.model.commands import Pressure, PurgeDead, ReplayDead, SetPressure, Settlement
from vibemq.model.effects import JobStepped
from vibemq.model.jobs.job import JobKind, JobState, JobStep
from vibemq.model.jobs.job_records import JobAdvanced
from vibemq.model.options import Durability, Overflow
from vibemq.model.records import DeadRemoved


@pytest.fixture
def driver() -> JobsDriver:
    driver = JobsDriver()
    driver.create()
    driver.bury(10)
    return driver


def test_letters_and_account_are_one_batch(driver: JobsDriver) -> None:
    driver.start()
    driver.hold = True
    driver.replay([1, 2, 3], cursor=3)
    (outcome,) = driver.waiting
    kinds = [type(record) for record in outcome.records]
    assert DeadRemoved in kinds
    assert JobAdvanced in kinds
    driver.keep()
    job = driver.job()
    assert (job.done, job.cursor, job.examined, job.skipped) == (3, 3, 3, 0)
    assert [made[1:] for made in job.made] == [(11, 13)]
    driver.check()


def test_a_step_that_was_not_stored_has_not_happened(driver: JobsDriver) -> None:
    driver.start()
    driver.replay([1, 2], cursor=2)
    before = driver.job()
    driver.hold = True
    driver.replay([3, 4], cursor=4)
    driver.replay([5], cursor=5)
    driver.refuse()
    driver.hold = False
    assert driver.job() == before
    driver.advance(5_000)
    driver.check()
    assert driver.replay([3, 4, 5], cursor=5).count == 3
    driver.check()
    driver.restart()
    assert (driver.job().done, driver.job().cursor, driver.engine.dead_count) == (5, 5, 5)


@pytest.mark.parametrize("paid_at_once", [True, False])
def test_a_step_behind_one_that_was_not_stored_does_not_pass_over_its_letters(
    driver: JobsDriver, paid_at_once: bool
) -> None:
    """The letters of the first are back; what the second counts is owed, and the cursor stands before them."""
    start = driver.start().cursor
    driver.hold = True
    driver.replay([1, 2], cursor=2)
    driver.step(6)
    driver.refuse()
    driver.hold = False
    assert (driver.job().cursor, driver.job().done, driver.job().examined) == (start, 0, 3)
    if not paid_at_once:
        assert driver.replay([1, 2], cursor=2).count == 2
    driver.advance(5_000)
    driver.check()
    driver.restart()
    cursor, done = (start, 0) if paid_at_once else (2, 2)
    assert (driver.job().cursor, driver.job().done, driver.engine.dead_count) == (cursor, done, 10 - done)


def test_a_purge_that_was_not_stored_is_owed_with_its_account(driver: JobsDriver) -> None:
    driver.start(JobKind.PURGE_DEAD)
    driver.hold = True
    driver.handle(PurgeDead(0, "asked", [1, 2], {1: 1, 2: 1}, step=JobStep(1, 2, 2)))
    driver.refuse()
    assert driver.answer("asked") is None, "it stays true, and is told when it is stored"
    driver.hold = False
    driver.keep()
    assert driver.answer("asked").count == 2
    assert (driver.job().done, driver.engine.dead_count) == (2, 8)
    driver.advance(5_000)
    driver.check()
    driver.restart()
    assert (driver.job().done, driver.disk.dead_count) == (2, 8)


def test_what_an_export_has_copied_is_counted_and_owed_when_it_was_not_stored(driver: JobsDriver) -> None:
    driver.start(JobKind.EXPORT_DEAD)
    driver.step(4, done=3)
    driver.hold = True
    driver.step(8, done=4)
    driver.refuse()
    driver.hold = False
    driver.keep()
    assert (driver.job().done, driver.job().cursor, driver.engine.dead_count) == (7, 8, 10)
    driver.advance(5_000)
    driver.check()
    driver.restart()
    assert (driver.job().done, driver.job().cursor, driver.engine.dead_count) == (7, 8, 10)


def test_what_is_gone_is_skipped_and_counted(driver: JobsDriver) -> None:
    driver.start()
    driver.ask(PurgeDead(9, None, [2, 3], {2: 1, 3: 1}))
    assert driver.replay([1, 2, 3, 4], cursor=4).count == 2
    job = driver.job()
    assert (job.done, job.skipped, job.cursor) == (2, 2, 4)
    driver.check()


def test_no_step_goes_beyond_the_limit(driver: JobsDriver) -> None:
    driver.start(limit=5)
    driver.replay([1, 2, 3], cursor=3)
    stepped = driver.replay([4, 5, 6, 7], cursor=7)
    assert (stepped.count, stepped.left) == (2, 2)
    job = driver.job()
    assert (job.done, job.left, job.cursor) == (5, 0, 3)
    assert driver.replay([6, 7], cursor=7) == JobStepped(0, 2, job)
    driver.check()


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.CANCELLED])
def test_a_job_that_does_not_run_moves_nothing(driver: JobsDriver, state: JobState) -> None:
    driver.start()
    driver.change(state)
    for answer in (driver.replay([1], cursor=1), driver.purge([1], cursor=1), driver.step(1)):
        assert isinstance(answer, JobStateConflict)
    assert (driver.engine.dead_count, driver.info().ready, driver.job().cursor) == (10, 0, 0)
    driver.check()


def test_the_cursor_stays_before_letters_that_find_no_room() -> None:
    driver = JobsDriver()
    driver.create(overflow=Overflow.DROP_OLDEST, max_messages=4)
    driver.bury(4)
    driver.publish(2)
    driver.start()
    stepped = driver.replay([1, 2, 3, 4], cursor=4)
    assert (stepped.count, stepped.left, driver.job().cursor, driver.job().examined) == (2, 2, 0, 2)
    driver.check()


def test_a_missing_target_changes_nothing(driver: JobsDriver) -> None:
    driver.start()
    assert isinstance(driver.replay([1], cursor=1, queue="missing"), QueueNotFound)
    assert (driver.job().cursor, driver.engine.dead_count) == (0, 10)


def bury_two_of_a_connection(driver: JobsDriver) -> None:
    """In its own queue, and it is still there."""
    driver.create("own", exclusive=True, durability=Durability.TRANSIENT)
    driver.publish(2, queue="own")
    driver.subscribe(9, "own", capacity_messages=2)
    driver.settle(9, 1, 2, verb=Settlement.REJECT)
    assert driver.engine.dead_count == 12


def test_letters_of_another_connections_queue_are_passed_over(driver: JobsDriver) -> None:
    bury_two_of_a_connection(driver)
    driver.start()
    step = JobStep(1, 12, 3, 0)
    origins = {10: 1, 11: 2, 12: 2}
    stepped = driver.ask(PurgeDead(0, None, [10, 11, 12], origins, step=step))
    assert (stepped.count, driver.job().skipped) == (1, 2)


def test_letters_that_are_passed_over_are_counted_with_the_cursor(driver: JobsDriver) -> None:
    """Until it is behind them they are found again."""
    bury_two_of_a_connection(driver)
    driver.start()
    for _ in range(3):
        stepped = driver.ask(PurgeDead(0, None, [11, 12], {11: 2, 12: 2}, step=JobStep(1, 0, 2, 0)))
        assert (stepped.count, stepped.passed) == (0, 2)
    assert (driver.job().skipped, driver.job().examined) == (0, 0)
    driver.ask(PurgeDead(0, None, [10], {10: 1}, step=JobStep(1, 12, 3, 0, passed=2)))
    assert (driver.job().skipped, driver.job().examined, driver.job().done) == (2, 3, 1)
    driver.check()


def test_a_letter_that_its_queue_can_never_take_is_named() -> None:
    driver = JobsDriver()
    driver.create()
    driver.bury(3)
    driver.create("small", overflow=Overflow.DROP_OLDEST, max_bytes=9)
    driver.start()
    stepped = driver.replay([2, 3], queue="small")
    assert (stepped.count, stepped.left, stepped.too_large) == (0, 2, 2)
    driver.create("large", overflow=Overflow.DROP_OLDEST, max_bytes=15)
    stepped = driver.replay([2, 3], queue="large")
    assert (stepped.count, stepped.left, stepped.too_large) == (1, 1, 0)
    driver.check()


def test_what_a_job_tries_in_vain_counts_as_no_refused_message(driver: JobsDriver) -> None:
    driver.start()
    driver.handle(SetPressure(Pressure.BLOCKING))
    for _ in range(3):
        assert isinstance(driver.replay([1, 2], cursor=2), Blocked)
    driver.handle(SetPressure(Pressure.NONE))
    driver.hold = True
    for _ in range(3):
        driver.replay([1, 2], cursor=2)
        driver.refuse()
    driver.hold = False
    assert driver.info().counters["refused"] == 0
    driver.check()


def test_the_steps_of_others_count_for_no_job(driver: JobsDriver) -> None:
    driver.start()
    driver.ask(ReplayDead(9, None, "q", [1], rows_of(1), origins={1: 1}))
    assert driver.job().done == 0
    driver.check()


def test_a_page_without_letters_moves_the_cursor(driver: JobsDriver) -> None:
    driver.start()
    driver.step(7)
    job = driver.job()
    assert (job.cursor, job.examined, job.damaged, job.done) == (7, 3, 1, 0)
    driver.check()


def test_a_step_that_could_not_be_stored_costs_the_same_however_much_jobs_have_made(driver: JobsDriver) -> None:
    """While the disk is full, each job that goes on tries once a second."""
    jobs, costs = driver.engine.jobs, []
    kept, tries = driver.start(), driver.start()
    for count in (0, 5_000):
        # Message by message, as between those of others.
        made = tuple((1, sequence, sequence) for sequence in range(1_000, 1_000 + 2 * count, 2))
        jobs.put(replace(kept, made=made))
        for stretch in made:
            jobs.note_made(*stretch, kept.job_id)
        driver.hold = True
        driver.replay([1, 2], job_id=tries.job_id)
        costs.append(sum(instructions(driver.refuse).values()))
        driver.hold = False
    assert costs[1] <= 1.5 * costs[0]
