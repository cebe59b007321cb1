"""Messages that a job has made and that die again are counted, and hold the job when its guards say so."""

from collections.abc import Callable

import pytest

from tests.simulation.engine_driver import rows_of
from tests.unit.engine.handlers.jobs.jobs_driver import JobsDriver
from vibemq.engine.handlers.jobs.starting import FINISHED_MAX
from vibemq.engine.jobs.job_table import RUNNING_MAX
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.views import GROUPS_PER_STEP
from vibemq.errors import JobStateConflict
from vibemq.model.commands import (
    ChangeJob,
    CommitCursor,
    DeleteGroup,
    DeleteQueue,
    ForgetMade,
    JoinCursor,
    MoveMessages,
    PurgeQueue,
    RemoveMessages,
    SeekGroup,
    Settlement,
    StartAt,
)
from vibemq.model.jobs.job import ACKNOWLEDGED, JobState
from vibemq.model.jobs.job_records import MADE_RUNS_MAX
from vibemq.model.options import DeliveryMode, Durability, Retention
from vibemq.model.steps import at_once


@pytest.fixture
def driver() -> JobsDriver:
    driver = JobsDriver()
    driver.create()
    driver.bury(10)
    return driver


def kill(driver: JobsDriver, *sequences: int, queue: str = "q") -> None:
    driver.subscribe(3, queue, capacity_messages=100)
    driver.settle(3, *sequences, verb=Settlement.REJECT)
    driver.close(3, clean=True)


def unsettled(driver: JobsDriver) -> bool:
    return bool(at_once(driver.engine.unsettled(1)))


def test_deaths_are_counted_across_restarts(driver: JobsDriver) -> None:
    driver.start()
    driver.replay([1, 2, 3], cursor=3)
    kill(driver, 11)
    assert driver.job().dead_again == 1
    driver.check()
    driver.restart()
    kill(driver, 12, 13)
    assert (driver.job().dead_again, driver.job().state) == (3, JobState.RUNNING)
    driver.check()


def test_messages_of_others_are_not_counted(driver: JobsDriver) -> None:
    driver.publish(2)
    driver.start()
    driver.replay([1, 2], cursor=2)
    driver.publish(1)
    kill(driver, 11, 12, 15)
    assert driver.job().dead_again == 0
    kill(driver, 13, 14)
    assert driver.job().dead_again == 2
    driver.check()


def test_each_job_counts_its_own(driver: JobsDriver) -> None:
    driver.start()
    driver.start()
    driver.replay([1, 2], cursor=2)
    driver.replay([3], cursor=3, job_id=2)
    driver.replay([4], cursor=4)
    kill(driver, 12, 13, 14)
    assert (driver.job(1).dead_again, driver.job(2).dead_again) == (2, 1)
    driver.check()


def test_a_job_whose_first_letters_are_all_is_not_said_to_hold_others_back(driver: JobsDriver) -> None:
    driver.start(canary=3, selected=3)
    driver.replay([1, 2, 3])
    kill(driver, 12)
    job = driver.job()
    assert job.state == JobState.HELD
    assert "1 of its 3 letters died again, and none is left" in job.why


def test_a_canary_of_one_letter_is_told_as_one(driver: JobsDriver) -> None:
    driver.start(canary=1)
    driver.replay([1])
    kill(driver, 11)
    assert driver.job().why.startswith("the first letter died again, so no others were replayed")


def test_one_death_among_the_first_holds_the_job(driver: JobsDriver) -> None:
    driver.start(canary=3)
    driver.replay([1, 2, 3])
    assert unsettled(driver)
    kill(driver, 12)
    job = driver.job()
    assert (job.state, job.dead_again) == (JobState.HELD, 1)
    assert "1 of the first 3 letters died again" in job.why
    driver.check()
    assert driver.change(JobState.RUNNING).canary_passed
    kill(driver, 11)
    assert driver.job().state is JobState.RUNNING
    driver.check()


def test_the_first_are_settled_when_nobody_has_them(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1, 2])
    driver.subscribe(3, capacity_messages=100)
    driver.settle(3, 11)
    assert unsettled(driver)
    driver.settle(3, 12, verb=Settlement.RETRY, delay_ms=60_000)
    assert unsettled(driver)
    driver.advance(60_001)
    driver.settle(3, 12)
    assert not unsettled(driver)
    assert driver.job().state is JobState.RUNNING


def made(driver: JobsDriver) -> int:
    """The first message of the job."""
    return driver.job().made[0][1]


def passes(driver: JobsDriver) -> bool:
    assert not unsettled(driver)
    return bool(driver.change(canary_passed=True, by="").canary_passed)


