"""The end of queues that go away: who is refused, who is told, in which steps, and what a crash leaves."""

import dataclasses
from itertools import pairwise
from typing import Any, get_args

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.departure import OPEN_TO_ALL, REMOVAL_UNITS, USES, fields_of
from vibemq.engine.lifetime import DOOMED_PER_UNIT
from vibemq.engine.pacing import STEP_UNITS, Batch
from vibemq.errors import QueueExclusive, QueueNotFound
from vibemq.model import commands as ask
from vibemq.model.effects import QueueGone, Reply
from vibemq.model.options import Overflow, QueueOptions
from vibemq.model.records import QueueCreated, QueueDeleted

HOUR = 3_600_000


@pytest.fixture
def driver() -> Driver:
    return Driver()


def exclusive(driver: Driver, session: int = 1, queue: str = "q", **options: Any) -> None:
    assert driver.ask(ask.CreateQueue(session, None, queue, QueueOptions(exclusive=True, **options))) is None


def gone(driver: Driver) -> list[str]:
    return [effect.queue for effect in driver.effects if isinstance(effect, QueueGone)]


# -- other connections ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ask.CreateQueue(2, None, "q", QueueOptions(exclusive=True)),
        ask.ChangeQueue(2, None, "q", {"max_attempts": 2}),
        ask.DeleteQueue(2, None, "q"),
        ask.PurgeQueue(2, None, "q"),
        ask.RemoveMessages(2, None, "q", [(1, 1)]),
        ask.RemoveListed(2, None, "q", [1]),
        ask.Subscribe(2, None, 1, "q"),
        ask.Subscribe(2, None, 1, "q", credit=1),
        ask.SeekGroup(2, None, "q", "g", ask.StartAt.NOW),
        ask.FilterGroup(2, None, "q", "g", None),
        ask.JoinCursor(2, None, "q", "g"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_other_connections_are_refused(driver: Driver, command: Any) -> None:
    exclusive(driver)
    driver.publish(2, session=1)
    refusal = driver.ask(command)
    assert isinstance(refusal, QueueExclusive)
    assert "belongs to another connection" in str(refusal)
    assert driver.info().ready == 2


def test_others_may_publish_and_look(driver: Driver) -> None:
    exclusive(driver)
    assert driver.publish(2, session=2).first_sequence == 1
    assert driver.ask(ask.DescribeQueue(2, None, "q")).ready == 2
    driver.subscribe(1)
    assert driver.take() == {1: [1, 2]}


OTHER_TEXTS = {
    *("group", "user", "owner", "app", "query", "import_id", "incarnation", "plan", "tag", "if_tag", "end", "end_tag"),
    *("groups", "filters"),
    *("empty_mark", "reason", "rejects", "why", "changes", "after", "visible", "share", "address", "by"),
    # Hidden queues, which have no option to go away by themselves.
    *("stage", "stages"),
    # Looked for, and not used: a queue that is gone has nothing of a publisher, and no consumer.
    *("publishes", "subscriptions"),
}
"""Fields with texts that name no queue of users, in any command."""


def test_no_field_that_names_a_queue_is_forgotten() -> None:
    """A new field with a text fails here until it is annotated as `QueueName`, or named as another text."""
    texts = {
        name
        for kind in get_args(ask.Command)
        for name, held in ((field.name, field.type) for field in dataclasses.fields(kind))
        if held is not ask.QueueName and "str" in str(held)
    }
    assert texts == OTHER_TEXTS
    for kind in get_args(ask.Command):
        assert set(fields_of(kind)) == {"queue", "to"} & {field.name for field in dataclasses.fields(kind)}


def test_every_command_about_a_queue_is_open_or_closed_on_purpose() -> None:
    """A new command about a queue is closed to others unless `OPEN_TO_ALL` names it."""
    about_a_queue = {(kind, field) for kind in get_args(ask.Command) for field in fields_of(kind)}
    assert about_a_queue >= OPEN_TO_ALL
    assert {kind for kind, _ in about_a_queue} >= USES
    assert not {kind for kind, _ in OPEN_TO_ALL} & USES
    closed = {f"{kind.__name__}.{field}" for kind, field in about_a_queue - OPEN_TO_ALL}
    assert closed == {
        "ChangeQueue.queue",
        "CommitCursor.queue",
        "CreateQueue.queue",
        "DeleteGroup.queue",
        "DeleteQueue.queue",
        "EnterBatch.queue",
        "FilterGroup.queue",
        "JoinCursor.queue",
        "MoveMessages.queue",
        "PlanBatch.queue",
        "PurgeQueue.queue",
        "Quarantine.queue",
        "RejectAt.queue",
        "RemoveListed.queue",
        "RemoveMessages.queue",
        "SeekGroup.queue",
        "Subscribe.queue",
    }


def test_the_owner_may_do_everything_and_its_name_is_free_afterwards(driver: Driver) -> None:
    exclusive(driver)
    driver.publish(2, session=1)
    assert driver.ask(ask.PurgeQueue(1, None, "q")).count == 2
    assert driver.ask(ask.DeleteQueue(1, None, "q")) is None
    exclusive(driver, session=2)
    driver.close(1)
    assert driver.engine.queue_info("q") is not None
    driver.close(2)
    assert driver.engine.queue_info("q") is None
    assert gone(driver) == ["q"]


def leave_a_letter(driver: Driver) -> dict[int, int]:
    """In an exclusive queue of session 1; its origin."""
    exclusive(driver)
    driver.publish(1, session=1)
    driver.subscribe(1)
    driver.settle(1, 1, verb=ask.Settlement.REJECT)
    return {1: driver.engine.readers.queue("q").queue_id}


@pytest.mark.parametrize("told", [False, True], ids=["origin known here", "origin told"])
def test_others_neither_purge_nor_replay_its_dead_letters(driver: Driver, told: bool) -> None:
    origins = leave_a_letter(driver)
    known = origins if told else {1: 0}
    driver.create("other")
    for asker in (0, 2):
        refused = [
            ask.PurgeDead(0, None, [1], known, asker),
            ask.ReplayDead(0, None, "other", [1], rows_of(1), origins=known, asked_by=asker),
            ask.ReplayDead(0, None, "q", [1], rows_of(1), origins=known, asked_by=asker),
        ]
        for command in refused:
            assert isinstance(driver.ask(command), QueueExclusive)
    assert driver.info().dead == 1
    replay = ask.ReplayDead(0, None, "other", [1], rows_of(1), origins=known, asked_by=1)
    assert driver.ask(replay).count == 1
    driver.check()


def test_letters_of_a_queue_that_is_gone_belong_to_nobody(driver: Driver) -> None:
    origins = leave_a_letter(driver)
    driver.close(1)
    exclusive(driver, session=3, queue="other")
    assert driver.ask(ask.PurgeDead(0, None, [1], origins, 2)).count == 1


def test_letters_of_a_doomed_queue_belong_to_nobody(driver: Driver) -> None:
    origins = leave_a_letter(driver)
    driver.hold = True
    driver.restart()
    driver.hold = False
    assert driver.ask(ask.PurgeDead(0, None, [1], origins, 2)).count == 1


def test_what_the_broker_does_for_the_owner_is_done(driver: Driver) -> None:
    exclusive(driver)
    driver.publish(3, session=1)
    driver.create("target")
    assert driver.ask(ask.RemoveListed(0, None, "q", [3], asked_by=1)).removed == [(3, 3)]
    moved = move_all(driver, "q", "target", 2)
    assert isinstance(driver.ask(moved), QueueExclusive)
    moved.asked_by = 1
    assert driver.ask(moved).count == 2


# -- the end --------------------------------------------------------------------------------------------------------


def test_publishers_that_wait_for_room_are_told(driver: Driver) -> None:
    driver.create(expires_ms=HOUR, max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish(1)
    driver.advance(HOUR - 10)
    driver.handle(ask.Publish(3, "waits", "q", rows_of(1)))
    driver.advance(10)
    assert gone(driver) == ["q"]
    assert isinstance(driver.answer("waits"), QueueNotFound)


def test_what_is_told_of_a_removal_waits_for_its_record(driver: Driver) -> None:
    driver.create(expires_ms=HOUR)
    driver.hold = True
    driver.advance(HOUR)
    assert gone(driver) == []
    driver.keep()
    assert gone(driver) == ["q"]


@pytest.mark.parametrize("kept", [False, True], ids=["before its record", "after its record"])
def test_a_kill_leaves_the_queue_or_not(driver: Driver, kept: bool) -> None:
    driver.create(expires_ms=HOUR)
    driver.publish(3)
    driver.hold = True
    driver.advance(HOUR)
    if kept:
        driver.keep()
    driver.hold = False
    driver.restart()
    found = driver.engine.queue_info("q")
    assert (found is None) == kept
    if found is not None:
        assert found.ready == 3
    driver.check()


def test_a_full_disk_owes_the_removal(driver: Driver) -> None:
    driver.create(auto_delete=True)
    driver.subscribe(1)
    driver.hold = True
    driver.close(1)
    driver.refuse()
    driver.hold = False
    assert driver.engine.queue_info("q") is None
    driver.advance(5_000)
    assert len(driver.records_of(QueueDeleted)) == 1
    driver.restart()
    assert driver.engine.queue_info("q") is None


# -- in steps -------------------------------------------------------------------------------------------------------


def test_very_many_go_in_steps(driver: Driver) -> None:
    count = 1_000
    for number in range(count):
        driver.create(f"q{number:04}", expires_ms=HOUR)
    driver.now += HOUR
    steps = 0
    while (at := driver.engine.next_deadline()) is not None and at <= driver.now:
        outcome = driver.engine.tick(driver.now)
        assert sum(isinstance(record, QueueDeleted) for record in outcome.records) <= STEP_UNITS // REMOVAL_UNITS + 1
        driver.submit(outcome)
        steps += 1
        assert steps < 3 * count
    assert sorted(gone(driver)) == [f"q{number:04}" for number in range(count)]
    assert driver.engine.queue_infos() == []


def test_the_queues_of_a_session_are_doomed_in_steps(driver: Driver) -> None:
    count, most = 12_000, STEP_UNITS * DOOMED_PER_UNIT
    options = QueueOptions(exclusive=True)
    driver.handle(*[ask.CreateQueue(1, None, f"q{number:05}", options) for number in range(count)])
    batch, doomed, sizes = Batch([ask.CloseSession(1, clean=True)]), driver.engine._state.doomed, [0]
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
        sizes.append(len(doomed))
    steps = [after - before for before, after in pairwise(sizes)]
    assert sum(steps) == count
    assert max(steps) <= most
    assert 1 not in driver.engine._state.sessions


def leave_some_doomed(driver: Driver, count: int = 200) -> None:
    for number in range(count):
        exclusive(driver, session=1, queue=f"q{number:03}")
    driver.publish(1, "q199", session=1)
    driver.hold = True
    driver.restart()
    driver.hold = False
    assert driver.engine.queue_info("q199") is not None


def test_a_doomed_queue_is_gone_before_anything_else_is_done_to_it(driver: Driver) -> None:
    leave_some_doomed(driver)
    assert driver.ask(ask.CreateQueue(2, None, "q199", QueueOptions(max_attempts=7), must_match=True)) is None
    assert driver.info("q199").options.max_attempts == 7
    assert driver.info("q199").ready == 0
    driver.advance(10)
    assert [info.name for info in driver.engine.queue_infos()] == ["q199"]
    assert len(driver.records_of(QueueCreated)) == 201
    driver.check()


def test_what_is_published_to_a_doomed_queue_is_kept(driver: Driver) -> None:
    leave_some_doomed(driver)
    assert driver.publish(1, "q199").first_sequence == 1
    driver.advance(10)
    assert driver.info("q199").ready == 1
    assert not driver.info("q199").options.exclusive


def test_doomed_queues_go_also_while_the_broker_has_other_work(driver: Driver) -> None:
    leave_some_doomed(driver, 250)
    driver.create("busy")
    for _ in range(400):
        driver.publish(1, "busy")
        driver.tick()
    assert [info.name for info in driver.engine.queue_infos()] == ["busy"]


def test_answers_to_a_command_do_not_depend_on_the_end_of_others(driver: Driver) -> None:
    leave_some_doomed(driver)
    replies = [effect for effect in driver.effects if isinstance(effect, Reply)]
    driver.advance(10)
    assert [effect for effect in driver.effects if isinstance(effect, Reply)] == replies


# -- what enters a doomed queue ---------------------------------------------------------------------------------------


def move_all(driver: Driver, source: str, target: str, count: int) -> ask.MoveMessages:
    numbers = list(range(1, count + 1))
    incarnation = driver.info(source).incarnation
    return ask.MoveMessages(0, None, source, incarnation, target, numbers, [driver.now] * count, rows_of(count))


def test_nothing_is_moved_into_a_doomed_queue(driver: Driver) -> None:
    driver.create("src")
    driver.publish(3, "src")
    leave_some_doomed(driver)
    assert isinstance(driver.ask(move_all(driver, "src", "q199", 3)), QueueNotFound)
    driver.advance(10)
    assert driver.info("src").ready == 3
    driver.check()


def test_nothing_is_moved_out_of_a_doomed_queue(driver: Driver) -> None:
    driver.create("target")
    leave_some_doomed(driver)
    assert isinstance(driver.ask(move_all(driver, "q199", "target", 1)), QueueNotFound)
    assert driver.info("target").ready == 0


def test_others_may_move_messages_into_an_exclusive_queue(driver: Driver) -> None:
    exclusive(driver)
    driver.create("src")
    driver.publish(3, "src")
    assert driver.ask(move_all(driver, "src", "q", 3)).count == 3
    assert driver.info().ready == 3


def test_dead_letters_are_not_replayed_into_a_doomed_queue(driver: Driver) -> None:
    driver.create("src")
    driver.publish(1, "src")
    driver.subscribe(1, "src")
    driver.settle(1, 1, verb=ask.Settlement.REJECT)
    leave_some_doomed(driver)
    origin = driver.engine.readers.queue("src").queue_id
    replay = ask.ReplayDead(0, None, "q199", [1], rows_of(1), origins={1: origin})
    assert isinstance(driver.ask(replay), QueueNotFound)
    driver.advance(10)
    assert driver.engine.dead_count == 1


def test_publishers_that_wait_are_not_let_into_a_doomed_queue(driver: Driver) -> None:
    driver.create(auto_delete=True, max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish(1)
    driver.subscribe(1, capacity_messages=1)
    driver.publish(1)
    driver.handle(ask.Publish(3, "waits", "q", rows_of(1)))
    assert driver.answer("waits") is None
    settled = ask.Settle(1, None, 1, ask.Settlement.ACK, [(1, 1)])
    driver.handle(ask.PurgeQueue(9, None, "q"), settled, ask.Unsubscribe(1, None, 1))
    assert gone(driver) == ["q"]
    assert isinstance(driver.answer("waits"), QueueNotFound)


@pytest.mark.parametrize("asks", ["publish", "move", "replay"])
def test_a_queue_that_is_doomed_while_its_groups_are_looked_at_takes_nothing(driver: Driver, asks: str) -> None:
    """What it confirmed now would be deleted with it."""
    with steps_of(8):
        driver.create("src", max_attempts=1, dead_letter=True)
        driver.publish(4, "src")
        if asks == "replay":
            driver.subscribe(1, "src", capacity_messages=2)
            driver.advance(10)
            driver.settle(1, 1, 2, verb=ask.Settlement.REJECT)
        overflow = Overflow.DROP_OLDEST if asks == "replay" else Overflow.DROP_NEWEST
        driver.create_crowd(40, auto_delete=True, max_messages=10, overflow=overflow)
        driver.subscribe(7, group="g0", capacity_messages=0)
        driver.publish(9)
        driver.advance(10)
        batch = Batch(
            [
                {
                    "move": move_all(driver, "src", "q", 2),
                    "replay": ask.ReplayDead(0, None, "q", [1, 2], rows_of(2)),
                }.get(asks, ask.Publish(3, None, "q", rows_of(2), create=False))
            ]
        )
        batch.commands[0].token = "asked"
        driver.submit(driver.engine.advance(batch, driver.now))
        assert not batch.done
        driver.submit(driver.engine.handle([ask.Unsubscribe(7, None, 1)], driver.now))
        assert driver.engine._state.doomed
        while not batch.done:
            driver.submit(driver.engine.advance(batch, driver.now))
        driver.advance(10)
        assert isinstance(driver.answer("asked"), QueueNotFound)
        assert gone(driver) == ["q"]
        assert driver.engine.dead_count == (2 if asks == "replay" else 0)
        assert driver.info("src").in_flight + driver.info("src").ready == (2 if asks == "replay" else 4)
        driver.check()
