"""What others do between two steps of a long command, and what a fault of one command leaves of the batch."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine import Batch
from vibemq.engine.handlers import settle
from vibemq.model import commands as ask
from vibemq.model.commands import Command
from vibemq.model.effects import Counted, Deliver, Published, Reply
from vibemq.model.options import DeliveryMode, Retention

MANY = 1_000


def advance(driver: Driver, batch: Batch) -> None:
    driver.submit(driver.engine.advance(batch, driver.now))


def test_a_group_that_is_deleted_while_its_consumer_leaves_takes_its_messages_along() -> None:
    driver = Driver()
    driver.create(max_attempts=1)
    driver.publish(MANY)
    start = ask.StartAt.BEGINNING
    driver.handle(ask.Subscribe(1, None, 1, "q", group="g", capacity_messages=MANY, start=start))
    driver.handle(ask.Subscribe(3, None, 1, "q", capacity_messages=MANY))
    driver.settle(3, *range(1, MANY + 1))
    leaving = Batch([ask.CloseSession(1, clean=False)])
    advance(driver, leaving)
    assert not leaving.done
    died = driver.engine.dead_count
    driver.ask(ask.DeleteGroup(2, None, "q", "g"))
    while not leaving.done:
        advance(driver, leaving)
    driver.check()
    assert driver.engine.dead_count == died
    assert driver.info().counters["dropped"] == MANY - died
    assert not driver.engine._state.sessions.get(1)


def test_a_long_rejection_ends_with_the_queue() -> None:
    driver = Driver()
    driver.create()
    driver.publish(MANY)
    driver.handle(ask.Subscribe(1, None, 1, "q", capacity_messages=MANY))
    rejection = Batch([ask.Settle(1, "t", 1, ask.Settlement.REJECT, [(1, MANY)], reason="no")])
    advance(driver, rejection)
    died = driver.engine.dead_count
    deletion = Batch([ask.DeleteQueue(2, None, "q")])
    advance(driver, deletion)
    while not rejection.done:
        advance(driver, rejection)
    assert driver.engine.dead_count == died == driver.disk.dead_count


def test_a_session_may_be_closed_twice() -> None:
    driver = Driver()
    driver.create()
    driver.publish(MANY)
    driver.handle(ask.Subscribe(1, None, 1, "q", capacity_messages=MANY))
    closes = [Batch([ask.CloseSession(1, clean=True)]) for _ in range(2)]
    while not all(batch.done for batch in closes):
        for batch in closes:
            if not batch.done:
                advance(driver, batch)
                assert batch.fault is None
    assert driver.info().ready == MANY
    driver.check()


def test_a_group_that_joins_during_a_removal_gets_what_is_left() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG)
    for number in range(5):
        driver.handle(ask.Subscribe(10 + number, None, 1, "q", group=f"g{number}", capacity_messages=1))
    driver.publish(MANY)
    removal = Batch([ask.RemoveMessages(2, "t", "q", [(sequence, sequence) for sequence in range(1, MANY, 2)])])
    advance(driver, removal)
    assert not removal.done
    start = ask.StartAt.BEGINNING
    driver.handle(ask.Subscribe(99, None, 1, "q", group="late", capacity_messages=1, start=start))
    driver.publish(1)
    while not removal.done:
        advance(driver, removal)
    driver.check()
    group = driver.engine._state.queues["q"].groups["late"]
    left = {sequence for a, b in group.unsettled_set().runs() for sequence in range(a, b + 1)}
    # What it was handed before its number came stays with it.
    held = {sequence for a, b in group.held_runs() for sequence in range(a, b + 1)}
    assert left == set(range(2, MANY + 1, 2)) | {MANY + 1} | held


@pytest.mark.parametrize("command", [ask.PurgeQueue(2, "t", "q"), ask.RemoveMessages(2, "t", "q", [])])
@pytest.mark.parametrize("retention", list(Retention))
def test_nothing_to_remove_is_no_work(command: Command, retention: Retention) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=retention)
    assert driver.ask(command) == Counted(0)


def test_a_fault_keeps_what_was_decided_before_it() -> None:
    """What the engine knows and what storage keeps never part, whatever a handler stumbles over."""
    driver = Driver()
    driver.create()
    nonsense: Any = [("a", "b")]
    commands: list[Command] = [
        ask.Publish(1, "before", "q", rows_of(2)),
        ask.RemoveMessages(1, "faulty", "q", nonsense),
        ask.Publish(1, "behind", "q", rows_of(3)),
    ]
    batch = Batch(commands)
    advance(driver, batch)
    assert batch.done
    assert isinstance(batch.fault, TypeError)
    assert isinstance(driver.answer("before"), Published)
    assert str(getattr(driver.answer("faulty"), "code", "")) == "SERVER_ERROR"
    assert not [effect for effect in driver.effects if isinstance(effect, Reply) and effect.token == "behind"]
    assert driver.info().ready == 2
    driver.check()
    driver.publish(1)
    driver.restart()
    assert driver.info().ready == 3


def test_a_fault_in_a_long_settlement_leaves_its_consumer_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.create()
    driver.publish(MANY)
    driver.subscribe(1, capacity_messages=MANY)
    driver.take()
    batch = Batch([ask.Settle(1, "faulty", 1, ask.Settlement.REJECT, [(1, MANY)])])
    advance(driver, batch)
    assert not batch.done
    with monkeypatch.context() as patch:
        patch.delattr(settle, "turn_down")
        advance(driver, batch)
    assert isinstance(batch.fault, NameError)
    assert driver.take() == {}
    driver.publish(2)
    assert driver.take() == {1: [MANY + 1, MANY + 2]}, "it has room, and is given what comes"


def test_a_queue_with_very_many_scattered_messages_keeps_no_other_queue_waiting() -> None:
    driver = Driver()
    driver.create("busy")
    driver.create("idle")
    driver.publish(2 * MANY, queue="busy")
    driver.handle(ask.RemoveMessages(9, None, "busy", [(s, s) for s in range(2, 2 * MANY, 2)]))
    driver.handle(ask.Subscribe(2, None, 1, "idle", capacity_messages=10))
    subscription = driver.engine.advance(Batch([ask.Subscribe(1, None, 1, "busy", capacity_messages=MANY)]), driver.now)
    publish = driver.engine.advance(Batch([ask.Publish(3, "t", "idle", rows_of(1))]), driver.now)
    waiting, steps = [subscription, publish], 0
    while not any(isinstance(effect, Deliver) and effect.queue == "idle" for one in waiting for effect in one.effects):
        waiting = [driver.engine.committed(one.ticket, driver.now) for one in waiting if one.ticket]
        waiting.append(driver.engine.tick(driver.now))
        steps += 1
        assert steps < 10
