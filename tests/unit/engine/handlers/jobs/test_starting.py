"""Jobs begin, change their state by rules, and are forgotten some day."""

from dataclasses import replace
from functools import partial

import pytest

from bench.guard.counting import instructions
from tests.unit.engine.handlers.jobs.jobs_driver import JobsDriver
from vibemq.engine.handlers.jobs.starting import (
    EXPORTS_MAX,
    EXPORTS_OF_USER_MAX,
    FINISHED_MAX,
    UNFINISHED_MAX,
    UNFINISHED_OF_USER_MAX,
)
from vibemq.engine.jobs.job_table import RUNNING_MAX
from vibemq.errors import IdempotencyConflict, JobNotFound, JobStateConflict, StorageFull
from vibemq.model.commands import ForgetJobs, StartJob
from vibemq.model.jobs.job import KEPT_MS, JobKind, JobPlan, JobState
from vibemq.model.jobs.job_records import EVENTS_MAX

RUNNING, PAUSED, CANCELLED = JobState.RUNNING, JobState.PAUSED, JobState.CANCELLED


@pytest.fixture
def driver() -> JobsDriver:
    driver = JobsDriver()
    driver.create()
    return driver


def test_a_job_runs_at_once_and_is_kept(driver: JobsDriver) -> None:
    job = driver.start(note="after the incident")
    assert (job.job_id, job.state, job.started_at) == (1, RUNNING, driver.now)
    assert [(event.event, event.detail) for event in job.events] == [
        ("created", "after the incident"),
        ("started", ""),
    ]
    driver.check()
    driver.restart()
    assert driver.job() == job


def test_eight_run_and_the_others_wait_for_their_turn(driver: JobsDriver) -> None:
    for _ in range(RUNNING_MAX + 2):
        driver.start()
    states = [job.state for job in driver.engine.jobs.by_id.values()]
    assert states == [RUNNING] * RUNNING_MAX + [JobState.QUEUED] * 2
    driver.change(PAUSED, job_id=3)
    assert driver.job(RUNNING_MAX + 1).state is RUNNING
    driver.check()