def test_purged_letters_of_the_first_neither_pass_nor_fail(driver: JobsDriver) -> None:
    driver.start(canary=3)
    driver.replay([1, 2, 3])
    driver.subscribe(3, capacity_messages=1)
    driver.settle(3, 11)
    driver.close(3, clean=True)
    assert driver.ask(PurgeQueue(0, None, "q")) is not None
    assert driver.job().gone == 2
    driver.check()
    driver.restart()
    assert driver.job().gone == 2
    assert passes(driver)
    driver.replay([4])
    driver.ask(PurgeQueue(0, None, "q"))
    assert driver.job().gone == 2, "only the first are counted"
    driver.check()


def test_a_job_that_is_held_for_another_reason_is_told_when_all_of_the_first_are_gone(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1, 2])
    driver.change(JobState.HELD, by="", why="user 'ann' may not replay")
    driver.ask(PurgeQueue(0, None, "q"))
    job = driver.job()
    assert (job.state, job.gone) == (JobState.HELD, 2)
    assert "nobody acknowledged any of the first 2 letters" in job.why
    assert [event.event for event in job.events].count("held") == 2
    driver.check()
    driver.restart()
    # Whoever resumes it has been told.
    job = driver.change(JobState.RUNNING)
    assert (job.state, job.canary_passed) == (JobState.RUNNING, True)


def test_when_all_of_the_first_are_gone_nothing_has_passed(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1, 2])
    driver.ask(PurgeQueue(0, None, "q"))
    assert not passes(driver)
    assert driver.job().state is JobState.HELD
    assert "nobody acknowledged any of the first 2 letters" in driver.job().why
    driver.check()
    driver.restart()
    assert driver.change(JobState.RUNNING).canary_passed
    driver.check()


def in_deleted_queue(driver: JobsDriver) -> None:
    driver.ask(DeleteQueue(0, None, "q"))


def purged_of_many_groups(driver: JobsDriver) -> None:
    driver.ask(PurgeQueue(0, None, "crowded"))
    assert driver.job().gone == 2, "which a crowded queue counts as any other"


def of_groups_that_are_deleted(driver: JobsDriver) -> None:
    driver.ask(DeleteGroup(1, None, "fan", "g"))


def sought_past(driver: JobsDriver) -> None:
    driver.ask(SeekGroup(1, None, "fan", "g", StartAt.NOW))


QUEUES = {
    in_deleted_queue: "q",
    purged_of_many_groups: "crowded",
    of_groups_that_are_deleted: "fan",
    sought_past: "fan",
}


