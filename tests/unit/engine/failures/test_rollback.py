"""A full disk refuses what needs it. What a transient queue has confirmed needs none, and stays."""

from itertools import pairwise

import pytest

from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.errors import StorageFull
from vibemq.model.commands import CreateQueue, DeleteQueue, Publish, PurgeQueue
from vibemq.model.effects import Published, Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Durability, Overflow, QueueOptions
from vibemq.model.records import Dropped, MessagesAdded, QueueCreated

TRANSIENT = QueueOptions(durability=Durability.TRANSIENT)


@pytest.fixture
def full() -> Driver:
    """Nothing is kept any more: a strong queue `q`, a transient one `t`."""
    driver = Driver()
    driver.create("q")
    driver.create("t", durability=Durability.TRANSIENT)
    driver.hold = True
    return driver


def publishes(*wanted: tuple[str, int]) -> list[Publish]:
    return [Publish(9, f"{queue} {number}", queue, rows_of(number)) for queue, number in wanted]


def test_the_confirmed_messages_of_a_refused_step_stay(full: Driver) -> None:
    full.handle(*publishes(("t", 2), ("q", 3)))
    assert full.answer("t 2") == Published("t", 1, 2)
    assert full.answer("q 3") is None
    full.refuse()
    assert full.answer("q 3").refused.keys() == {0, 1, 2}
    assert (full.info("t").ready, full.info("q").ready) == (2, 0)
    full.keep()
    assert full.rows[full.engine._state.queues["t"].queue_id] == {1, 2}
    full.check()


def test_they_stay_when_their_step_is_refused_for_one_before_it(full: Driver) -> None:
    full.publish(3, "q")
    full.publish(2, "t")
    full.subscribe(1, "t", capacity_messages=1)
    full.refuse()
    assert full.take() == {1: [1]}
    full.hold = False
    full.keep()
    assert (full.info("t").ready, full.info("t").in_flight) == (1, 1)
    full.advance(2_000)
    full.check()


def test_what_is_given_back_holds_nothing_that_needs_the_disk(full: Driver) -> None:
    full.handle(*publishes(("t", 2), ("q", 3), ("t", 4)))
    [outcome] = full.waiting
    kept = full.engine.failed(outcome.ticket, full.now, StorageFull("disk is full"))
    assert [type(record) for record in kept.records] == [MessagesAdded, MessagesAdded]
    assert kept.durability is Durability.TRANSIENT
    queue_id = full.engine._state.queues["t"].queue_id
    assert all(record.queue_id == queue_id for record in kept.records if isinstance(record, MessagesAdded))


def test_they_stay_however_often_they_are_refused(full: Driver) -> None:
    full.publish(3, "q")
    full.publish(2, "t")
    for _ in range(3):
        full.refuse()
        full.publish(1, "q")
    full.keep()
    assert full.info("t").ready == 2
    full.advance(2_000)
    full.check()


def test_nobody_is_told_before_the_queue_itself_is_kept(full: Driver) -> None:
    """Messages cannot be kept in a queue that the disk has not taken: they are answered with it, and vanish with it."""
    replies: dict[object, object] = {}
    create = CreateQueue(9, "create", "new", TRANSIENT)
    for command in (create, Publish(9, "first", "new", rows_of(2))):
        outcome = full.engine.handle([command], full.now)
        replies |= {effect.token: effect for effect in outcome.effects if isinstance(effect, Reply)}
        full.waiting.append(outcome)
    assert replies == {}
    full.refuse()
    assert full.info("new").ready == 0
    # What pays the debt is on its way: neither is that a promise.
    [paying] = full.waiting
    assert [type(record) for record in paying.records][:1] == [QueueCreated]
    behind = full.engine.handle([Publish(9, "second", "new", rows_of(1))], full.now)
    assert behind.effects == []
    full.waiting.append(behind)
    full.keep()
    assert full.engine.handle([Publish(9, "third", "new", rows_of(1))], full.now).effects != []


def test_a_duplicate_of_what_may_still_vanish_waits_with_it(full: Driver) -> None:
    full.hold = False
    full.create("u", durability=Durability.TRANSIENT, dedup_window_ms=60_000)
    full.hold = True
    full.publish(1, "u", dedup_id="a")
    extras = {0: MessageExtra(dedup_id="a"), 1: MessageExtra(dedup_id="b")}
    outcome = full.engine.handle([Publish(9, "again", "u", rows_of(2), extras)], full.now)
    assert outcome.effects == []
    assert [effect.token for effect in outcome.after_append if isinstance(effect, Reply)] == ["again"]


def test_the_promised_part_of_a_record_stays_and_the_disk_hears_of_the_gap(full: Driver) -> None:
    driver = full
    driver.hold = False
    driver.create("u", durability=Durability.TRANSIENT)
    driver.hold = True
    driver.handle(*publishes(("u", 1), ("u", 2), ("u", 3), ("q", 4)))
    [outcome] = driver.waiting
    added = driver.engine._state.open[outcome.ticket].added
    # As if the second one waited for something else.
    added[1].promised = False
    driver.promised.clear()
    driver.refuse()
    kept = [record for waiting in driver.waiting for record in waiting.records if isinstance(record, MessagesAdded)]
    assert [(record.first_sequence, record.rows.count) for record in kept] == [(1, 1), (4, 3)]
    assert all(first.first_sequence < second.first_sequence for first, second in pairwise(kept))
    driver.hold = False
    driver.keep()
    driver.advance(2_000)
    assert [record.runs for record in driver.records_of(Dropped)] == [[(2, 3)]]
    driver.check()
    driver.subscribe(1, "u", capacity_messages=10)
    assert driver.take() == {1: [1, 4, 5, 6]}


def test_what_was_decided_about_them_is_owed(full: Driver) -> None:
    """Of a queue that is purged, and one whose overflow goes to the dead letters, in the step that was refused."""
    full.hold = False
    full.create("u", durability=Durability.TRANSIENT, max_messages=1, overflow=Overflow.REDIRECT_TO_DLQ)
    full.hold = True
    full.handle(*publishes(("t", 2)), PurgeQueue(9, "purge", "t"), *publishes(("u", 3), ("q", 1)))
    full.refuse()
    assert (full.info("t").ready, full.info("u").ready, full.info("u").dead) == (0, 1, 2)
    full.hold = False
    full.keep()
    full.advance(2_000)
    full.check()


def test_those_of_a_queue_that_is_deleted_leave_nothing(full: Driver) -> None:
    full.handle(*publishes(("q", 1), ("t", 2)))
    full.handle(DeleteQueue(9, "delete", "t"))
    full.refuse()
    full.hold = False
    full.keep()
    full.advance(2_000)
    assert full.engine.queue_info("t") is None
    full.check()


def test_what_was_handed_out_and_settled_stays_settled(full: Driver) -> None:
    full.hold = False
    full.subscribe(1, "t", capacity_messages=10)
    full.hold = True
    full.publish(1, "q")
    full.publish(3, "t")
    assert sequences(run for deliver in full.delivers() for run in deliver.runs) == [1, 2, 3]
    full.settle(1, 1, 2)
    full.refuse()
    full.hold = False
    full.keep()
    full.advance(2_000)
    info = full.info("t")
    assert (info.ready, info.in_flight) == (0, 1)
    full.check()
