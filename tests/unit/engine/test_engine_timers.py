"""Much that falls due at one instant: every tick takes a few milliseconds, and the next one is due at once."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.model import commands as ask
from vibemq.model.effects import Deliver, Outcome
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Overflow, Retention
from vibemq.model.shared.queue_info import GroupInfo

MANY = 1_500
INSTRUCTIONS_MAX = 160_000
"""Of bytecode in one tick: about 2 ms."""


def queue(**options: Any) -> Driver:
    driver = Driver()
    driver.create(**options)
    return driver


def scatter(driver: Driver) -> Driver:
    """Every other message goes."""
    driver.handle(ask.RemoveMessages(9, None, "q", [(s, s) for s in range(2, MANY + 1, 2)]))
    return driver


def overdue(**options: Any) -> Driver:
    driver = queue(**options)
    driver.publish(MANY)
    driver.subscribe(1, capacity_messages=MANY, ack_timeout_ms=1_000)
    driver.handle(ask.SetCapacity(1, None, 1, 0, 0))
    return driver


def expiring() -> Driver:
    driver = queue()
    driver.publish(MANY, expires_at=driver.now + 1_000)
    return driver


def outliving(**options: Any) -> Driver:
    driver = queue(message_ttl_ms=1_000, **options)
    driver.publish(MANY)
    return scatter(driver)


def to_be_tried_again() -> Driver:
    driver = queue()
    driver.publish(6 * MANY)
    driver.subscribe(1, capacity_messages=6 * MANY)
    driver.handle(ask.Settle(1, None, 1, ask.Settlement.RETRY, [(1, 6 * MANY)], delay_ms=1_000))
    driver.close(1)
    return driver


def beyond_new_limits() -> Driver:
    driver = queue(overflow=Overflow.DROP_OLDEST, max_messages=MANY)
    driver.publish(MANY)
    scatter(driver)
    driver.hold = True
    driver.handle(ask.ChangeQueue(9, None, "q", {"max_messages": 10}))
    return driver


def logged() -> Driver:
    driver = queue(retention=Retention.LOG, retain_ms=1_000)
    driver.publish(MANY)
    return scatter(driver)


def cursor(**options: int) -> Driver:
    driver = queue()
    driver.handle(ask.JoinCursor(1, "join", "q", "c", take_over=True, create=True, **options))
    driver.publish(MANY)
    return scatter(driver)


def of_cursor(driver: Driver) -> GroupInfo:
    return next(group for group in driver.info().groups if group.cursor)


def held_by_a_cursor() -> Driver:
    driver = cursor(hold_ms=1_000)
    driver.handle(ask.CommitCursor(1, None, "q", "c", driver.answer("join").epoch, MANY + 1))
    assert of_cursor(driver).waiting == 0
    return driver


def held_back(driver: Driver) -> int:
    return driver.engine._state.queues["q"].groups["c"].held_back


def parked() -> Driver:
    driver = queue(overflow=Overflow.BLOCK_PUBLISHER, max_messages=1)
    driver.publish(1)
    for number in range(MANY):
        driver.handle(ask.Publish(1, number, "q", rows_of(1)))
    return driver


def known_ids() -> Driver:
    driver = queue(dedup_window_ms=1_000)
    count = 10_000
    driver.handle(
        ask.Publish(1, None, "q", rows_of(count), {i: MessageExtra(dedup_id=b"%d" % i) for i in range(count)})
    )
    return driver


DUE: dict[str, tuple[Callable[[], Driver], Callable[[Driver], int]]] = {
    "deadlines of one consumer": (overdue, lambda driver: MANY - driver.info().in_flight),
    "deadlines and the last attempt": (lambda: overdue(max_attempts=1), lambda driver: driver.info().dead),
    "expiries of messages": (expiring, lambda driver: driver.info().counters["expired"]),
    "the queue's time to live": (outliving, lambda driver: 2 * driver.info().counters["expired"]),
    "the queue's time to live and dead letters": (
        lambda: outliving(dead_letter=True),
        lambda driver: 2 * driver.info().dead,
    ),
    "messages to be tried again": (to_be_tried_again, lambda driver: driver.info().ready // 6),
    "a new limit of the length": (beyond_new_limits, lambda driver: MANY - 2 * driver.info().ready + 20),
    "the retention of a log": (logged, lambda driver: MANY if driver.info().first_sequence > MANY else 0),
    "the hold of a cursor": (held_by_a_cursor, lambda driver: MANY - 2 * held_back(driver)),
    "the lag of a cursor": (
        lambda: cursor(max_lag_ms=1_000),
        lambda driver: MANY if not of_cursor(driver).waiting else 0,
    ),
    "publishers that have waited too long": (parked, lambda driver: driver.info().counters["refused"]),
}


def counted(driver: Driver, step: Callable[[], Outcome]) -> int:
    """What a step of the engine took."""
    outcomes: list[Outcome] = []
    taken = sum(instructions(lambda: outcomes.append(step())).values())
    driver.submit(outcomes[0])
    driver.keep()
    return taken


def ticks(driver: Driver) -> list[int]:
    """What each took, until nothing is due."""
    taken: list[int] = []
    while (at := driver.engine.next_deadline()) is not None and at <= driver.now:
        taken.append(counted(driver, lambda: driver.engine.tick(driver.now)))
        assert len(taken) < MANY, "ticks without end"
    return taken


@pytest.mark.parametrize("name", DUE)
def test_what_is_due_together_takes_many_short_ticks(name: str) -> None:
    world, done = DUE[name]
    driver = world()
    driver.now += 100_000
    taken = ticks(driver)
    assert done(driver) == MANY
    assert len(taken) > 1
    assert max(taken) <= INSTRUCTIONS_MAX, sorted(taken)[-5:]
    driver.check()


def test_nothing_that_has_expired_is_handed_out_while_the_rest_of_it_goes() -> None:
    driver = queue()
    driver.publish(MANY, expires_at=driver.now + 1_000)
    driver.publish(5)
    driver.now += 100_000
    driver.subscribe(1, capacity_messages=MANY)
    ticks(driver)
    handed_out = [s for e in driver.effects if isinstance(e, Deliver) for s in sequences(e.runs)]
    assert handed_out == list(range(MANY + 1, MANY + 6))


def test_an_id_is_new_when_its_window_is_over_though_others_are_still_to_be_forgotten() -> None:
    driver = known_ids()
    driver.now += 100_000
    extras = {0: MessageExtra(dedup_id=b"9999")}
    command = ask.Publish(1, "t", "q", rows_of(1), extras)
    assert counted(driver, lambda: driver.engine.handle([command], driver.now)) <= INSTRUCTIONS_MAX
    assert not driver.answer("t").duplicates
    driver.handle(ask.Publish(1, "again", "q", rows_of(1), extras))
    assert driver.answer("again").duplicates == {0: 10_001}


def test_that_very_many_fall_due_at_one_instant_costs_nothing_for_each() -> None:
    driver = queue()
    driver.publish(100_000, deliver_at=driver.now + 1_000)
    driver.now += 1_000
    taken = ticks(driver)
    assert driver.info().ready == 100_000
    assert sum(taken) < INSTRUCTIONS_MAX // 10


def test_those_that_have_fallen_due_are_handed_out_in_short_steps() -> None:
    driver = queue()
    many = 20_000
    extras = {i: MessageExtra(deliver_at=driver.now + 1_000 + i * 7919 % many) for i in range(many)}
    driver.handle(ask.Publish(1, None, "q", rows_of(many), extras))
    driver.now += 1_000 + many
    driver.subscribe(1, capacity_messages=many)
    assert max(ticks(driver)) <= INSTRUCTIONS_MAX
    order = [s for e in driver.effects if isinstance(e, Deliver) for s in sequences(e.runs)]
    assert order == sorted(range(1, many + 1), key=lambda sequence: extras[sequence - 1].deliver_at)