@pytest.mark.parametrize("leave", QUEUES)
def test_a_canary_that_nobody_acknowledged_has_not_passed(
    driver: JobsDriver, leave: Callable[[JobsDriver], None]
) -> None:
    driver.create("fan", mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.create("crowded", mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for number in range(STEP_UNITS + 1):
        driver.ask(JoinCursor(1, None, "crowded", f"g{number}", create=True))
    if leave in (of_groups_that_are_deleted, sought_past):
        driver.ask(JoinCursor(1, None, "fan", "g", create=True))
    driver.start(canary=2)
    driver.replay([1, 2], queue=QUEUES[leave])
    leave(driver)
    assert not passes(driver)
    job = driver.job()
    assert (job.state, job.acknowledged, job.canary_passed) == (JobState.HELD, False, False)
    assert "none of them waits any more" in job.why
    driver.check()
    driver.restart()
    assert driver.change(JobState.RUNNING).canary_passed
    driver.check()


def test_one_acknowledgement_is_noted_once_and_lets_the_canary_pass(driver: JobsDriver) -> None:
    driver.start(canary=3)
    driver.replay([1, 2, 3])
    driver.subscribe(3, capacity_messages=10)
    driver.settle(3, 11)
    driver.restart()
    assert driver.job().acknowledged
    driver.subscribe(3, capacity_messages=10)
    driver.settle(3, 12, 13)
    driver.close(3, clean=True)
    assert [event.event for event in driver.job().events].count(ACKNOWLEDGED) == 1
    assert passes(driver)
    driver.check()


def test_acknowledgements_of_other_messages_let_no_canary_pass(driver: JobsDriver) -> None:
    driver.publish(1)
    driver.start(canary=1)
    driver.replay([1])
    driver.publish(1)
    driver.subscribe(3, capacity_messages=10)
    driver.settle(3, 11, 13)
    driver.close(3, clean=True)
    assert not driver.job().acknowledged
    driver.ask(PurgeQueue(0, None, "q"))
    assert not passes(driver)


@pytest.mark.parametrize("hold_ms", [0, 600_000])
def test_a_cursor_that_commits_lets_the_canary_pass(driver: JobsDriver, hold_ms: int) -> None:
    driver.create("log", mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG)
    cursor = driver.ask(JoinCursor(1, None, "log", "reader", create=True, hold_ms=hold_ms))
    driver.start(canary=2)
    driver.replay([1, 2], queue="log")
    driver.ask(CommitCursor(1, None, "log", "reader", cursor.epoch, made(driver) + 2))
    assert driver.job().acknowledged, "a commit is the acknowledgement, whatever is held afterwards"
    driver.check()
    driver.ask(DeleteGroup(1, None, "log", "reader"))
    assert passes(driver)
    driver.check()


def test_an_untried_canary_is_tried_when_its_letters_come_back(driver: JobsDriver) -> None:
    """The move that took them away could not be stored."""
    driver.create("b")
    driver.start(canary=2)
    driver.replay([1, 2])
    first = made(driver)
    driver.hold = True
    incarnation = driver.engine.readers.queue("q").incarnation
    driver.handle(MoveMessages(1, None, "q", incarnation, "b", [first, first + 1], [driver.now] * 2, rows_of(2)))
    driver.handle(ChangeJob(0, None, 1, by="", canary_passed=True))
    assert driver.job().state is JobState.HELD
    driver.refuse()
    driver.hold = False
    driver.subscribe(3, capacity_messages=10)
    driver.settle(3, first, first + 1)
    driver.close(3, clean=True)
    assert not driver.change(JobState.RUNNING).canary_passed, "it is looked at once more"
    assert passes(driver)
    driver.check()


def test_a_canary_of_all_letters_is_not_said_to_hold_others_back(driver: JobsDriver) -> None:
    driver.start(canary=2, selected=2)
    driver.replay([1, 2])
    driver.ask(PurgeQueue(0, None, "q"))
    assert not passes(driver)
    assert "there are no others" in driver.job().why


def test_what_is_put_back_because_its_move_could_not_be_stored_is_not_gone(driver: JobsDriver) -> None:
    driver.create("b")
    driver.start(canary=3)
    driver.replay([1, 2, 3])
    first = made(driver)
    driver.hold = True
    incarnation = driver.engine.readers.queue("q").incarnation
    move = MoveMessages(1, None, "q", incarnation, "b", [first, first + 1], [driver.now] * 2, rows_of(2))
    driver.handle(move)
    driver.ask(RemoveMessages(0, None, "q", [(first + 2, first + 2)], incarnation))
    assert driver.job().gone == 3
    driver.refuse()
    driver.hold = False
    assert (driver.info("q").ready, driver.job().gone) == (2, 1), "what was removed stays so"
    driver.subscribe(3, capacity_messages=10)
    driver.settle(3, first, first + 1)
    driver.close(3, clean=True)
    driver.advance(5_000)
    driver.check()
    driver.restart()
    assert driver.job().gone == 1
    assert passes(driver)
    driver.check()


def test_what_was_moved_is_gone_when_its_queue_is_deleted_before_the_move_fails(driver: JobsDriver) -> None:
    driver.create("b")
    driver.start(canary=2)
    driver.replay([1, 2])
    driver.hold = True
    incarnation = driver.engine.readers.queue("q").incarnation
    sequences = [made(driver), made(driver) + 1]
    driver.handle(MoveMessages(1, None, "q", incarnation, "b", sequences, [driver.now] * 2, rows_of(2)))
    driver.handle(DeleteQueue(0, None, "q"))
    driver.refuse()
    driver.hold = False
    assert driver.job().gone == 2
    driver.advance(5_000)
    driver.check()
    driver.restart()
    assert driver.job().gone == 2


def test_those_that_expire_without_a_letter_are_gone(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.create("short", message_ttl_ms=100, dead_letter=False)
    driver.replay([1, 2], queue="short")
    driver.advance(101)
    assert (driver.job().gone, driver.job().dead_again) == (2, 0)
    driver.check()


@pytest.mark.parametrize("verb", [Settlement.REJECT, Settlement.RETRY])
@pytest.mark.parametrize("mode", [DeliveryMode.ROUND_ROBIN, DeliveryMode.FAN_OUT_WITH_ACK])
def test_what_a_consumer_fails_with_holds_the_job_where_no_letters_are_kept(
    driver: JobsDriver, mode: DeliveryMode, verb: Settlement
) -> None:
    driver.start(canary=3)
    driver.create("strict", mode=mode, dead_letter=False, max_attempts=1)
    driver.subscribe(3, "strict", capacity_messages=10)
    driver.replay([1, 2, 3], queue="strict")
    first = made(driver)
    driver.settle(3, first, first + 1, verb=verb)
    driver.settle(3, first + 2)
    driver.close(3, clean=True)
    job = driver.job()
    assert (job.state, job.dead_again, job.gone) == (JobState.HELD, 2, 0)
    assert "2 of the first 3 letters died again" in job.why
    driver.check()
    driver.restart()
    assert (driver.job().dead_again, driver.job().gone) == (2, 0)


def test_a_job_is_held_after_so_many_deaths_and_again_after_so_many_more(driver: JobsDriver) -> None:
    driver.start(stop_after_dead_again=2)
    driver.replay([1, 2, 3, 4, 5, 6], cursor=6)
    kill(driver, 11)
    assert driver.job().state is JobState.RUNNING
    kill(driver, 12)
    assert driver.job().state is JobState.HELD
    driver.change(JobState.RUNNING)
    kill(driver, 13)
    assert driver.job().state is JobState.RUNNING
    kill(driver, 14)
    assert driver.job().state is JobState.HELD
    driver.check()
    driver.restart()
    assert (driver.job().state, driver.job().dead_again, driver.job().forgiven) == (JobState.HELD, 4, 2)


def test_a_held_job_lets_the_next_one_run(driver: JobsDriver) -> None:
    for _ in range(9):
        driver.start(stop_after_dead_again=1)
    driver.replay([1], cursor=1)
    kill(driver, 11)
    assert [driver.job(number).state for number in (1, 9)] == [JobState.HELD, JobState.RUNNING]
    driver.check()


def test_what_was_never_stored_has_not_died(driver: JobsDriver) -> None:
    driver.create("fast", durability=Durability.ASYNC)
    driver.start()
    driver.hold = True
    driver.replay([1, 2], cursor=2, queue="fast")
    kill(driver, 1, 2, queue="fast")
    assert driver.job().dead_again == 2
    driver.refuse()
    driver.hold = False
    assert (driver.job().dead_again, driver.job().done) == (0, 0)
    driver.advance(5_000)
    driver.check()


def test_letters_of_two_queues_in_turns_are_two_stretches(driver: JobsDriver) -> None:
    driver.create("b")
    in_b = driver.bury(10, "b")
    driver.start()
    for one, other in zip(range(1, 11), in_b, strict=True):
        driver.replay([one], cursor=other)
        driver.replay([other], queue="b", origin=2)
    assert driver.job().made == ((1, 11, 20), (2, 11, 20))
    kill(driver, 11, 20)
    kill(driver, 15, queue="b")
    assert driver.job().dead_again == 3
    driver.check()


def test_settled_stretches_are_forgotten_and_the_others_are_counted(driver: JobsDriver) -> None:
    driver.start()
    for dead_id in range(1, 7):
        driver.replay([dead_id], cursor=dead_id)
        driver.publish(1)
    sequences = [first for _, first, _ in driver.job().made]
    assert at_once(driver.engine.settled(1)) == []
    driver.subscribe(3, capacity_messages=100)
    driver.settle(3, *sequences[:3])
    driver.close(3, clean=True)
    settled = at_once(driver.engine.settled(1))
    assert [first for _, first, _ in settled] == sequences[:3]
    assert driver.ask(ForgetMade(0, None, 1, settled)) is None
    assert [first for _, first, _ in driver.job().made] == sequences[3:]
    assert not driver.job().made_forgotten
    driver.check()
    driver.restart()
    kill(driver, sequences[3])
    assert driver.job().dead_again == 1
    driver.check()


def test_the_look_for_settled_stretches_pauses_also_where_none_is_settled(driver: JobsDriver) -> None:
    count = 3 * GROUPS_PER_STEP
    driver.bury(count)
    driver.start()
    for dead_id in range(1, count + 1):
        driver.replay([dead_id], cursor=dead_id)
        driver.publish(1)
    assert len(driver.job().made) == count
    pauses = 0
    for _ in driver.engine.settled(1):
        pauses += 1
    assert pauses >= 3


def test_the_stretches_that_are_remembered_are_bounded(driver: JobsDriver) -> None:
    count = MADE_RUNS_MAX + 20
    driver.bury(count)
    driver.start()
    for dead_id in range(11, 11 + count):
        driver.replay([dead_id], cursor=dead_id)
        driver.publish(1)
    job = driver.job()
    assert (len(job.made), job.made_forgotten) == (MADE_RUNS_MAX, True)
    first, second = job.made[0][1], job.made[1][1]
    kill(driver, first - 2, first, second)
    assert driver.job().dead_again == 2, "the engine forgets what the store forgets"
    driver.check()


def test_a_canary_that_dies_while_its_job_is_paused_holds_it(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1, 2])
    driver.change(JobState.PAUSED)
    kill(driver, 11)
    assert driver.job().state is JobState.PAUSED
    job = driver.change(JobState.RUNNING)
    assert (job.state, job.canary_passed, job.forgiven) == (JobState.HELD, False, 0)
    assert "1 of the first 2 letters died again" in job.why
    driver.restart()
    job = driver.change(JobState.RUNNING)
    assert (job.state, job.canary_passed, job.forgiven) == (JobState.RUNNING, True, 1)
    driver.check()


def test_a_job_is_held_by_what_dies_while_it_waits_for_its_turn(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1, 2])
    driver.change(JobState.PAUSED)
    for _ in range(RUNNING_MAX):
        driver.start()
    assert driver.change(JobState.RUNNING).state is JobState.QUEUED
    kill(driver, 11, 12)
    assert driver.job().state is JobState.HELD
    driver.change(JobState.CANCELLED, job_id=2)
    assert (driver.job().state, driver.job().canary_passed) == (JobState.HELD, False)
    driver.check()


def test_many_deaths_during_a_pause_hold_the_job_too(driver: JobsDriver) -> None:
    driver.start(stop_after_dead_again=2)
    driver.replay([1, 2, 3], cursor=3)
    driver.change(JobState.PAUSED)
    kill(driver, 11, 12)
    for _ in range(RUNNING_MAX):
        driver.start()
    assert driver.change(JobState.RUNNING).state is JobState.HELD
    assert driver.change(JobState.RUNNING).forgiven == 2
    driver.check()


def test_no_canary_passes_after_a_death_that_its_worker_has_not_seen(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1, 2])
    kill(driver, 11)
    passed = driver.change(None, by="", canary_passed=True, why="none of the first 2 letters died again")
    assert isinstance(passed, JobStateConflict)
    assert (driver.job().state, driver.job().canary_passed) == (JobState.HELD, False)
    driver.check()


