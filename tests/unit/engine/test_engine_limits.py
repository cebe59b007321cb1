"""Overflow, pressure, time to live, log retention."""

from typing import Any

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.engine import Batch, EngineSettings
from vibemq.engine.handlers.overflow import LOOKS_PER_UNIT
from vibemq.errors import Blocked, NotAuthorized, QueueFull
from vibemq.model.commands import (
    ChangeQueue,
    CloseSession,
    Command,
    DeleteQueue,
    EndConsumers,
    ImportMessages,
    MoveMessages,
    Pressure,
    Publish,
    PurgeDead,
    PurgeQueue,
    ReplayDead,
    SeekGroup,
    SetCapacity,
    SetPressure,
    Settlement,
    StartAt,
)
from vibemq.model.effects import Imported, Moved, Published, Replayed, Reply
from vibemq.model.options import DeliveryMode, Durability, Overflow, Retention
from vibemq.model.records import ALL_GROUPS, DeadLettered, Dropped, Reason, Settled
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


def test_blocked_publishers_wait_for_the_pressure_to_go() -> None:
    driver = blocking()
    driver.publish(1)
    driver.handle(SetPressure(Pressure.BLOCKING))
    driver.ask(PurgeQueue(7, None, "q"))
    assert driver.answer("token-3") is None
    driver.handle(SetPressure(Pressure.NONE))
    assert driver.answer("token-3").first_sequence == 4


# -- time to live -------------------------------------------------------------------------------------------------


def test_waiting_messages_expire_into_the_dlq() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.publish(2)
    driver.advance(999)
    assert driver.info().ready == 2
    driver.advance(1)
    assert letters(driver) == [(1, Reason.EXPIRED), (2, Reason.EXPIRED)]
    driver.check()


def test_without_a_dlq_they_are_dropped_and_counted() -> None:
    driver = Driver()
    driver.create(dead_letter=False)
    driver.publish(3, expires_at=driver.now + 100)
    driver.publish(1)
    driver.advance(100)
    assert dropped(driver) == [(Reason.EXPIRED, [1, 2, 3])]
    assert driver.info().counters["expired"] == 3
    assert driver.info().ready == 1
    driver.check()


def test_one_group_may_lose_what_another_still_holds() -> None:
    driver = Driver()
    driver.create(dead_letter=False, mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="busy")
    driver.subscribe(2, group="idle")
    driver.close(2, clean=True)
    driver.publish(1, expires_at=driver.now + 100)
    driver.advance(100)
    assert dropped(driver) == []
    assert [record.group_id for record in driver.records_of(Settled)] == [1]
    driver.settle(1, 1)
    driver.check()


def test_what_is_in_flight_expires_when_it_comes_back() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.subscribe(1)
    driver.publish(2)
    driver.publish(1, expires_at=driver.now + 500)
    driver.advance(5_000)
    assert driver.info().in_flight == 3
    driver.settle(1, 1)
    driver.settle(1, 2, 3, verb=Settlement.RELEASE)
    assert letters(driver) == [(2, Reason.EXPIRED), (3, Reason.EXPIRED)]
    driver.check()


@pytest.mark.parametrize("ttl_ms", [None, 60_000])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_in_flight_lives_as_long_as_the_queue_says_when_it_comes_back(
    ttl_ms: int | None, *, restarts: bool
) -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.subscribe(1, capacity_messages=2)
    driver.publish(3)
    driver.advance(5_000)
    assert letters(driver) == [(3, Reason.EXPIRED)]
    driver.ask(ChangeQueue(7, None, "q", {"message_ttl_ms": ttl_ms}))
    driver.take()
    driver.settle(1, 1, 2, verb=Settlement.RELEASE)
    if restarts:
        driver.restart()
        driver.subscribe(1, capacity_messages=2)
    assert driver.take()[1][:2] == [1, 2]
    driver.settle(1, 2)
    driver.advance(60_000)
    driver.close(1, clean=True)
    assert letters(driver) == [(3, Reason.EXPIRED)] + [(1, Reason.EXPIRED)] * (ttl_ms is not None)
    driver.check()


