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
        self._is_before = False
        """What runs `before` is running: whoever asks to be flushed now has a turn in this run."""
        self._to_flush: dict[Flushable, None] = {}
        self._flushing: deque[Flushable] = deque()
        """Those that asked in an earlier turn and have not been flushed."""
        self.before: list[Callable[[], None]] = []
        self._behind: list[Callable[[], None]] = []

    def wake(self) -> None:
        """Run at the start of the next loop turn: behind every socket that is readable in this one."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def flush_later(self, connection: Flushable) -> None:
        self._to_flush[connection] = None
        if not self._is_before:
            self.wake()

    def behind(self, work: Callable[[], None]) -> None:
        """Do this once, when everybody who has asked so far is flushed: in this turn, or else in the next. Whoever asks
        to be flushed then has a turn behind it."""
        self._behind.append(work)
        if not self._is_before:
            self.wake()

    def _run(self) -> None:
        self._scheduled = False
        self._is_before = True
        try:
            for work in self.before:
                work()
        finally:
            self._is_before = False
        end = self._monotonic() + FLUSH_SHARE_S
        self._flush_some(end)
        if self._behind:
            behind, self._behind = self._behind, []
            for work in behind:
                work()
            if self._to_flush:
                self._flush_some(end)
        if self._flushing or self._to_flush:
            self.wake()

    def _flush_some(self, end: float) -> None:
        """At least one, and others until `end`."""
        if not self._flushing:
            self._flushing.extend(self._to_flush)
            self._to_flush.clear()
        while self._flushing:
            self._flushing.popleft().flush()
            if self._monotonic() >= end:
                break
