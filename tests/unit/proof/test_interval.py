"""The interval of a median: as wide as the values and their number say, and rarely wrong."""

import math
from random import Random

import pytest

from tests.proof.interval import of_median


def test_few_values_tell_nothing() -> None:
    assert of_median([]) == (-math.inf, math.inf)
    assert of_median([1.0] * 10) == (-math.inf, math.inf)
    assert of_median([1.0] * 11) == (1.0, 1.0)


def test_it_is_cut_from_both_ends() -> None:
    # Of six values, one in 32 samples has its median outside of all.
    assert of_median([6, 1, 5, 2, 4, 3], confidence=0.95) == (1, 6)
    assert of_median(range(1, 10), confidence=0.95) == (2, 8)


def test_it_lies_on_a_side_or_on_none() -> None:
    interval = of_median([0.9, 0.92] * 10)
    assert interval.is_below(0.95)
    assert not interval.is_above(0.95)
    assert interval.is_above(0.9)
    assert not interval.is_below(0.91)
    assert not interval.is_above(0.91)


@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_what_keeps_enough_is_not_found_wanting_however_often_somebody_looks(spread: float) -> None:
    rng = Random(7)
    wrong = 0
    for _ in range(200):
        ratios = [rng.lognormvariate(0, spread) * 0.97 for _ in range(60)]
        wrong += any(of_median(ratios[:count]).is_below(0.95) for count in range(11, 61))
    assert wrong <= 2
