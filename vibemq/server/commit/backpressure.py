"""Nobody is read from while too much of what was published waits for the disk."""

from collections.abc import Callable, Iterable
from typing import Protocol

BACKLOG_BYTES_MAX = 64 * 1024 * 1024
"""Published bytes on their way to disk; above this nobody is read from until half of it is told."""


class Reading(Protocol):
    """A connection that looks at `overloaded`, and reads on or not, some time after it was woken."""

    def wake(self) -> None: ...


class Backpressure:
    """Args:
    backlog_bytes: what waits now.
    connections: everybody who reads.
    """

    def __init__(self, backlog_bytes: Callable[[], int], connections: Iterable[Reading]) -> None:
        self._backlog_bytes = backlog_bytes
        self._connections = connections
        self.paused: set[Reading] = set()
        """Connections that are not read from; kept by themselves."""
        self.overloaded = False

    def apply(self) -> None:
        """Stop reading, or read on; called once per loop turn."""
        backlog = self._backlog_bytes()
        if not self.overloaded and backlog > BACKLOG_BYTES_MAX:
            self.overloaded = True
            for connection in self._connections:
                connection.wake()
        elif self.overloaded and backlog < BACKLOG_BYTES_MAX // 2:
            self.overloaded = False
            for connection in list(self.paused):
                connection.wake()
