"""Owners of stages, applications and groups; versions; and subscriptions that are ended because a right is gone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.handlers.transactions import FIRST_VERSION_MAX, VERSION_STEP_MAX
from vibemq.engine.stage_names import plain_stage, stage_name, version_and_app
from vibemq.errors import InvalidOptions, NotAuthorized, QueueNotFound, StageNotFound
from vibemq.model.commands import (
    CommitCursor,
    DecideTransaction,
    DeleteGroup,
    EndConsumers,
    EnterBatch,
    ForgetApplication,
    JoinCursor,
    PlanBatch,
    Publish,
    Quarantine,
    RejectAt,
    SeekGroup,
    Stage,
    StartAt,
    Subscribe,
)
from vibemq.model.effects import ConsumerEnded, Counted
from vibemq.model.options import DeliveryMode
from vibemq.model.records import GroupOwned, TransactionDecided
from vibemq.model.stored import VERSION_RUNS_MAX


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    return driver


def stage(driver: Driver, user: str, version: int = 0, name: str = "s", queue: str = "q", **more: Any) -> Any:
    return driver.ask(Stage(1, None, queue, "job", version, name, 0, rows_of(1, 50), user=user, **more))


def decide(driver: Driver, user: str, version: int, *stages: str) -> Any:
    return driver.ask(DecideTransaction(1, None, "job", version, list(stages), user=user))


# -- stages and applications ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["", "ann", "a/b", "@", "ä b", "7"])
def test_a_stage_name_tells_whose_it_is(user: str) -> None:
    name = stage_name("an/app", 3, "s", user)
    assert version_and_app(name) == (3, "an/app")
    others = {stage_name("an/app", 3, "s", other) for other in ("", "ann", "a/b", "@", "ä b", "7") if other != user}
    assert name not in others
    assert len(others) == 5


def test_a_stage_is_committed_only_by_its_user(driver: Driver) -> None:
    stage(driver, "ann")
    for other in ("ben", ""):
        assert isinstance(decide(driver, other, 0, "s"), StageNotFound)
    assert decide(driver, "ann", 0, "s").stages == [plain_stage(stage_name("job", 0, "s", "ann"), "q")]


def test_an_application_belongs_to_the_first_user_who_commits(driver: Driver) -> None:
    decide(driver, "", 0)
    assert driver.records_of(TransactionDecided)[-1].owner == ""
    decide(driver, "ann", 1)
    assert isinstance(decide(driver, "ben", 2), NotAuthorized)
    assert isinstance(stage(driver, "ben", 2), NotAuthorized)
    assert not decide(driver, "", 2).duplicate, "a superuser may, and takes nothing over"
    assert [record.owner for record in driver.records_of(TransactionDecided)] == ["", "ann", "ann"]
    with pytest.raises(NotAuthorized):
        driver.engine.readers.last_version("job", "ben")
    assert driver.engine.readers.last_version("job", "ann") == 2


def test_the_losers_of_every_user_go_with_a_decision(driver: Driver) -> None:
    for user in ("", "ann", "ben"):
        stage(driver, user, 1)
    decide(driver, "ann", 1, "s")
    assert list(driver.engine.readers._state.stages) == [plain_stage(stage_name("job", 1, "s", "ann"), "q")]


def test_versions(driver: Driver) -> None:
    assert isinstance(decide(driver, "", FIRST_VERSION_MAX + 1), InvalidOptions)
    assert isinstance(stage(driver, "", FIRST_VERSION_MAX + 1), InvalidOptions)
    assert not decide(driver, "", 5).duplicate
    assert isinstance(decide(driver, "", 4), InvalidOptions), "nothing below the first was ever committed"
    assert isinstance(decide(driver, "", 5 + VERSION_STEP_MAX + 1), InvalidOptions)
    assert decide(driver, "", 5).duplicate
    top = 5 + VERSION_STEP_MAX
    assert not decide(driver, "", top).duplicate
    assert {version: _outcome(decide(driver, "", version)) for version in (5, 6, top - 1, top)} == {
        5: "duplicate",
        6: "refused",
        top - 1: "refused",
        top: "duplicate",
    }
    assert not decide(driver, "", top + 1).duplicate
    assert {version: _outcome(decide(driver, "", version)) for version in (4, 5, 6, top - 1, top, top + 1)} == {
        4: "refused",
        5: "duplicate",
        6: "refused",
        top - 1: "refused",
        top: "duplicate",
        top + 1: "duplicate",
    }, "what was left out is known whatever was committed later"
    assert driver.ask(ForgetApplication(1, None, "job")) == Counted(1)
    assert driver.ask(ForgetApplication(1, None, "job")) == Counted(0)
    assert not decide(driver, "ben", 6).duplicate


def test_versions_that_are_no_longer_remembered_are_refused(driver: Driver) -> None:
    for version in range(0, 2 * VERSION_RUNS_MAX + 2, 2):
        assert not decide(driver, "", version).duplicate
    assert [_outcome(decide(driver, "", version)) for version in (0, 1, 2, 3, 4)] == [
        "refused",
        "refused",
        "duplicate",
        "refused",
        "duplicate",
    ]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_a_version_is_committed_once_and_known_for_ever(versions: list[int]) -> None:
    """Whatever comes in whatever order: what was committed is a duplicate, and nothing else is taken for one."""
    driver = Driver()
    committed: set[int] = set()
    for version in versions:
        expected = "duplicate" if version in committed else "new" if version > max(committed, default=-1) else "refused"
        assert _outcome(decide(driver, "", version)) == expected
        if expected == "new":
            committed.add(version)


def _outcome(answer: Any) -> str:
    return "refused" if isinstance(answer, InvalidOptions) else "duplicate" if answer.duplicate else "new"


def test_an_application_with_an_unfinished_commit_is_not_forgotten(driver: Driver) -> None:
    stage(driver, "")
    decide(driver, "", 0, "s")
    assert isinstance(driver.ask(ForgetApplication(1, None, "job")), InvalidOptions)


def test_a_refused_stage_creates_no_queue(driver: Driver) -> None:
    assert isinstance(stage(driver, "ann", queue="new", create=False), QueueNotFound)
    decide(driver, "ben", 0)
    assert isinstance(stage(driver, "ann", queue="new"), NotAuthorized)
    assert isinstance(driver.ask(Publish(1, None, "new", rows_of(1), create=False)), QueueNotFound)
    assert driver.engine.queue_info("new") is None


# -- groups -----------------------------------------------------------------------------------------------------------


def join(driver: Driver, group: str, user: str, **more: Any) -> Any:
    return driver.ask(JoinCursor(1, None, "q", group, user=user, **more))


def test_a_group_belongs_to_who_made_it(driver: Driver) -> None:
    join(driver, "g", "ann", manage=False)
    assert [record.owner for record in driver.records_of(GroupOwned)] == ["ann"]
    for refused in (
        join(driver, "g", "ben", manage=False),
        driver.ask(SeekGroup(1, None, "q", "g", StartAt.NOW, user="ben", manage=False)),
        driver.ask(DeleteGroup(1, None, "q", "g", user="ben", manage=False)),
    ):
        assert isinstance(refused, NotAuthorized)
    assert join(driver, "g", "ben", manage=True).epoch == 2
    assert join(driver, "g", "", manage=True).epoch == 3
    assert len(driver.records_of(GroupOwned)) == 1, "acting on another's group takes nothing over"
    assert driver.ask(DeleteGroup(1, None, "q", "g", user="ann", manage=False)) is None


def test_a_group_of_nobody_is_acted_on_only_by_who_may_manage_it(driver: Driver) -> None:
    join(driver, "g", "")
    asked: dict[str, Any] = {"user": "ann", "manage": False}
    for command in (
        JoinCursor(1, None, "q", "g", **asked),
        JoinCursor(1, None, "q", "g", take_over=False, hold_ms=1, **asked),
        CommitCursor(1, None, "q", "g", 1, 1, **asked),
        PlanBatch(1, None, "q", "g", 1, "tag", "end", **asked),
        EnterBatch(1, None, "q", "g", 1, "tag", "end", "query", 0, **asked),
        RejectAt(1, None, "q", "g", [], **asked),
        Quarantine(1, None, "q", "g", [], **asked),
        SeekGroup(1, None, "q", "g", StartAt.NOW, **asked),
        DeleteGroup(1, None, "q", "g", **asked),
    ):
        refused = driver.ask(command)
        assert isinstance(refused, NotAuthorized), command
        assert "belongs to no user" in str(refused)


def test_a_group_of_nobody_is_handed_over_to_a_user_who_joins_with_manage(driver: Driver) -> None:
    join(driver, "g", "")
    join(driver, "g", "ann", manage=True)
    assert join(driver, "g", "ann", manage=False).epoch == 3
    assert isinstance(join(driver, "g", "ben", manage=False), NotAuthorized)


def test_subscribing_to_a_shared_group_of_nobody_does_not_take_it_over(driver: Driver) -> None:
    driver.ask(Subscribe(1, None, 1, "q", "workers"))
    assert driver.ask(Subscribe(2, None, 1, "q", "workers", user="ann")).group == "workers"
    assert isinstance(driver.ask(DeleteGroup(2, None, "q", "workers", user="ann", manage=False)), NotAuthorized)
    assert driver.records_of(GroupOwned) == []


def test_subscribers_own_named_groups_and_no_others(driver: Driver) -> None:
    driver.ask(Subscribe(1, None, 1, "q", "workers", user="ann"))
    driver.ask(Subscribe(2, None, 1, "q", "workers", user="ben"))
    driver.ask(Subscribe(3, None, 1, "q", user="ben"))
    assert [record.owner for record in driver.records_of(GroupOwned)] == ["ann"]


# -- rights that are gone ---------------------------------------------------------------------------------------------


def test_ended_consumers_give_back_what_they_hold_unharmed() -> None:
    driver = Driver()
    driver.create(max_attempts=1)
    driver.publish(3)
    driver.subscribe(1)
    assert driver.info().in_flight == 3
    assert driver.engine.subscriptions(1) == [(1, "q")]
    driver.create("other")
    driver.subscribe(1, queue="other", consumer=2)
    error = NotAuthorized("no more")
    driver.effects.clear()
    driver.handle(EndConsumers(1, {"q": error}.get))
    assert [effect for effect in driver.effects if isinstance(effect, ConsumerEnded)] == [
        ConsumerEnded(1, 1, "q", error)
    ]
    assert (driver.info().in_flight, driver.info().ready, driver.info().dead) == (0, 3, 0)
    assert driver.engine.subscriptions(1) == [(2, "other")]
    assert driver.engine.violations() == []