def test_a_canary_goes_on_when_its_job_was_held_for_another_reason(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1])
    driver.change(JobState.HELD, by="", why="no rights")
    assert not driver.change(JobState.RUNNING).canary_passed
    kill(driver, 11)
    assert driver.job().state is JobState.HELD


def test_a_job_that_is_held_for_another_reason_is_told_of_deaths(driver: JobsDriver) -> None:
    driver.start(canary=2)
    driver.replay([1, 2])
    driver.change(JobState.HELD, by="", why="no rights")
    kill(driver, 11)
    kill(driver, 12)
    assert "1 of the first 2 letters died again" in driver.job().why
    assert [event.event for event in driver.job().events].count("held") == 2
    driver.check()


def test_messages_of_a_forgotten_job_die_like_any_other(driver: JobsDriver) -> None:
    """Also where they stand in a queue of which the job itself did not know any more."""
    driver.create("b")
    driver.create("c")
    in_b, in_c = driver.bury(300, "b"), driver.bury(300, "c")
    driver.start()
    driver.replay([1, 2], cursor=2)
    for one, other in zip(in_b, in_c, strict=True):
        driver.replay([one], queue="b", origin=2)
        driver.replay([other], queue="c", origin=3)
        # Others publish, so that no stretch continues the one before.
        driver.publish(1, queue="b")
        driver.publish(1, queue="c")
    assert {queue_id for queue_id, _, _ in driver.job().made} == {2, 3}
    driver.change(JobState.CANCELLED)
    for job_id in range(2, 3 + FINISHED_MAX):
        driver.start()
        driver.change(JobState.CANCELLED, job_id=job_id)
    assert driver.engine.jobs.get(1) is None
    assert not any(driver.engine.jobs.made.values())
    kill(driver, 11, 12)
    assert driver.info().dead == 10
    driver.check()


def test_a_canary_of_many_stretches_waits_for_all_of_them(driver: JobsDriver) -> None:
    count = MADE_RUNS_MAX + 20
    ids = driver.bury(count)
    driver.start(canary=count)
    for dead_id in ids:
        driver.replay([dead_id])
        driver.publish(1)
    made = [first for _, first, _ in driver.job().made]
    assert (len(made), driver.job().made_forgotten) == (count, False)
    driver.restart()
    driver.subscribe(1, capacity_messages=5_000)
    driver.settle(1, *made[1:])
    assert unsettled(driver)
    driver.settle(1, made[0])
    assert not unsettled(driver)
    driver.check()
