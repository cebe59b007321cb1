"""A broker with a topic for everybody and one that is shared out."""

import pytest

from tests.unit.protocols.omq.world import BROADCAST, ROUND_ROBIN, World


@pytest.fixture
def world() -> World:
    made = World()
    made.queue("orders", BROADCAST)
    made.queue("jobs", ROUND_ROBIN)
    return made
