"""Tells outcomes whose durability holds, in order, and has the engine show what they have added.

One append or flush may be that of very many outcomes. They are told in order for `SHARE_S` of a turn of the loop, and
the others in the next turns. An answer and what the engine shows to consumers for it are told together; with
`answer_first` the answer is written before the deliveries, in the same turn of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from vibemq.model.effects import NOTHING_FOLLOWS, Incomplete, Outcome
from vibemq.server.clock import Clock
from vibemq.server.commit.commit_step import CommitStep
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.contracts import QueueEngine
from vibemq.server.monitoring.metrics import Metrics

SHARE_S = 0.0015
"""Outcomes are told for so long in one turn of the loop, at least one of them."""


class Teller:
    """
    Args:
        submit: takes what the engine decides when it shows messages.
        fail: stops the broker after a fault of the engine.
        told: hears outside a call from here that more was told.
        wake: asks for a turn of the loop.
        behind: has something done in this turn of the loop, once the answers that were told are written. None:
            consumers are given messages before their publisher is answered.
        monotonic: seconds.
    """

    def __init__(
        self,
        *,
        engine: QueueEngine,
        effect_router: EffectRouter,
        clock: Clock,
        metrics: Metrics,
        monotonic: Callable[[], float],
        submit: Callable[[Outcome], None],
        fail: Callable[[BaseException], None],
        told: Callable[[], None],
        wake: Callable[[], None],
        behind: Callable[[Callable[[], None]], None] | None,
    ) -> None:
        self._engine = engine
        self._effect_router = effect_router
        self._clock = clock
        self._metrics = metrics
        self._monotonic = monotonic
        self._submit = submit
        self._fail = fail
        self._told = told
        self._wake = wake
        self._behind = behind
        self._loop = asyncio.get_running_loop()
        self._untold: deque[CommitStep] = deque()
        """Nothing keeps them from being told but the time that it takes."""
        self._answered: list[CommitStep] = []
        """What the engine shows for them is not told yet."""
        self._tells_later = False
        self._ended = False
        self.backlog_bytes = 0
        """Rows of outcomes that have not been told yet; publishers pause when it grows."""

    @property
    def busy(self) -> bool:
        return bool(self._untold or self._answered)

    def add(self, steps: Iterable[CommitStep]) -> None:
        """They may be told, behind those before them."""
        self._untold.extend(steps)

    def end(self) -> None:
        """Nobody is told anything any more."""
        self._ended = True
        self._untold.clear()
        self._answered.clear()

    def tell_some(self) -> None:
        """As far as there is time in this turn of the loop. Raises a fault of the engine."""
        if self._tells_later or not self.busy:
            return
        self._show_answered()
        untold, end = self._untold, self._monotonic() + SHARE_S
        while untold and not self._ended:
            step = untold.popleft()
            if not self._tell(step) and not self._ended:
                untold.appendleft(step)
            if untold and self._monotonic() >= end:
                self._tells_later = True
                self._loop.call_soon(self._tell_others)
                return

    def answer_first(self, steps: Sequence[CommitStep]) -> bool:
        """Tell the answers now, and the rest when these are written, before anything more is read from anybody: nobody
        who was answered misses what the answer speaks of. False, and nothing is told: they keep to the usual order."""
        if self._behind is None or self._untold or self._tells_later:
            return False
        shows_at_once = self._engine.shows_at_once
        for step in steps:
            if step.outcome.ticket and not shows_at_once(step.outcome.ticket):
                return False
        self._answered += steps
        # Before anybody is answered: an asker within the broker goes on in the loop's next turn, behind this.
        self._behind(self._answers_are_written)
        for step in steps:
            self._answer(step)
        return True

    def _tell_others(self) -> None:
        self._tells_later = False
        try:
            self.tell_some()
        except Exception as error:
            self._fail(error)
        self._told()
        # Publishers may have been held back by what has been told now.
        self._wake()

    def _tell(self, step: CommitStep) -> bool:
        """Whether that is done: what was published with extras is shown in steps, and confirmed with the last one."""
        shown = self._show(step)
        if isinstance(shown, Incomplete):
            self._submit(shown)
            return False
        self._answer(step)
        if shown is not NOTHING_FOLLOWS:
            self._submit(shown)
        return True

    def _show(self, step: CommitStep) -> Outcome:
        """What follows when the engine shows what the step has added."""
        ticket = step.outcome.ticket
        return self._engine.committed(ticket, self._clock.now()) if ticket else NOTHING_FOLLOWS

    def _answer(self, step: CommitStep) -> None:
        self.backlog_bytes -= step.size
        if step.large:
            for row in step.large:
                # A provider that keeps rows in memory counts them by itself. What was written ahead, and is no record,
                # as of a transient queue, is of no use any more.
                row.memory = row.prepared = None
        if step.holds:
            self._metrics.publish_ack_seconds.observe(self._loop.time() - step.begun)
            self._effect_router.release(step.holds)

    def _answers_are_written(self) -> None:
        try:
            self._show_answered()
        except Exception as error:
            self._fail(error)
        self._told()

    def _show_answered(self) -> None:
        steps, self._answered = self._answered, []
        for step in steps:
            if not self._ended and (shown := self._show(step)) is not NOTHING_FOLLOWS:
                self._submit(shown)
