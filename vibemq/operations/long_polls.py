"""Readers that wait for new messages: looked at once per turn of the loop, however many there are."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

GLANCE_S = 0.25
"""How often a waiter looks for itself, so that no way of publishing can be missed."""


@dataclass(eq=False, slots=True)
class _Waiter:
    queue: str
    start: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class LongPolls:
    """`tail(queue)` answers None for a queue that is gone."""

    def __init__(self, tail: Callable[[str], int | None]) -> None:
        self._tail = tail
        self._waiting: set[_Waiter] = set()
        self._ended = False

    async def wait(self, queue: str, start: int, seconds: float) -> None:
        """Return when something at or above `start` can be read, the queue is gone, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        waiter = _Waiter(queue, start)
        self._waiting.add(waiter)
        try:
            while not (self._ended or self._is_done(waiter)) and (left := deadline - loop.time()) > 0:
                try:
                    await asyncio.wait_for(waiter.woken.wait(), min(left, GLANCE_S))
                except TimeoutError:
                    continue
        finally:
            self._waiting.discard(waiter)

    def look(self) -> None:
        """Wake those whose messages have come."""
        for waiter in self._waiting:
            if self._is_done(waiter):
                waiter.woken.set()

    def wake_all(self) -> None:
        """The broker stops: nobody waits any longer, nor who comes to it now."""
        self._ended = True
        for waiter in self._waiting:
            waiter.start = 0
            waiter.woken.set()

    def _is_done(self, waiter: _Waiter) -> bool:
        tail = self._tail(waiter.queue)
        return tail is None or tail > waiter.start
