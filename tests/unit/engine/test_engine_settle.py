"""Settlements, failures, deadlines, lost connections."""

import itertools
from random import Random

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.engine.handlers.settle import UNKNOWN_MAX
from vibemq.errors import NotAuthorized
from vibemq.model.commands import (
    DeleteQueue,
    EndConsumers,
    Extend,
    SeekGroup,
    Settle,
    Settlement,
    StartAt,
    Unsubscribe,
)
from vibemq.model.effects import ConsumerLeft, SettledRuns
from vibemq.model.options import LostConnection
from vibemq.model.records import Attempts, DeadLettered, Dropped, Reason, Returned, Settled
from vibemq.model.runs import RunSet


@pytest.fixture
def driver() -> Driver:
    """A queue of five messages, all with session 1."""
    driver = Driver()
    driver.create(max_attempts=3, retry_base_ms=1_000, ack_timeout_ms=30_000)
    driver.subscribe(1)
    driver.publish(5)
    driver.take()
    return driver


def letters(driver: Driver) -> list[tuple[int, Reason, str, int, int]]:
    return [
        (f.sequence, f.reason, f.error, f.acquired, f.failed)
        for record in driver.records_of(DeadLettered)
        for f in record.letters
    ]


def test_an_acked_message_is_gone(driver: Driver) -> None:
    driver.settle(1, 1, 2, 4)
    (settled,) = driver.records_of(Settled)
    assert settled.runs == [(1, 2), (4, 4)]
    driver.restart()
    driver.subscribe(1)
    assert driver.take() == {1: [3, 5]}


def test_only_the_holder_settles(driver: Driver) -> None:
    driver.subscribe(2)
    driver.settle(2, 1)
    driver.settle(3, 1)
    driver.settle(1, 77)
    assert driver.info().in_flight == 5
    assert driver.engine.totals.unknown_settles == 3


def test_settling_twice_counts_once(driver: Driver) -> None:
    driver.settle(1, 1)
    driver.settle(1, 1)
    assert driver.info().counters["settled"] == 1
    assert driver.engine.totals.unknown_settles == 1


def test_absurd_runs_are_only_counted(driver: Driver) -> None:
    driver.handle(Settle(1, None, 1, Settlement.ACK, [(5, 1), (0, 1 << 63)]))
    assert driver.info().counters["settled"] == 5
    assert driver.engine.totals.unknown_settles == UNKNOWN_MAX
    driver.handle(Extend(1, None, 1, [(1, 5)], own=True))
    assert driver.engine.totals.unknown_settles == UNKNOWN_MAX, "the server's own is nobody's fault"


def test_a_released_message_is_back_at_its_place_at_once_and_unharmed(driver: Driver) -> None:
    driver.publish(1)
    driver.take()
    driver.settle(1, 2, verb=Settlement.RELEASE)
    assert driver.take() == {1: [2]}
    (returned,) = driver.records_of(Returned)
    assert returned.attempts == {2: Attempts(acquired=1, failed=0)}


def test_a_retried_message_comes_back_after_its_backoff_with_its_attempt_number(driver: Driver) -> None:
    driver.settle(1, 1, verb=Settlement.RETRY, reason="no")
    assert driver.take() == {}
    assert driver.info().delayed == 1
    driver.advance(499)
    assert driver.delivers() == []
    driver.advance(1)
    (deliver,) = driver.delivers()
    assert (deliver.runs, deliver.acquired) == ([(1, 1)], {1: 2})
    assert driver.info().counters["redelivered"] == 1


def test_the_backoff_doubles(driver: Driver) -> None:
    driver.settle(1, 1, verb=Settlement.RETRY)
    driver.advance(500)
    driver.settle(1, 1, verb=Settlement.RETRY)
    driver.take()
    driver.advance(999)
    assert driver.take() == {}
    driver.advance(1)
    assert driver.take() == {1: [1]}


def test_an_explicit_delay_is_taken_as_it_is(driver: Driver) -> None:
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=0)
    assert driver.take() == {1: [1]}
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=77)
    driver.advance(76)
    assert driver.take() == {}
    driver.advance(1)
    assert driver.take() == {1: [1]}


def test_after_max_attempts_a_message_is_dead_with_its_last_error(driver: Driver) -> None:
    for error in ("first", "second", "third"):
        driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=0, reason=error)
    assert letters(driver) == [(1, Reason.MAX_ATTEMPTS, "third", 3, 3)]
    assert driver.info().dead == driver.engine.dead_count == 1
    driver.check()


def test_without_a_dlq_it_is_dropped_and_counted() -> None:
    driver = Driver()
    driver.create(max_attempts=1, dead_letter=False)
    driver.subscribe(1)
    driver.publish(1)
    driver.settle(1, 1, verb=Settlement.RETRY)
    (dropped,) = driver.records_of(Dropped)
    assert (dropped.runs, dropped.reason) == ([(1, 1)], Reason.MAX_ATTEMPTS)
    assert driver.info().counters["dropped"] == 1
    driver.check()


