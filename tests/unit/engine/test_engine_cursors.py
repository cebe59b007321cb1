"""Cursors: groups that are read by ranges and acknowledged up to a sequence."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.handlers.cursors import ranges
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.stage_names import stage_name
from vibemq.errors import GroupExpired, GroupFenced, GroupNotFound, InvalidOptions, OffsetGone, WrongIncarnation
from vibemq.model.commands import (
    ChangeQueue,
    CommitCursor,
    DecideTransaction,
    DeleteGroup,
    DeleteQueue,
    DropStages,
    JoinCursor,
    MoveStaged,
    Publish,
    PurgeQueue,
    Quarantine,
    RejectAt,
    RemoveMessages,
    SeekGroup,
    Stage,
    StartAt,
)
from vibemq.model.effects import Counted, CursorInfo, Decided, Rejected
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Durability, Overflow, Retention
from vibemq.model.records import CursorChanged, Settled
from vibemq.model.runs import Run
from vibemq.storage.state.liveness import is_alive
from vibemq.storage.state.reducer import apply


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    return driver


def join(driver: Driver, group: str = "etl", **options: Any) -> Any:
    return driver.ask(JoinCursor(1, None, "q", group, **options))


def commit(driver: Driver, sequence: int, epoch: int = 1, group: str = "etl", **more: Any) -> Any:
    return driver.ask(CommitCursor(1, None, "q", group, epoch, sequence, **more))


def reject(driver: Driver, *sequences: int, group: str = "etl", **more: Any) -> Any:
    return driver.ask(RejectAt(1, None, "q", group, [(sequence, "bad row") for sequence in sequences], **more))


def cursor(driver: Driver, group: str = "etl") -> CursorInfo:
    return driver.engine.readers.cursor("q", group)


def wanted(driver: Driver, start: int = 1, end: int = 1 << 40, group: str | None = "etl") -> list[Run]:
    return driver.engine.readers.span("q", group, start, end, None).wanted


def alive(driver: Driver, sequence: int) -> bool:
    """Whether the store has to keep the message."""
    return is_alive(driver.disk.queues[driver.info().queue_id], sequence)


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


def test_nothing_is_handed_out_and_nothing_is_in_flight(driver: Driver) -> None:
    join(driver)
    driver.publish(3)
    assert driver.take() == {}
    assert driver.info().in_flight == 0
    assert wanted(driver) == [(1, 3)]


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


def test_a_range_below_what_was_released_is_refused(driver: Driver) -> None:
    driver.publish(5)
    join(driver)
    commit(driver, 4)
    with pytest.raises(OffsetGone, match="below 4"):
        wanted(driver, 3)


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


def test_what_a_log_has_let_go_of_within_the_hold_is_lost_to_a_batch_that_is_read_again() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG, retain_messages=4)
    join(driver, hold_ms=1000)
    for _ in range(4):
        driver.publish(1)
    assert commit(driver, 5, epoch=cursor(driver).epoch).committed == 5
    assert driver.engine.readers.span("q", "etl", 1, 5, None).lost == []
    for _ in range(2):
        driver.publish(1)
    span = driver.engine.readers.span("q", "etl", 1, 7, None)
    assert (span.lost, span.wanted) == ([(1, 2)], [(3, 6)])
    assert cursor(driver).lost == [], "to the query as it goes on nothing is"
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


def test_a_message_is_rejected_once(driver: Driver) -> None:
    driver.publish(5)
    join(driver)
    assert reject(driver, 2, 4, 4) == Rejected(2, 1)
    assert reject(driver, 2, 4) == Rejected(0, 2)
    commit(driver, 6)
    assert reject(driver, 5, 9) == Rejected(0, 2, acknowledged=1), "and there is no 9"
    assert sorted(entry.facts.sequence for entry in driver.dead.entries.values()) == [2, 4]
    assert {entry.facts.error for entry in driver.dead.entries.values()} == {"bad row"}
    driver.check()


def test_what_was_rejected_is_still_part_of_a_batch_that_is_read_again(driver: Driver) -> None:
    driver.publish(3)
    join(driver)
    reject(driver, 2)
    span = driver.engine.readers.span("q", "etl", 1, 4, None)
    assert span.wanted == [(1, 1), (3, 3)]
    assert span.allowed == [(1, 3)]
    assert alive(driver, 2)
    driver.restart()
    assert driver.engine.readers.span("q", "etl", 1, 4, None).allowed == [(1, 3)]
    driver.ask(SeekGroup(9, None, "q", "etl", StartAt.BEGINNING))
    assert driver.engine.readers.span("q", "etl", 1, 4, None).allowed == [(1, 1), (3, 3)], "it begins anew"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cursor_is_given_what_is_its_own(driver: Driver, restarted: bool) -> None:
    """Rows of others lie in the same blocks for a while yet."""
    driver.publish(6)
    driver.ask(RemoveMessages(9, None, "q", [(2, 3)]))
    join(driver)
    if restarted:
        driver.restart()
    span = driver.engine.readers.span("q", "etl", 1, 7, None)
    assert span.allowed == span.wanted == [(1, 1), (4, 6)]


def test_without_a_dead_letter_queue_a_reject_drops(driver: Driver) -> None:
    driver.create("plain", dead_letter=False, mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.publish(2, "plain")
    driver.ask(JoinCursor(1, None, "plain", "etl"))
    assert driver.ask(RejectAt(1, None, "plain", "etl", [(1, "bad")])) == Rejected(1, 0)
    assert driver.info("plain").counters["dropped"] == 1
    driver.check()


def test_quarantined_runs_are_left_out_and_dead_lettered(driver: Driver) -> None:
    driver.publish(6)
    join(driver)
    assert driver.ask(Quarantine(1, None, "q", "etl", [(2, 3), (3, 99)])) == Rejected(5, 0)
    assert driver.ask(Quarantine(1, None, "q", "etl", [(2, 4), (99, 99)])) == Rejected(0, 3, unchanged=True)
    span = driver.engine.readers.span("q", "etl", 1, 7, None)
    assert (span.allowed, span.quarantined) == ([(1, 1)], [(2, 6)])
    driver.restart()
    assert driver.engine.readers.span("q", "etl", 1, 7, None).quarantined == [(2, 6)]
    commit(driver, 7)
    assert cursor(driver).quarantined == []
    driver.check()


def test_what_was_purged_before_it_was_read_is_lost_and_said_so(driver: Driver) -> None:
    driver.publish(6)
    join(driver)
    commit(driver, 2)
    driver.ask(RemoveMessages(9, None, "q", [(3, 3), (5, 5)]))
    driver.restart()
    assert cursor(driver).lost == [(3, 3), (5, 5)]
    reach, lost = driver.engine.readers.reach("q", "etl", 2, 0, 0, None)
    assert (reach.end, reach.messages, lost) == (7, 3, [(3, 3), (5, 5)])
    commit(driver, 4)
    assert cursor(driver).lost == [(5, 5)]
    driver.ask(PurgeQueue(9, None, "q"))
    assert cursor(driver).lost == [(4, 6)]
    driver.check()


@pytest.mark.parametrize("dead_letter", [True, False])
def test_what_its_sender_let_expire_is_skipped_and_counted(dead_letter: bool) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, dead_letter=dead_letter)
    driver.publish(2)
    driver.publish(1, expires_at=driver.now + 50)
    driver.publish(3)
    join(driver)
    driver.advance(60)
    assert (cursor(driver).lost, cursor(driver).expired_messages) == ([], 1)
    reach, lost = driver.engine.readers.reach("q", "etl", 1, 0, 0, None)
    assert (reach.end, reach.messages, lost) == (7, 5, [])
    assert driver.engine.readers.span("q", "etl", 1, 7, None).allowed == [(1, 2), (4, 6)]
    commit(driver, 7)
    driver.check()


def test_what_the_queue_let_expire_is_lost(driver: Driver) -> None:
    driver.ask(ChangeQueue(9, None, "q", {"message_ttl_ms": 50}))
    join(driver)
    driver.publish(2)
    driver.publish(1, expires_at=driver.now + 20)
    driver.advance(2000)
    assert (cursor(driver).lost, cursor(driver).expired_messages) == ([(1, 2)], 3)


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
    assert driver.engine.readers.bundles(name)[1] == [(1, 1)]
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


def test_overflow_and_log_limits_lose_too() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, overflow=Overflow.DROP_OLDEST, max_messages=3)
    join(driver)
    driver.publish(5)
    assert cursor(driver).lost == [(1, 2)]
    driver.check()
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG, retain_messages=2)
    join(driver)
    for _ in range(5):
        driver.publish(1)
    assert cursor(driver).lost == [(1, 3)]
    for start, lost in ((1, [(1, 3)]), (3, [(3, 3)]), (4, []), (9, [])):
        assert driver.engine.readers.span("q", None, start, 99, None).lost == lost, "also to whoever has no group"
    driver.check()


@pytest.mark.parametrize("limits", [{"max_lag_bytes": 25}, {"max_lag_ms": 500}])
def test_a_group_that_lags_too_far_expires_and_holds_nothing_back(driver: Driver, limits: dict[str, int]) -> None:
    join(driver, **limits)
    driver.publish(3)
    driver.advance(3000)
    assert cursor(driver).expired
    for refused in (commit(driver, 2), join(driver), reject(driver, 1)):
        assert isinstance(refused, GroupExpired)
    with pytest.raises(GroupExpired, match="`vibemq-admin group seek q etl earliest`"):
        wanted(driver)
    driver.publish(2)
    driver.advance(2000)
    assert not any(alive(driver, sequence) for sequence in range(1, 6))
    driver.restart()
    assert cursor(driver).expired
    driver.ask(SeekGroup(1, None, "q", "etl", StartAt.NOW))
    driver.publish(1)
    assert not cursor(driver).expired
    assert wanted(driver, 6) == [(6, 6)]
    driver.check()


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


def test_messages_are_read_once_they_are_as_safe_as_promised(driver: Driver) -> None:
    join(driver)
    driver.hold = True
    driver.publish(3)
    assert driver.engine.readers.tail("q") == 1
    assert wanted(driver) == []
    driver.keep()
    assert driver.engine.readers.tail("q") == 4


def test_what_could_not_be_stored_is_no_loss_and_no_message(driver: Driver) -> None:
    join(driver)
    driver.publish(2)
    driver.hold = True
    driver.publish(3)
    driver.refuse()
    driver.hold = False
    assert driver.engine.readers.tail("q") == 3
    driver.publish(1)
    assert driver.engine.readers.tail("q") == 7
    assert (wanted(driver), cursor(driver).lost) == ([(1, 2), (6, 6)], [])
    driver.check()


def test_a_reader_is_bounded_by_messages_and_by_bytes(driver: Driver) -> None:
    driver.publish(10, size=100)
    join(driver)
    readers = driver.engine.readers
    reach, _ = readers.reach("q", "etl", 3, 4, 0, None)
    assert (reach.end, reach.messages, reach.tail) == (7, 4, 11)
    reach, _ = readers.reach("q", "etl", 3, 0, 350, None)
    assert (reach.end, reach.messages, reach.size) == (6, 3, 300)
    reach, _ = readers.reach("q", "etl", 3, 0, 1, None)
    assert reach.end == 4, "one message at least"
    reach, _ = readers.reach("q", "etl", 11, 0, 0, None)
    assert (reach.end, reach.messages) == (11, 0)


@pytest.mark.parametrize("group", ["etl", None])
@pytest.mark.parametrize("limits", [(0, 0), (7, 0), (0, 130), (9, 250), (1000, 0), (0, 1)])
def test_scattered_messages_are_looked_at_piece_by_piece(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, group: str | None, limits: tuple[int, int]
) -> None:
    """So that the event loop is not held for as many runs as there are messages."""
    driver.publish(40)
    join(driver)
    driver.ask(RemoveMessages(9, None, "q", [(number, number) for number in range(2, 40, 3)]))
    readers = driver.engine.readers
    whole, lost = readers.reach("q", group, 1, *limits, None)
    assert not whole.more
    assert readers.span("q", group, 1, 41, None).end == 41
    monkeypatch.setattr(ranges, "RUNS_AT_ONCE", 3)
    reach, found = readers.reach("q", group, 1, *limits, None)
    while reach.more:
        assert reach.end < whole.end
        reach, more = readers.reach("q", group, 1, *limits, None, reach)
        found += more
    assert (reach, found) == (whole, lost)
    span = readers.span("q", group, 1, 41, None)
    assert (span.wanted, span.end) == ([(1, 1), (3, 4), (6, 7)], 8)
    assert readers.cuts("q", group, 1, 41, 4, None) == [1, 11, 21, 31, 41]


def test_cuts_balance_bytes_not_messages(driver: Driver) -> None:
    driver.publish(300, size=10)
    driver.publish(1, size=200_000)
    driver.publish(300, size=10)
    join(driver)
    readers = driver.engine.readers
    points = readers.cuts("q", "etl", 1, 602, 4, None)
    assert points[0] == 1
    assert points[-1] == 602
    assert points == sorted(set(points))
    sizes = [readers.size_between("q", first, end) for first, end in pairwise(points)]
    assert sum(sizes) == readers.size_between("q", 1, 602)
    assert readers.cuts("q", "etl", 5, 6, 8, None) == [5, 6]


@pytest.mark.parametrize("durability", [Durability.WEAK, Durability.ASYNC])
def test_after_a_restart_no_number_is_given_twice(durability: Durability, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "LEAP", 1000)
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, durability=durability)
    join(driver)
    driver.publish(5)
    driver.hold = True
    driver.publish(4)
    # A power cut takes 6 to 9, which a reader may have seen; its position is 10 now.
    driver.hold = False
    driver.restart()
    assert driver.engine.readers.tail("q") == 6
    reach, _ = driver.engine.readers.reach("q", "etl", 10, 100, 0, None)
    assert reach.end == 10, "it waits where it was"
    first = driver.publish(2).first_sequence
    assert first == 6 + 1000
    reach, lost = driver.engine.readers.reach("q", "etl", 10, 100, 0, None)
    assert (reach.end, reach.messages, lost) == (first + 2, 2, [])
    driver.check()
    driver.restart()
    assert wanted(driver) == [(1, 5), (first, first + 1)]
    driver.check()


def test_a_strong_queue_goes_on_counting(driver: Driver) -> None:
    join(driver)
    driver.publish(5)
    driver.restart()
    assert driver.publish(1).first_sequence == 6


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
