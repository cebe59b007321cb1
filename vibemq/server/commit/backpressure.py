"""Nobody is read from while too much of what was published waits for the disk; and who sends very much is read by
turns, and waits while the store makes room, so that others are served meanwhile."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

BACKLOG_BYTES_MAX = 64 * 1024 * 1024
"""Published bytes on their way to disk; above this nobody is read from until half of it is told."""

SHARE_BYTES = 262_144
"""Of one peer, read in one turn of the loop; uvloop alone would read up to 32 times as much before anybody else."""
LOOK_AGAIN_S = 0.001
"""While somebody waits for room."""


class Reading(Protocol):
    """A connection that looks at `overloaded` and `admits`, and reads on or not, some time after it was woken."""

    def wake(self) -> None: ...


class Backpressure:
    """Args:
    backlog_bytes: what waits now.
    connections: everybody who reads.
    room_is_ready: whether the store takes megabytes without making room for them first.
    """

    def __init__(
        self,
        backlog_bytes: Callable[[], int],
        connections: Iterable[Reading],
        room_is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._backlog_bytes = backlog_bytes
        self._connections = connections
        self._room_is_ready = room_is_ready
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Reading, None] = {}
        self.paused: set[Reading] = set()
        """Connections that are not read from; kept by themselves."""
        self.overloaded = False

    def admits(self, connection: Reading) -> bool:
        """Whether somebody who has used its share reads on; if not, it is woken to ask again.

        What is left of the room is for those who send little: an append that has to make room holds up all.
        """
        if self._room_is_ready():
            return True
        if not self._waiting:
            self._loop.call_later(LOOK_AGAIN_S, self._look_again)
        self._waiting[connection] = None
        return False

    def _look_again(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.wake()

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