def test_a_rejected_message_is_dead_at_once(driver: Driver) -> None:
    driver.settle(1, 2, verb=Settlement.REJECT, reason="cannot parse")
    assert letters(driver) == [(2, Reason.REJECTED, "cannot parse", 1, 0)]


def test_releases_never_lead_to_the_dlq(driver: Driver) -> None:
    for _ in range(10):
        driver.settle(1, 1, verb=Settlement.RELEASE)
    assert letters(driver) == []
    assert driver.delivers()[-1].acquired == {1: 11}


def test_what_is_not_settled_in_time_fails_alone(driver: Driver) -> None:
    driver.settle(1, 1, 2)
    driver.advance(29_999)
    assert driver.info().in_flight == 3
    driver.settle(1, 3)
    driver.advance(1)
    assert driver.info().delayed == 2
    (returned,) = driver.records_of(Returned)
    assert {s: (a.failed, a.error) for s, a in returned.attempts.items()} == {
        4: (1, "not settled in time"),
        5: (1, "not settled in time"),
    }


def test_an_extension_moves_the_deadline_of_what_is_held(driver: Driver) -> None:
    driver.advance(20_000)
    driver.handle(Extend(1, None, 1, [(2, 3), (90, 91)]))
    driver.advance(10_000)
    assert driver.info().in_flight == 2
    driver.advance(20_000)
    assert driver.info().counters["settled"] == 0
    assert {s for r in driver.records_of(Returned) for s in r.attempts} == {1, 2, 3, 4, 5}
    assert driver.engine.totals.unknown_settles == 2


def test_a_timeout_of_zero_never_comes() -> None:
    driver = Driver()
    driver.subscribe(1, ack_timeout_ms=0)
    driver.publish(1)
    driver.advance(10_000_000)
    assert driver.info().in_flight == 1


def test_a_consumers_own_timeout_wins(driver: Driver) -> None:
    driver.close(1, clean=True)
    driver.subscribe(2, ack_timeout_ms=100)
    driver.advance(100)
    assert driver.info().in_flight == 0


def test_a_lost_connection_fails_what_was_held_and_others_get_it_at_once_in_order(driver: Driver) -> None:
    driver.subscribe(2)
    driver.close(1)
    assert driver.take() == {2: [1, 2, 3, 4, 5]}
    (returned,) = driver.records_of(Returned)
    assert all(a.failed == 1 and a.error == "connection lost" for a in returned.attempts.values())


def test_a_message_that_kills_its_consumers_ends_in_the_dlq(driver: Driver) -> None:
    driver.settle(1, 2, 3, 4, 5)
    for session in (1, 2, 3):
        driver.subscribe(session + 1)
        driver.close(session)
    assert letters(driver) == [(1, Reason.MAX_ATTEMPTS, "connection lost", 3, 3)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_goodbye_and_the_release_mode_count_nothing(clean: bool) -> None:
    driver = Driver()
    driver.create(lost_connection=LostConnection.FAIL if clean else LostConnection.RELEASE, max_attempts=1)
    driver.subscribe(1)
    driver.publish(2)
    driver.close(1, clean=clean)
    assert driver.info().ready == 2
    assert driver.info().dead == 0


def test_returned_messages_go_ahead_of_newer_ones(driver: Driver) -> None:
    driver.publish(5)
    driver.close(1, clean=True)
    driver.subscribe(2, capacity_messages=7)
    assert driver.take()[2] == [1, 2, 3, 4, 5, 6, 7]


def test_after_unsubscribing_what_is_held_stays_until_it_is_settled(driver: Driver) -> None:
    driver.ask(Unsubscribe(1, None, 1))
    driver.publish(1)
    driver.subscribe(2)
    assert driver.take() == {2: [6]}
    driver.settle(1, 1, 2)
    assert driver.info().counters["settled"] == 2
    driver.settle(1, 3, verb=Settlement.RELEASE)
    assert driver.take() == {2: [3]}
    driver.close(1)
    assert driver.take() == {2: [4, 5]}


def left(driver: Driver) -> list[tuple[int, int]]:
    return [(effect.session, effect.consumer) for effect in driver.effects if isinstance(effect, ConsumerLeft)]


def test_who_has_unsubscribed_is_told_when_it_holds_nothing_any_more(driver: Driver) -> None:
    driver.subscribe(2)
    driver.handle(Unsubscribe(2, "t", 1))
    assert left(driver) == [(2, 1)]
    driver.handle(Unsubscribe(1, "t", 1))
    driver.settle(1, 1, 2)
    driver.settle(1, 3, verb=Settlement.REJECT)
    driver.settle(1, 4, verb=Settlement.RELEASE)
    assert left(driver) == [(2, 1)]
    driver.settle(1, 5)
    assert left(driver) == [(2, 1), (1, 1)]


@pytest.mark.parametrize("how", ["timeout", "deletion", "seek", "revocation"])
def test_who_has_unsubscribed_is_told_however_what_it_holds_is_lost(driver: Driver, how: str) -> None:
    driver.handle(Unsubscribe(1, "t", 1))
    match how:
        case "timeout":
            driver.advance(30_000)
        case "deletion":
            driver.handle(DeleteQueue(2, None, "q"))
        case "seek":
            driver.handle(SeekGroup(2, None, "q", "", StartAt.BEGINNING))
        case "revocation":
            driver.handle(EndConsumers(1, lambda queue: NotAuthorized("no more")))
    driver.advance(1)
    assert left(driver) == [(1, 1)]
    assert driver.ended() == []


def test_it_can_subscribe_again_while_it_still_holds(driver: Driver) -> None:
    driver.ask(Unsubscribe(1, None, 1))
    driver.subscribe(1, capacity_messages=6)
    driver.publish(3)
    assert driver.take() == {1: [6]}


def test_a_broker_crash_is_not_the_consumers_fault(driver: Driver) -> None:
    driver.restart(down_ms=60_000)
    driver.subscribe(2)
    (deliver,) = driver.delivers()[-1:]
    assert deliver.runs == [(1, 5)]
    assert deliver.acquired == dict.fromkeys(range(1, 6), 2)
    driver.settle(2, 1, verb=Settlement.RETRY)
    assert driver.records_of(Returned)[-1].attempts[1].failed == 1


def test_attempts_survive_a_restart(driver: Driver) -> None:
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=5_000, reason="x")
    driver.restart(down_ms=1_000)
    driver.subscribe(2)
    assert driver.take() == {2: [2, 3, 4, 5]}
    driver.advance(4_000)
    driver.settle(2, 1, verb=Settlement.RETRY, delay_ms=0)
    driver.settle(2, 1, verb=Settlement.RETRY, delay_ms=0)
    assert letters(driver)[0][3:] == (3, 3)


