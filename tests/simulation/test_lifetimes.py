"""Some lives of queues that go away by themselves; `tests.proof.engine_sim` lives many more."""

import pytest

from tests.simulation.lifetimes import Lifetimes


@pytest.mark.parametrize("seed", range(30))
def test_queues_go_when_they_should_and_not_before(seed: int) -> None:
    Lifetimes(seed).live(300)
