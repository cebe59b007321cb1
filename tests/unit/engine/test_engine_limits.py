"""Overflow, pressure, log retention."""

import pytest

from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.errors import Blocked, QueueFull
from vibemq.model.commands import (
    Pressure,
    Publish,
    PurgeDead,
    PurgeQueue,
    SetCapacity,
    SetPressure,
    Settlement,
    StartAt,
)
from vibemq.model.effects import Published
from vibemq.model.options import DeliveryMode, Durability, Overflow, Retention
from vibemq.model.records import ALL_GROUPS, DeadLettered, Dropped, Reason
from vibemq.storage.state.liveness import is_alive


def dropped(driver: Driver) -> list[tuple[Reason, list[int]]]:
    return [(record.reason, sequences(record.runs)) for record in driver.records_of(Dropped)]


def letters(driver: Driver) -> list[tuple[int, Reason]]:
    return [(f.sequence, f.reason) for record in driver.records_of(DeadLettered) for f in record.letters]


# -- overflow -----------------------------------------------------------------------------------------------------


def test_drop_newest_refuses_what_does_not_fit_and_takes_the_rest() -> None:
    driver = Driver()
    driver.create(max_messages=3)
    answer = driver.publish(5)
    assert (answer.first_sequence, answer.count, sorted(answer.refused)) == (1, 5, [3, 4])
    assert all(isinstance(error, QueueFull) for error in answer.refused.values())
    assert driver.info().counters["refused"] == 2
    assert driver.publish(1).first_sequence == 0


def test_in_flight_messages_do_not_count() -> None:
    driver = Driver()
    driver.create(max_messages=2)
    driver.subscribe(1)
    assert driver.publish(2).refused is None
    assert driver.publish(2).refused is None
    assert driver.info().in_flight == 4


def test_messages_on_their_way_count() -> None:
    driver = Driver()
    driver.create(max_messages=3)
    driver.hold = True
    driver.publish(3)
    driver.publish(1)
    driver.keep()
    assert 0 in driver.answer("token-3").refused


def test_bytes_are_limited_too() -> None:
    driver = Driver()
    driver.create(max_bytes=1_000)
    answer = driver.publish(7, size=300)
    assert sorted(answer.refused) == [3, 4, 5, 6]
    assert driver.publish(1, size=100).refused is None
    assert driver.publish(1, size=1).refused is not None


def test_duplicates_need_no_room() -> None:
    driver = Driver()
    driver.create(max_messages=1)
    driver.publish(1, dedup_id=b"a")
    assert driver.publish(1, dedup_id=b"a") == Published("q", 0, 1, duplicates={0: 1})


def test_a_refused_message_leaves_its_dedup_id_free() -> None:
    driver = Driver()
    driver.create(max_messages=1)
    driver.publish(1)
    assert driver.publish(1, dedup_id=b"a").refused
    driver.ask(PurgeQueue(1, None, "q"))
    assert driver.publish(1, dedup_id=b"a").duplicates is None


def test_bytes_are_limited_beside_an_old_message_and_many_that_failed() -> None:
    driver = Driver()
    driver.create(max_bytes=4_000_000, retry_base_ms=60_000)
    # It waits for ever, and its chunk with it; those behind it are gone.
    driver.publish(1, size=100, deliver_at=driver.now + 10**9)
    driver.subscribe(1, capacity_messages=1_000)
    for _ in range(20):
        driver.publish(1_000, size=100)
        driver.settle(1, 1, *driver.take()[1])
    driver.publish(200, size=100)
    held = driver.take()[1]
    driver.settle(1, 1, *held[::2], verb=Settlement.RETRY)
    driver.settle(1, 1, *held[1::2])
    driver.ask(SetCapacity(1, None, 1, 0))
    accepted = [1_000 - len(driver.publish(1_000, size=1_000).refused or ()) for _ in range(8)]
    assert accepted[:3] == [1_000] * 3
    assert 3_600 <= sum(accepted) <= 4_400
    driver.check()


def test_redirected_overflow_is_accepted_into_the_dlq() -> None:
    driver = Driver()
    driver.create(max_messages=2, overflow=Overflow.REDIRECT_TO_DLQ)
    assert driver.publish(4) == Published("q", 1, 4)
    (record,) = driver.records_of(DeadLettered)
    assert record.group_id == ALL_GROUPS
    assert letters(driver) == [(3, Reason.OVERFLOW), (4, Reason.OVERFLOW)]
    info = driver.info()
    assert (info.ready, info.dead, info.counters["dead_lettered"]) == (2, 2, 2)
    driver.check()
    driver.restart()
    assert driver.info().ready == 2


