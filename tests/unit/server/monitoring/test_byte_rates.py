"""Bytes per second of each connection."""

from dataclasses import dataclass

import pytest

from tests.unit.operations.monitoring.pictures import picture, reading
from vibemq.server.monitoring.byte_rates import ConnectionByteRates

pytestmark = pytest.mark.anyio
NOW = reading(picture({}))


@dataclass
class Counting:
    number: int
    bytes_received: int = 0
    bytes_sent: int = 0


async def test_a_rate_is_that_between_the_last_two_looks() -> None:
    now_s, connections = 0.0, [Counting(1, 50, 10), Counting(2)]
    rates = ConnectionByteRates(lambda: connections, lambda: now_s)
    now_s = 5.0
    await rates.take(NOW)
    assert rates.of(1) == (10.0, 2.0)
    assert rates.of(2) == (0.0, 0.0)
    connections[0].bytes_received += 100
    connections.append(Counting(3, 0, 20))
    now_s = 5.5
    # Too soon to tell.
    await rates.take(NOW)
    assert rates.of(1) == (10.0, 2.0)
    now_s = 15.0
    await rates.take(NOW)
    assert [rates.of(number) for number in (1, 2, 3)] == [(10.0, 0.0), (0.0, 0.0), (0.0, 2.0)]
    del connections[0]
    now_s = 20.0
    await rates.take(NOW)
    assert rates.of(1) == (0.0, 0.0)
