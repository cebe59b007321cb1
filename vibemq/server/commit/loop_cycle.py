"""What happens once per turn of the event loop, however many sockets had something to say in it."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Flushable(Protocol):
    def flush(self) -> None: ...


class LoopCycle:
    """Runs `before` (the committer, the ticker) and then flushes every connection that asked, in one callback."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._to_flush: dict[Flushable, None] = {}
        self.before: list[Callable[[], None]] = []

    def wake(self) -> None:
        """Run at the start of the next loop turn: behind every socket that is readable in this one."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def flush_later(self, connection: Flushable) -> None:
        self._to_flush[connection] = None
        self.wake()

    def _run(self) -> None:
        self._scheduled = False
        for work in self.before:
            work()
        connections, self._to_flush = self._to_flush, {}
        for connection in connections:
            connection.flush()
