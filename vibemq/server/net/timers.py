"""Wakes the engine and the sessions when a deadline is due."""

import asyncio
import logging
import weakref
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from vibemq.server.clock import Clock
from vibemq.server.commit.committer import Committer
from vibemq.server.contracts import QueueEngine

log = logging.getLogger("vibemq.timers")


WAIT_S_MAX = 60.0
"""The loop's timers stand still while the machine is suspended, and deadlines do not."""
SHARE_S = 0.002
"""Sessions are ticked for so long in one turn of the loop; the others that are due follow a millisecond later."""


class Timed(Protocol):
    """A peer with deadlines."""

    scheduled_tick: int | None
    """Instant of the nearest tick that the timers know for it; written by them."""

    @property
    def ending(self) -> bool: ...

    def next_deadline(self) -> int | None: ...

    def tick(self) -> None: ...


class Timers:
    """One timer of the event loop, set to the nearest deadline of the engine and of all sessions."""

    def __init__(
        self,
        engine: QueueEngine,
        committer: Committer,
        clock: Clock,
        *,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """`monotonic`: seconds; left out, those of the loop."""
        self._engine = engine
        self._committer = committer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._monotonic = monotonic or self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._heap: list[tuple[int, int, weakref.ref[Timed]]] = []
        """A peer that is gone is not kept until its deadline."""
        self._pushed = count()
        self._stopped = False

    def watch(self, connection: Timed) -> None:
        """Look at the session's deadline again; called after everything that may have brought it nearer.

        Later deadlines need no call: the earlier entry surfaces, finds nothing due and is put back.
        """
        if connection.ending or (deadline := connection.next_deadline()) is None:
            return
        if connection.scheduled_tick is None or deadline < connection.scheduled_tick:
            connection.scheduled_tick = deadline
            heappush(self._heap, (deadline, next(self._pushed), weakref.ref(connection)))
            self._set(deadline)

    def look_at_engine(self) -> None:
        """The same for the engine; called once per loop turn."""
        deadline = self._engine.next_deadline()
        if deadline is not None:
            self._set(deadline)

    def look_now(self) -> None:
        """Do what is due, whatever the loop's timer waits for: the clock has been moved by hand."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopped:
            self._due()

    @property
    def is_behind(self) -> bool:
        """Whether something of the engine is due and not done yet."""
        deadline = self._engine.next_deadline()
        return deadline is not None and deadline <= self._clock.now()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, deadline: int) -> None:
        if self._stopped or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        # Rounded up, and at least a millisecond: a deadline in the past must not starve the sockets.
        wait_s = max(1, deadline - self._clock.now()) / 1000
        self._timer = self._loop.call_later(min(wait_s, WAIT_S_MAX), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._clock.now()
        deadline = self._engine.next_deadline()
        if deadline is not None and deadline <= now:
            try:
                outcome = self._engine.tick(now)
            except Exception as error:
                self._committer.fail(error)
                return
            self._committer.submit(outcome)
        end = self._monotonic() + SHARE_S
        while self._heap and self._heap[0][0] <= now and self._monotonic() < end:
            due, _, watched = heappop(self._heap)
            connection = watched()
            if connection is None or connection.scheduled_tick != due or connection.ending:
                continue
            connection.scheduled_tick = None
            connection.tick()
            self.watch(connection)
        if self._heap:
            self._set(self._heap[0][0])
        self.look_at_engine()
