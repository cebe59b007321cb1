"""Which batch of which query a plan is: what a reader may enter, and what it is refused."""

from itertools import pairwise
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.handlers.cursors import batches
from vibemq.engine.handlers.transactions import REMEMBERED_MS
from vibemq.errors import BatchChanged, GroupFenced, InvalidOptions, NotAuthorized, PlanUnknown
from vibemq.model.commands import (
    Begin,
    CommitCursor,
    DecideTransaction,
    DeleteGroup,
    EnterBatch,
    ForgetApplication,
    JoinCursor,
    PlanBatch,
    SeekGroup,
    Stage,
    StartAt,
)
from vibemq.model.options import DeliveryMode
from vibemq.model.records import Plan, PlanMade, TransactionDecided, tag_of

WITHOUT_ROWS = "was run before without these rows, as far as is known"


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.publish(20)
    join(driver)
    return driver


def join(driver: Driver, group: str = "etl", **options: Any) -> int:
    return int(driver.ask(JoinCursor(1, None, "q", group, **options)).epoch)


def epoch_of(driver: Driver, group: str) -> int:
    return driver.engine.readers.cursor("q", group).epoch


def plan(driver: Driver, start: int, end: int, group: str = "etl", **more: Any) -> Plan:
    """A moment after everything before."""
    driver.advance(1)
    command = PlanBatch(1, None, "q", group, epoch_of(driver, group), tag_of(f"{start}"), f"{end}", **more)
    answer = driver.ask(command)
    assert isinstance(answer, Plan)
    return answer


def enter(driver: Driver, start: int | str, end: int, batch: int, query: str = "Q", group: str = "etl") -> Any:
    driver.advance(1)
    tags = tag_of(f"{start}"), tag_of(f"{end}")
    return driver.ask(EnterBatch(1, None, "q", group, epoch_of(driver, group), *tags, query, batch))


def made(driver: Driver, *positions: int, first: int = 0) -> None:
    """Batches that were planned and entered."""
    for batch, (start, end) in enumerate(pairwise(positions), first):
        plan(driver, start, end)
        assert isinstance(enter(driver, start, end, batch), Plan)


def refused(answer: Any, why: str) -> None:
    assert isinstance(answer, BatchChanged), answer
    assert why in str(answer)


def test_a_batch_is_entered_as_often_as_wanted(driver: Driver) -> None:
    made(driver, 1, 4, 8)
    records = len(driver.records_of(PlanMade))
    assert isinstance(enter(driver, 4, 8, 1), Plan)
    assert isinstance(enter(driver, 1, 4, 0), Plan)
    assert len(driver.records_of(PlanMade)) == records, "nothing new is written"
    driver.restart()
    join(driver)
    assert isinstance(enter(driver, 4, 8, 1), Plan)
    refused(enter(driver, 4, 8, 2), "would have the rows that batch 1 had")
    driver.check()


def test_what_was_not_planned_cannot_be_entered(driver: Driver) -> None:
    plan(driver, 1, 4)
    assert isinstance(enter(driver, 4, 8, 0), PlanUnknown)
    refused(enter(driver, 1, 5, 0), "another end")
    assert isinstance(driver.ask(EnterBatch(1, None, "q", "etl", 9, "t", "e", "Q", 0)), GroupFenced)
    assert isinstance(enter(driver, 1, 4, 0, "Q" * 201), InvalidOptions)


