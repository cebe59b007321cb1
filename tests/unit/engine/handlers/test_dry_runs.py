"""A command that is only tried: the answer or the refusal is that of the real one, and nothing is kept or changed."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.engine_driver import rows_of
from tests.unit.engine.handlers.jobs.jobs_driver import JobsDriver
from vibemq.engine.departure import TRIED
from vibemq.engine.pacing import STEP_UNITS, Batch
from vibemq.engine.views import group_info
from vibemq.errors import (
    Blocked,
    GroupHasProgress,
    GroupNotFound,
    InvalidOptions,
    JobStateConflict,
    NotAuthorized,
    QueueExists,
    QueueNotFound,
    VibeMQError,
)
from vibemq.model.commands import (
    Begin,
    ChangeJob,
    ChangeQueue,
    CommitCursor,
    CreateQueue,
    DeleteGroup,
    DeleteQueue,
    FilterGroup,
    JoinCursor,
    Pressure,
    PurgeQueue,
    Quarantine,
    RemoveMessages,
    ReplayDead,
    SeekGroup,
    SetPressure,
    Settlement,
    StartAt,
)
from vibemq.model.effects import Counted, CursorInfo, Replayed, Reply, Tried, TriedCount
from vibemq.model.jobs.job import JobState
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.selector import Selector
from vibemq.model.shared.queue_info import GroupInfo

EVEN = Selector.parse("n % 2 == 0")


def broker() -> JobsDriver:
    """Queue `q` with the cursor `etl`, the group `people` of ann, ten messages and one job; `work` with dead letters;
    `new`, which nobody has read yet."""
    driver = JobsDriver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.ask(JoinCursor(1, None, "q", "etl"))
    driver.ask(SeekGroup(1, None, "q", "people", StartAt.BEGINNING, user="ann"))
    driver.publish(10)
    driver.ask(CommitCursor(1, None, "q", "etl", driver.engine.readers.cursor("q", "etl").epoch, 4))
    driver.create("work")
    driver.bury(3, "work")
    driver.start(rate=5.0)
    driver.create("new", mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.publish(4, "new")
    driver.create("apart", mode=DeliveryMode.FAN_OUT_WITH_ACK, expires_ms=60_000)
    driver.ask(SeekGroup(1, None, "apart", "behind", StartAt.BEGINNING))
    driver.publish(10, "apart")
    driver.ask(SeekGroup(1, None, "apart", "ahead", StartAt.NOW))
    driver.publish(10, "apart")
    driver.subscribe(5, "apart", group="behind", capacity_messages=13)
    driver.settle(5, *range(11, 14))
    return driver


COMMANDS: dict[str, Callable[[], Any]] = {
    "a queue": lambda: CreateQueue(1, None, "more"),
    "a queue that exists": lambda: CreateQueue(1, None, "work"),
    "a group of a queue that exists": lambda: CreateQueue(1, None, "q", groups=["more"]),
    "options": lambda: ChangeQueue(1, None, "q", {"max_attempts": 3}),
    "a queue's end": lambda: DeleteQueue(1, None, "q"),
    "the end of no queue": lambda: DeleteQueue(1, None, "none"),
    "a purge": lambda: PurgeQueue(1, None, "q"),
    "a purge of groups at different places": lambda: PurgeQueue(1, None, "apart"),
    "a removal": lambda: RemoveMessages(1, None, "apart", [(1, 12), (15, 16)]),
    "a cursor that is taken over": lambda: JoinCursor(1, None, "q", "etl", owner="me", user="ann"),
    "a cursor that goes on": lambda: JoinCursor(1, None, "q", "etl", owner="me", user="ann", begin=Begin.CONTINUE),
    "a cursor that replays": lambda: JoinCursor(1, None, "q", "etl", owner="me", user="ann", begin=Begin.REPLAY),
    "a seek with consumers": lambda: SeekGroup(1, None, "apart", "behind", StartAt.BEGINNING),
    "a seek with consumers of the session": lambda: SeekGroup(5, None, "apart", "behind", StartAt.NOW),
    "a filter with consumers": lambda: FilterGroup(1, None, "apart", "behind", EVEN),
    "limits": lambda: JoinCursor(1, None, "q", "etl", hold_ms=7, max_lag_ms=8, max_lag_bytes=9, take_over=False),
    "a cursor": lambda: JoinCursor(1, None, "q", "new", owner="me", hold_ms=7, user="ann"),
    "a cursor at the end": lambda: JoinCursor(1, None, "q", "new", StartAt.NOW),
    "a cursor at a sequence": lambda: JoinCursor(1, None, "q", "new", StartAt.SEQUENCE, 6),
    "a cursor of a work queue": lambda: JoinCursor(1, None, "work", "new", StartAt.BEGINNING),
    "the first cursor": lambda: JoinCursor(1, None, "new", "etl", StartAt.BEGINNING),
    "the first cursor at the end": lambda: JoinCursor(1, None, "new", "etl", StartAt.NOW),
    "a filter": lambda: FilterGroup(1, None, "q", "people", EVEN),
    "no filter": lambda: FilterGroup(1, None, "q", "people", None),
    "a group with a filter": lambda: FilterGroup(1, None, "q", "even", EVEN, user="ann"),
    "the first group": lambda: FilterGroup(1, None, "new", "even", EVEN),
    "a seek": lambda: SeekGroup(1, None, "q", "people", StartAt.SEQUENCE, 8),
    "a seek of a cursor": lambda: SeekGroup(1, None, "q", "etl", StartAt.NOW),
    "a seek beyond the end": lambda: SeekGroup(1, None, "q", "etl", StartAt.SEQUENCE, 99),
    "a seek of what is missing": lambda: SeekGroup(1, None, "q", "other", StartAt.NOW, user="ann"),
    "a deletion": lambda: DeleteGroup(1, None, "q", "people"),
    "a quarantine": lambda: Quarantine(1, None, "q", "etl", [(2, 5), (9, 30)]),
    "a quarantine of overlapping runs": lambda: Quarantine(1, None, "q", "etl", [(6, 9), (1, 8), (6, 9)]),
    "a quarantine of nothing": lambda: Quarantine(1, None, "q", "etl", [(1, 2)]),
    "a pause": lambda: ChangeJob(1, None, 1, JobState.PAUSED, by="ann"),
    "an end": lambda: ChangeJob(1, None, 1, JobState.CANCELLED, by="ann"),
    "a rate": lambda: ChangeJob(1, None, 1, JobState.RUNNING, rate=1.0, by="ann"),
    "a dead letter": lambda: ReplayDead(1, None, "work", [1], rows_of(1)),
    "a dead letter that is gone": lambda: ReplayDead(1, None, "work", [99], rows_of(1)),
}


def tried(driver: JobsDriver, command: Any) -> Any:
    command.dry_run = True
    return driver.ask(command)


def comparable(answer: Any) -> Any:
    """Without the epoch, which is the present one, and without what says that it was a dry run."""
    match answer:
        case CursorInfo() | GroupInfo():
            return replace(answer, epoch=0)
        case Tried():
            return None
        case TriedCount():
            return Counted(answer.count)
        case Replayed():
            return answer.count, answer.left
        case _:
            return answer


@pytest.mark.parametrize("make", COMMANDS.values(), ids=COMMANDS)
def test_it_is_answered_as_what_is_carried_out(make: Callable[[], Any]) -> None:
    driver = broker()
    expected = tried(driver, make())
    assert comparable(expected) == comparable(driver.ask(make()))


@pytest.mark.parametrize("make", COMMANDS.values(), ids=COMMANDS)
def test_it_changes_nothing(make: Callable[[], Any]) -> None:
    driver = broker()
    records, queues = list(driver.records), driver.engine._state.queues

    def seen() -> Any:
        groups = [
            group_info(group, queue.next_sequence) for queue in queues.values() for group in queue.groups.values()
        ]
        options = {
            name: (queue.options, queue.unused_since, queue.refused, queue.regains) for name, queue in queues.items()
        }
        return (
            options,
            groups,
            copy(driver.engine.readers.cursor("q", "etl")),
            driver.job(),
            driver.engine.readers.cursors_made,
        )

    before = seen()
    tried(driver, make())
    assert seen() == before
    assert driver.records == records
    driver.check()


REFUSED: dict[str, tuple[Callable[[], Any], type[VibeMQError]]] = {
    "a queue's name": (lambda: CreateQueue(1, None, "a/b c\n"), VibeMQError),
    "other options": (
        lambda: CreateQueue(1, None, "q", QueueOptions(max_attempts=77), must_match=True),
        QueueExists,
    ),
    "an exclusive queue of nobody": (lambda: CreateQueue(0, None, "x", QueueOptions(exclusive=True)), InvalidOptions),
    "options of no queue": (lambda: ChangeQueue(1, None, "none", {"max_attempts": 3}), QueueNotFound),
    "an option that stays": (lambda: ChangeQueue(1, None, "q", {"retention": 1}), InvalidOptions),
    "a purge of no queue": (lambda: PurgeQueue(1, None, "none"), QueueNotFound),
    "no such queue": (lambda: JoinCursor(1, None, "none", "etl"), QueueNotFound),
    "no such cursor": (lambda: JoinCursor(1, None, "q", "none", take_over=False), GroupNotFound),
    "a name": (lambda: JoinCursor(1, None, "q", "x" * 1000), InvalidOptions),
    "no cursor": (lambda: JoinCursor(1, None, "q", "people", hold_ms=1, take_over=False), InvalidOptions),
    "a limit": (lambda: JoinCursor(1, None, "q", "new", hold_ms=NUMBER_MAX + 1), InvalidOptions),
    "progress": (lambda: JoinCursor(1, None, "q", "etl", begin=Begin.REFUSE), GroupHasProgress),
    "limits of others": (
        lambda: JoinCursor(1, None, "q", "etl", hold_ms=1, take_over=False, user="bob", manage=False),
        NotAuthorized,
    ),
    "a filter of others": (lambda: FilterGroup(1, None, "q", "people", EVEN, user="bob", manage=False), NotAuthorized),
    "a filter of a cursor": (lambda: FilterGroup(1, None, "q", "etl", EVEN), InvalidOptions),
    "a filter of a work queue": (lambda: FilterGroup(1, None, "work", "g", EVEN), InvalidOptions),
    "a filter of a wrong name": (lambda: FilterGroup(1, None, "q", "x" * 1000, EVEN), InvalidOptions),
    "a seek of others": (
        lambda: SeekGroup(1, None, "q", "people", StartAt.NOW, user="bob", manage=False),
        NotAuthorized,
    ),
    "a deletion of others": (lambda: DeleteGroup(1, None, "q", "people", user="bob", manage=False), NotAuthorized),
    "a deletion of nothing": (lambda: DeleteGroup(1, None, "q", "none"), GroupNotFound),
    "a quarantine of others": (
        lambda: Quarantine(1, None, "q", "etl", [(5, 5)], user="bob", manage=False),
        NotAuthorized,
    ),
    "a job's state": (lambda: ChangeJob(1, None, 1, JobState.DONE, by="ann"), JobStateConflict),
    "a letter for no queue": (lambda: ReplayDead(1, None, "none", [1], rows_of(1)), QueueNotFound),
}


@pytest.mark.parametrize(("make", "error"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_as_what_is_carried_out(make: Callable[[], Any], error: type[VibeMQError]) -> None:
    driver = broker()
    refusal, real = tried(driver, make()), driver.ask(make())
    assert isinstance(refusal, error)
    assert str(refusal) == str(real)


def test_an_epoch_is_told_as_it_is_and_none_of_a_group_that_is_missing() -> None:
    """An epoch that only a tried join had would fence the reader that is there."""
    driver = broker()
    present = driver.engine.readers.cursor("q", "etl").epoch
    assert tried(driver, JoinCursor(1, None, "q", "etl")).epoch == present
    assert tried(driver, SeekGroup(1, None, "q", "etl", StartAt.BEGINNING)).epoch == present
    assert tried(driver, JoinCursor(1, None, "q", "missing")).epoch == 0


def test_a_limit_that_is_refused_makes_no_cursor() -> None:
    driver = broker()
    assert isinstance(driver.ask(JoinCursor(1, None, "q", "new", max_lag_ms=NUMBER_MAX + 1)), InvalidOptions)
    assert "new" not in driver.engine._state.queues["q"].groups


@pytest.mark.parametrize("kind", sorted(TRIED, key=lambda kind: kind.__name__))
def test_it_is_no_use_of_a_queue_that_expires(kind: type) -> None:
    driver = broker()
    makes = [make() for make in COMMANDS.values()]
    command = next(made for made in makes if type(made) is kind)
    driver.create("passing", mode=DeliveryMode.FAN_OUT_WITH_ACK, expires_ms=60_000)
    driver.ask(JoinCursor(1, None, "passing", "new"))
    command.queue = "passing"
    if hasattr(command, "group"):
        command.group = "new" if kind is not FilterGroup else "other"
    driver.advance(50_000)
    assert not isinstance(tried(driver, command), VibeMQError)
    driver.advance(20_000)
    driver.tick()
    assert "passing" not in driver.engine._state.queues


def test_a_letter_that_is_refused_under_pressure_is_not_counted() -> None:
    driver = broker()
    driver.handle(SetPressure(Pressure.BLOCKING, "disk"))
    assert isinstance(tried(driver, ReplayDead(1, None, "work", [1], rows_of(1))), Blocked)
    assert driver.engine._state.queues["work"].refused == 0


def test_a_job_whose_letters_have_died_would_be_held() -> None:
    driver = JobsDriver()
    driver.create()
    driver.bury(10)
    driver.start(stop_after_dead_again=1)
    driver.replay([1, 2, 3], cursor=3)
    driver.change(JobState.PAUSED)
    driver.subscribe(3, "q", capacity_messages=100)
    driver.settle(3, 11, verb=Settlement.REJECT)
    driver.close(3, clean=True)
    would_be = driver.change(JobState.RUNNING, dry_run=True)
    assert driver.job().state is JobState.PAUSED
    assert (would_be.state, would_be.why) == (JobState.HELD, driver.change(JobState.RUNNING).why)
    assert would_be.events == driver.job().events


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_job_whose_first_letters_are_gone_would_pass_or_be_held(acknowledged: bool) -> None:
    driver = JobsDriver()
    driver.create()
    driver.bury(10)
    driver.start(canary=2)
    driver.replay([1, 2])
    if acknowledged:
        driver.subscribe(3, "q", capacity_messages=1)
        driver.settle(3, 11)
        driver.close(3, clean=True)
    driver.ask(PurgeQueue(1, None, "q"))
    before, records = driver.job(), list(driver.records)
    would_be = driver.change(by="", canary_passed=True, dry_run=True)
    assert (driver.job(), driver.records) == (before, records)
    assert would_be.state is (JobState.RUNNING if acknowledged else JobState.HELD)
    assert would_be == driver.change(by="", canary_passed=True)
    driver.check()


def test_what_many_groups_would_lose_is_counted_in_steps() -> None:
    driver = JobsDriver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for number in range(4 * STEP_UNITS):
        driver.ask(SeekGroup(1, None, "q", f"g{number}", StartAt.NOW))
        driver.publish(1)
    batch = Batch([PurgeQueue(1, 7, "q", dry_run=True)])
    steps = 0
    while not batch.done:
        outcome = driver.engine.advance(batch, driver.now)
        steps += 1
    assert steps >= 4
    assert [effect.result for effect in outcome.effects if isinstance(effect, Reply)] == [TriedCount(4 * STEP_UNITS)]


def test_a_cursor_that_would_have_very_many_runs_is_told_with_the_average(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = broker()
    queue = driver.engine._state.queues["q"]
    for sequence in range(1, 11, 2):
        driver.ask(RemoveMessages(1, None, "q", [(sequence, sequence)]))
    monkeypatch.setattr("vibemq.engine.queue.parts.backlog._LOOKUPS_MAX", 3)
    monkeypatch.setattr(type(queue.sizes), "of_runs", lambda *_: pytest.fail("they are looked up one by one"))
    assert tried(driver, JoinCursor(1, None, "q", "new")).backlog_bytes == 5 * queue.sizes.average()
