"""A broker whose time stands still until the test moves it.

Deadlines of messages, queues, groups and sessions follow the clock of the broker, and so does what is asked of them
here: a delay of an hour is over after `broker.advance(3600)`, and never before, however slow the machine is. What
follows the event loop's timers instead goes on by itself: weak flushes, housekeeping, sockets that linger.
"""

import time
from typing import Any

from vibemq.server.broker import Broker
from vibemq.server.clock import TimeSource


class StandingTime(TimeSource):
    """Begins with the machine's time, and stands still until it is moved."""

    def __init__(self) -> None:
        self._wall_ms = int(time.time() * 1000)

    def move(self, seconds: float) -> None:
        self._wall_ms += round(seconds * 1000)

    def wall_s(self) -> float:
        # In the middle of the millisecond, so that no rounding leads out of it.
        return (self._wall_ms + 0.5) / 1000

    running_s = wall_s


class TimedBroker(Broker):
    """Takes the same arguments as Broker; use it in one event loop, and `advance` from there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._standing = StandingTime()
        super().__init__(*arguments, **options, time_source=self._standing)

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once, and have the broker do what is due then."""
        self.advance_unseen(seconds)
        self._running().timers.look_now()

    def advance_unseen(self, seconds: float) -> None:
        """Let time pass as on a busy loop: timers come late, and what is in the sockets is read afterwards."""
        self._standing.move(seconds)

    @property
    def waits(self) -> bool:
        """Whether time alone will change something in the queues: a delay, a deadline, a publisher that is blocked."""
        return self._running().engine.next_deadline() is not None
