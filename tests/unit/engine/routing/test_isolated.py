"""A message that has failed holds up those behind it until its backoff is over."""

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.model.commands import ChangeQueue, PurgeQueue, SetCapacity, Settlement
from vibemq.model.options import UNLIMITED_ATTEMPTS, DeliveryMode
from vibemq.model.selector import Selector

ODD, ALL = Selector.parse("n % 2 == 1"), Selector.parse("n > 0")


def _driver(**options: object) -> Driver:
    driver = Driver()
    known = {"hold_behind_failed": True, "retry_base_ms": 1_000, "retry_max_ms": 3_000, "ack_timeout_ms": 0}
    driver.create(**known | options)
    return driver


@pytest.mark.parametrize("where", [None, ALL], ids=["plain", "selector"])
def test_the_one_that_kills_its_consumers_is_found_and_the_others_go_on(where: Selector | None) -> None:
    driver = _driver(max_attempts=3)
    driver.publish(4)
    killer, handed_out = 2, []
    driver.subscribe(1, where=where, capacity_messages=3)
    session = 1
    for _ in range(40):
        got = driver.take().get(session, [])
        handed_out.append(got)
        if killer in got:
            driver.close(session)
            session += 1
            driver.subscribe(session, where=where, capacity_messages=3)
        else:
            driver.settle(session, *got)
            if not got:
                driver.advance(500)
        driver.check()
    assert driver.engine.dead_count == 1
    assert driver.info().counters["settled"] == 3
    # Together once; from then on those that were there come one by one.
    assert [got for got in handed_out if got] == [[1, 2, 3], [1], [2], [2], [3, 4]]


def test_the_wait_grows_with_the_failures_and_what_is_behind_waits() -> None:
    driver = _driver(max_attempts=9)
    driver.publish(3)
    for session, waits in ((1, 0), (2, 1_000), (3, 2_000), (4, 3_000), (5, 3_000)):
        driver.subscribe(session, capacity_messages=1)
        if waits:
            assert driver.advance(waits - 1) == []
            assert driver.take() == {}
            driver.advance(1)
        assert driver.take() == {session: [1]}
        driver.close(session)


@pytest.mark.parametrize("verb", [None, Settlement.RELEASE])
def test_what_was_given_back_unharmed_waits_for_nothing(verb: Settlement | None) -> None:
    driver = _driver()
    driver.publish(3)
    driver.subscribe(1, capacity_messages=2)
    if verb is None:
        driver.close(1, clean=True)
        driver.take()
        driver.subscribe(1, capacity_messages=2)
        assert driver.take() == {1: [1, 2]}
    else:
        driver.take()
        driver.settle(1, 1, 2, verb=verb)
        assert driver.take() == {1: [1, 2]}


def test_attempts_without_limit() -> None:
    driver = _driver(max_attempts=UNLIMITED_ATTEMPTS)
    driver.publish(1)
    for session in range(1, 30):
        driver.subscribe(session)
        driver.advance(3_000)
        assert driver.take() == {session: [1]}
        driver.close(session)
    assert driver.engine.dead_count == 0


def test_another_group_does_not_wait() -> None:
    driver = _driver(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="a")
    driver.subscribe(2, group="b", capacity_messages=1)
    driver.publish(2)
    driver.close(1)
    driver.take()
    driver.subscribe(3, group="a")
    driver.settle(2, 1)
    assert driver.take() == {2: [2]}


def test_a_consumer_with_another_selector_does_not_wait() -> None:
    driver = _driver()
    driver.publish(4)
    driver.subscribe(1, where=ODD, capacity_messages=1)
    driver.take()
    driver.close(1)
    driver.subscribe(2, where=ODD)
    driver.subscribe(3, where=Selector.parse("n % 2 == 0"))
    assert driver.take() == {3: [2, 4]}
    driver.advance(1_000)
    assert driver.take() == {2: [1, 3]}


def test_nobody_is_called_for_a_message_that_is_gone_or_has_nobody() -> None:
    driver = _driver()
    driver.publish(2)
    driver.subscribe(1)
    driver.close(1)
    driver.subscribe(2)
    driver.take()
    driver.close(2, clean=True)
    driver.advance(5_000)
    assert driver.engine.next_deadline() is None
    driver.subscribe(3)
    driver.ask(PurgeQueue(9, None, "q"))
    driver.publish(1)
    assert driver.take() == {3: [1, 3]}
    driver.advance(5_000)
    assert driver.engine.next_deadline() is None


def test_it_is_so_after_a_restart_too() -> None:
    driver = _driver()
    driver.publish(2)
    driver.subscribe(1)
    driver.take()
    driver.close(1)
    driver.restart()
    driver.subscribe(1)
    assert driver.take() == {}
    driver.advance(1_000)
    assert driver.take() == {1: [1]}
    driver.advance(1_000)
    assert driver.take() == {1: [2]}


@pytest.mark.parametrize("delay_ms", [0, 5_000])
def test_a_delay_of_its_own_is_the_only_wait_and_holds_up_nobody(delay_ms: int) -> None:
    driver = _driver(retry_base_ms=60_000, retry_max_ms=120_000, max_attempts=9)
    driver.publish(3)
    driver.subscribe(1, capacity_messages=1)
    assert driver.take() == {1: [1]}
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=delay_ms)
    if delay_ms:
        for other in (2, 3):
            assert driver.take() == {1: [other]}
            driver.settle(1, other)
        driver.advance(delay_ms)
    assert driver.take() == {1: [1]}
    driver.check()


def test_nobody_waits_any_more_when_the_option_is_switched_off() -> None:
    driver = _driver(retry_base_ms=60_000, retry_max_ms=120_000)
    driver.publish(3)
    driver.subscribe(1, capacity_messages=1)
    driver.take()
    driver.settle(1, 1, verb=Settlement.RETRY)
    assert driver.take() == {}
    driver.ask(ChangeQueue(9, None, "q", {"hold_behind_failed": False}))
    assert driver.take() == {1: [1]}
    driver.check()


def test_each_failure_is_waited_for_whoever_asks() -> None:
    driver = _driver(retry_base_ms=60_000, retry_max_ms=120_000, max_attempts=9)
    driver.publish(3)
    driver.subscribe(1, capacity_messages=1)
    driver.take()
    driver.settle(1, 1, verb=Settlement.RETRY)
    driver.handle(SetCapacity(1, None, 1, 0, 0))
    driver.advance(61_000)
    driver.close(1, clean=True)
    driver.subscribe(2, capacity_messages=1, where=ALL)
    driver.advance(61_000)
    assert driver.take() == {2: [1]}
    driver.settle(2, 1, verb=Settlement.RETRY)
    driver.close(2, clean=True)
    driver.take()
    driver.subscribe(3, capacity_messages=1)
    assert driver.take() == {}, "it has failed again just now"
    driver.advance(120_000)
    assert driver.take() == {3: [1]}
    driver.check()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_comes_back_after_a_delay_of_its_own_waits_like_any_other(*, restarts: bool) -> None:
    driver = _driver()
    driver.publish(2)
    driver.subscribe(1, capacity_messages=1)
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=100)
    driver.settle(1, 2)
    driver.advance(100)
    driver.take()
    if restarts:
        driver.restart()
    else:
        driver.close(1, clean=True)
    driver.subscribe(2)
    driver.advance(999)
    assert driver.take() == {}
    driver.advance(1)
    assert driver.take() == {2: [1]}
    driver.check()
