"""Flushes of what is appended: when they begin, what each covers, and who waits for them.

As many are under way as the provider says (`in_flight_max`), each in a thread of its own; a local one says 1. While
they run the next group gathers, so a flush is shared by everyone who came meanwhile and nothing needs tuning. What came
alone is flushed on the loop, as long as that is quick (`flush_place.py`): told in the turn that read it. Each covers
all appends before it, so what it covers is told in order, whichever of several ends first.

Weak data is flushed by a timer that is armed only while some is unsynced, and as soon as there is so much of it that
whoever needs a flush of its own would wait for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from vibemq.model.options import Durability
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.server.commit.commit_step import CommitStep, Flush
from vibemq.server.commit.flush_place import FlushPlace, is_small_flush
from vibemq.server.commit.storage_threads import Store
from vibemq.server.commit.teller import Teller
from vibemq.server.monitoring.metrics import Metrics

WAITING_MAX = 3
"""Those who may wait for the end of a flush with what they publish, since all of them come in one turn of the loop."""
WEAK_FLUSH_BYTES = 8 << 20
"""Of rows since the last flush began, weak ones among them, that begin one before the timer does."""


class Flushes:
    """
    Args:
        append: appends what has gathered.
        changed: hears that one has ended.
        wake: asks for a turn of the loop.
        fail: stops the broker.
    """

    def __init__(
        self,
        *,
        store: Store,
        teller: Teller,
        metrics: Metrics,
        weak_flush_ms: int,
        append: Callable[[], None],
        changed: Callable[[], None],
        wake: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._teller = teller
        self._metrics = metrics
        self._weak_flush_s = weak_flush_ms / 1000
        self._append = append
        self._changed = changed
        self._wake = wake
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self.appends = 0
        """That have returned."""
        self._flushed_appends = 0
        self._begun_appends = 0
        """Covered by the flush that began last."""
        self._weak_appends = 0
        self._weak_timer: asyncio.TimerHandle | None = None
        self._unflushed_bytes = 0
        """Of rows appended since the last flush began."""
        self._awaiting: list[CommitStep] = []
        self._running = 0
        self._under_way: deque[Flush] = deque()
        """In order, as far as none after them has ended."""
        self._again = False
        self._place = FlushPlace()
        self._waiting: dict[Callable[[], None], None] = {}
        self._gathering = False
        """The next flush waits for what those publish who have waited for the last one."""

    @property
    def busy(self) -> bool:
        return bool(self._gathering or self._running or self._awaiting)

    # -- what is appended -----------------------------------------------------------------------------------------

    def note_append(self, size: int) -> None:
        """An append has returned, with so many bytes of rows."""
        self.appends += 1
        self._unflushed_bytes += size

    def note_large(self, row_bytes: int) -> None:
        """It had a large row, written ahead or not: nothing small."""
        self._unflushed_bytes += max(row_bytes, LARGE_ROW_BYTES)

    def line_up(self, step: CommitStep) -> None:
        """It is appended: it is told, or waits for a flush."""
        step.position = self.appends
        outcome = step.outcome
        if outcome.durability is Durability.STRONG:
            if outcome.records:
                self._expect_weak()
            if step.position > self._flushed_appends and (step.holds or outcome.ticket):
                self._awaiting.append(step)
                return
        elif outcome.durability is Durability.WEAK and outcome.records:
            self._expect_weak()
        self._teller.add((step,))

    def begin_if_asked(self) -> None:
        if self._awaiting or self._again or (self._unflushed_bytes >= WEAK_FLUSH_BYTES and self._much_is_weak):
            self._begin()

    @property
    def _much_is_weak(self) -> bool:
        """Whether the bytes that no flush has taken up have weak ones among them, and one may begin."""
        return self._weak_appends > self._begun_appends and self._running < self._store.provider.in_flight_max

    def after_flush(self, wake: Callable[[], None]) -> bool:
        """Have somebody woken when the flush that is under way has ended, by a `call_soon`; the next one begins behind
        what is published then. False: none keeps others waiting, or enough wait."""
        waiting = self._waiting
        if wake in waiting:
            return True
        if self._ended or self._running < self._store.provider.in_flight_max or len(waiting) >= WAITING_MAX:
            return False
        waiting[wake] = None
        return True

    async def finish(self) -> None:
        """Flush once more, if anything was appended since the last one."""
        if self._weak_timer is not None:
            self._weak_timer.cancel()
            self._weak_timer = None
        if not self._ended and self._flushed_appends < self.appends:
            await self._store.sync()

    def end(self) -> None:
        """Nobody is told anything any more."""
        self._ended = True
        self._awaiting.clear()
        self._under_way.clear()

    # -- weak data ------------------------------------------------------------------------------------------------

    def set_weak_flush_ms(self, weak_flush_ms: int) -> None:
        """Counts for what waits already, too."""
        self._weak_flush_s = weak_flush_ms / 1000
        if self._weak_timer is not None:
            due = min(self._weak_timer.when(), self._loop.time() + self._weak_flush_s)
            self._weak_timer.cancel()
            self._weak_timer = self._loop.call_at(due, self._weak_is_due)

    def _expect_weak(self) -> None:
        self._weak_appends = self.appends
        if self._weak_timer is None:
            self._weak_timer = self._loop.call_later(self._weak_flush_s, self._weak_is_due)

    def _weak_is_due(self) -> None:
        self._weak_timer = None
        if self._weak_appends > self._flushed_appends:
            self._begin()

    # -- flushing -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._ended:
            return
        if self._gathering or self._running >= self._store.provider.in_flight_max:
            self._again = True
            return
        self._again = False
        steps, self._awaiting = self._awaiting, []
        is_small = is_small_flush(len(steps), self._unflushed_bytes)
        self._unflushed_bytes = 0
        self._begun_appends = self.appends
        flush = Flush(self.appends, steps, is_small)
        self._under_way.append(flush)
        if is_small and not self._running and self._place.is_loop:
            try:
                if self._flush_at_once(flush):
                    return
            except Exception as error:
                self._fail(error)
                return
        self._running += 1
        self._store.begin_sync(lambda error, took_s: self._flushed(flush, error, took_s))

    def _flush_at_once(self, flush: Flush) -> bool:
        """On the loop, and tell what it covers. False, and nothing is done: it is for a thread."""
        took_s = self._store.sync_at_once()
        if took_s is None:
            return False
        self._place.note(took_s, on_loop=True)
        self._metrics.fsync_seconds.observe(took_s)
        if len(self._under_way) == 1 and self._teller.answer_first(flush.steps):
            self._under_way.pop()
            self._flushed_appends = flush.covers
        else:
            self._covered(flush)
        return True

    def _flushed(self, flush: Flush, error: BaseException | None, took_s: float) -> None:
        self._running -= 1
        try:
            if error is not None:
                raise error
            if flush.is_small:
                self._place.note(took_s, on_loop=False)
            # Of the disk alone: a loop that is busy hears of it late, and nobody is to look for a faster disk then.
            self._metrics.fsync_seconds.observe(took_s)
            self._covered(flush)
        except Exception as failure:
            self._fail(failure)
        if self._waiting and not self._ended:
            self._gathering = True
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()
            self._loop.call_soon(self._gathered_behind)
        else:
            self.begin_if_asked()
        self._changed()
        self._wake()

    def _gathered_behind(self) -> None:
        """Those who have waited for a flush have published."""
        self._gathering = False
        self._append()
        self.begin_if_asked()
        self._changed()

    def _covered(self, flush: Flush) -> None:
        """Tell what the flush covers: its own steps, and those of flushes that began before it and have not ended."""
        covers = flush.covers
        if covers > self._flushed_appends:
            self._flushed_appends = covers
        while self._under_way and self._under_way[0].covers <= covers and not self._ended:
            self._teller.add(self._under_way.popleft().steps)
        self._teller.tell_some()
