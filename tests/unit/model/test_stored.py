"""The queues of a store, and their names."""

import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from random import Random

import pytest

from vibemq.model.options import QueueOptions
from vibemq.model.stored import StoredQueue, StoredQueues

OPTIONS = QueueOptions()
NAMES = ("a", "b", "c")


def queue(queue_id: int, name: str) -> StoredQueue:
    return StoredQueue(queue_id, name, OPTIONS, 0, f"{queue_id:x}")


def check_names(queues: StoredQueues) -> None:
    for name in NAMES:
        assert queues.named(name) == sorted(number for number, kept in queues.items() if kept.name == name)


def test_queues_are_found_by_names_that_others_had_before() -> None:
    random = Random(7)
    queues = StoredQueues()
    for number in range(1, 300):
        queues[number] = queue(number, random.choice(NAMES))
        while len(queues) > random.randrange(1, 12):
            del queues[random.choice(list(queues))]
        check_names(queues)
    queues.clear()
    check_names(queues)


def test_a_queue_that_is_put_back_has_its_name_once() -> None:
    queues = StoredQueues([queue(1, "a"), queue(2, "a")])
    queues[1] = queue(1, "a")
    queues[2] = queue(2, "a")
    del queues[1]
    assert queues.named("a") == [2]
    del queues[2]
    assert queues.named("a") == []


COPIES: list[Callable[[StoredQueues], StoredQueues]] = [
    StoredQueues.copy,
    copy,
    deepcopy,
    lambda queues: pickle.loads(pickle.dumps(queues)),
]


@pytest.mark.parametrize("make", COPIES)
def test_copies_have_names_of_their_own(make: Callable[[StoredQueues], StoredQueues]) -> None:
    queues = StoredQueues([queue(1, "a"), queue(2, "b"), queue(3, "a")])
    copied = make(queues)
    del queues[1], queues[3]
    assert copied.named("a") == [1, 3]
    del copied[3], copied[2]
    assert (queues.named("a"), queues.named("b")) == ([], [2])
    check_names(copied)
