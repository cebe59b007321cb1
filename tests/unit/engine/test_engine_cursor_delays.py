"""Delayed messages and cursors: a range cannot be read before all of it is due."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from tests.unit.engine.cursor_verbs import cursor, join
from vibemq.engine.stage_names import stage_name
from vibemq.errors import InvalidOptions
from vibemq.model.commands import DecideTransaction, DeleteGroup, DropStages, JoinCursor, MoveStaged, Publish, Stage
from vibemq.model.effects import Counted, CursorInfo, Decided
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    return driver


def delayed(driver: Driver, ms: int = 1000) -> Any:
    extras = {1: MessageExtra(deliver_at=driver.now + ms)}
    return driver.ask(Publish(1, None, "q", rows_of(3), extras))


def test_a_delayed_message_does_not_go_into_a_queue_that_a_cursor_reads(driver: Driver) -> None:
    """It would be read before it is due."""
    join(driver)
    refused = delayed(driver)
    assert isinstance(refused, InvalidOptions)
    assert "is read by the cursor 'etl'" in str(refused)
    assert cursor(driver).tail == 1, "nothing was accepted"
    staged = driver.ask(Stage(1, None, "q", "app", 1, "s", 0, rows_of(1), delayed=True))
    assert isinstance(staged, InvalidOptions)
    assert driver.ask(Publish(1, None, "q", rows_of(1), {0: MessageExtra(deliver_at=driver.now)})).count == 1
    driver.ask(DeleteGroup(1, None, "q", "etl"))
    assert delayed(driver).count == 3


def test_a_cursor_does_not_begin_where_delayed_messages_wait(driver: Driver) -> None:
    for held in (True, False):
        driver.hold = held
        delayed(driver)
        assert isinstance(refused := join(driver), InvalidOptions)
        assert "has delayed messages, and the cursor 'etl' would read them before they are due" in str(refused)
        driver.keep()
        assert isinstance(join(driver), InvalidOptions)
        driver.hold = False
        driver.advance(1001)
    assert join(driver).backlog_messages == 6
    driver.check()


def stage_delayed(driver: Driver, *, delayed: bool = True) -> Any:
    return driver.ask(Stage(1, None, "q", "app", 1, "s", 0, rows_of(1), delayed=delayed))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_commit_does_not_bring_delayed_messages_to_a_cursor(driver: Driver, restarted: bool) -> None:
    """They were staged before there was one."""
    stage_delayed(driver)
    if restarted:
        driver.restart()
    join(driver)
    committed = DecideTransaction(1, None, "app", 1, ["s"])
    refused = driver.ask(committed)
    assert isinstance(refused, InvalidOptions)
    assert "'q' is read by the cursor 'etl'" in str(refused)
    assert driver.engine.readers.last_version("app") is None, "nothing is decided"
    driver.ask(DeleteGroup(1, None, "q", "etl"))
    assert isinstance(driver.ask(committed), Decided)
    driver.check()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cursor_does_not_begin_where_a_commit_is_to_bring_delayed_messages(driver: Driver, restarted: bool) -> None:
    stage_delayed(driver)
    stage_delayed(driver, delayed=False)  # Sent again when it was due: the same chunk.
    name = stage_name("app", 1, "s")
    assert driver.engine.readers.staged_batches(name)[1] == [(1, 1)]
    assert isinstance(driver.ask(DecideTransaction(1, None, "app", 1, ["s"])), Decided)
    if restarted:
        driver.restart()
    assert "has delayed messages, and the cursor 'etl'" in str(join(driver))
    extras = {0: MessageExtra(deliver_at=driver.now + 1000)}
    assert driver.ask(MoveStaged(1, None, name, 1, "q", rows_of(1), extras)) == Counted(1)
    driver.ask(DropStages(1, None, [name]))
    assert "has delayed messages, and the cursor 'etl'" in str(join(driver))
    driver.advance(1001)
    assert join(driver).backlog_messages == 1
    driver.check()


def stage_both_kinds(driver: Driver) -> str:
    """A stage with a delayed piece in front of others, and its name."""
    for chunk in range(9):
        driver.ask(Stage(1, None, "q", "app", 1, "s", chunk, rows_of(1), delayed=not chunk))
    return stage_name("app", 1, "s")


def days_pass(driver: Driver) -> None:
    driver.restart(down_ms=25 * 3_600_000)


@pytest.fixture(params=["a restart after more than a day", "more pieces than ids are remembered"])
def forget_ids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Driver], None]:
    """The dedup ids of a stage are forgotten."""
    if request.param == "a restart after more than a day":
        return days_pass
    monkeypatch.setattr("vibemq.engine.queue.dedup.DEDUP_IDS_MAX", 5)
    monkeypatch.setattr("vibemq.storage.state.messages.DEDUP_IDS_MAX", 5)
    return Driver.restart


def test_where_delayed_messages_go_is_known_as_long_as_their_stage_is_there(
    driver: Driver, forget_ids: Callable[[Driver], None]
) -> None:
    name = stage_both_kinds(driver)
    assert isinstance(driver.ask(DecideTransaction(1, None, "app", 1, ["s"])), Decided)
    forget_ids(driver)
    assert "has delayed messages, and the cursor 'etl'" in str(join(driver))
    driver.ask(MoveStaged(1, None, name, 1, "q", rows_of(1), {0: MessageExtra(deliver_at=driver.now + 1000)}))
    for sequence in range(2, 10):
        driver.ask(MoveStaged(1, None, name, sequence, "q", rows_of(1), None))
    driver.ask(DropStages(1, None, [name]))
    assert "has delayed messages, and the cursor 'etl'" in str(join(driver))
    driver.advance(1001)
    assert join(driver).backlog_messages == 9
    driver.check()


def test_a_commit_of_a_large_or_old_stage_does_not_bring_delayed_messages_to_a_cursor(
    driver: Driver, forget_ids: Callable[[Driver], None]
) -> None:
    name = stage_both_kinds(driver)
    forget_ids(driver)
    join(driver)
    committed = DecideTransaction(1, None, "app", 1, ["s"])
    assert "'q' is read by the cursor 'etl'" in str(driver.ask(committed))
    driver.ask(DropStages(1, None, [name]))
    for chunk in range(2):
        driver.ask(Stage(1, None, "q", "app", 1, "s", chunk, rows_of(1)))
    assert isinstance(driver.ask(committed), Decided)
    driver.check()


@pytest.mark.parametrize("user", ["", "ann", "@>/"])
@pytest.mark.parametrize("target", ["q2", "a.b_c-D", "zürich"])
def test_where_delayed_messages_go_is_known_by_the_exact_name(driver: Driver, user: str, target: str) -> None:
    driver.create(target)
    driver.ask(Stage(1, None, target, "a/p>p", 1, "s>", 0, rows_of(1), user=user, delayed=True))
    assert isinstance(driver.ask(DecideTransaction(1, None, "a/p>p", 1, ["s>"], user=user)), Decided)
    driver.restart()
    refused = driver.ask(JoinCursor(1, None, target, "etl"))
    assert "has delayed messages, and the cursor 'etl'" in str(refused)
    assert isinstance(driver.ask(JoinCursor(1, None, "q", "etl")), CursorInfo), "no other queue"
    stages = driver.engine.readers.unfinished_stages()
    assert stages == [stage_name("a/p>p", 1, "s>", user)]
    driver.ask(MoveStaged(1, None, stages[0], 1, target, rows_of(1), None))
    driver.ask(DropStages(1, None, stages))
    assert isinstance(driver.ask(JoinCursor(1, None, target, "etl")), CursorInfo)
    assert sorted(queue.name for queue in driver.disk.queues.values()) == sorted(["q", target]), "nothing is left"
