"""What the engine keeps for what does nothing: counted by Python's own book of allocations."""

import tracemalloc
from collections.abc import Callable

from vibemq.engine import Engine, EngineSettings
from vibemq.model.instants import Instants
from vibemq.model.options import QueueOptions
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState

NOW = 1_000_000
OPTIONS = QueueOptions()


def started(state: StoredState) -> Engine:
    engine = Engine(EngineSettings(), jitter=lambda: 0.5, new_id=lambda: "f" * 32)
    engine.restore(state, NOW)
    return engine


def with_queues(number: int) -> StoredState:
    state = StoredState()
    for queue_id in range(1, number + 1):
        queue = StoredQueue(queue_id, f"queue-{queue_id}", OPTIONS, NOW, f"{queue_id:032x}", next_group_id=2)
        queue.groups[1] = StoredGroup(1, "", durable=True)
        state.queues[queue_id] = queue
    return state


def with_delayed(number: int) -> StoredState:
    """Due in no order at all."""
    state = with_queues(1)
    queue = state.queues[1]
    queue.next_sequence = number + 1
    for first in range(1, number + 1, 1024):
        some = range(first, min(first + 1024, number + 1))
        queue.delayed.update({sequence: 2 * NOW + sequence * 7919 % number for sequence in some})
    return state


def growth(make: Callable[[int], object], few: int, many: int) -> float:
    """Bytes for each more."""
    held = []
    for number in (few, many):
        tracemalloc.start()
        made = make(number)
        held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del made
    return (held[1] - held[0]) / (many - few)


def test_an_idle_queue_takes_less_than_two_kilobytes() -> None:
    states = {number: with_queues(number) for number in (1_000, 3_000)}
    assert growth(lambda number: started(states[number]), 1_000, 3_000) < 1_400


def test_an_idle_queue_takes_as_little_in_the_state_of_a_store() -> None:
    assert growth(with_queues, 1_000, 3_000) < 1_100


def test_a_delayed_message_takes_a_few_machine_words() -> None:
    states = {number: with_delayed(number) for number in (4_096, 36_864)}
    assert growth(lambda number: started(states[number]), 4_096, 36_864) < 40
    assert growth(with_delayed, 4_096, 36_864) < 10


def test_a_start_with_idle_queues_asks_to_be_called_for_none_of_them() -> None:
    engine = started(with_queues(10))
    assert engine.next_deadline() is None


def test_delayed_messages_come_in_their_order_after_a_start() -> None:
    engine = started(with_delayed(5_000))
    info = engine.queue_info("queue-1")
    assert info is not None
    assert (info.ready, info.delayed) == (0, 5_000)
    assert engine.next_deadline() == 2 * NOW
    while (at := engine.next_deadline()) is not None and at <= 2 * NOW + 2_499:
        engine.tick(2 * NOW + 2_499)
    info = engine.queue_info("queue-1")
    assert info is not None
    assert (info.ready, info.delayed) == (2_500, 2_500)
    assert engine.violations() == []


def test_the_engine_takes_nothing_of_the_state_that_changes() -> None:
    state = with_delayed(3_000)
    before = Instants(state.queues[1].delayed)
    engine = started(state)
    engine.tick(9 * NOW)
    assert state.queues[1].delayed == before
    state.queues[1].delayed.clear()
    assert engine.violations() == []
