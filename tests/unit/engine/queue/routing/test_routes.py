"""What a group keeps of what it has looked at is bounded, and whoever has room goes on all the same."""

from functools import partial
from random import Random

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver
from vibemq.engine.queue.routing import routes
from vibemq.engine.queue.routing.routes import Routes
from vibemq.model.commands import RemoveMessages, Settle, Settlement, SharedCapacity, Unsubscribe
from vibemq.model.selector import Selector

EVEN, ODD, SMALL = (Selector.parse(text) for text in ("n % 2 == 0", "n % 2 == 1", "n < 5"))
STEP_INSTRUCTIONS_MAX = 250_000
"""About 2 ms."""


def _driver(published: int = 0, **options: object) -> Driver:
    driver = Driver()
    driver.create(**options)
    if published:
        driver.publish(published, size=1)
    return driver


def _routes(driver: Driver) -> Routes:
    found = driver.engine._state.queues["q"].groups[""].routes
    assert found is not None
    return found


def _settle(driver: Driver, session: int, sequences: list[int], verb: Settlement = Settlement.ACK) -> None:
    driver.handle(Settle(session, None, 1, verb, [(sequence, sequence) for sequence in sequences]))


def _consume(driver: Driver, session: int) -> int:
    """How many messages it gets when it acknowledges everything."""
    count = 0
    while got := driver.take().get(session):
        count += len(got)
        _settle(driver, session, got)
    return count


def _scattered(runs: int) -> Driver:
    """A queue with so many messages, of odd numbers, and nobody in it."""
    driver = _driver(2 * runs, max_attempts=100)
    driver.subscribe(1, capacity_messages=2 * runs)
    for start in range(2, 2 * runs + 1, 4_000):
        _settle(driver, 1, list(range(start, min(start + 4_000, 2 * runs + 1), 2)))
    driver.close(1, clean=True)
    driver.advance(1_000)
    driver.take()
    return driver


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("KNOWN_RUNS_MAX", 8), ("BEHIND_RUNS_MAX", 2), ("ASKED_MESSAGES", 16), ("ASKED_RUNS", 8)):
        monkeypatch.setattr(routes, name, limit)


def test_a_queue_of_many_scattered_messages_is_consumed_by_those_that_come() -> None:
    driver = _scattered(30_000)
    driver.subscribe(2, where=ODD, capacity_messages=100)
    assert len(driver.take()[2]) == 100
    driver.subscribe(3, capacity_messages=100)
    assert len(driver.take()[3]) == 100


@pytest.mark.usefixtures("few_kept")
def test_what_a_full_consumer_matches_is_in_nobodys_way() -> None:
    driver = _driver(2_000)
    driver.subscribe(1, where=EVEN, capacity_messages=1)
    driver.subscribe(2, where=ODD, capacity_messages=10)
    assert driver.take() == {1: [2], 2: list(range(1, 20, 2))}
    _settle(driver, 2, list(range(1, 20, 2)))
    assert _consume(driver, 2) == 1_000 - 10
    _settle(driver, 1, [2])
    assert _consume(driver, 1) == 1_000 - 1


@pytest.mark.usefixtures("few_kept")
def test_each_of_two_selectors_gets_all_of_a_stream_in_turn() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN, capacity_messages=10)
    for _ in range(20):
        driver.publish(100, size=1)
        assert _consume(driver, 1) == 50
    driver.subscribe(2, where=ODD, capacity_messages=10)
    assert _consume(driver, 2) == 1_000
    driver.publish(10, size=1)
    assert {session: len(got) for session, got in driver.take().items()} == {1: 5, 2: 5}


@pytest.mark.usefixtures("few_kept")
@pytest.mark.parametrize("where", [EVEN, None])
def test_what_comes_back_goes_to_the_next_one(where: Selector | None) -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN, capacity_messages=10)
    driver.publish(10, size=1)
    assert driver.take() == {1: [2, 4, 6, 8, 10]}
    _settle(driver, 1, [4, 6, 8, 10])
    for _ in range(20):
        driver.publish(100, size=1)
        assert _consume(driver, 1) == 50
    driver.close(1, clean=True)
    driver.subscribe(2, where=where, capacity_messages=2)
    assert driver.take() == {2: [2] if where else [1, 2]}


@pytest.mark.usefixtures("few_kept")
def test_a_consumer_without_a_selector_goes_on_whatever_is_kept_for_others() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN, priority=1, capacity_messages=1)
    driver.subscribe(2, where=SMALL, priority=1, capacity_messages=1)
    driver.subscribe(3, capacity_messages=10)
    driver.publish(1_000, size=1)
    assert _consume(driver, 3) == 500 - 2
    assert driver.info().groups[0].in_flight == 2


