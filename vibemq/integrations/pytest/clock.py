"""Time that tests move."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

from vibemq.server.clock import TimeSource

LAST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""Python has names for the instants until then."""


class MovableTime(TimeSource):
    """The machine's time and what was added to it."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def move(self, seconds: float) -> None:
        self._ahead_s += seconds

    def wall_s(self) -> float:
        return super().wall_s() + self._ahead_s

    def running_s(self) -> float:
        return super().running_s() + self._ahead_s


class BrokerClock:
    """The clock of the fixture's broker. It goes on by itself, and forward only: what one test adds, later tests have,
    too. Instants (`deliver_at`) are best made from `now()`."""

    def __init__(self, time: MovableTime, moved: Callable[[], None]) -> None:
        """`moved`: has the broker do what is due, and returns when that is done."""
        self._time = time
        self._moved = moved

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._time.wall_s(), UTC)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let so much time pass for the broker: delays, lifetimes, backoff, ack timeouts, expiring queues. Returns when
        the broker has done what is due then; connections stay.

        Raises:
            ValueError: the time would go back, is no number, or would lead behind the year 9999.
        """
        if not all(map(math.isfinite, (days, hours, minutes, seconds))):
            raise ValueError("the broker's clock takes steps that are numbers, and advance was called with nan or inf")
        passed = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
        if not passed >= 0:
            raise ValueError(f"the broker's clock cannot go back, and advance was called with {passed} s")
        if passed > LAST_S - self._time.wall_s():
            raise ValueError(
                f"the broker's clock ends with the year 9999, and advance was called with {passed:,.0f} s in the year"
                f" {self.now().year}"
            )
        self._time.move(passed)
        self._moved()
