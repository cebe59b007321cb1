"""Readers that wait for new messages, woken behind the turn of the loop in which their messages can be read."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

GLANCE_S = 5.0
"""How often a waiter looks for itself. It is the remedy for a change of which `look` was not told, and not the rule."""
QUEUES_AT_ONCE = 1000
"""Queues looked at before the loop goes on: about a millisecond of work."""


@dataclass(eq=False, slots=True)
class _Waiter:
    start: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class LongPolls:
    """`tail(queue)` answers None for a queue that is gone."""

    def __init__(self, tail: Callable[[str], int | None], *, glance_s: float = GLANCE_S) -> None:
        self._tail = tail
        self._glance_s = glance_s
        self._waiting: dict[str, set[_Waiter]] = {}
        self._round: Iterator[str] | None = None
        """The queues that a round of looking has left; None between rounds."""
        self._stale = False
        """Something may have changed behind the round that is under way."""
        self._ended = False

    async def wait(self, queue: str, start: int, seconds: float) -> None:
        """Return when something at or above `start` can be read, the queue is gone, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        waiter = _Waiter(start)
        self._waiting.setdefault(queue, set()).add(waiter)
        try:
            while not (self._ended or self._is_done(queue, start)) and (left := deadline - loop.time()) > 0:
                waiter.woken.clear()
                try:
                    await asyncio.wait_for(waiter.woken.wait(), min(left, self._glance_s))
                except TimeoutError:
                    continue
        finally:
            self._forget(queue, waiter)

    def look(self) -> None:
        """Wake those whose messages have come. Called once per turn; of many queues the rest follows in later turns."""
        if self._round is not None:
            self._stale = True
        elif self._waiting:
            self._round = iter(list(self._waiting))
            self._go_on()

    def wake_all(self) -> None:
        """The broker stops: nobody waits any longer, nor who comes to it now."""
        self._ended = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.woken.set()

    def _go_on(self) -> None:
        assert self._round is not None
        some = list(islice(self._round, QUEUES_AT_ONCE))
        for queue in some:
            for waiter in self._waiting.get(queue, ()):
                if self._is_done(queue, waiter.start):
                    waiter.woken.set()
        if len(some) < QUEUES_AT_ONCE:
            self._round = iter(list(self._waiting)) if self._stale else None
            self._stale = False
        if self._round is not None:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _forget(self, queue: str, waiter: _Waiter) -> None:
        waiters = self._waiting[queue]
        waiters.discard(waiter)
        if not waiters:
            del self._waiting[queue]

    def _is_done(self, queue: str, start: int) -> bool:
        tail = self._tail(queue)
        return tail is None or tail > start