@pytest.mark.parametrize("crowded", [False, True])
def test_a_log_gives_what_has_not_expired_by_its_new_ttl_to_who_joins(*, crowded: bool) -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000, mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG)
    for name in ("a", "b", "c", "d"):
        driver.subscribe(1, group=name, consumer=ord(name), capacity_messages=0)
    driver.publish(1)
    driver.now += 3_000
    driver.publish(1)
    driver.now += 1_500
    with steps_of(2 if crowded else 150):
        # With very many groups the sweep is under way when the TTL changes.
        driver.tick()
        driver.ask(ChangeQueue(7, None, "q", {"message_ttl_ms": 4_000}))
        driver.advance(100)
        driver.subscribe(2, group="new", start=StartAt.BEGINNING)
    assert driver.take() == {2: [2]}
    driver.check()


def test_nothing_expired_is_handed_out_even_before_the_sweep() -> None:
    driver = Driver()
    driver.publish(1, expires_at=driver.now + 100)
    driver.now += 200
    driver.subscribe(1)
    assert driver.take() == {}


def test_time_to_live_goes_on_during_a_restart() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=1_000)
    driver.publish(1)
    driver.publish(1, expires_at=driver.now + 100)
    driver.restart(down_ms=2_000)
    assert driver.info().dead == 2
    driver.check()


def test_a_restart_never_makes_messages_expire_early() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=3_000)
    driver.publish(1)
    driver.advance(900)
    driver.publish(1)
    driver.restart(down_ms=2_999)
    assert 2 in sequences(driver.engine.waiting_runs("q", 9))
    driver.advance(1_000)
    assert driver.info().dead == 2


def test_ages_are_kept_apart_to_a_hundredth_of_the_ttl() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=100_000)
    for _ in range(20):
        driver.publish(1)
        driver.advance(500)
    driver.advance(95_000)
    assert 7 <= driver.info().ready <= 11


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


# -- very many groups -------------------------------------------------------------------------------------------------

STEP, GROUPS = 8, 40


def crowd(**options: Any) -> Driver:
    driver = Driver()
    driver.create_crowd(GROUPS, **{"max_messages": 10, **options})
    driver.publish(8)
    driver.advance(10)
    return driver


def test_each_of_very_many_groups_drops_its_oldest_in_a_later_step() -> None:
    with steps_of(STEP):
        driver = crowd(overflow=Overflow.DROP_OLDEST)
        driver.subscribe(1, group="g7", capacity_messages=3)
        driver.advance(10)
        before = len(driver.records)
        outcome = driver.engine.advance(Batch([Publish(9, None, "q", rows_of(5))]), driver.now)
        assert not any(isinstance(record, Settled) for record in outcome.records)
        driver.submit(outcome)
        steps: list[int] = []
        while (at := driver.engine.next_deadline()) is not None and at <= driver.now:
            mark = len(driver.records)
            driver.tick()
            steps.append(sum(isinstance(record, Settled) for record in driver.records[mark:]))
        assert max(steps) <= STEP
        groups = driver.engine._state.queues["q"].groups
        # What a consumer holds does not count, so its group has nothing to drop.
        assert {group.waiting for group in groups.values()} == {10}
        assert sum(isinstance(record, Settled) for record in driver.records[before:]) == GROUPS - 1
        assert driver.engine.violations() == []


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.BLOCK_PUBLISHER])
def test_what_fits_beside_very_many_groups_is_counted_in_steps(overflow: Overflow) -> None:
    with steps_of(STEP):
        driver = crowd(overflow=overflow)
        batch = Batch([Publish(9, "published", "q", rows_of(5))])
        steps = 0
        while not batch.done:
            driver.submit(driver.engine.advance(batch, driver.now))
            steps += 1
        assert steps >= GROUPS // (LOOKS_PER_UNIT * STEP)
        queue = driver.engine._state.queues["q"]
        if overflow is Overflow.DROP_NEWEST:
            published = driver.answer("published")
            assert sorted(published.refused) == [2, 3, 4]
            return
        assert len(queue.parked) == 1
        for group in list(queue.groups):
            driver.ask(SeekGroup(9, None, "q", group, StartAt.NOW))
        driver.advance(100)
        assert driver.answer("published").refused is None


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.REDIRECT_TO_DLQ])
def test_bytes_on_their_way_to_the_disk_count_beside_very_many_groups(overflow: Overflow) -> None:
    with steps_of(STEP):
        driver = Driver()
        dead_letter = overflow is Overflow.REDIRECT_TO_DLQ
        driver.create_crowd(GROUPS, max_bytes=1_000, overflow=overflow, dead_letter=dead_letter)
        driver.hold = True
        for _ in range(3):
            in_steps(driver, Publish(9, None, "q", rows_of(90)))
        driver.hold = False
        driver.keep()
        queue = driver.engine._state.queues["q"]
        assert (queue.waiting(), queue.refused + queue.redirected) == (100, 170)


