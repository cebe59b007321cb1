"""Instants for the engine: wall-clock milliseconds that never go back and never jump.

wall clock       deadlines outlive restarts, so instants are wall time, and a start begins with the wall clock
monotonic clock  while the broker runs, time flows at its pace and only drifts towards the wall: one step of the wall
                 clock by a year, forward or back, neither expires every message at once nor stops time. It is the one
                 that goes on while the machine is suspended

What storage remembers may be ahead of the wall clock: by moments because time never went back in the last run, which
then goes on here, or by much because the clock was wrong in an earlier run. That run's time is not taken over: it
would make deadlines pass early for as long as the clock had been ahead.
"""

import time
from collections.abc import Callable
from functools import partial

DRIFT_MS_MAX = 50
"""Most milliseconds that one `follow_wall` moves us towards the wall clock."""
AHEAD_MS_MAX = 5_000
"""A store that is further ahead of the wall clock than this was written under another clock."""


running_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds since the machine was started, its suspensions included. Called many times for each message, so it is no
function of ours."""


class TimeSource:
    """Where a broker's time comes from: the machine. Tests pass a subclass that moves it, and then call
    `Broker.time_has_moved`."""

    def wall_s(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def running_s(self) -> float:
        """Seconds since some instant of the past; never goes back."""
        return running_s()


class Clock:
    """Wall milliseconds, started no earlier than `not_before` (the last instant that storage knows) if that is near."""

    def __init__(
        self,
        *,
        not_before: int = 0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = running_s,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        start = int(wall() * 1000)
        ahead = not_before - start
        self.set_back_ms = ahead if ahead > AHEAD_MS_MAX else 0
        """How far the store is ahead of the wall clock, when that is more than a restart explains."""
        if 0 < ahead <= AHEAD_MS_MAX:
            start = not_before
        self._base = start - int(monotonic() * 1000)
        self._last = 0

    def now(self) -> int:
        now = self._base + int(self._monotonic() * 1000)
        if now > self._last:
            self._last = now
        return self._last

    def ahead_ms(self) -> int:
        """How far our time is ahead of the wall clock; negative when it is behind."""
        return self.now() - int(self._wall() * 1000)

    def follow_wall(self) -> None:
        """Come at most DRIFT_MS_MAX closer to the wall clock; called about every second."""
        apart = int(self._wall() * 1000) - (self._base + int(self._monotonic() * 1000))
        self._base += max(-DRIFT_MS_MAX, min(DRIFT_MS_MAX, apart))
