"""Bytes per second of each connection, from two looks at their counters."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.operations.monitoring.turns import in_slices

APART_S_MIN = 1.0


class _Counting(Protocol):
    number: int
    bytes_received: int
    bytes_sent: int


class ConnectionByteRates:
    """`take` is called by the sampler, every few seconds; a rate is that between the last two calls."""

    def __init__(self, connections: Callable[[], Iterable[_Counting]], monotonic: Callable[[], float]) -> None:
        self._connections = connections
        self._monotonic = monotonic
        self._seen: dict[int, tuple[int, int]] = {}
        self._rates: dict[int, tuple[float, float]] = {}
        self._seen_at = monotonic()

    async def take(self, reading: QueuesReading) -> None:
        await in_slices(self._look())

    def of(self, number: int) -> tuple[float, float]:
        return self._rates.get(number, (0.0, 0.0))

    def _look(self) -> Iterator[None]:
        now_s = self._monotonic()
        apart_s = now_s - self._seen_at
        if apart_s < APART_S_MIN:
            return
        seen: dict[int, tuple[int, int]] = {}
        rates: dict[int, tuple[float, float]] = {}
        for connection in self._connections():
            came, went = seen[connection.number] = connection.bytes_received, connection.bytes_sent
            # Of one that is new everything has come since the last look.
            came_before, went_before = self._seen.get(connection.number, (0, 0))
            if came != came_before or went != went_before:
                rates[connection.number] = (
                    round((came - came_before) / apart_s, 1),
                    round((went - went_before) / apart_s, 1),
                )
            yield
        self._seen, self._rates, self._seen_at = seen, rates, now_s
