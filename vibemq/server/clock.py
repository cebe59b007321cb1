"""Instants for the engine: wall-clock milliseconds that never go back and never jump.

Deadlines outlive restarts, so instants are wall time. But a wall clock can be set: one step forward of a year would
expire every message at once. So time flows at the pace of the monotonic clock and only drifts towards the wall.
"""

import time
from collections.abc import Callable

DRIFT_MS_MAX = 50
"""Most milliseconds that one `follow_wall` moves us towards the wall clock."""


class Clock:
    """Wall milliseconds, started no earlier than `not_before` (the last instant that storage knows)."""

    def __init__(
        self,
        *,
        not_before: int = 0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._base = max(int(wall() * 1000), not_before) - int(monotonic() * 1000)
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, self._base + int(self._monotonic() * 1000))
        return self._last

    def follow_wall(self) -> None:
        """Come at most DRIFT_MS_MAX closer to the wall clock; called about every second."""
        apart = int(self._wall() * 1000) - (self._base + int(self._monotonic() * 1000))
        self._base += max(-DRIFT_MS_MAX, min(DRIFT_MS_MAX, apart))