@pytest.mark.parametrize("restarts", [False, True])
def test_redirected_overflow_is_not_in_the_log(restarts: bool) -> None:
    driver = Driver()
    log = {"mode": DeliveryMode.FAN_OUT_WITH_ACK, "retention": Retention.LOG}
    driver.create(max_messages=2, overflow=Overflow.REDIRECT_TO_DLQ, **log)
    driver.publish(4)
    driver.check()
    if restarts:
        driver.restart()
        driver.check()
    driver.subscribe(1, group="g", start=StartAt.BEGINNING)
    assert driver.take() == {1: [1, 2]}
    assert all(is_alive(driver.disk.queues[1], sequence) for sequence in (3, 4)), "the letters have lost their rows"
    driver.ask(PurgeDead(9, None, [1, 2], {1: 1, 2: 1}))
    assert not any(is_alive(driver.disk.queues[1], sequence) for sequence in (3, 4)), "nobody has them any more"


# -- pressure -----------------------------------------------------------------------------------------------------


def test_publishes_are_refused_under_pressure_except_where_the_oldest_go() -> None:
    driver = Driver()
    driver.create("keep")
    driver.create("drop", overflow=Overflow.DROP_OLDEST, max_messages=5)
    driver.handle(SetPressure(Pressure.HIGH))
    assert driver.publish(1, "keep").refused is None
    driver.handle(SetPressure(Pressure.BLOCKING, "disk 91 % full"))
    refusal = driver.publish(1, "keep")
    assert isinstance(refusal, Blocked)
    assert "disk 91 % full" in str(refusal)
    assert isinstance(driver.publish(1, "new"), Blocked)
    assert driver.publish(1, "drop").first_sequence == 1
    driver.handle(SetPressure(Pressure.OVERFLOWING))
    assert isinstance(driver.publish(1, "drop"), Blocked)
    driver.handle(SetPressure(Pressure.NONE))
    assert driver.publish(1, "keep").first_sequence == 2


# -- log retention ------------------------------------------------------------------------------------------------


def test_a_log_keeps_what_was_settled_within_its_limits() -> None:
    driver = Driver()
    driver.create(retention=Retention.LOG, retain_messages=4)
    driver.subscribe(1)
    for _ in range(3):
        driver.publish(2)
    driver.settle(1, 1, 2, 3, 4, 5, 6)
    assert dropped(driver) == [(Reason.RETENTION, [1, 2])]
    assert driver.info().first_sequence == 3
    driver.check()


def test_a_log_is_trimmed_by_age() -> None:
    driver = Driver()
    driver.create(retention=Retention.LOG, retain_ms=100_000)
    driver.publish(2)
    driver.advance(70_000)
    driver.publish(1)
    driver.advance(30_000)
    assert dropped(driver) == [(Reason.RETENTION, [1, 2])]
    driver.restart(down_ms=100_000)
    assert dropped(driver)[1:] == [(Reason.RETENTION, [3])]
    driver.check()


def test_a_log_is_trimmed_by_bytes() -> None:
    driver = Driver()
    driver.create(retention=Retention.LOG, retain_bytes=500)
    driver.publish(8, size=100)
    assert dropped(driver) == [(Reason.RETENTION, [1, 2, 3])]


def test_trimming_takes_messages_from_their_holders_too() -> None:
    driver = Driver()
    driver.create(retention=Retention.LOG, retain_messages=2)
    driver.subscribe(1, capacity_messages=2)
    driver.publish(2)
    driver.publish(2)
    assert driver.info().in_flight == 2
    assert driver.take() == {1: [1, 2, 3, 4]}
    driver.check()


def test_memory_does_not_grow_with_what_has_passed() -> None:
    driver = Driver()
    driver.create(durability=Durability.ASYNC, mode=DeliveryMode.PRIORITY_BASED)
    driver.subscribe(1)
    for index in range(4_000):
        driver.now += 1_000
        driver.publish(2, priority=index % 3, expires_at=driver.now + 10_000_000)
        driver.settle(1, 2 * index + 1, 2 * index + 2)
        driver.effects.clear()
    queue = driver.engine._state.queues["q"]
    assert len(queue.sizes) < 600
    assert len(queue.expires) < 2_000
    assert sum(len(members.runs()) for members in (queue.levels or {}).values()) < 1_000


def test_the_priorities_of_messages_on_their_way_are_not_forgotten() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    for _ in range(600):
        driver.publish(1, priority=0)
        driver.publish(1)
    driver.ask(PurgeQueue(1, None, "q"))
    driver.hold = True
    driver.publish(1)
    driver.publish(1, priority=3)
    driver.keep(1)
    driver.keep()
    driver.subscribe(1)
    assert driver.take() == {1: [1202, 1201]}


def test_a_publish_of_many_commands_is_limited_like_one() -> None:
    driver = Driver()
    driver.create(max_messages=3)
    driver.handle(*(Publish(1, index, "q", rows_of(1)) for index in range(5)))
    assert [bool(driver.answer(index).refused) for index in range(5)] == [False, False, False, True, True]