def test_a_first_batch_without_rows_uses_its_number(driver: Driver) -> None:
    for _ in range(2):
        assert isinstance(enter(driver, 1, 1, 0), Plan)
    plan(driver, 1, 4)
    driver.restart()
    join(driver)
    refused(enter(driver, 1, 4, 0), "was run before (the last one was batch 0), and these rows were planned later")
    assert isinstance(enter(driver, 1, 1, 0), Plan), "whoever repeats it changes nothing"
    assert isinstance(enter(driver, 1, 4, 1), Plan)
    assert isinstance(enter(driver, 1, 1, 0), Plan)
    assert isinstance(enter(driver, 1, 1, 0, ""), Plan)
    refused(enter(driver, 1, 4, 1, "another"), "would have the rows that batch 1 of query Q had")
    driver.check()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_planned_later_is_known_when_the_clock_was_set_back(driver: Driver, restarted: bool) -> None:
    assert isinstance(enter(driver, 1, 1, 0), Plan)
    if restarted:
        driver.restart(down_ms=-600_000)
    else:
        driver.now -= 600_000
    join(driver)
    plan(driver, 1, 4)
    refused(enter(driver, 1, 4, 0), "was run before (the last one was batch 0), and these rows were planned later")
    assert isinstance(enter(driver, 1, 4, 1), Plan)
    driver.restart(down_ms=-60_000)
    join(driver)
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 1), "was run before without these rows")
    assert isinstance(enter(driver, 4, 8, 2), Plan)


def test_a_plan_that_nobody_has_read_gives_way_to_another_first_batch(driver: Driver) -> None:
    """Its reader knew no position, and ended before it noted the plan; now it begins somewhere else."""
    join(driver, begin=Begin.REFUSE)
    plan(driver, 1, 4)
    join(driver)
    assert isinstance(planned(driver, "another"), PlanUnknown), "it has a position"
    join(driver, begin=Begin.REFUSE)
    assert isinstance(planned(driver, "another"), Plan)
    assert isinstance(enter(driver, "another", 9, 0), Plan)
    join(driver, begin=Begin.REFUSE)
    assert isinstance(planned(driver, "third"), PlanUnknown), "somebody has read it"


def planned(driver: Driver, start: str) -> Any:
    driver.advance(1)
    return driver.ask(PlanBatch(1, None, "q", "etl", epoch_of(driver, "etl"), tag_of(start), "9"))


def test_who_begins_takes_the_rows_of_another_query_in_its_first_batch_only(driver: Driver) -> None:
    """A checkpoint that has a batch 0 without rows looks to the broker as if the query began."""
    join(driver, begin=Begin.REFUSE)
    assert isinstance(enter(driver, 1, 1, 0, "old"), Plan)
    join(driver, begin=Begin.REFUSE)
    plan(driver, 1, 4)
    assert isinstance(enter(driver, 1, 4, 0, "new"), Plan)
    join(driver, begin=Begin.REFUSE)
    refused(enter(driver, 1, 4, 1, "old"), "would have the rows that batch 0 of query new had")
    assert isinstance(enter(driver, 1, 4, 0, "third"), Plan)


def test_rows_have_one_number(driver: Driver) -> None:
    made(driver, 1, 4)
    refused(enter(driver, 1, 4, 1), "would have the rows that batch 0 had")
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 0), "was run before without these rows: they come behind those of batch 0")


def test_batches_without_rows_count(driver: Driver) -> None:
    made(driver, 1, 4)
    for mark in ("a", "a", "b"):
        plan(driver, 4, 4, empty_mark=mark)
    join(driver)
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 2), WITHOUT_ROWS)
    driver.restart()
    join(driver)
    refused(enter(driver, 4, 8, 2), WITHOUT_ROWS)
    assert isinstance(enter(driver, 4, 8, 3), Plan)
    assert plan(driver, 1, 9).empty == 2
    assert plan(driver, 4, 4, empty_mark="c").end == "8", "whoever repeats older batches adds nothing"
    assert plan(driver, 1, 9).empty == 2


def test_batches_without_rows_that_are_repeated_do_not_move_what_follows(driver: Driver) -> None:
    """The checkpoint was rolled back among them; nobody enters them."""
    made(driver, 1, 4)
    for mark in ("a-1", "a-2"):
        plan(driver, 4, 4, empty_mark=mark)
    join(driver)
    for mark in ("b-1", "b-2"):
        plan(driver, 4, 4, empty_mark=mark)
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 2), WITHOUT_ROWS)
    assert isinstance(enter(driver, 4, 8, 3), Plan)


