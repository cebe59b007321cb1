"""What a look at a queue costs, in bytecode instructions: it must not depend on what the queue holds."""

import pytest

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver
from vibemq.engine import Engine
from vibemq.model.commands import RemoveMessages
from vibemq.model.options import DeliveryMode

GROWTH_MAX = 1.6


def scattered(count: int, **extra: int) -> Engine:
    """A queue whose backlog is `count` runs of one message each."""
    driver = Driver()
    driver.create()
    driver.publish(2 * count, **extra)
    driver.ask(RemoveMessages(1, None, "q", [(sequence, sequence) for sequence in range(2, 2 * count + 1, 2)]))
    return driver.engine


@pytest.mark.parametrize("delayed", [False, True], ids=["ready", "delayed"])
@pytest.mark.parametrize("start", [0, 301])
def test_a_peek_looks_at_no_more_than_it_shows(start: int, delayed: bool) -> None:
    extra = {"deliver_at": 10**15} if delayed else {}
    costs = []
    for count in (1_000, 4_000):
        engine = scattered(count, **extra)
        first = start or 1
        assert engine.waiting_runs("q", 3, start) == [(s, s) for s in range(first, first + 6, 2)]
        costs.append(sum(instructions(lambda engine=engine: engine.waiting_runs("q", 3, start)).values()))
    assert costs[1] <= GROWTH_MAX * costs[0]


def test_a_peek_from_a_sequence_on_keeps_the_order_of_hand_out() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    driver.publish(3)
    driver.publish(2, priority=3)
    assert driver.engine.waiting_runs("q", 3, 2) == [(4, 5), (2, 2)]
    assert driver.engine.waiting_runs("q", 3, 5) == [(5, 5)]
    assert driver.engine.waiting_runs("q", 3, 6) == []


def test_who_a_queue_is_costs_the_same_however_many_groups_it_has() -> None:
    costs = []
    for groups in (50, 200):
        driver = Driver()
        driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
        for number in range(groups):
            driver.subscribe(number + 1, group=f"g{number}")
        readers = driver.engine.readers
        assert (readers.queue("q").tail, readers.extent("q").first_sequence) == (1, 1)
        costs.append(sum(instructions(lambda readers=readers: readers.queue("q")).values()))
    assert costs[1] == costs[0]


def test_the_depth_of_a_queue_costs_the_same_whatever_it_holds_and_whoever_reads_it() -> None:
    costs = []
    for many in (100, 2_000):
        engine = scattered(many)
        driver = Driver()
        driver.create("q")
        driver.publish(many, "q")
        for number in range(many // 10):
            driver.subscribe(number + 1, "q", capacity_messages=2)
        costs.append(
            [sum(instructions(lambda e=e: list(e.depth("q") or ())).values()) for e in (engine, driver.engine)]
        )
    assert costs[1][0] <= GROWTH_MAX * costs[0][0]
    assert costs[1][1] <= GROWTH_MAX * costs[0][1]


def test_the_depth_of_a_missing_queue_is_none() -> None:
    assert Driver().engine.depth("q") is None
