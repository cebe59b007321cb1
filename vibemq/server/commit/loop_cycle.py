"""What happens once per turn of the event loop, however many sockets had something to say in it."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
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
    those that have answers only, and then, behind what was asked for with `behind`, those that have deliveries. Of both
    at least one."""

    def __init__(self, *, monotonic: Callable[[], float] | None = None) -> None:
        """`monotonic`: seconds; left out, those of the loop."""
        self._loop = asyncio.get_running_loop()
        self._monotonic = monotonic or self._loop.time
        self._scheduled = False
        self._flush_follows = False
        """Whoever asks to be flushed now has a turn in this run."""
        self._answering = FlushQueue()
        self._delivering = FlushQueue()
        self.before: list[Callable[[], None]] = []
        self._behind: list[Callable[[], None]] = []

    def wake(self) -> None:
        """Run at the start of the next loop turn: behind every socket that is readable in this one."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def flush_later(self, connection: Flushable) -> None:
        (self._delivering if connection.delivers else self._answering).asked[connection] = None
        if not self._flush_follows:
            self.wake()

    def behind(self, work: Callable[[], None]) -> None:
        """Do this once, when everybody who has asked for it has been answered: in this turn, or else in the next.
        Whoever asks to be flushed then has a turn behind it."""
        self._behind.append(work)
        if not self._flush_follows:
            self.wake()

    def _run(self) -> None:
        self._scheduled = False
        self._do_all(self.before)
        end = self._monotonic() + FLUSH_SHARE_S
        self._flush(self._answering, end)
        if self._behind:
            behind, self._behind = self._behind, []
            self._do_all(behind)
            self._flush(self._answering, end)
        self._flush(self._delivering, end)
        if self._answering or self._delivering or self._behind:
            self.wake()

    def _do_all(self, works: Iterable[Callable[[], None]]) -> None:
        self._flush_follows = True
        try:
            for work in works:
                work()
        finally:
            self._flush_follows = False

    def _flush(self, queue: "FlushQueue", end: float) -> None:
        """At least one, and others until `end`."""
        waiting = queue.waiting
        if not waiting:
            if not queue.asked:
                return
            waiting.extend(queue.asked)
            queue.asked.clear()
        while waiting:
            waiting.popleft().flush()
            if self._monotonic() >= end:
                break


class FlushQueue:
    """Connections that are to be flushed."""

    __slots__ = ("asked", "waiting")

    def __init__(self) -> None:
        self.asked: dict[Flushable, None] = {}
        self.waiting: deque[Flushable] = deque()
        """Those that asked in an earlier turn and have not been flushed."""

    def __bool__(self) -> bool:
        return bool(self.waiting or self.asked)
