"""What happens once per turn of the event loop, however many sockets had something to say in it."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

FLUSH_SHARE_S = 0.002
"""Connections are flushed for so long in one turn; the others follow in the next ones, in the order of asking."""


class Flushable(Protocol):
    @property
    def delivers(self) -> bool:
        """Whether it has deliveries to read and to encode; then its flush may take as long as those of many others."""

    def flush(self) -> None: ...


class LoopCycle:
    """Runs `before` (the committer, the timers) and then flushes the connections that asked, in one callback: first
    those that have answers only, and then those that have deliveries, at least one of these."""

    def __init__(self, *, monotonic: Callable[[], float] | None = None) -> None:
        """`monotonic`: seconds; left out, those of the loop."""
        self._loop = asyncio.get_running_loop()
        self._monotonic = monotonic or self._loop.time
        self._scheduled = False
        self._answering = FlushQueue()
        self._delivering = FlushQueue()
        self.before: list[Callable[[], None]] = []

    def wake(self) -> None:
        """Run at the start of the next loop turn: behind every socket that is readable in this one."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def flush_later(self, connection: Flushable) -> None:
        (self._delivering if connection.delivers else self._answering).asked[connection] = None
        self.wake()

    def _run(self) -> None:
        self._scheduled = False
        for work in self.before:
            work()
        end = self._monotonic() + FLUSH_SHARE_S
        left = self._flush(self._answering, end)
        if self._flush(self._delivering, end) or left:
            self.wake()

    def _flush(self, queue: "FlushQueue", end: float) -> bool:
        """Whether some have not been flushed."""
        waiting = queue.waiting
        if not waiting:
            waiting.extend(queue.asked)
            queue.asked.clear()
        while waiting:
            waiting.popleft().flush()
            if self._monotonic() >= end:
                break
        return bool(waiting or queue.asked)


class FlushQueue:
    """Connections that are to be flushed."""

    __slots__ = ("asked", "waiting")

    def __init__(self) -> None:
        self.asked: dict[Flushable, None] = {}
        self.waiting: deque[Flushable] = deque()
        """Those that asked in an earlier turn and have not been flushed."""
