"""Stages, decisions and moves."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.handlers.transactions import REMEMBERED_MS, STAGE_TTL_MS
from vibemq.engine.stage_names import is_plain, plain_of, plain_stage, stage_name, version_and_app
from vibemq.errors import Blocked, InvalidOptions, QueueNotFound, StageNotFound, StorageFull
from vibemq.model.commands import (
    CreateQueue,
    DecideTransaction,
    DeleteQueue,
    DropStages,
    MoveStage,
    MoveStaged,
    Pressure,
    Publish,
    SetPressure,
    Stage,
)
from vibemq.model.effects import Counted, Decided
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import (
    Dropped,
    MessagesAdded,
    QueueDeleted,
    StageMoved,
    TransactionDecided,
    TransactionsForgotten,
)
from vibemq.model.runs import RunSet


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create()
    return driver


def stage(
    driver: Driver, name: str = "u1", chunk: int = 0, *, app: str = "job", version: int = 0, queue: str = "q"
) -> Any:
    """With an extra, so that it becomes a staged batch."""
    return driver.ask(Stage(1, None, queue, app, version, name, chunk, rows_of(1, 50), {0: MessageExtra(2)}))


def decide(driver: Driver, *stages: str, app: str = "job", version: int = 0) -> Any:
    return driver.ask(DecideTransaction(1, None, app, version, list(stages)))


def move(driver: Driver, name: str, sequence: int = 1, count: int = 3, queue: str = "q", **extra: Any) -> Any:
    extras = {index: MessageExtra(**extra) for index in range(count)} if extra else None
    return driver.ask(MoveStaged(1, None, name, sequence, queue, rows_of(count), extras))


def test_what_is_staged_is_seen_by_nobody(driver: Driver) -> None:
    driver.subscribe(2)
    assert stage(driver).count == 1
    assert driver.take() == {}
    assert [info.name for info in driver.engine.queue_infos()] == ["q"]
    assert isinstance(driver.ask(Publish(1, None, stage_name("job", 0, "u1"), rows_of(1))), Exception)
    driver.check()


def test_a_stage_that_is_refused_under_pressure_makes_no_queue(driver: Driver) -> None:
    driver.handle(SetPressure(Pressure.BLOCKING, "disk"))
    told = len(driver.records)
    assert isinstance(stage(driver, queue="new"), Blocked)
    assert driver.engine.queue_info("new") is None
    assert len(driver.records) == told
    assert isinstance(driver.ask(Stage(1, None, "new", "job", 0, "u1", 0, rows_of(1), create=False)), QueueNotFound)


def test_a_stage_of_a_committed_version_does_not_make_its_deleted_queue_anew(driver: Driver) -> None:
    stage(driver)
    decide(driver, "u1")
    driver.ask(DeleteQueue(1, None, "q"))
    told = len(driver.records)
    assert stage(driver).count == 1
    assert driver.engine.queue_info("q") is None
    assert len(driver.records) == told


def test_committed_staged_batches_move_into_their_queue(driver: Driver) -> None:
    driver.subscribe(2)
    stage(driver)
    stage(driver, chunk=1)
    name = stage_name("job", 0, "u1")
    assert decide(driver, "u1") == Decided(False, [name], 0, "")
    assert driver.engine.readers.staged_batches(name)[1] == [(1, 2)]
    assert move(driver, name, 1) == Counted(3)
    assert move(driver, name, 2) == Counted(3)
    assert driver.take() == {2: [1, 2, 3, 4, 5, 6]}
    driver.ask(DropStages(1, None, [name]))
    assert driver.engine.readers.unfinished_stages() == []
    assert len(driver.records_of(QueueDeleted)) == 1
    driver.check()


def test_a_staged_batch_moves_once(driver: Driver) -> None:
    stage(driver)
    decide(driver, "u1")
    name = stage_name("job", 0, "u1")
    assert move(driver, name) == Counted(3)
    assert move(driver, name) == Counted(0)
    assert driver.info().ready == 3


def test_the_same_chunk_again_is_kept_once(driver: Driver) -> None:
    stage(driver)
    stage(driver)
    assert driver.engine.readers.staged_batches(stage_name("job", 0, "u1"))[1] == [(1, 1)]


def test_a_version_is_committed_once(driver: Driver) -> None:
    stage(driver, version=3)
    assert not decide(driver, "u1", version=3).duplicate
    assert decide(driver, "u1", version=3).duplicate
    stage(driver, "late", version=3)
    assert stage_name("job", 3, "late") not in driver.engine.readers._state.stages
    assert driver.engine.readers.last_version("job") == 3


def test_losers_go_with_the_decision(driver: Driver) -> None:
    for name in ("won", "lost"):
        stage(driver, name, version=1)
    stage(driver, "older", version=0)
    stage(driver, "newer", version=2)
    stage(driver, "foreign", app="another", version=1)
    decide(driver, "won", version=1)
    left = sorted(driver.engine.readers._state.stages)
    assert left == sorted(
        [stage_name("job", 1, "won"), stage_name("job", 2, "newer"), stage_name("another", 1, "foreign")]
    )


def test_nothing_is_committed_when_a_stage_is_missing(driver: Driver) -> None:
    stage(driver)
    refused = decide(driver, "u1", "u2")
    assert isinstance(refused, StageNotFound)
    assert "1 of 2" in str(refused)
    assert "'u2'" in str(refused)
    assert not decide(driver, "u1").duplicate


def test_a_decision_survives_a_crash_and_is_finished_later(driver: Driver) -> None:
    stage(driver)
    stage(driver, "u2")
    decide(driver, "u1", "u2")
    first, second = stage_name("job", 0, "u1"), stage_name("job", 0, "u2")
    move(driver, first)
    driver.restart()
    assert driver.engine.readers.unfinished_stages() == [first, second]
    assert driver.engine.readers.staged_batches(first)[1] == []
    assert driver.engine.readers.staged_batches(second)[1] == [(1, 1)]
    assert decide(driver, "u1", "u2").stages == [first, second]
    move(driver, second)
    assert driver.info().ready == 6
    driver.check()


def test_what_was_not_decided_is_not_there_after_a_crash(driver: Driver) -> None:
    stage(driver)
    driver.hold = True
    decide(driver, "u1")
    driver.hold = False
    driver.restart()
    assert driver.engine.readers.unfinished_stages() == []
    assert driver.engine.readers.last_version("job") is None


def test_a_move_that_does_not_fit_did_not_happen(driver: Driver) -> None:
    stage(driver)
    decide(driver, "u1")
    name = stage_name("job", 0, "u1")
    driver.hold = True
    token = MoveStaged(1, "move", name, 1, "q", rows_of(3))
    driver.handle(token)
    driver.refuse()
    driver.hold = False
    assert isinstance(driver.answer("move"), StorageFull)
    assert driver.engine.readers.staged_batches(name)[1] == [(1, 1)]
    assert driver.info().ready == 0
    assert move(driver, name) == Counted(3)
    driver.restart()
    assert driver.info().ready == 3
    assert driver.engine.readers.staged_batches(name)[1] == []
    driver.check()


@pytest.mark.parametrize("known", [b"a", b"order " * 10_000])
def test_known_messages_are_not_committed_twice(driver: Driver, known: bytes) -> None:
    driver.publish(1, dedup_id=known)
    stage(driver)
    decide(driver, "u1")
    assert move(driver, stage_name("job", 0, "u1"), count=1, dedup_id=known) == Counted(0)
    assert driver.info().ready == 1
    driver.check()


def test_messages_of_a_deleted_queue_are_gone_with_it(driver: Driver) -> None:
    driver.create("other")
    stage(driver, queue="other")
    decide(driver, "u1")
    driver.ask(DeleteQueue(9, None, "other"))
    assert move(driver, stage_name("job", 0, "u1"), queue="other") == Counted(0)
    assert driver.engine.readers.staged_batches(stage_name("job", 0, "u1"))[1] == []
    driver.check()


def test_stages_need_a_queue_and_a_name(driver: Driver) -> None:
    assert isinstance(stage(driver, "a/b"), InvalidOptions)
    assert isinstance(stage(driver, ""), InvalidOptions)
    assert isinstance(stage(driver, app=""), InvalidOptions)
    assert not isinstance(stage(driver, queue="made-for-it"), QueueNotFound)


def test_aborted_stages_go_and_committed_ones_stay(driver: Driver) -> None:
    stage(driver)
    stage(driver, "u2")
    decide(driver, "u1")
    stage(driver, "u3", version=1)
    driver.ask(DropStages(1, None, [stage_name("job", 0, "u1"), stage_name("job", 1, "u3")]))
    assert sorted(driver.engine.readers._state.stages) == [stage_name("job", 0, "u1")]


def test_old_stages_and_old_applications_are_forgotten(driver: Driver) -> None:
    stage(driver)
    driver.advance(STAGE_TTL_MS + 1)
    driver.tick()
    assert driver.engine.readers.old_stages() == [stage_name("job", 0, "u1")]
    stage(driver, "now", app="early")
    decide(driver, "now", app="early")
    name = stage_name("early", 0, "now")
    move(driver, name)
    driver.ask(DropStages(1, None, [name]))
    driver.advance(REMEMBERED_MS + 1)
    stage(driver, "then", app="late")
    decide(driver, "then", app="late")
    assert driver.records_of(TransactionsForgotten)[0].apps == ["early"]
    driver.restart()
    assert driver.engine.readers.last_version("early") is None
    assert driver.engine.readers.last_version("late") == 0


# -- plain parts: messages that stay where they are -------------------------------------------------------------------


def plain(driver: Driver, chunk: int = 0, count: int = 3, *, name: str = "u1", queue: str = "q") -> Any:
    return driver.ask(Stage(1, None, queue, "job", 0, name, chunk, rows_of(count)))


def move_whole(driver: Driver, name: str = "u1", queue: str = "q") -> Any:
    return driver.ask(MoveStage(1, None, plain_stage(stage_name("job", 0, name), queue), queue))


def kept(driver: Driver) -> list[str]:
    return sorted(driver.engine.readers._state.stages)


def test_a_plain_part_enters_its_queue_with_one_record(driver: Driver) -> None:
    driver.subscribe(2)
    driver.publish(2)
    plain(driver)
    plain(driver, 1, 4)
    name = plain_stage(stage_name("job", 0, "u1"), "q")
    assert kept(driver) == [name]
    assert decide(driver, "u1").stages == [name]
    before = len(driver.records_of(MessagesAdded))
    assert move_whole(driver) == Counted(7)
    [moved] = driver.records_of(StageMoved)
    assert (moved.first_sequence, moved.stage_first, moved.count) == (3, 1, 7)
    assert len(driver.records_of(MessagesAdded)) == before, "no row is written again"
    assert driver.take() == {2: list(range(1, 10))}
    assert move_whole(driver) == Counted(0), "it moves once"
    driver.ask(DropStages(1, None, [name]))
    assert kept(driver) == []
    driver.check()
    driver.restart()
    assert driver.info().ready == 9
    driver.check()


def test_a_plain_chunk_again_is_kept_once(driver: Driver) -> None:
    for chunk in (0, 0, 1, 0, 1):
        assert plain(driver, chunk).refused is None
    driver.restart()
    plain(driver, 1)
    decide(driver, "u1")
    assert move_whole(driver) == Counted(6)


@pytest.mark.parametrize("other", [{"extras": {0: MessageExtra(2)}}, {"queue": "another"}])
def test_what_comes_behind_a_staged_batch_goes_into_staged_batches(driver: Driver, other: dict[str, Any]) -> None:
    plain(driver)
    driver.ask(Stage(1, None, other.get("queue", "q"), "job", 0, "u1", 1, rows_of(3), other.get("extras")))
    plain(driver, 2)
    plain(driver, 0)
    whole = stage_name("job", 0, "u1")
    assert kept(driver) == sorted([plain_stage(whole, "q"), whole])
    assert decide(driver, "u1").stages == [plain_stage(whole, "q"), whole], "in the order of the chunks"
    assert driver.engine.readers.staged_batches(whole)[1] == [(1, 2)]
    assert move_whole(driver) == Counted(3)


def test_a_transient_queue_gets_no_plain_part(driver: Driver) -> None:
    driver.create("fleeting", durability=Durability.TRANSIENT)
    plain(driver, queue="fleeting")
    assert kept(driver) == [stage_name("job", 0, "u1")]


def test_a_queue_that_was_made_anew_and_is_transient_gets_copies(driver: Driver) -> None:
    driver.create("other")
    plain(driver, queue="other")
    decide(driver, "u1")
    driver.ask(DeleteQueue(9, None, "other"))
    driver.ask(CreateQueue(9, None, "other", QueueOptions(durability=Durability.TRANSIENT)))
    name = plain_stage(stage_name("job", 0, "u1"), "other")
    assert driver.engine.readers.plain_part(name)[1:] == ([(1, 3)], False, False)
    assert move_whole(driver, queue="other") == Counted(0)
    assert driver.ask(MoveStaged(1, None, name, 1, "other", rows_of(3), None, 3)) == Counted(3)
    assert driver.engine.readers.plain_part(name)[1] == []
    driver.check()


def test_plain_messages_of_a_deleted_queue_are_gone_with_it(driver: Driver) -> None:
    driver.create("other")
    plain(driver, queue="other")
    decide(driver, "u1")
    driver.ask(DeleteQueue(9, None, "other"))
    assert move_whole(driver, queue="other") == Counted(0)
    assert driver.engine.readers.plain_part(plain_stage(stage_name("job", 0, "u1"), "other"))[1] == []
    assert not driver.records_of(StageMoved)


def test_a_move_of_all_that_does_not_fit_did_not_happen(driver: Driver) -> None:
    plain(driver)
    decide(driver, "u1")
    name = plain_stage(stage_name("job", 0, "u1"), "q")
    driver.hold = True
    driver.handle(MoveStage(1, "move", name, "q"))
    driver.refuse()
    driver.hold = False
    assert isinstance(driver.answer("move"), StorageFull)
    assert driver.engine.readers.plain_part(name)[1] == [(1, 3)]
    assert driver.info().ready == 0
    assert move_whole(driver) == Counted(3)
    driver.publish(1)
    driver.restart()
    assert driver.info().ready == 4
    assert driver.engine.readers.plain_part(name)[1] == []
    driver.check()


def test_a_stage_with_a_hole_leaves_one_in_its_queue(driver: Driver) -> None:
    plain(driver)
    driver.hold = True
    driver.handle(Stage(1, "lost", "q", "job", 0, "u1", 1, rows_of(2)))
    driver.refuse()
    driver.hold = False
    assert isinstance(driver.answer("lost").refused[0], StorageFull)
    plain(driver, 2)
    decide(driver, "u1")
    driver.subscribe(2)
    assert move_whole(driver) == Counted(6)
    assert driver.records_of(StageMoved)[0].count == 8
    assert driver.records_of(Dropped)[-2].runs == [(4, 5)]
    assert driver.take() == {2: [1, 2, 3, 6, 7, 8]}
    driver.check()
    driver.restart()
    assert driver.info().ready + driver.info().in_flight == 6
    driver.check()


@pytest.mark.parametrize("taken", [[(1, 2)], [(4, 4)], [(8, 8)], [(1, 1), (3, 5), (7, 8)]])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_stage_of_which_some_was_taken_is_moved_with_all_that_it_ever_had(
    driver: Driver, taken: list[tuple[int, int]], restarted: bool
) -> None:
    """As when the queue kept its messages in memory for a while, and was made anew then."""
    plain(driver)
    plain(driver, 1, 5)
    decide(driver, "u1")
    name = plain_stage(stage_name("job", 0, "u1"), "q")
    driver.ask(DeleteQueue(9, None, "q"))
    driver.create(durability=Durability.TRANSIENT)
    for first, last in taken:
        count = last - first + 1
        assert driver.ask(MoveStaged(1, None, name, first, "q", rows_of(count), None, count)) == Counted(count)
    driver.ask(DeleteQueue(9, None, "q"))
    driver.create()
    driver.publish(2)
    if restarted:
        driver.restart()
    gone = sum(last - first + 1 for first, last in taken)
    assert move_whole(driver) == Counted(8 - gone)
    (moved,) = driver.records_of(StageMoved)
    assert (moved.first_sequence, moved.stage_first, moved.count) == (3, 1, 8)
    holes = driver.records_of(Dropped)[-2]
    assert (holes.queue_id, holes.runs) == (moved.queue_id, [(first + 2, last + 2) for first, last in taken])
    driver.publish(1)
    there = RunSet([(1, 11)])
    for first, last in taken:
        there.remove(first + 2, last + 2)
    driver.subscribe(2)
    assert driver.take() == {2: [number for first, last in there.runs() for number in range(first, last + 1)]}
    driver.check()
    driver.restart()
    assert driver.info().ready + driver.info().in_flight == 11 - gone
    driver.check()


def test_plain_parts_are_aborted_and_lose_like_others(driver: Driver) -> None:
    for name in ("won", "lost", "aborted"):
        plain(driver, name=name)
    driver.ask(DropStages(1, None, [stage_name("job", 0, "aborted")]))
    decide(driver, "won")
    assert kept(driver) == [plain_stage(stage_name("job", 0, "won"), "q")]


def test_both_parts_of_an_old_stage_go_together(driver: Driver) -> None:
    """The younger one alone would be committed as if it was all."""
    name = stage_name("job", 0, "u1")
    plain(driver)
    driver.advance(STAGE_TTL_MS - 1_000)
    stage(driver, chunk=1)
    driver.advance(2_000)
    driver.tick()
    assert driver.engine.readers.old_stages() == [name]
    driver.ask(DropStages(1, None, [name]))
    assert kept(driver) == []
    assert isinstance(decide(driver, "u1"), StageNotFound)


@pytest.mark.parametrize("as_staged_batch", [False, True])
def test_a_committed_stage_whose_move_is_not_stored_yet_is_not_dropped(driver: Driver, as_staged_batch: bool) -> None:
    """Whoever aborts it then would lose its messages if the move did not fit."""
    name = stage_name("job", 0, "u1")
    stage(driver) if as_staged_batch else plain(driver)
    decide(driver, "u1")
    driver.hold = True
    assert (move(driver, name) if as_staged_batch else move_whole(driver)) is None
    driver.ask(DropStages(1, None, [name]))
    driver.refuse()
    driver.hold = False
    driver.keep()
    assert (move(driver, name) if as_staged_batch else move_whole(driver)) == Counted(3)
    driver.ask(DropStages(1, None, [name]))
    assert kept(driver) == []
    assert driver.info().ready == 3
    driver.check()


@pytest.mark.parametrize("user", ["", "ann", "a=b>c/d"])
@pytest.mark.parametrize("target", ["q", "a/b=c>d"])
def test_names_of_plain_parts(user: str, target: str) -> None:
    whole = stage_name("job/x=y>z", 7, "s=1>2", user)
    name = plain_stage(whole, target)
    assert is_plain(name)
    assert not is_plain(whole)
    assert plain_of(name) == (whole, target)
    assert version_and_app(name) == (7, "job/x=y>z")


@pytest.mark.parametrize("app", ["", "a" * 257, "\u20ac" * 86])
def test_a_commit_without_stages_needs_a_name_that_a_store_can_keep(driver: Driver, app: str) -> None:
    assert isinstance(decide(driver, app=app), InvalidOptions)
    assert not driver.records_of(TransactionDecided)
    assert isinstance(decide(driver, app="a" * 256), Decided)