def test_a_batch_that_is_entered_again_does_not_free_the_numbers_behind_it(driver: Driver) -> None:
    """The checkpoint was rolled back to batch 0, and the process ended before the batch without rows was repeated."""
    made(driver, 1, 4)
    plan(driver, 4, 4, empty_mark="a-1")
    join(driver)
    assert isinstance(enter(driver, 1, 4, 0), Plan)
    join(driver)
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 1), WITHOUT_ROWS)
    assert isinstance(enter(driver, 4, 8, 2), Plan)


def test_a_batch_that_another_source_enters_again_does_not_free_the_numbers_behind_it(driver: Driver) -> None:
    """Batch 1 has rows of the other source, batch 2 those of one that is not asked."""
    made(driver, 1, 4)
    join(driver, "other")
    plan(driver, 1, 5, "other")
    plan(driver, 4, 4, empty_mark="a-1")
    assert isinstance(enter(driver, 1, 5, 1, group="other"), Plan)
    plan(driver, 4, 4, empty_mark="a-2")
    join(driver)
    join(driver, "other")
    assert isinstance(enter(driver, 1, 5, 1, group="other"), Plan)
    join(driver)
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 2), WITHOUT_ROWS)
    assert isinstance(enter(driver, 4, 8, 3), Plan)


@pytest.mark.parametrize("restarts", [False, True])
def test_another_source_may_enter_the_same_batch_first(driver: Driver, restarts: bool) -> None:
    made(driver, 1, 4)
    join(driver, "other")
    plan(driver, 4, 4, empty_mark="a-1")
    plan(driver, 4, 8)
    plan(driver, 1, 5, "other")
    assert isinstance(enter(driver, 1, 5, 2, group="other"), Plan)
    if restarts:
        join(driver)
    assert isinstance(enter(driver, 4, 8, 2), Plan)


def test_batches_without_rows_before_the_first_count(driver: Driver) -> None:
    plan(driver, 1, 1, empty_mark="first")
    plan(driver, 1, 1, empty_mark="a")
    assert driver.engine.readers.planned("q", "etl", tag_of("1"), None) is None
    plan(driver, 1, 4)
    refused(enter(driver, 1, 4, 1), WITHOUT_ROWS)
    assert isinstance(enter(driver, 1, 4, 2), Plan)


def test_a_reader_that_begins_again_begins_with_none(driver: Driver) -> None:
    plan(driver, 1, 1, empty_mark="first")
    plan(driver, 1, 1, empty_mark="a")
    join(driver, begin=Begin.REFUSE)
    plan(driver, 1, 4)
    assert isinstance(enter(driver, 1, 4, 0), Plan)


def test_another_source_of_the_query_says_how_many_batches_had_no_rows(driver: Driver) -> None:
    """Batches without rows that were repeated are told of twice; the other source has entered them."""
    made(driver, 1, 4)
    join(driver, "other")
    for batch, mark in ((1, "a"), (1, "b"), (2, "c")):
        if batch == 1:
            plan(driver, 1, 5, "other")
        else:
            plan(driver, 5, 9, "other")
        join(driver)
        plan(driver, 4, 4, empty_mark=mark)
        assert isinstance(enter(driver, *((1, 5) if batch == 1 else (5, 9)), batch, group="other"), Plan)
    join(driver)
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 2), WITHOUT_ROWS)
    assert isinstance(enter(driver, 4, 8, 3), Plan)


@pytest.mark.parametrize("how", ["seek", "delete", "another group", "continue"])
def test_a_number_is_not_used_again_in_whatever_group(driver: Driver, how: str) -> None:
    made(driver, 1, 4, 8)
    group = "etl"
    match how:
        case "seek":
            driver.ask(SeekGroup(1, None, "q", "etl", StartAt.SEQUENCE, 4))
            join(driver)
        case "delete":
            driver.ask(DeleteGroup(1, None, "q", "etl"))
            join(driver, start=StartAt.SEQUENCE, start_sequence=4)
        case "another group":
            group = "other"
            join(driver, group, start=StartAt.SEQUENCE, start_sequence=4)
        case "continue":
            driver.ask(CommitCursor(1, None, "q", "etl", 1, 4, plan=tag_of("4")))
            join(driver, begin=Begin.CONTINUE)
    plan(driver, 4, 9, group)
    for batch in (0, 1):
        refused(enter(driver, 4, 9, batch, group=group), "was run before (the last one was batch 1)")
    driver.restart()
    join(driver, group)
    refused(enter(driver, 4, 9, 1, group=group), "was run before")
    assert isinstance(enter(driver, 4, 9, 2, group=group), Plan)