def test_that_a_job_gives_its_turn_to_others_costs_in_proportion_to_their_number(driver: JobsDriver) -> None:
    costs = []
    for number in range(UNFINISHED_MAX):
        driver.start(user=f"user {number % 5}")
        if number + 1 in (UNFINISHED_MAX // 2, UNFINISHED_MAX):
            turn = partial(driver.change, job_id=len(costs) + 1, turn=False)
            costs.append(sum(instructions(turn).values()))
    assert costs[1] <= 2.5 * costs[0]


def test_a_job_that_is_resumed_waits_while_others_run(driver: JobsDriver) -> None:
    for _ in range(RUNNING_MAX + 1):
        driver.start()
    driver.change(PAUSED, job_id=1)
    assert len(driver.engine.jobs.running()) == RUNNING_MAX
    assert driver.change(RUNNING, job_id=1).state is JobState.QUEUED
    driver.change(CANCELLED, job_id=2)
    assert driver.job(1).state is RUNNING
    driver.check()


@pytest.mark.parametrize("state", [JobState.DONE, JobState.HELD, JobState.QUEUED, JobState.FAILED])
def test_some_states_a_job_reaches_only_by_itself(driver: JobsDriver, state: JobState) -> None:
    driver.start()
    assert isinstance(driver.change(state), JobStateConflict)
    assert driver.job().state is RUNNING


def test_a_job_that_waits_gives_its_turn_to_one_that_may_go_on(driver: JobsDriver) -> None:
    for _ in range(RUNNING_MAX + 1):
        driver.start()
    late = RUNNING_MAX + 1
    driver.change(by="", turn=False)
    assert (driver.job(1).state, driver.job(late).state) == (RUNNING, RUNNING)
    assert isinstance(driver.change(by="", turn=True), JobStateConflict), "all turns are taken"
    driver.restart()
    assert driver.engine.jobs.waiting == {late}, "no more than before go on at once"
    assert driver.start().state is JobState.QUEUED
    driver.change(CANCELLED, job_id=2)
    assert driver.job(late + 1).state is RUNNING
    driver.change(CANCELLED, job_id=3)
    assert driver.change(by="", turn=True, job_id=late).state is RUNNING
    assert driver.engine.jobs.waiting == set()
    driver.change(by="", turn=False, job_id=4)
    driver.change(PAUSED, job_id=4)
    assert driver.engine.jobs.waiting == set()
    assert isinstance(driver.change(by="", turn=True, job_id=4), JobStateConflict)
    driver.check()


def test_no_user_takes_all_the_room(driver: JobsDriver) -> None:
    for _ in range(UNFINISHED_OF_USER_MAX):
        driver.start(user="ann")
    plan = JobPlan(kind=JobKind.REPLAY, filter={}, last_id=0, user="ann")
    assert "50 jobs of user 'ann'" in str(driver.ask(StartJob(0, None, plan)))
    for number in range(UNFINISHED_MAX - UNFINISHED_OF_USER_MAX):
        driver.start(user=f"user-{number}")
    plan = JobPlan(kind=JobKind.REPLAY, filter={}, last_id=0, user="bob")
    assert "200 jobs have not ended" in str(driver.ask(StartJob(0, None, plan)))


def test_jobs_of_whoever_had_the_name_before_take_no_room(driver: JobsDriver) -> None:
    for number in range(UNFINISHED_OF_USER_MAX):
        kind = JobKind.EXPORT_DEAD if number < EXPORTS_OF_USER_MAX else JobKind.REPLAY
        driver.start(kind, user="ann", user_since=1)
    for kind in (JobKind.EXPORT_DEAD, JobKind.REPLAY):
        plan = JobPlan(kind=kind, filter={}, last_id=0, user="ann", user_since=2)
        assert driver.ask(StartJob(0, None, plan, since=2)).job_id > UNFINISHED_OF_USER_MAX
        assert "user 'ann'" in str(driver.ask(StartJob(0, None, replace(plan, user_since=1), since=1)))
    driver.check()


def test_nothing_follows_the_end(driver: JobsDriver) -> None:
    driver.start()
    assert driver.change(CANCELLED).ended_at == driver.now
    for state in (RUNNING, PAUSED):
        assert isinstance(driver.change(state), JobStateConflict)
    assert isinstance(driver.change(rate=5.0), JobStateConflict)
    assert driver.change(CANCELLED).state is CANCELLED
    assert isinstance(driver.change(PAUSED, job_id=7), JobNotFound)
    driver.check()


def test_a_rate_is_changed_beside_the_state(driver: JobsDriver) -> None:
    driver.start(rate=100.0)
    job = driver.change(PAUSED, rate=7.5)
    assert (job.state, job.rate) == (PAUSED, 7.5)
    assert [event.event for event in job.events][-2:] == ["paused", "rate"]
    assert driver.change(rate=0.0).rate == 0
    driver.check()


def test_the_same_request_with_a_key_makes_one_job(driver: JobsDriver) -> None:
    first = driver.start(user="ann", key="k", digest="same")
    assert driver.start(user="ann", key="k", digest="same") == first
    driver.restart()
    assert driver.start(user="ann", key="k", digest="same").job_id == first.job_id
    assert driver.start(user="bob", key="k", digest="same").job_id == 2
    plan = JobPlan(kind=JobKind.REPLAY, filter={}, last_id=0, user="ann", key="k", digest="other")
    assert isinstance(driver.ask(StartJob(0, None, plan)), IdempotencyConflict)


def test_a_key_ends_with_its_time_also_of_the_latest_job(driver: JobsDriver) -> None:
    first = driver.start(user="ann", key="monthly", digest="same")
    driver.advance(KEPT_MS + 1)
    assert driver.start(user="ann", key="monthly", digest="same") == first, "it has not ended"
    driver.change(CANCELLED)
    driver.advance(KEPT_MS)
    assert driver.start(user="ann", key="monthly", digest="same").job_id == first.job_id
    driver.advance(1)
    second = driver.start(user="ann", key="monthly", digest="another")
    assert list(driver.engine.jobs.by_id) == [first.job_id, second.job_id] == [1, 2]
    driver.check()
    driver.restart()
    assert driver.start(user="ann", key="monthly", digest="another").job_id == second.job_id


def test_old_jobs_are_forgotten_where_nobody_starts_another(driver: JobsDriver) -> None:
    for number in range(3):
        driver.start()
        driver.change(CANCELLED, job_id=number + 1)
    driver.advance(KEPT_MS + 1)
    driver.handle(ForgetJobs())
    assert list(driver.engine.jobs.by_id) == [3]
    driver.check()


def test_no_number_is_given_twice_where_a_start_could_not_be_stored(driver: JobsDriver) -> None:
    """The old jobs are forgotten as soon as there is room again, the new one is not there."""
    for number in (1, 2):
        driver.start()
        driver.change(CANCELLED, job_id=number)
    driver.advance(KEPT_MS + 1)
    driver.hold = True
    driver.handle(StartJob(0, "asked", JobPlan(kind=JobKind.REPLAY, filter={}, last_id=0)))
    driver.refuse()
    driver.hold = False
    assert isinstance(driver.answer("asked"), StorageFull)
    driver.handle(ForgetJobs())
    assert list(driver.engine.jobs.by_id) == [2]
    driver.restart()
    assert driver.start().job_id == 3


def test_a_job_whose_start_could_not_be_stored_was_not_started(driver: JobsDriver) -> None:
    driver.hold = True
    driver.handle(StartJob(0, "asked", JobPlan(kind=JobKind.REPLAY, filter={}, last_id=0, key="k", digest="d")))
    driver.refuse()
    driver.hold = False
    assert isinstance(driver.answer("asked"), StorageFull)
    driver.advance(5_000)
    assert driver.engine.jobs.by_id == driver.disk.jobs == {}
    job = driver.start(key="k", digest="d")
    driver.check()
    driver.restart()
    assert driver.job(job.job_id).state is RUNNING


def test_the_events_of_a_job_are_bounded(driver: JobsDriver) -> None:
    driver.start(note="first")
    for number in range(EVENTS_MAX):
        driver.change(rate=float(number + 1))
    events = driver.job().events
    assert len(events) == EVENTS_MAX
    assert (events[0].event, events[-1].detail) == ("created", f"{EVENTS_MAX} letters/s by ann")
    driver.check()


def test_jobs_that_ended_long_ago_are_forgotten_but_for_the_latest(driver: JobsDriver) -> None:
    for number in range(FINISHED_MAX + 5):
        driver.start()
        driver.change(CANCELLED, job_id=number + 1)
    assert len(driver.engine.jobs.by_id) == FINISHED_MAX + 1
    driver.advance(KEPT_MS + 1)
    latest = max(driver.engine.jobs.by_id)
    job = driver.start()
    assert list(driver.engine.jobs.by_id) == [latest, job.job_id]
    driver.change(CANCELLED, job_id=job.job_id)
    driver.check()
    driver.restart()
    assert driver.start().job_id == job.job_id + 1


def ended_export(driver: JobsDriver, user: str, *, file: bool) -> int:
    number = driver.start(JobKind.EXPORT_DEAD, user=user).job_id
    if file:
        driver.engine.jobs.file_kept(number)
    driver.change(JobState.DONE, job_id=number, by="")
    return number


def test_nobody_has_the_jobs_of_others_forgotten(driver: JobsDriver) -> None:
    theirs = [ended_export(driver, "root", file=False) for _ in range(3)]
    own = [ended_export(driver, "looker", file=False) for _ in range(FINISHED_MAX + 5)]
    kept = list(driver.engine.jobs.by_id)
    assert kept[:3] == theirs
    assert kept[3:] == own[-len(kept[3:]) :], "the oldest of whoever has the most went"
    assert len(kept) == FINISHED_MAX + 1
    driver.check()


def test_a_job_with_a_file_stays_for_its_time_and_counts_no_further(driver: JobsDriver) -> None:
    with_file = ended_export(driver, "ann", file=True)
    for _ in range(FINISHED_MAX + 5):
        ended_export(driver, "ann", file=False)
    assert len(driver.engine.jobs.by_id) == FINISHED_MAX + 2
    assert with_file in driver.engine.jobs.by_id
    driver.engine.jobs.file_gone(with_file)
    ended_export(driver, "ann", file=False)
    assert with_file not in driver.engine.jobs.by_id, "its file was deleted"
    late = ended_export(driver, "ann", file=True)
    driver.advance(KEPT_MS + 1)
    driver.start()
    driver.handle(ForgetJobs())
    assert late not in driver.engine.jobs.by_id
    driver.check()


def test_nobody_takes_all_places_of_exports(driver: JobsDriver) -> None:
    for number in range(EXPORTS_OF_USER_MAX):
        ended_export(driver, "ann", file=True)
        job = driver.start(JobKind.EXPORT_DEAD, user=f"user-{number}")
        driver.change(PAUSED, job_id=job.job_id)
    plan = JobPlan(kind=JobKind.EXPORT_DEAD, filter={}, last_id=0, user="ann")
    assert "user 'ann' has 20 files of exports" in str(driver.ask(StartJob(0, None, plan)))
    for _ in range(EXPORTS_MAX - 2 * EXPORTS_OF_USER_MAX):
        driver.start(JobKind.EXPORT_DEAD, user="bob")
    assert "there are 50 files of exports" in str(driver.ask(StartJob(0, None, replace(plan, user="eve"))))
    driver.start(JobKind.REPLAY, user="eve")
    driver.check()


def test_a_key_of_an_earlier_user_of_the_same_name_is_free(driver: JobsDriver) -> None:
    plan = JobPlan(kind=JobKind.REPLAY, filter={}, last_id=0, user="ann", key="nightly", digest="same")
    first = driver.ask(StartJob(0, None, plan))
    driver.advance(10)
    since = driver.now
    second = driver.ask(StartJob(0, None, plan, since=since))
    assert second.job_id != first.job_id
    assert driver.ask(StartJob(0, None, plan, since=since)).job_id == second.job_id
    driver.check()


def test_each_user_of_a_name_keeps_its_own_key(driver: JobsDriver) -> None:
    first_since, second_since = driver.now - 100, driver.now - 50
    plan = JobPlan(
        kind=JobKind.REPLAY, filter={}, last_id=0, user="ann", user_since=first_since, key="nightly", digest="same"
    )
    first = driver.ask(StartJob(0, None, plan, since=first_since))
    second = driver.ask(StartJob(0, None, replace(plan, user_since=second_since), since=second_since))
    assert second.job_id != first.job_id
    for since, job in ((first_since, first), (second_since, second)):
        assert driver.ask(StartJob(0, None, replace(plan, user_since=since), since=since)).job_id == job.job_id
    driver.check()
