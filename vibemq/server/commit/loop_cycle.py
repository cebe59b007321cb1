"""What happens once per turn of the event loop, however many sockets had something to say in it."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

FLUSH_SHARE_S = 0.002
"""Connections are flushed for so long in one turn; the others follow in the next ones, in the order of asking."""


class Flushable(Protocol):
    def flush(self) -> None: ...


class LoopCycle:
    """Runs `before` (the committer, the timers) and then flushes the connections that asked, in one callback."""

    def __init__(self, *, monotonic: Callable[[], float] | None = None) -> None:
        """`monotonic`: seconds; left out, those of the loop."""
        self._loop = asyncio.get_running_loop()
        self._monotonic = monotonic or self._loop.time
        self._scheduled = False
        self._to_flush: dict[Flushable, None] = {}
        self._flushing: deque[Flushable] = deque()
        """Those that asked in an earlier turn and have not been flushed."""
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
        if not self._flushing:
            self._flushing.extend(self._to_flush)
            self._to_flush.clear()
        end = self._monotonic() + FLUSH_SHARE_S
        while self._flushing:
            self._flushing.popleft().flush()
            if self._monotonic() >= end:
                break
        if self._flushing or self._to_flush:
            self.wake()
