"""Cursors: groups that are read by ranges and acknowledged up to a sequence."""

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver
from tests.unit.engine.cursor_verbs import alive, commit, cursor, join, reject, wanted
from vibemq.engine.pacing import STEP_UNITS
from vibemq.errors import GroupFenced, GroupNotFound, InvalidOptions, WrongIncarnation
from vibemq.model.commands import DeleteGroup, DeleteQueue, JoinCursor, RemoveMessages, SeekGroup, StartAt
from vibemq.model.options import DeliveryMode
from vibemq.model.records import CursorChanged, Settled
from vibemq.storage.state.reducer import apply


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    return driver


def test_a_new_cursor_begins_with_the_oldest_message_there_is(driver: Driver) -> None:
    driver.publish(5)
    info = join(driver, owner="job-1")
    assert (info.committed, info.head, info.tail, info.epoch, info.joins) == (1, 1, 6, 1, 1)
    assert (info.backlog_messages, info.owner) == (5, "job-1")
    driver.check()


def test_latest_and_sequence_count_only_for_a_new_group(driver: Driver) -> None:
    driver.publish(5)
    assert join(driver, "some", start=StartAt.SEQUENCE, start_sequence=4).committed == 4
    assert join(driver, "now", start=StartAt.NOW).committed == 6
    assert join(driver, "now", start=StartAt.BEGINNING).committed == 6
    driver.check()


def test_a_cursor_takes_no_subscribers_and_subscribers_no_cursor(driver: Driver) -> None:
    join(driver)
    assert isinstance(driver.subscribe(2, group="etl"), InvalidOptions)
    driver.subscribe(2, group="people")
    assert isinstance(join(driver, "people"), InvalidOptions)
    assert isinstance(commit(driver, 1, group="nobody"), GroupNotFound)


def test_a_commit_settles_everything_below(driver: Driver) -> None:
    driver.publish(5)
    join(driver)
    assert commit(driver, 4).committed == 4
    assert wanted(driver, 4) == [(4, 5)]
    assert not alive(driver, 3)
    assert alive(driver, 4)
    assert driver.info().counters["settled"] == 3
    driver.check()


def test_a_commit_never_goes_back_and_never_beyond_the_tail(driver: Driver) -> None:
    driver.publish(5)
    join(driver)
    commit(driver, 4)
    assert commit(driver, 2).committed == 4
    assert commit(driver, 99).committed == 6
    driver.publish(1)
    assert wanted(driver, 6) == [(6, 6)]


def test_a_new_owner_fences_the_old_one(driver: Driver) -> None:
    driver.publish(5)
    join(driver, owner="first")
    assert join(driver, owner="second").epoch == 2
    refused = commit(driver, 3, epoch=1)
    assert isinstance(refused, GroupFenced)
    assert "second" in str(refused)
    assert isinstance(reject(driver, 3, epoch=1), GroupFenced)
    assert commit(driver, 3, epoch=2).committed == 3


def test_another_incarnation_is_refused(driver: Driver) -> None:
    driver.publish(1)
    old = join(driver).incarnation
    driver.ask(DeleteQueue(9, None, "q"))
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    assert isinstance(join(driver, incarnation=old), WrongIncarnation)
    new = join(driver).incarnation
    assert isinstance(commit(driver, 1, incarnation=old), WrongIncarnation)
    assert commit(driver, 1, incarnation=new).committed == 1


def test_joins_without_progress_are_counted(driver: Driver) -> None:
    driver.publish(2)
    assert [join(driver).joins for _ in range(3)] == [1, 2, 3]
    commit(driver, 2, epoch=3)
    assert join(driver).joins == 1


def test_a_hold_keeps_what_was_acknowledged(driver: Driver) -> None:
    driver.publish(5)
    join(driver, hold_ms=1000)
    assert commit(driver, 4).head == 1
    assert wanted(driver, 1) == [(1, 5)]
    assert cursor(driver).backlog_messages == 2
    assert driver.info().in_flight == 0
    driver.check()
    driver.advance(1001)
    assert cursor(driver).head == 4
    assert not alive(driver, 3)
    driver.check()


def test_a_hold_survives_a_restart(driver: Driver) -> None:
    driver.publish(5)
    join(driver, hold_ms=1000)
    commit(driver, 4)
    driver.restart()
    info = cursor(driver)
    assert (info.committed, info.head, info.epoch, info.hold_ms) == (4, 1, 1, 1000)
    driver.check()
    driver.advance(1001)
    assert cursor(driver).head == 4
    driver.check()


def test_a_cursor_survives_a_restart(driver: Driver) -> None:
    driver.publish(5)
    join(driver, owner="job", max_lag_ms=7)
    commit(driver, 3)
    reject(driver, 4)
    before = cursor(driver)
    driver.restart()
    assert cursor(driver) == before
    assert wanted(driver, 3) == [(3, 3), (5, 5)]
    assert driver.info().dead == 1
    driver.check()