def test_all_sources_of_a_batch_may_enter_it(driver: Driver) -> None:
    """Their plans were made before any of them was entered; also when the driver died between them."""
    join(driver, "other")
    plan(driver, 1, 4)
    plan(driver, 1, 6, "other")
    assert isinstance(enter(driver, 1, 4, 0), Plan)
    driver.restart()
    join(driver)
    join(driver, "other")
    assert isinstance(enter(driver, 1, 6, 0, group="other"), Plan)


def test_the_batches_of_another_query(driver: Driver) -> None:
    made(driver, 1, 4, 8)
    join(driver)
    refused(enter(driver, 4, 8, 5, "other"), "would have the rows that batch 1 of query Q had")
    plan(driver, 8, 9)
    refused(enter(driver, 8, 9, 5, "other"), "would follow batch 1 of query Q")
    join(driver, begin=Begin.REFUSE)
    assert isinstance(enter(driver, 1, 4, 0, "other"), Plan), "it begins where nothing was acknowledged"
    join(driver)
    assert isinstance(enter(driver, 4, 8, 1, "other"), Plan), "it goes on where it has begun"
    refused(enter(driver, 4, 8, 1), "of query other")


def test_whether_a_batch_was_read(driver: Driver) -> None:
    def is_unread(position: int) -> bool:
        return driver.engine.readers.is_unread("q", "etl", tag_of(f"{position}"), None)

    plan(driver, 1, 4)
    assert (is_unread(1), is_unread(4)) == (False, True)
    assert isinstance(enter(driver, 1, 4, 0, ""), Plan)
    assert not is_unread(4)
    plan(driver, 4, 8)
    assert (is_unread(4), is_unread(8)) == (False, True)
    assert isinstance(enter(driver, 1, 4, 7), Plan), "who was not known may be anybody"
    assert len(driver.records_of(TransactionDecided)) == 1


def test_an_old_batch_that_is_entered_again_tells_nothing_of_those_behind_it(driver: Driver) -> None:
    """Batch 2 had no rows, so its number is used; a checkpoint that was rolled back to batch 1 repeats that one."""
    made(driver, 1, 4, 8)
    plan(driver, 8, 8, empty_mark="m2")
    for restarted in (False, True):
        if restarted:
            driver.restart()
        join(driver)
        assert isinstance(enter(driver, 4, 8, 1), Plan)
        plan(driver, 8, 12)
        refused(enter(driver, 8, 12, 2), "was run before without these rows")


def test_what_one_users_readers_say_of_a_query_counts_for_no_other(driver: Driver) -> None:
    def enters(user: str, group: str, batch: int) -> Any:
        driver.ask(JoinCursor(1, None, "q", group, user=user))
        driver.advance(1)
        driver.ask(PlanBatch(1, None, "q", group, epoch_of(driver, group), tag_of("1"), "4", user=user))
        tags = tag_of("1"), tag_of("4")
        return driver.ask(EnterBatch(1, None, "q", group, epoch_of(driver, group), *tags, "Q", batch, user=user))

    assert isinstance(enters("ben", "bens", 1 << 53), Plan)
    assert isinstance(enters("ann", "anns", 0), Plan)


def test_no_user_has_an_application_of_the_broker(driver: Driver) -> None:
    made(driver, 1, 4)
    (register,) = driver.records_of(TransactionDecided)
    assert register.app == "~read//Q"
    for user in ("ann", ""):
        staged = driver.ask(Stage(1, None, "q", register.app, 9, "s", 0, rows_of(1, 50), user=user))
        assert isinstance(staged, InvalidOptions)
        assert isinstance(driver.ask(DecideTransaction(1, None, register.app, 9, [], user=user)), InvalidOptions)
    with pytest.raises(NotAuthorized):
        driver.engine.readers.last_version(register.app, "ann")
    assert driver.engine.readers.last_version(register.app) == 0