def full_then_read(**options: Any) -> Driver:
    """Nothing waits any more, and the last that was counted is that the queue was full."""
    driver = crowd(**options)
    in_steps(driver, Publish(9, "refused", "q", rows_of(3)))
    assert len(driver.answer("refused").refused) == 1
    for number in range(GROUPS):
        driver.ask(SeekGroup(9, None, "q", f"g{number}", StartAt.NOW))
    driver.advance(10)
    return driver


@pytest.mark.parametrize("by", ["move", "import"])
def test_what_enters_a_queue_with_very_many_groups_is_judged_by_what_waits_then(by: str) -> None:
    with steps_of(STEP):
        driver = full_then_read(overflow=Overflow.DROP_NEWEST)
        driver.create("source")
        driver.publish(12, "source")
        source = driver.info("source").incarnation
        due = [driver.now] * 12
        wanted: dict[str, Command] = {
            "move": MoveMessages(9, "asked", "source", source, "q", [*range(1, 13)], due, rows_of(12)),
            "import": ImportMessages(9, "asked", "q", "file", 0, rows_of(12)),
        }
        steps = in_steps(driver, wanted[by])
        assert driver.answer("asked") == {"move": Moved(10, 2), "import": Imported(10, 10, 0, 2)}[by]
        assert steps > 1
        driver.check()


def test_dead_letters_go_back_into_a_queue_with_very_many_groups_as_far_as_they_fit() -> None:
    with steps_of(STEP):
        driver = crowd(overflow=Overflow.DROP_OLDEST, dead_letter=True)
        driver.create("source", max_attempts=1)
        driver.publish(4, "source")
        driver.subscribe(1, "source", capacity_messages=4)
        driver.advance(10)
        driver.settle(1, 1, 2, 3, 4, verb=Settlement.REJECT)
        assert in_steps(driver, ReplayDead(9, "asked", "q", [1, 2, 3, 4], rows_of(4))) > 1
        assert driver.answer("asked") == Replayed(2, 2)
        driver.check()


def test_publishers_that_waited_go_on_with_one_count_of_very_many_groups() -> None:
    with steps_of(STEP):
        driver = crowd(overflow=Overflow.BLOCK_PUBLISHER)
        for token in "abc":
            in_steps(driver, Publish(9, token, "q", rows_of(6)))
        queue = driver.engine._state.queues["q"]
        assert len(queue.parked) == 3
        for group in list(queue.groups):
            driver.ask(SeekGroup(9, None, "q", group, StartAt.NOW))
        driver.advance(100)
        assert [driver.answer(token) is not None for token in "abc"] == [True, False, False]
        assert queue.waiting() == 6
        driver.advance(60_000)
        assert [len(driver.answer(token).refused or ()) for token in "abc"] == [0, 6, 6]


