import gc
from collections.abc import Callable, Iterator

import pytest

from vibemq.config import Limits
from vibemq.server.collector import ALONE_GROWTH_BLOCKS, SHORT_GROWTH_BLOCKS, Collector, collector_at_rest
from vibemq.server.monitoring.housekeeping import memory_is_short
from vibemq.server.monitoring.machine_memory import MachineMemory


def test_what_is_made_at_the_start_is_never_collected_again() -> None:
    frozen = gc.get_freeze_count()
    with collector_at_rest():
        assert not gc.isenabled()
        made = [[number] for number in range(10_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - frozen > len(made)


def test_a_failed_start_leaves_the_collector_on() -> None:
    with pytest.raises(ValueError, match="no"), collector_at_rest():
        raise ValueError("no")
    assert gc.isenabled()


class Process:
    """A collector, its loop, and the memory that it sees."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.alone = False
        self.is_short = False
        self.blocks = SHORT_GROWTH_BLOCKS
        self.collector = Collector(
            self.due.append, alone=lambda: self.alone, short=lambda: self.is_short, blocks=lambda: self.blocks
        )

    def turn(self) -> None:
        # Python collects between any two instructions, and more may become due there: as a loop, this loses none.
        for _ in range(len(self.due)):
            self.due.pop(0)()


OF_PYTHON = [(700, 10, 10), (2_000, 10, 10)]
"""Up to 3.12, and of 3.13."""


@pytest.fixture(params=OF_PYTHON, ids=lambda thresholds: str(thresholds[0]))
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    gc.collect()
    gc.freeze()
    process = Process()
    before = gc.get_threshold()
    gc.set_threshold(*request.param)
    process.collector.start()
    yield process
    process.collector.stop()
    assert gc.get_threshold() == request.param
    gc.set_threshold(*before)


class Node:
    """A cycle of one."""

    alive = 0

    def __init__(self) -> None:
        self.myself = self
        Node.alive += 1

    def __del__(self) -> None:
        Node.alive -= 1


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_each_object_is_looked_at_once_more_and_then_never_again(process: Process) -> None:
    kept = []
    seen = 0
    before = full_collections()
    for number in range(200_000):
        kept.append([number])
        if process.due:
            seen = max(seen, len(gc.get_objects()))
            process.turn()
    assert full_collections() > before + 30
    # However many there are, what a full collection looks at stays as little.
    assert seen < 7_000 < gc.get_freeze_count()


def test_cycles_that_end_early_are_freed_without_a_look_at_all_objects(process: Process) -> None:
    frozen = gc.get_freeze_count()
    kept = []
    for number in range(50_000):
        kept.append([number])
        Node()
        process.turn()
    assert Node.alive < 10_000
    assert gc.get_freeze_count() > frozen
    gc.collect()


def grow(process: Process, blocks: int) -> bool:
    """Whether frozen cycles are found after so much growth: a new one, and those that were not found before."""
    Node()
    gc.freeze()
    process.blocks += blocks
    process.collector.look_at_all_if_worth_it()
    return Node.alive == 0


def test_nobody_who_is_connected_waits_for_a_look_at_all_objects(process: Process) -> None:
    """However much memory has grown, as long as there is enough of it."""
    assert not grow(process, 100 * SHORT_GROWTH_BLOCKS)
    kept = []
    for number in range(50_000):
        kept.append([number])
        process.turn()
    assert Node.alive


def test_a_frozen_cycle_is_found_when_memory_is_short(process: Process) -> None:
    process.is_short = True
    assert not grow(process, SHORT_GROWTH_BLOCKS - 1)
    assert grow(process, 1)
    # It is not looked for again and again where there is none.
    process.blocks = process.collector._base = 40 * SHORT_GROWTH_BLOCKS
    assert not grow(process, 10 * SHORT_GROWTH_BLOCKS - 1)
    assert grow(process, 1)


def test_with_default_limits_a_frozen_cycle_is_found_when_the_machine_has_little_memory_left(process: Process) -> None:
    used = 79
    process.collector._short = lambda: memory_is_short(Limits(), used, lambda: MachineMemory(100, 1_000, 500))
    assert not grow(process, SHORT_GROWTH_BLOCKS)
    used = 80
    assert grow(process, 0)


def test_a_frozen_cycle_is_found_sooner_when_nobody_is_connected(process: Process) -> None:
    process.alone = True
    assert not grow(process, 0)
    assert not grow(process, ALONE_GROWTH_BLOCKS - 1)
    assert grow(process, 1)


def test_who_is_between_two_connections_does_not_wait_either(process: Process) -> None:
    process.alone = True
    assert not grow(process, ALONE_GROWTH_BLOCKS)
    process.alone = False
    assert not grow(process, 0)
    process.alone = True
    assert not grow(process, 0)
    assert grow(process, 0)
