"""Group commit: writes outcomes to storage and releases their effects when the required durability holds.

Everything that all connections decide in one turn of the event loop becomes one append. Then:

    effects         told at once
    after_append    told when the append has returned
    gated           of a WEAK outcome: told when the append has returned
                    of a STRONG one: told when a flush that started after the append has returned

As many flushes are under way as the provider says (`in_flight_max`), each in a thread of its own; a local one says 1.
While they run the next group gathers, so a flush is shared by everyone who came meanwhile and nothing needs tuning.
What came alone is flushed on the loop, as long as that is quick (`flush_place.py`): told in the turn that read it.
Each covers all appends before it, so what it covers is told in order, whichever of several ends first. Weak data is
flushed by a timer that is armed only while some is unsynced.

An outcome without records may wait, too: for those of the outcomes before it, of which its answers speak.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from vibemq.errors import StorageFull
from vibemq.model.effects import Deliver, Outcome, Reply
from vibemq.model.options import Durability
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow
from vibemq.server.clock import Clock
from vibemq.server.commit.commit_step import CommitStep, Flush, append_apart, append_steps, is_light, large_rows
from vibemq.server.commit.flush_place import FlushPlace, is_small_flush
from vibemq.server.commit.message_taps import MessageTaps
from vibemq.server.commit.release_order import EffectRouter, Hold
from vibemq.server.commit.storage_threads import Store
from vibemq.server.commit.teller import Teller
from vibemq.server.contracts import QueueEngine
from vibemq.server.monitoring.metrics import Metrics

log = logging.getLogger("vibemq.committer")

LIGHT_WAIT_S = 0.002
"""How long hand-outs and settlements wait for an append that others need, before they are appended by themselves."""
LIGHT_MAX = 16
"""Outcomes that wait so at the same time: an append is as long as what has gathered for it."""
WAITING_MAX = 3
"""Those who may wait for the end of a flush with what they publish, since all of them come in one turn of the loop."""


class Committer:
    """Drives outcomes of the engine through storage. Lives on the event loop; `wake` asks for a `run_cycle` soon."""

    def __init__(
        self,
        *,
        store: Store,
        engine: QueueEngine,
        effect_router: EffectRouter,
        clock: Clock,
        metrics: Metrics,
        weak_flush_ms: int,
        wake: Callable[[], None],
        fatal: Callable[[BaseException], None],
        behind: Callable[[Callable[[], None]], None] | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """
        Args:
            behind: has something done in this turn of the loop, once the answers that were told are written. Left out,
                consumers are given messages before their publisher is answered.
            monotonic: seconds; left out, those of the loop.
        """
        self._store = store
        self._unwritten = store.unwritten
        self._engine = engine
        self._effect_router = effect_router
        self._clock = clock
        self._metrics = metrics
        self._weak_flush_s = weak_flush_ms / 1000
        self._wake = wake
        self._fatal = fatal
        self._loop = asyncio.get_running_loop()
        self._gathered: list[CommitStep] = []
        self._append = append_steps
        """`append_apart` since the first large message."""
        self._awaiting_flush: list[CommitStep] = []
        self._teller = Teller(
            engine=engine,
            effect_router=effect_router,
            clock=clock,
            metrics=metrics,
            monotonic=monotonic or self._loop.time,
            submit=self.submit,
            fail=self.fail,
            told=self._note_idle,
            wake=wake,
            behind=behind,
        )
        self._appending = False
        self._flushing = 0
        self._flushes: deque[Flush] = deque()
        """Under way, in order, as far as none after them has ended."""
        self._flush_again = False
        self._flush_place = FlushPlace()
        self._hurries = False
        """Something has gathered that must not wait: whatever is not light."""
        self._light_timer: asyncio.TimerHandle | None = None
        self.generation = 0
        """How many appends have begun. What was decided in an earlier generation is appended, or being appended."""
        self._unflushed_bytes = 0
        """Of rows appended since the last flush began."""
        self._after_flush: dict[Callable[[], None], None] = {}
        self._gathering = False
        """The next flush waits for what those publish who have waited for the last one."""
        self._dead = False
        self._disk_full = False
        self._appends = 0
        self._flushed_appends = 0
        self._weak_appends = 0
        self._weak_timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.taps = MessageTaps()

    @property
    def backlog_bytes(self) -> int:
        """Rows of outcomes that have not been told yet; publishers pause when it grows."""
        return self._teller.backlog_bytes

    @property
    def dead(self) -> bool:
        """A write failed with an unknown outcome: nobody is told anything any more."""
        return self._dead

    def submit(self, outcome: Outcome, *, again: bool = False) -> None:
        """Take one outcome: tell what may be told, keep what must be kept. `again`: its records were here before."""
        if self._dead:
            return
        size = 0
        records = outcome.records
        if records:
            size = self._unwritten.gather(records)
            if self.taps and not again:
                self.taps.show(records)
        deliveries = self._take_deliveries(outcome) if outcome.effects else []
        held = self._effect_router.accept(outcome)
        if not (records or held.gated or held.after_append or outcome.ticket or deliveries):
            return
        large: Sequence[LargeRow] = ()
        if size > LARGE_ROW_BYTES and (large := large_rows(outcome)):
            self._append = append_apart
            # They have a memory of their own, and others are read from while they wait for it.
            size -= sum(row.size for row in large)
        self._teller.backlog_bytes += size
        waiting = self._effect_router.hold(deliveries) if deliveries else ()
        if held.gated or held.after_append or waiting or len(self._gathered) >= LIGHT_MAX or not is_light(records):
            self._hurries = True
        self._gathered.append(
            CommitStep(outcome, held.gated, held.after_append, waiting, size, self._loop.time(), large)
        )
        self._idle.clear()
        self._wake()

    def _take_deliveries(self, outcome: Outcome) -> list[Deliver]:
        """Take out the hand-outs that name rows which this outcome or one before it is still to append: until then a
        read finds nothing. Where appends are made aside, all those of an outcome that has records."""
        if not self._unwritten.rows and not (self._store.blocking and outcome.records):
            return []
        if self._store.blocking and outcome.records:
            deliveries = [effect for effect in outcome.effects if isinstance(effect, Deliver)]
        else:
            names = self._unwritten.names
            deliveries = [
                effect
                for effect in outcome.effects
                if isinstance(effect, Deliver) and names(effect.queue_id, effect.runs)
            ]
        if deliveries:
            taken = set(map(id, deliveries))
            outcome.effects = [effect for effect in outcome.effects if id(effect) not in taken]
        return deliveries

    def run_cycle(self) -> None:
        """Append what has gathered. Called once per loop turn.

        What is light waits for what is not, for `LIGHT_WAIT_S` at most: an append for each hand-out and each settlement
        would cost a message that comes alone more than its own. See docs/adr/0024-one-turn-from-publish-to-confirm.md.
        """
        if self._dead or self._appending or not self._gathered:
            return
        if not self._hurries:
            if self._light_timer is None:
                self._light_timer = self._loop.call_later(LIGHT_WAIT_S, self._light_is_due)
            return
        self._hurries = False
        self.generation += 1
        steps, self._gathered = self._gathered, []
        self._unwritten.begin()
        provider = self._store.provider
        if self._store.blocking and any(step.outcome.records for step in steps):
            self._appending = True
            self._store.begin_append(lambda: self._append(provider, steps)).add_done_callback(
                lambda done: self._appended_aside(steps, done)
            )
            return
        try:
            self._appended(steps, *self._append(provider, steps))
        except Exception as error:
            self.fail(error)

    def _light_is_due(self) -> None:
        self._light_timer = None
        self.append_now()

    def append_now(self) -> None:
        """Append what has gathered, however light it is: somebody is about to hear that it was decided."""
        if self._gathered:
            self._hurries = True
            self.run_cycle()

    def after_flush(self, wake: Callable[[], None]) -> bool:
        """Have somebody woken when the flush that is under way has ended, by a `call_soon`; the next one begins behind
        what is published then. False: none keeps others waiting, or enough wait."""
        waiting = self._after_flush
        if wake in waiting:
            return True
        if self._dead or self._flushing < self._store.provider.in_flight_max or len(waiting) >= WAITING_MAX:
            return False
        waiting[wake] = None
        return True

    async def settled(self) -> None:
        """Return when everything submitted so far, and what followed from it, has been told."""
        await self._idle.wait()

    async def finish(self) -> None:
        """Settle, then flush once more: the last words of a graceful end."""
        await self.settled()
        if self._weak_timer is not None:
            self._weak_timer.cancel()
            self._weak_timer = None
        if not self._dead and self._flushed_appends < self._appends:
            await self._store.sync()

    def _appended_aside(self, steps: list[CommitStep], done: "asyncio.Future[tuple[int, StorageFull | None]]") -> None:
        self._appending = False
        if done.cancelled():
            return
        try:
            self._appended(steps, *done.result())
        except Exception as error:
            self.fail(error)
        self._wake()

    def _appended(self, steps: list[CommitStep], written: int, full: StorageFull | None) -> None:
        told = steps if written == len(steps) else steps[:written]
        size = sum([step.size for step in told])
        self._unflushed_bytes += size
        if any(step.large for step in told):
            # Written ahead or not: nothing small.
            self._unflushed_bytes += LARGE_ROW_BYTES
        for step in told:
            if step.outcome.records:
                self._appends += 1
                self._metrics.appends += 1
                break
        if self._disk_full and size:
            self._disk_full = False
            log.warning("the store has room for messages again")
        if full is not None:
            self._refuse(steps[written:], full)
        else:
            self._unwritten.end()
        for step in told:
            if step.deliveries:
                self._effect_router.release(step.deliveries)
        for step in told:
            self._line_up(step)
        self._teller.tell_some()
        self._flush_if_asked()
        self._note_idle()

    def _line_up(self, step: CommitStep) -> None:
        """It is appended: it is told, or waits for a flush."""
        step.position = self._appends
        if step.after_append:
            self._effect_router.release(step.after_append)
        outcome = step.outcome
        if outcome.records and outcome.durability >= Durability.WEAK:
            self._expect_weak_flush()
        waits = bool(step.holds) or outcome.ticket != 0
        if outcome.durability is Durability.STRONG and waits and step.position > self._flushed_appends:
            self._awaiting_flush.append(step)
        else:
            self._teller.add((step,))

    def _refuse(self, steps: list[CommitStep], error: StorageFull) -> None:
        """Fail the steps, and all that the engine has decided since: their records may build on the missing ones.

        This comes before any `committed` of the same batch, so that nothing more is decided in between. What the engine
        has promised of them it gives back, and that is the next to be appended; hand-outs of it, and reads, wait on.
        """
        steps += self._gathered
        self._gathered = []
        waits = self._unwritten.refuse()
        self._metrics.storage_full += 1
        if not self._disk_full:
            # Once, not for every publish: the log may well be on the same disk.
            self._disk_full = True
            log.warning("the store is full, messages are refused until it has room: %s", error)
        answers: list[Outcome] = []
        deliveries: list[Hold] = []
        for step in steps:
            deliveries += step.deliveries
            self._teller.backlog_bytes -= step.size
            if not step.outcome.ticket:
                # It keeps nothing, but speaks of what came before it.
                self._answer(step.after_append, error)
                self._answer(step.holds, error)
            else:
                self._effect_router.drop(step.after_append)
                self._effect_router.drop(step.holds)
                answers.append(self._engine.failed(step.outcome.ticket, self._clock.now(), error))
        for answer in answers:
            self.submit(answer, again=True)
        if self._gathered:
            self._gathered[-1].deliveries = deliveries
        else:
            self._effect_router.release(deliveries)
        self._unwritten.go_on_waiting(waits)

    def _answer(self, holds: Sequence[Hold], error: StorageFull) -> None:
        for hold in holds:
            hold.effects = [
                Reply(effect.session, effect.token, error) if isinstance(effect, Reply) else effect
                for effect in hold.effects
            ]
        self._effect_router.release(holds)

    def set_weak_flush_ms(self, weak_flush_ms: int) -> None:
        """Counts for what waits already, too."""
        self._weak_flush_s = weak_flush_ms / 1000
        if self._weak_timer is not None:
            due = min(self._weak_timer.when(), self._loop.time() + self._weak_flush_s)
            self._weak_timer.cancel()
            self._weak_timer = self._loop.call_at(due, self._weak_flush_due)

    def _expect_weak_flush(self) -> None:
        self._weak_appends = self._appends
        if self._weak_timer is None:
            self._weak_timer = self._loop.call_later(self._weak_flush_s, self._weak_flush_due)

    def _weak_flush_due(self) -> None:
        self._weak_timer = None
        if self._weak_appends > self._flushed_appends:
            self._flush()

    def _flush_if_asked(self) -> None:
        if self._awaiting_flush or self._flush_again:
            self._flush()

    def _flush(self) -> None:
        if self._dead:
            return
        if self._gathering or self._flushing >= self._store.provider.in_flight_max:
            self._flush_again = True
            return
        self._flush_again = False
        steps, self._awaiting_flush = self._awaiting_flush, []
        is_small = is_small_flush(len(steps), self._unflushed_bytes)
        self._unflushed_bytes = 0
        flush = Flush(self._appends, steps, self._loop.time(), is_small)
        self._flushes.append(flush)
        if is_small and not self._flushing and self._flush_place.is_loop:
            try:
                if self._flush_at_once(flush):
                    return
            except Exception as error:
                self.fail(error)
                return
        self._flushing += 1
        self._store.begin_sync(lambda error, took_s: self._flushed(flush, error, took_s))

    def _flush_at_once(self, flush: Flush) -> bool:
        """On the loop, and tell what it covers. False, and nothing is done: it is for a thread."""
        took_s = self._store.sync_at_once()
        if took_s is None:
            return False
        self._flush_place.note(took_s, on_loop=True)
        self._metrics.fsync_seconds.observe(took_s)
        if len(self._flushes) == 1 and self._teller.answer_first(flush.steps):
            self._flushes.pop()
            self._flushed_appends = flush.covers
        else:
            self._covered(flush)
        return True

    def _flushed(self, flush: Flush, error: BaseException | None, took_s: float) -> None:
        self._flushing -= 1
        try:
            if error is not None:
                raise error
            if flush.is_small:
                self._flush_place.note(took_s, on_loop=False)
            self._metrics.fsync_seconds.observe(self._loop.time() - flush.begun)
            self._covered(flush)
        except Exception as failure:
            self.fail(failure)
        if self._after_flush and not self._dead:
            self._gathering = True
            waiting, self._after_flush = self._after_flush, {}
            for wake in waiting:
                wake()
            self._loop.call_soon(self._gathered_behind)
        else:
            self._flush_if_asked()
        self._note_idle()
        self._wake()

    def _gathered_behind(self) -> None:
        """Those who have waited for a flush have published."""
        self._gathering = False
        self.run_cycle()
        self._flush_if_asked()
        self._note_idle()

    def _covered(self, flush: Flush) -> None:
        """Tell what the flush covers: its own steps, and those of flushes that began before it and have not ended."""
        covers = flush.covers
        if covers > self._flushed_appends:
            self._flushed_appends = covers
        while self._flushes and self._flushes[0].covers <= covers and not self._dead:
            self._teller.add(self._flushes.popleft().steps)
        self._teller.tell_some()

    def _note_idle(self) -> None:
        if self._gathering or self._flushing:
            return
        if not (self._gathered or self._awaiting_flush or self._appending or self._teller.busy):
            self._idle.set()

    def fail(self, error: BaseException) -> None:
        """Stop: what is on disk and what is known here may differ. Nobody is told anything any more."""
        if self._dead:
            return
        self._dead = True
        self._unwritten.drop()
        self._gathered.clear()
        self._hurries = False
        self._awaiting_flush.clear()
        self._teller.end()
        self._flushes.clear()
        self._idle.set()
        self._fatal(error)