def test_whoever_asks_is_told_what_was_held(driver: Driver) -> None:
    """Nothing else tells a lease that counts from one whose time is over."""
    assert driver.ask(Settle(1, "t", 1, Settlement.ACK, [(1, 2), (4, 9)])) == SettledRuns([(1, 2), (4, 5)])
    assert driver.ask(Settle(1, "t", 1, Settlement.ACK, [(1, 5)])) == SettledRuns([(3, 3)])
    assert driver.ask(Settle(1, "t", 1, Settlement.REJECT, [(1, 5)])) == SettledRuns([])
    assert driver.ask(Settle(1, "t", 99, Settlement.ACK, [(1, 5)])) == SettledRuns([])


def test_whoever_extends_is_told_what_was_held(driver: Driver) -> None:
    driver.settle(1, 2, 3)
    assert driver.ask(Extend(1, "t", 1, [(1, 9)], 60_000)) == SettledRuns([(1, 1), (4, 5)])
    assert driver.ask(Extend(1, "t", 99, [(1, 9)], 60_000)) == SettledRuns([])


def test_a_long_settlement_tells_all_that_was_held() -> None:
    driver = Driver()
    driver.create(max_attempts=3)
    driver.subscribe(1, capacity_messages=5_000)
    driver.publish(5_000)
    driver.take()
    driver.settle(1, 1_000)
    assert driver.ask(Extend(1, "t", 1, [(n, n) for n in range(1, 5_001)], 60_000)) == SettledRuns(
        [(n, n) for n in range(1, 5_001) if n != 1_000]
    )
    result = driver.ask(Settle(1, "t", 1, Settlement.RETRY, [(1, 5_000)], 0))
    assert RunSet(sorted(result.runs)) == RunSet([(1, 999), (1_001, 5_000)])


def test_many_that_are_to_be_retried_may_be_settled_in_any_order() -> None:
    """With a delay each: they come again one by one, and each is one that has waited for that long."""
    chances = itertools.cycle([0.9, 0.1, 0.5, 0.3, 0.7])
    driver = Driver(jitter=lambda: next(chances))
    driver.create(max_attempts=3, retry_base_ms=10_000)
    driver.subscribe(1, capacity_messages=100)
    driver.publish(80)
    driver.take()
    # The first and the last are in their places.
    settled = [1, *Random(3).sample(range(2, 80), 78), 80]
    driver.handle(Settle(1, None, 1, Settlement.RETRY, [(sequence, sequence) for sequence in settled]))
    (returned,) = driver.records_of(Returned)
    due = {sequence: history.due_at for sequence, history in returned.attempts.items()}
    assert len(set(due.values())) == 5
    group = driver.engine._state.queues["q"].groups[""]
    assert {sequence: group.delayed.due_at(sequence) for sequence in due} == due
    came: dict[int, int] = {}
    for _ in range(10):
        driver.advance(1_000)
        came |= dict.fromkeys(driver.take_in_order(), driver.now)
    assert came.keys() == due.keys()
    assert all(at - 1_000 < due[sequence] <= at for sequence, at in came.items())
