"""What waits for an instant leaves in any order, and no removal pays for the others."""

from random import Random

import pytest

from tests.unit.engine.test_scaling import cost
from vibemq.engine.queue.delayed import Delayed


def waiting(count: int, apart: int) -> Delayed:
    delayed = Delayed()
    for sequence in range(1, count + 1):
        delayed.add(sequence, 1_000 + apart * sequence)
    return delayed


@pytest.mark.parametrize("apart", [0, 7])
@pytest.mark.parametrize("order", ["first", "last", "any"])
def test_a_removal_costs_the_same_however_many_wait(order: str, apart: int) -> None:
    def dearest(count: int) -> int:
        delayed, sequences = waiting(count, apart), list(range(1, count + 1))
        if order == "any":
            Random(3).shuffle(sequences)
        elif order == "last":
            sequences.reverse()
        return max(cost(lambda s=sequence: delayed.remove(s, s)) for sequence in sequences)

    small, big = dearest(500), dearest(2_000)
    assert big <= 1.5 * small + 60, f"{small} instructions of 500, {big} of 2,000"


def test_the_next_instant_is_known_at_once_after_very_many_have_left() -> None:
    delayed = waiting(2_000, 7)
    for sequence in range(1, 1_999):
        delayed.remove(sequence, sequence)
    assert cost(delayed.next_due) < 40
    assert delayed.next_due() == 1_000 + 7 * 1_999


def test_one_that_waits_for_another_instant_is_due_then() -> None:
    delayed = waiting(3, 10)
    delayed.add(1, 5_000)
    assert delayed.pop_due(2_000) == [2, 3]
    assert (len(delayed), delayed.next_due(), delayed.pop_due(5_000)) == (1, 5_000, [1])
