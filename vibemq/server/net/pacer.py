"""Long work on the event loop, in steps: a few milliseconds of it in each turn, and everybody else in between."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

log = logging.getLogger("vibemq.pacer")

SHARE_S = 0.001
"""Work that begins in a turn of the loop is done at once as long as this lasts; the rest waits for the next turns.

One step takes up to about 2 ms, and what it noted is appended in the same turn, for as long again: so a turn with a
step that began just before the end of its share stays below 5 ms.
"""


class Pacer:
    """Runs works, each an iterator whose `next` is one step, by turns and in the order in which they began."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._loop = asyncio.get_running_loop()
        self._monotonic = monotonic
        self._works: deque[Iterator[None]] = deque()
        self._used_s = 0.0
        """Of this turn's share."""
        self._running = self._scheduled = False

    @property
    def busy(self) -> bool:
        """Whether work is left."""
        return bool(self._works)

    def begin(self, work: Iterator[None]) -> None:
        """Do the work: at once as far as there is time in this turn of the loop, else in the next ones."""
        self._works.append(work)
        if not self._running and len(self._works) == 1:
            self._run()
        self._schedule()

    def begin_later(self, work: Iterator[None]) -> None:
        """Do the work from the next turn on: its first step is done."""
        self._works.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._loop_cycle)

    def _loop_cycle(self) -> None:
        self._scheduled = False
        self._used_s = 0.0
        self._run()
        if self._works:
            self._schedule()

    def _run(self) -> None:
        begun = self._monotonic()
        before = self._used_s
        self._running = True
        try:
            while self._works and self._used_s < SHARE_S:
                # It stays in the row while it runs: `busy` is true, and what it begins itself comes behind it.
                if self._step(self._works[0]):
                    self._works.rotate(-1)
                else:
                    self._works.popleft()
                self._used_s = before + self._monotonic() - begun
        finally:
            self._running = False

    def _step(self, work: Iterator[None]) -> bool:
        """Whether there is more to do."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:
            log.exception("a step of work on the loop has failed; the rest of this work is given up")
            return False
        return True