@pytest.mark.usefixtures("few_kept")
def test_it_goes_on_when_messages_have_expired_or_were_removed() -> None:
    driver = _driver(message_ttl_ms=1_000)
    driver.subscribe(1, where=EVEN, capacity_messages=10)
    driver.publish(1_000, size=1)
    assert _consume(driver, 1) == 500
    driver.ask(RemoveMessages(9, None, "q", [(1, 500)]))
    driver.publish(100, size=1)
    assert _consume(driver, 1) == 50
    driver.advance(2_000)
    driver.publish(100, size=1)
    assert _consume(driver, 1) == 50


def test_when_those_of_a_higher_priority_go_the_others_get_what_waited_for_them() -> None:
    driver = _driver(20)
    driver.subscribe(1, where=EVEN, priority=1, capacity_messages=1)
    driver.subscribe(2, where=Selector.parse("n > 0"), capacity_messages=100)
    assert driver.take() == {1: [2], 2: list(range(1, 20, 2))}
    driver.handle(Unsubscribe(1, None, 1))
    assert driver.take() == {2: list(range(4, 21, 2))}


def test_when_one_of_a_higher_priority_comes_what_is_known_already_waits_for_it() -> None:
    driver = _driver(20)
    driver.subscribe(1, where=Selector.parse("n > 0"), capacity_messages=1)
    driver.subscribe(2, where=EVEN, priority=1, capacity_messages=1)
    assert driver.take() == {1: [1], 2: [2]}
    assert _consume(driver, 1) == 0
    _settle(driver, 1, [1])
    assert driver.take() == {1: [3]}
    _settle(driver, 1, [3])
    assert driver.take() == {1: [5]}


def test_what_is_kept_is_bounded_however_many_selectors_and_messages_there_are() -> None:
    driver = _many_header_sets()
    for line in _routes(driver).lines.values():
        assert line.known.run_count <= 2 * routes.KNOWN_RUNS_MAX
        assert line.behind.run_count <= routes.BEHIND_RUNS_MAX


def test_steps_are_short_however_many_header_sets_there_are() -> None:
    driver = _many_header_sets()
    driver.looks = False
    costs = [sum(instructions(partial(driver.publish, 300)).values())]
    while driver.questions:
        # The answer is found outside of what is counted.
        answer = driver.answer_to(driver.questions.pop(0))
        costs.append(sum(instructions(partial(driver.handle, answer)).values()))
    for session, held in list(driver.take().items())[:5]:
        costs.append(sum(instructions(partial(driver.settle, session, held[0])).values()))
    costs.append(sum(instructions(partial(driver.close, 105, clean=True)).values()))
    costs.append(sum(instructions(partial(driver.subscribe, 500, where=SMALL, priority=3)).values()))
    assert len(costs) > 10
    assert max(costs) < STEP_INSTRUCTIONS_MAX


def _many_header_sets() -> Driver:
    """62 full consumers, each of a selector of its own, one that matches nothing, and messages that each are matched
    by others of these."""
    random = Random(1)
    known: dict[int, dict[str, bool]] = {}

    def properties_of(sequence: int) -> dict[str, bool]:
        if sequence not in known:
            known[sequence] = {f"p{place}": True for place in range(62) if random.random() < 0.5}
        return known[sequence]

    driver = _driver()
    driver.properties_of = properties_of
    for place in range(62):
        driver.subscribe(100 + place, capacity_messages=1, where=Selector.parse(f"exists(p{place})"))
    driver.subscribe(99, capacity_messages=10, where=Selector.parse("exists(zzz)"))
    driver.publish(1_500, size=1)
    return driver


@pytest.mark.parametrize("runs", [500, 5_000])
def test_a_selector_that_comes_and_goes_costs_the_same_whatever_waits(runs: int) -> None:
    driver = _scattered(runs)
    driver.looks = False

    def come_and_go() -> None:
        driver.subscribe(2, where=SMALL)
        driver.close(2, clean=True)

    assert sum(instructions(come_and_go).values()) < 40_000


def test_a_selector_that_comes_and_goes_costs_the_same_however_many_consumers_there_are() -> None:
    driver = _driver()
    for session in range(2_000):
        driver.subscribe(10 + session, capacity_messages=1)

    def come_and_go() -> None:
        driver.subscribe(2, where=SMALL)
        driver.close(2, clean=True)

    assert sum(instructions(come_and_go).values()) < 40_000
    driver.publish(4)
    assert driver.take() == {10: [1], 11: [2], 12: [3], 13: [4]}


def test_consumers_that_share_their_room_do_not_call_each_other_when_there_is_nothing_for_them() -> None:
    driver = _driver()
    for number, where in enumerate((Selector.parse("n < 0"), ODD)):
        driver.subscribe(1, consumer=number, where=where, share=SharedCapacity("s", 1))
    driver.publish(2, size=1)
    assert driver.take() == {1: [1]}
    # Both may be called now, and what waits is for neither.
    driver.settle(1, 1, consumer=1)
    driver.publish(2, size=1)
    assert driver.take() == {1: [3]}
