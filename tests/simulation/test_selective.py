"""See `selective`."""

import pytest

from tests.short_steps import steps_of
from tests.simulation.selective import SelectiveChaos


@pytest.mark.parametrize("seed", range(8))
def test_the_promises_of_selectors_hold_whatever_happens(seed: int) -> None:
    SelectiveChaos(seed).live(200)


@pytest.mark.parametrize("seed", range(4))
def test_the_promises_of_selectors_hold_in_short_steps(seed: int) -> None:
    with steps_of(2):
        SelectiveChaos(seed).live(200)