def in_steps(driver: Driver, command: Command) -> int:
    """How many these were."""
    batch = Batch([command])
    steps = 0
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("options", "size", "limit"),
    [
        ({"max_messages": 3}, 10, "messages"),
        ({"max_bytes": 35}, 10, "bytes"),
        ({"max_messages": 3, "max_bytes": 1_000}, 10, "messages"),
        ({"max_messages": 30, "max_bytes": 35}, 10, "bytes"),
    ],
)
def test_the_refusal_says_which_limit_was_met(options: dict[str, int], size: int, limit: str) -> None:
    driver = Driver()
    driver.create(**options)
    driver.publish(3, size=size)
    for number in (1, 2):
        refused = driver.publish(number, size=size).refused
        assert [error.limited_by for error in refused.values()] == number * [limit]


def nearly_full_crowd(**options: int) -> Driver:
    """Only the first group still has something waiting, as much as leaves no room for five more."""
    driver = crowd(overflow=Overflow.BLOCK_PUBLISHER, **options)
    for group in list(driver.engine._state.queues["q"].groups)[1:]:
        driver.ask(SeekGroup(9, None, "q", group, StartAt.NOW))
    driver.advance(10)
    return driver


@pytest.mark.parametrize("options", [{}, {"max_messages": 0, "max_bytes": 10 * rows_of(1).size}])
def test_what_is_handed_out_while_very_many_groups_are_looked_at_wakes_a_publisher(options: dict[str, int]) -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd(**options)
        queue = driver.engine._state.queues["q"]
        first, other, *_ = queue.groups
        in_steps(driver, Publish(9, "asked", "q", rows_of(5)))
        assert len(queue.parked) == 1
        driver.ask(SeekGroup(9, None, "q", other, StartAt.NOW))
        assert queue.count is not None, "the first group was looked at, others are not yet"
        driver.subscribe(1, group=first, capacity_messages=100)
        assert queue.waiting() == 0
        driver.advance(1_000)
        assert driver.answer("asked").refused is None
        assert queue.count is None


@pytest.mark.parametrize("options", [{}, {"max_messages": 0, "max_bytes": 10 * rows_of(1).size}])
def test_what_is_handed_out_before_a_publisher_begins_to_wait_wakes_it(options: dict[str, int]) -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd(**options)
        queue = driver.engine._state.queues["q"]
        batch = Batch([Publish(9, "asked", "q", rows_of(5))])
        driver.submit(driver.engine.advance(batch, driver.now))
        assert not batch.done, "the first group was looked at, others are not yet"
        driver.subscribe(1, group=next(iter(queue.groups)), capacity_messages=100)
        while not batch.done:
            driver.submit(driver.engine.advance(batch, driver.now))
        driver.advance(1_000)
        assert driver.answer("asked").refused is None


def test_the_count_of_a_publisher_that_has_gone_goes_with_it() -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd()
        queue = driver.engine._state.queues["q"]
        in_steps(driver, Publish(3, "gone", "q", rows_of(5)))
        driver.ask(SeekGroup(9, None, "q", list(queue.groups)[-1], StartAt.NOW))
        assert queue.count is not None
        driver.handle(CloseSession(3, False))
        assert queue.count is None


def test_a_count_that_is_not_needed_any_more_is_not_gone_on_with_later() -> None:
    with steps_of(STEP):
        driver = nearly_full_crowd()
        queue = driver.engine._state.queues["q"]
        in_steps(driver, Publish(9, "asked", "q", rows_of(5)))
        driver.ask(SeekGroup(9, None, "q", list(queue.groups)[-1], StartAt.NOW))
        assert queue.count is not None
        driver.ask(ChangeQueue(9, None, "q", {"max_messages": 8}))
        driver.advance(10)
        assert len(queue.parked) == 1
        assert queue.count is None, "it is known that nothing fits"
