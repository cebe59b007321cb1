"""Publishers that wait for room in a queue that blocks them."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.engine import EngineSettings
from vibemq.errors import Blocked, NotAuthorized, QueueFull
from vibemq.model.commands import (
    ChangeQueue,
    CloseSession,
    DeleteQueue,
    EndConsumers,
    Pressure,
    Publish,
    PurgeQueue,
    SeekGroup,
    SetPressure,
    StartAt,
)
from vibemq.model.effects import Published, Reply
from vibemq.model.options import DeliveryMode, Overflow, Retention


def blocking(**options: int) -> Driver:
    driver = Driver(EngineSettings(block_timeout_ms=5_000))
    driver.create(max_messages=3, overflow=Overflow.BLOCK_PUBLISHER, **options)
    driver.publish(3)
    return driver


def test_a_question_whether_one_might_publish_waits_behind_nobody() -> None:
    """BlazingMQ's openQueue asks it."""
    driver = blocking()
    assert driver.publish(1) is None
    assert driver.publish(0) == Published("q", 0, 0)
    assert driver.answer("token-3") is None
    driver.check()


def test_a_blocked_publisher_goes_on_when_room_is_made() -> None:
    driver = blocking()
    assert driver.publish(2) is None
    driver.subscribe(1, capacity_messages=1)
    assert driver.answer("token-3") is None
    driver.settle(1, 1)
    assert driver.answer("token-3") == Published("q", 4, 2)
    driver.check()


def test_blocked_publishers_go_on_in_order() -> None:
    driver = blocking()
    driver.publish(3, session=1)
    driver.publish(1, session=1)
    driver.subscribe(5, capacity_messages=1)
    assert driver.answer("token-4") is None
    driver.ask(PurgeQueue(7, None, "q"))
    assert driver.answer("token-3").first_sequence == 4
    assert driver.answer("token-4") is None


def test_a_blocked_publisher_is_told_that_the_broker_is_short_of_memory() -> None:
    driver = blocking()
    driver.handle(Publish(1, "waiting", "q", rows_of(1)), SetPressure(Pressure.BLOCKING, "memory is short"))
    driver.ask(PurgeQueue(7, None, "q"))
    driver.advance(5_000)
    (error,) = driver.answer("waiting").refused.values()
    assert isinstance(error, Blocked)
    assert "memory is short" in str(error)


@pytest.mark.parametrize("retention", list(Retention))
def test_a_blocked_publisher_goes_on_when_nobody_wants_what_was_on_its_way(retention: Retention) -> None:
    driver = Driver(EngineSettings(block_timeout_ms=5_000))
    options = {"mode": DeliveryMode.FAN_OUT_WITH_ACK, "retention": retention}
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER, **options)
    driver.ask(SeekGroup(9, None, "q", "g", StartAt.NOW))
    driver.hold = True
    driver.publish()
    driver.handle(Publish(1, "waiting", "q", rows_of(1)))
    driver.handle(SeekGroup(9, None, "q", "g", StartAt.NOW))
    driver.hold = False
    driver.keep()
    assert driver.answer("waiting") == Published("q", 2, 1)
    driver.check()


@pytest.mark.parametrize(
    ("overflow", "ready"),
    [(Overflow.DROP_OLDEST, [3, 4, 5]), (Overflow.DROP_NEWEST, [1, 2, 3]), (Overflow.REDIRECT_TO_DLQ, [1, 2, 3])],
)
def test_blocked_publishers_go_on_when_the_queue_blocks_nobody_any_more(overflow: Overflow, ready: list[int]) -> None:
    driver = blocking()
    waiting = Publish(1, "waiting", "q", rows_of(1))
    behind = Publish(1, "behind", "q", rows_of(1))
    driver.handle(waiting)
    driver.handle(ChangeQueue(7, None, "q", {"overflow": int(overflow)}), behind)
    first, second = driver.answer("waiting"), driver.answer("behind")
    if overflow is Overflow.DROP_NEWEST:
        assert isinstance(first.refused[0], QueueFull)
        assert isinstance(second.refused[0], QueueFull)
    else:
        assert (first, second) == (Published("q", 4, 1), Published("q", 5, 1)), "they stay in order"
    assert sequences(driver.engine.waiting_runs("q", 10)) == ready
    assert not driver.engine.any_parked()
    driver.check()