def test_each_cursor_holds_its_messages_back(driver: Driver) -> None:
    driver.publish(4)
    epochs = {group: join(driver, group).epoch for group in ("a", "b")}
    assert epochs["b"] > epochs["a"]
    commit(driver, 5, group="a", epoch=epochs["a"])
    assert alive(driver, 1)
    commit(driver, 3, group="b", epoch=epochs["b"])
    assert not alive(driver, 1)
    assert alive(driver, 3)
    driver.ask(DeleteGroup(9, None, "q", "b"))
    assert not alive(driver, 3)


def test_a_seek_moves_the_cursor_and_fences_its_owner(driver: Driver) -> None:
    driver.publish(5)
    join(driver, "keeper")
    epoch = join(driver).epoch
    commit(driver, 5, epoch=epoch)
    driver.ask(SeekGroup(9, None, "q", "etl", StartAt.SEQUENCE, 2))
    assert (cursor(driver).committed, cursor(driver).epoch) == (2, epoch + 1)
    assert wanted(driver, 2) == [(2, 5)]
    assert isinstance(commit(driver, 3, epoch=epoch), GroupFenced)
    driver.restart()
    assert (cursor(driver).committed, cursor(driver).epoch) == (2, epoch + 1)
    driver.check()


def test_a_seek_forgets_what_was_held(driver: Driver) -> None:
    driver.publish(5)
    join(driver, hold_ms=1000)
    commit(driver, 5)
    driver.ask(SeekGroup(9, None, "q", "etl", StartAt.SEQUENCE, 3))
    assert wanted(driver, 3) == [(3, 5)]
    driver.check()
    driver.advance(2000)
    assert wanted(driver, 3) == [(3, 5)]
    driver.check()


def test_commits_cost_one_settlement_each(driver: Driver) -> None:
    driver.publish(1000)
    join(driver)
    driver.records.clear()
    commit(driver, 1001)
    assert [type(record) for record in driver.records] == [CursorChanged, Settled]
    assert driver.records[1].runs == [(1, 1000)]


def test_a_deleted_group_ends_and_the_queue_waits_again(driver: Driver) -> None:
    driver.publish(2)
    join(driver)
    driver.ask(DeleteGroup(9, None, "q", "etl"))
    with pytest.raises(GroupNotFound):
        cursor(driver)
    driver.publish(1)
    driver.check()


SCATTERED = 5_000
"""Messages, of each of which the neighbours are gone."""


INSTRUCTIONS_PER_RUN = 100
"""Of a group that is put before them: the gaps are listed, to be settled. Nothing else is done run by run."""


@pytest.mark.parametrize(
    "command",
    [
        JoinCursor(1, None, "q", "new", start=StartAt.BEGINNING),
        SeekGroup(1, None, "q", "etl", StartAt.BEGINNING, 0),
        SeekGroup(1, None, "q", "etl", StartAt.SEQUENCE, 9),
    ],
)
def test_a_group_is_put_before_scattered_messages_as_a_whole(driver: Driver, command: JoinCursor | SeekGroup) -> None:
    join(driver, start=StartAt.BEGINNING)
    driver.publish(2 * SCATTERED)
    driver.ask(RemoveMessages(1, None, "q", [(s, s) for s in range(2, 2 * SCATTERED + 1, 2)]))
    cost = instructions(lambda: driver.engine.handle([command], driver.now)).total()
    assert cost < INSTRUCTIONS_PER_RUN * SCATTERED


def test_a_start_settles_what_many_lagging_cursors_have_acknowledged_in_steps() -> None:
    cursors = 4 * STEP_UNITS
    driver = Driver()
    driver.create()
    driver.publish(10)
    for number in range(cursors):
        driver.handle(JoinCursor(1, None, "q", f"c{number}", take_over=True, create=True))
    for group_id, group in driver.disk.queues[1].groups.items():
        if group.cursor is not None:
            apply(driver.disk, CursorChanged(1, group_id, group.cursor._replace(committed=6)), driver.dead)
    driver.hold = True
    driver.restart()
    settled = [len(driver.waiting[0].records)]
    while (at := driver.engine.next_deadline()) is not None and at <= driver.now:
        driver.waiting.clear()
        driver.tick()
        settled += [len(outcome.records) for outcome in driver.waiting]
    assert max(settled) <= STEP_UNITS + 2
    assert sum(settled) >= cursors
    assert not driver.engine.violations()
    assert driver.info().in_flight == 0
    assert {group.unsettled for group in driver.engine._state.queues["q"].groups.values() if group.cursor} == {5}
