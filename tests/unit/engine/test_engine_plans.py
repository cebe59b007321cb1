"""How the batches of a cursor's reader are cut: the same whenever it asks again."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.engine.queue import plans
from vibemq.errors import GroupFenced, GroupHasProgress, InvalidOptions, PlanUnknown
from vibemq.model.commands import Begin, CommitCursor, DeleteGroup, JoinCursor, PlanBatch, RejectAt, SeekGroup, StartAt
from vibemq.model.effects import CursorInfo
from vibemq.model.options import DeliveryMode
from vibemq.model.records import CursorChanged, Plan, PlanMade, PlansForgotten, tag_of


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.publish(20)
    return driver


def join(driver: Driver, **options: Any) -> Any:
    return driver.ask(JoinCursor(1, None, "q", "etl", **options))


def plan(driver: Driver, start: str, end: str, epoch: int = 1, **more: Any) -> Any:
    answer = driver.ask(PlanBatch(1, None, "q", "etl", epoch, tag_of(start), end, **more))
    return answer.end if isinstance(answer, Plan) else answer


def done(driver: Driver, position: int, epoch: int = 1) -> CursorInfo:
    """The reader stands there, and has everything below."""
    info = driver.ask(CommitCursor(1, None, "q", "etl", epoch, position, plan=tag_of(f"{position}")))
    assert isinstance(info, CursorInfo)
    return info


def known(driver: Driver, start: str) -> str | None:
    found = driver.engine.readers.planned("q", "etl", tag_of(start), None)
    return None if found is None else found.end


def stored(driver: Driver) -> list[str]:
    groups = driver.disk.queues[driver.info().queue_id].groups.values()
    return [found.end for group in groups if group.name == "etl" for found in group.plans.values()]


def test_the_first_end_of_a_batch_holds(driver: Driver) -> None:
    join(driver)
    assert known(driver, "1") is None
    assert plan(driver, "1", "4") == "4"
    assert plan(driver, "1", "9") == "4"
    driver.restart()
    assert known(driver, "1") == "4"
    assert plan(driver, "1", "9") == "4"
    assert plan(driver, "4", "6") == "6"
    driver.check()


def test_a_plan_is_told_when_it_is_durable(driver: Driver) -> None:
    join(driver)
    driver.hold = True
    for _ in range(2):
        assert driver.ask(PlanBatch(1, None, "q", "etl", 1, tag_of("1"), "4")) is None, "not yet"
    driver.keep()
    assert plan(driver, "1", "9") is None
    driver.keep()
    assert known(driver, "1") == "4"


def test_plans_follow_each_other(driver: Driver) -> None:
    join(driver)
    for start, end in (("1", "4"), ("4", "6")):
        plan(driver, start, end)
    for start in ("2", "5", "9"):
        with pytest.raises(PlanUnknown, match="none that begins at this position"):
            known(driver, start)
        assert isinstance(plan(driver, start, "10"), PlanUnknown)
    assert plan(driver, "9", "10", anew=True) == "10"
    assert stored(driver) == ["10"]
    assert known(driver, "10") is None


def test_without_a_hold_a_plan_ends_with_its_acknowledgement(driver: Driver) -> None:
    join(driver)
    for start, end in (("1", "4"), ("4", "6"), ("6", "9")):
        plan(driver, start, end)
    assert done(driver, 4).plans == 2
    assert stored(driver) == ["6", "9"]
    assert done(driver, 9).plans == 1, "the newest stays: nothing else may begin a batch"
    assert known(driver, "9") is None
    with pytest.raises(PlanUnknown):
        known(driver, "4")
    driver.restart()
    with pytest.raises(PlanUnknown):
        known(driver, "4")
    assert [known(driver, "6"), known(driver, "9")] == ["9", None]


def test_with_a_hold_plans_are_kept_as_long_as_the_messages(driver: Driver) -> None:
    join(driver, hold_ms=1000)
    for start, end in (("1", "4"), ("4", "6"), ("6", "9")):
        plan(driver, start, end)
        done(driver, int(end))
        driver.advance(400)
    # 1,200 ms later the first is released, the others are not.
    assert cursor(driver).head == 4
    assert stored(driver) == ["6", "9"]
    driver.restart()
    assert [known(driver, start) for start in ("4", "6", "9")] == ["6", "9", None]
    done(driver, 9)
    driver.advance(1100)
    assert cursor(driver).head == 9
    assert stored(driver) == ["9"]
    driver.check()


def cursor(driver: Driver) -> CursorInfo:
    return driver.engine.readers.cursor("q", "etl")


def test_a_batch_that_was_rejected_whole_is_held_too(driver: Driver) -> None:
    join(driver, hold_ms=1000)
    plan(driver, "1", "4")
    driver.ask(RejectAt(1, None, "q", "etl", [(sequence, "bad") for sequence in (1, 2, 3)]))
    assert done(driver, 4).head == 1
    assert driver.engine.readers.reach("q", "etl", 1, 0, 0, None)[0].end == 21
    driver.restart()
    assert cursor(driver).head == 1
    assert known(driver, "1") == "4"
    driver.advance(1001)
    assert cursor(driver).head == 4
    driver.check()


def test_plans_of_a_queue_where_nothing_moves_do_not_gather(driver: Driver) -> None:
    """The plans of a reader of several queues stand with one of them, which may be idle."""
    join(driver)
    for number in range(50):
        plan(driver, f"{number}", f"{number + 1}")
        driver.ask(CommitCursor(1, None, "q", "etl", 1, 1, plan=tag_of(f"{number + 1}")))
    assert cursor(driver).committed == 1
    assert len(stored(driver)) == 1
    written = len(driver.records)
    for _ in range(5):
        driver.ask(CommitCursor(1, None, "q", "etl", 1, 1, plan=tag_of("50")))
    assert len(driver.records) == written, "an idle reader that asks again writes nothing"


def test_of_too_many_plans_the_oldest_are_refused(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    join(driver, hold_ms=1000)
    monkeypatch.setattr(plans, "PLANS_MAX", 3)
    for number in range(6):
        plan(driver, f"{number}", f"{number + 1}")
    assert stored(driver) == ["4", "5", "6"]
    monkeypatch.setattr(plans, "PLANS_BYTES_MAX", 2 * plans.PLAN_BYTES + 100)
    plan(driver, "6", "7")
    assert stored(driver) == ["6", "7"], "short ones take their room too"
    plan(driver, "7", "x" * 999)
    plan(driver, "x" * 999, "y" * 999)
    assert [end[0] for end in stored(driver)] == ["y"]
    with pytest.raises(PlanUnknown):
        known(driver, "3")


@pytest.mark.parametrize(("tag", "end"), [("", "4"), ("x" * 65, "4"), ("x", "")])
def test_plans_that_cannot_be(driver: Driver, tag: str, end: str) -> None:
    join(driver)
    assert isinstance(driver.ask(PlanBatch(1, None, "q", "etl", 1, tag, end)), InvalidOptions)


def test_an_older_reader_plans_nothing(driver: Driver) -> None:
    join(driver)
    join(driver)
    assert isinstance(plan(driver, "1", "4"), GroupFenced)
    assert plan(driver, "1", "4", epoch=2) == "4"


def test_a_reader_of_a_deleted_group_is_not_taken_for_one_of_the_new(driver: Driver) -> None:
    join(driver)
    for _ in range(3):
        old = cursor(driver).epoch
        driver.ask(DeleteGroup(1, None, "q", "etl"))
        driver.restart()
        assert join(driver).epoch > old
        assert isinstance(driver.ask(CommitCursor(1, None, "q", "etl", old, 4)), GroupFenced)
        assert isinstance(plan(driver, "1", "4", epoch=old), GroupFenced)


def test_a_seek_forgets_plans(driver: Driver) -> None:
    join(driver)
    plan(driver, "1", "4")
    done(driver, 4)
    driver.ask(SeekGroup(1, None, "q", "etl", StartAt.SEQUENCE, 2))
    assert (cursor(driver).plans, cursor(driver).moved, stored(driver)) == (0, False, [])
    driver.restart()
    assert known(driver, "2") is None


# -- readers without a position -----------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", Begin)
def test_a_group_that_was_never_moved_asks_nothing(driver: Driver, begin: Begin) -> None:
    first = join(driver, begin=begin, start=StartAt.SEQUENCE, start_sequence=5)
    plan(driver, "5", "9", epoch=first.epoch)
    again = join(driver, begin=begin)
    assert (again.committed, again.moved, again.plans, again.epoch) == (5, False, 1, first.epoch + 1), (
        "a crash in the first batch"
    )


def test_a_group_that_was_moved_refuses_who_does_not_know_where_it_stands(driver: Driver) -> None:
    join(driver)
    plan(driver, "1", "4")
    done(driver, 4)
    for _ in range(2):
        refused = join(driver, begin=Begin.REFUSE)
        assert isinstance(refused, GroupHasProgress)
        assert "acknowledged messages up to 4" in str(refused)
        driver.restart()
    assert cursor(driver).epoch == 1, "whoever has the group goes on"
    assert join(driver).epoch == 2, "who knows its position is let in"


def test_a_reader_may_continue_at_the_cursor(driver: Driver) -> None:
    join(driver)
    plan(driver, "1", "4")
    done(driver, 4)
    new = join(driver, begin=Begin.CONTINUE)
    assert (new.committed, new.moved, new.plans) == (4, False, 0)
    plan(driver, "anywhere", "6", epoch=new.epoch)
    driver.restart()
    again = join(driver, begin=Begin.CONTINUE)
    assert (again.committed, again.moved, again.plans) == (4, False, 1), "a crash in the first batch changes nothing"
    assert stored(driver) == ["6"]


def test_a_reader_may_replay_what_is_held(driver: Driver) -> None:
    join(driver, hold_ms=1000)
    done(driver, 4)
    driver.advance(500)
    done(driver, 9)
    driver.advance(501)
    new = join(driver, begin=Begin.REPLAY)
    assert (new.committed, new.head, new.moved, new.backlog_messages) == (4, 4, False, 17)
    assert new.epoch == 3
    driver.advance(5000)
    again = join(driver, begin=Begin.REPLAY)
    assert (again.committed, again.backlog_messages) == (4, 17), "a crash in the first batch changes nothing"
    driver.restart()
    assert (cursor(driver).committed, cursor(driver).backlog_messages) == (4, 17)
    driver.check()


@pytest.mark.parametrize("begin", [Begin.CONTINUE, Begin.REPLAY])
def test_a_decision_for_an_epoch_counts_once(driver: Driver, begin: Begin) -> None:
    join(driver, hold_ms=60_000)
    done(driver, 4)
    decided = cursor(driver).epoch
    assert isinstance(join(driver, begin=begin, begin_epoch=decided + 1), GroupHasProgress), "not decided yet"
    for _ in range(2):
        new = join(driver, begin=begin, begin_epoch=decided)
        assert new.committed == (4 if begin is Begin.CONTINUE else 1), "a crash in the first batch changes nothing"
        driver.restart()
    done(driver, 9, epoch=new.epoch)
    for _ in range(2):
        refused = join(driver, begin=begin, begin_epoch=decided)
        assert isinstance(refused, GroupHasProgress)
        assert f"the decision was for epoch {decided}, and this is {new.epoch}" in str(refused)
        driver.restart()
    assert (cursor(driver).committed, cursor(driver).epoch) == (9, new.epoch), "a refusal changes nothing"


def test_a_decision_for_an_epoch_is_heeded_by_a_group_that_was_not_moved(driver: Driver) -> None:
    join(driver, hold_ms=60_000)
    done(driver, 4)
    continued = join(driver, begin=Begin.CONTINUE, begin_epoch=1)
    plan(driver, "anywhere", "6", epoch=continued.epoch)
    assert join(driver, begin=Begin.REFUSE, begin_epoch=continued.epoch).plans == 1, "nothing was decided"
    new = join(driver, begin=Begin.REPLAY, begin_epoch=cursor(driver).epoch)
    assert (new.committed, new.plans, new.moved) == (1, 0, False)
    plan(driver, "1", "6", epoch=new.epoch)
    assert join(driver, begin=Begin.REPLAY, begin_epoch=new.epoch - 1).plans == 1, "heeded already"
    driver.check()


def test_the_first_move_is_durable_before_it_is_told(driver: Driver) -> None:
    join(driver)
    driver.hold = True
    assert driver.ask(CommitCursor(1, None, "q", "etl", 1, 4)) is None
    driver.keep()
    driver.hold = False
    assert done(driver, 5).moved
    assert all(record.facts.moved for record in driver.records_of(CursorChanged) if record.facts.committed > 1)


def test_what_is_written_for_a_batch(driver: Driver) -> None:
    join(driver)
    plan(driver, "1", "4")
    driver.records.clear()
    done(driver, 4)
    plan(driver, "4", "6")
    done(driver, 6)
    kinds = [type(record) for record in driver.records]
    assert (kinds.count(PlanMade), kinds.count(PlansForgotten), kinds.count(CursorChanged)) == (1, 1, 2)