def test_what_waits_for_room_is_refused_when_its_publisher_loses_the_right() -> None:
    driver = Driver()
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish()
    for session in (8, 9, 8):
        assert driver.publish(session=session) is None
    asked: list[str] = []

    def check(queue: str) -> NotAuthorized | None:
        asked.append(queue)
        return NotAuthorized("no more") if queue == "q" else None

    driver.create("other", max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    for session in (8, 8, 9):
        driver.publish(queue="other", session=session)
    driver.effects.clear()
    driver.handle(EndConsumers(7, lambda queue: None, check))
    assert asked == []
    driver.handle(EndConsumers(8, lambda queue: None, check))
    assert asked == ["q", "other"]
    refused = [effect.result.refused for effect in driver.effects if isinstance(effect, Reply)]
    assert [str(errors[0]) for errors in refused] == ["no more", "no more"]
    driver.handle(EndConsumers(8, lambda queue: None, check))
    assert asked == ["q", "other", "other"]
    driver.ask(PurgeQueue(1, None, "q"))
    driver.advance(0)
    assert driver.info().ready == 1, "what others have published goes on"
    driver.check()


def test_a_publisher_is_not_blocked_for_ever() -> None:
    driver = blocking()
    driver.publish(1)
    driver.advance(4_999)
    assert driver.answer("token-3") is None
    driver.advance(1)
    assert isinstance(driver.answer("token-3").refused[0], QueueFull)
    assert driver.info().counters["refused"] == 1


def test_a_batch_above_the_limit_is_taken_as_far_as_it_goes() -> None:
    driver = Driver()
    driver.create(max_messages=3, overflow=Overflow.BLOCK_PUBLISHER)
    answer = driver.publish(5)
    assert (answer.first_sequence, sorted(answer.refused)) == (1, [3, 4])


def test_a_gone_publisher_publishes_nothing() -> None:
    driver = blocking()
    driver.publish(1, session=1)
    driver.handle(CloseSession(1, False))
    driver.ask(PurgeQueue(7, None, "q"))
    assert driver.info().ready == 0


def test_who_waits_behind_a_gone_publisher_goes_on_when_there_is_room_for_it() -> None:
    driver = blocking()
    driver.subscribe(5, capacity_messages=1)
    driver.publish(3, session=1)
    driver.publish(1, session=2)
    driver.handle(CloseSession(1, False))
    driver.tick()
    assert driver.answer("token-5") == Published("q", 4, 1)


def test_publishers_that_wait_hold_so_much_memory_and_no_more() -> None:
    driver = Driver(EngineSettings(block_timeout_ms=5_000, block_bytes_max=20_000))
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish()

    def waits(session: int, number: int = 1, size: int = 900, **extra: Any) -> bool:
        answer = driver.publish(number, session=session, size=size, **extra)
        driver.check()
        assert answer is None or all(isinstance(answer.refused[index], QueueFull) for index in range(number))
        return answer is None

    assert not waits(1, 12), "more than one alone may have"
    assert [waits(1) for _ in range(8)] == [True] * 5 + [False] * 3, "the others are left as much as it has"
    assert [waits(2) for _ in range(4)] == [True] * 2 + [False] * 2
    assert [waits(3, dedup_id=b"i" * 30_000), waits(3), waits(3)] == [True, True, False], (
        "of a long id its digest is kept"
    )
    assert driver.info().counters["refused"] == 12 + 3 + 2 + 1
    driver.handle(CloseSession(1, False))
    driver.check()
    assert waits(3), "a gone publisher has left its part to others"
    driver.advance(5_000)
    assert not driver.engine.any_parked()
    assert waits(1, 8)


def test_a_small_publish_waits_however_much_others_hold() -> None:
    driver = Driver(EngineSettings(block_bytes_max=20_000))
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish()
    for session in range(1, 40):
        for size in (4_000, 2_000, 500, 100, 0):
            while driver.publish(session=session, size=size) is None:
                driver.check()
    waiting = [driver.publish(session=50, size=900) is None for _ in range(4)]
    assert waiting == [True, True, False, False]
    assert driver.publish(session=51, size=4_000) is not None


def test_many_small_publishes_that_wait_are_counted_too() -> None:
    driver = Driver(EngineSettings(block_bytes_max=20_000))
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish()
    waiting = sum(driver.publish(session=1 + number % 3, size=0) is None for number in range(50))
    assert 10 <= waiting < 20
    driver.ask(PurgeQueue(99, None, "q"))
    driver.advance(0)
    driver.check()


def test_deleting_the_queue_answers_its_blocked_publishers() -> None:
    driver = blocking()
    driver.publish(1)
    driver.ask(DeleteQueue(7, None, "q"))
    assert driver.answer("token-3") is not None


def test_blocked_publishers_wait_for_the_pressure_to_go() -> None:
    driver = blocking()
    driver.publish(1)
    driver.handle(SetPressure(Pressure.BLOCKING))
    driver.ask(PurgeQueue(7, None, "q"))
    assert driver.answer("token-3") is None
    driver.handle(SetPressure(Pressure.NONE))
    assert driver.answer("token-3").first_sequence == 4