def test_what_a_reader_has_told_of_since_it_joined_is_known_after_a_restart(driver: Driver) -> None:
    """It has repeated two batches without rows; a restart of the broker does not make them four."""
    made(driver, 1, 4)
    for mark in ("a-1", "a-2"):
        plan(driver, 4, 4, empty_mark=mark)
    join(driver)
    for mark in ("b-1", "b-2"):
        plan(driver, 4, 4, empty_mark=mark)
        driver.restart()
    plan(driver, 4, 8)
    refused(enter(driver, 4, 8, 2), "was run before without these rows")
    assert isinstance(enter(driver, 4, 8, 3), Plan)


def test_how_a_reader_has_joined_is_known_after_a_restart(driver: Driver) -> None:
    made(driver, 1, 4)
    join(driver, begin=Begin.REFUSE)
    driver.restart()
    assert isinstance(enter(driver, 1, 4, 0, "other"), Plan), "it begins where nothing was acknowledged"
    join(driver)
    driver.restart()
    refused(enter(driver, 1, 4, 0), "would have the rows that batch 0 of query other had")


def test_a_plan_that_another_group_keeps_is_never_unread(driver: Driver) -> None:
    plan(driver, 1, 4, elsewhere=True)
    plan(driver, 4, 8)
    unread = [driver.engine.readers.is_unread("q", "etl", tag_of(position), None) for position in ("4", "8")]
    assert unread == [False, True]


def test_what_was_counted_twice_is_forgotten_by_a_seek(driver: Driver) -> None:
    """Two batches without rows were repeated, and the reader was started again: four are known, and none is named."""
    made(driver, 1, 4)
    for mark in ("a-1", "a-2"):
        plan(driver, 4, 4, empty_mark=mark)
    join(driver)
    for mark in ("b-1", "b-2"):
        plan(driver, 4, 4, empty_mark=mark)
    join(driver)
    plan(driver, 4, 8)
    said = enter(driver, 4, 8, 3)
    refused(said, WITHOUT_ROWS)
    assert "roll the checkpoint back to before batch 0" in str(said)
    assert "batch 5" not in str(said)
    driver.ask(SeekGroup(1, None, "q", "etl", StartAt.SEQUENCE, 4))
    join(driver)
    plan(driver, 4, 8)
    assert isinstance(enter(driver, 4, 8, 3), Plan)


def test_a_user_has_so_many_queries(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was forgotten could use its numbers again, so a new one is refused; those that there are go on."""
    monkeypatch.setattr(batches, "QUERIES_MAX", 2)

    def enters(user: str, query: str, batch: int) -> Any:
        group = f"{user}-{query}"
        driver.ask(JoinCursor(1, None, "q", group, user=user))
        driver.advance(1)
        tags = tag_of(f"{batch}"), tag_of(f"{batch + 1}")
        driver.ask(PlanBatch(1, None, "q", group, epoch_of(driver, group), tags[0], f"{batch + 1}", user=user))
        return driver.ask(EnterBatch(1, None, "q", group, epoch_of(driver, group), *tags, query, batch, user=user))

    for user in ("ann", "ben"):
        for query in ("one", "two"):
            assert isinstance(enters(user, query, 0), Plan)
    driver.restart()
    too_many = enters("ann", "three", 0)
    assert isinstance(too_many, InvalidOptions)
    assert "the broker knows 2 queries of this user" in str(too_many)
    assert "transaction.forget of ~read/ann/QUERY" in str(too_many)
    driver.advance(REMEMBERED_MS // 2)
    assert isinstance(enters("ann", "two", 1), Plan), "it goes on"
    driver.ask(ForgetApplication(1, None, "~read/ben/one"))
    assert isinstance(enters("ben", "three", 0), Plan)
    driver.advance(REMEMBERED_MS // 2 + 1)
    assert isinstance(enters("ann", "three", 0), Plan), "the first is forgotten"
    assert isinstance(enters("ann", "four", 0), InvalidOptions)
    driver.check()
