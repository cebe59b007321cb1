"""Group commit: writes outcomes to storage and releases their effects when the required durability holds.

Everything that all connections decide in one turn of the event loop becomes one append. Then:

    effects         told at once
    after_append    told when the append has returned
    gated           of a WEAK outcome: told when the append has returned
                    of a STRONG one: told when a flush that started after the append has returned

An outcome without records may wait, too: for those of the outcomes before it, of which its answers speak.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from vibemq.errors import StorageFull
from vibemq.model.effects import Deliver, Outcome
from vibemq.model.options import Durability
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow
from vibemq.server.clock import Clock
from vibemq.server.commit.commit_step import CommitStep, append_apart, append_steps, is_light, large_rows
from vibemq.server.commit.flushes import Flushes
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
        self._wake = wake
        self._fatal = fatal
        self._loop = asyncio.get_running_loop()
        self._gathered: list[CommitStep] = []
        self._append = append_steps
        """`append_apart` since the first large message."""
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
        self._flushes = Flushes(
            store=store,
            teller=self._teller,
            metrics=metrics,
            weak_flush_ms=weak_flush_ms,
            append=self.run_cycle,
            changed=self._note_idle,
            wake=wake,
            fail=self.fail,
        )
        self.after_flush = self._flushes.after_flush
        self.set_weak_flush_ms = self._flushes.set_weak_flush_ms
        self._appending = False
        self._hurries = False
        """Something has gathered that must not wait: whatever is not light."""
        self._light_timer: asyncio.TimerHandle | None = None
        self.generation = 0
        """How many appends have begun. What was decided in an earlier generation is appended, or being appended."""
        self._dead = False
        self._disk_full = False
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

    def submit(self, outcome: Outcome, *, holds: Sequence[Hold] = ()) -> None:
        """Take one outcome: tell what may be told, keep what must be kept.

        Args:
            holds: what waits for it already.
        """
        if self._dead:
            return
        size = 0
        records = outcome.records
        if records:
            size = self._unwritten.gather(records)
        deliveries = self._take_deliveries(outcome) if outcome.effects else []
        held = self._effect_router.accept(outcome)
        gated = [*holds, *held.gated] if holds else held.gated
        if not (records or gated or held.after_append or outcome.ticket or deliveries):
            return
        large: Sequence[LargeRow] = ()
        if size > LARGE_ROW_BYTES and (large := large_rows(outcome)):
            self._append = append_apart
            # They have a memory of their own, and others are read from while they wait for it.
            size -= sum(row.size for row in large)
        self._teller.backlog_bytes += size
        waiting = self._effect_router.hold(deliveries) if deliveries else ()
        if not self._hurries:
            waits = gated or held.after_append or waiting
            self._hurries = bool(waits) or len(self._gathered) >= LIGHT_MAX or not is_light(records)
        self._gathered.append(CommitStep(outcome, gated, held.after_append, waiting, size, self._loop.time(), large))
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

    async def settled(self) -> None:
        """Return when everything submitted so far, and what followed from it, has been told."""
        await self._idle.wait()

    async def finish(self) -> None:
        """Settle, then flush once more: the last words of a graceful end."""
        await self.settled()
        await self._flushes.finish()

    def _appended_aside(self, steps: list[CommitStep], done: "asyncio.Future[tuple[int, StorageFull | None]]") -> None:
        self._appending = False
        if done.cancelled():
            return
        try:
            written, full = done.result()
            if self._dead:
                # Something else has failed meanwhile.
                return
            self._appended(steps, written, full)
        except Exception as error:
            self.fail(error)
        self._wake()

    def _appended(self, steps: list[CommitStep], written: int, full: StorageFull | None) -> None:
        told = steps if written == len(steps) else steps[:written]
        size = sum([step.size for step in told])
        flushes = self._flushes
        for step in told:
            if step.outcome.records:
                flushes.note_append(size)
                self._metrics.appends += 1
                break
        # What is kept in memory alone says nothing of the disk.
        if self._disk_full and any(step.size and step.outcome.durability > Durability.TRANSIENT for step in told):
            self._disk_full = False
            log.warning("the store has room for messages again")
        if full is not None:
            self._refuse(steps[written:], full)
        self._unwritten.end()
        if self.taps:
            for step in told:
                self.taps.show(step.outcome.records)
        for step in told:
            if step.deliveries:
                self._effect_router.release(step.deliveries)
        for step in told:
            if step.after_append:
                self._effect_router.release(step.after_append)
            if step.large:
                flushes.note_large(sum(row.size for row in step.large))
            flushes.line_up(step)
        self._teller.tell_some()
        flushes.begin_if_asked()
        self._note_idle()

    def _refuse(self, steps: list[CommitStep], error: StorageFull) -> None:
        """Fail the steps, and all that the engine has decided since: their records may build on the missing ones.

        This comes before any `committed` of the same batch, so that nothing more is decided in between. What the engine
        has promised of them it gives back, and that is the next to be appended; hand-outs of it, and reads, wait on.
        Answers that stand wait for what is owed, which is appended behind it; nobody else's answer overtakes them.
        """
        steps += self._gathered
        self._gathered = []
        self._unwritten.refuse()
        self._metrics.storage_full += sum(bool(step.outcome.records) for step in steps)
        if not self._disk_full:
            # Once, not for every publish: the log may well be on the same disk.
            self._disk_full = True
            log.warning("the store is full, messages are refused until it has room: %s", error)
        answers: list[Outcome] = []
        deliveries: list[Hold] = []
        holds: list[Hold] = []
        for step in steps:
            deliveries += step.deliveries
            self._teller.backlog_bytes -= step.size
            waiting = [*step.after_append, *step.holds]
            if step.outcome.ticket:
                answers.append(self._engine.failed(step.outcome.ticket, self._clock.now(), error))
                if step.pays:
                    # They are refused now, and what is owed may be kept by the next step.
                    self._effect_router.release(waiting)
                    waiting = []
            else:
                # It keeps nothing, but speaks of what came before it.
                for hold in waiting:
                    self._engine.failed_answers(hold.effects, error)
            holds += waiting
        for answer in answers:
            self.submit(answer)
        paying = self._engine.pay(self._clock.now())
        if paying is None:
            self._effect_router.release(holds)
        else:
            self.submit(paying, holds=holds)
        if self._gathered:
            self._gathered[-1].deliveries = deliveries
        else:
            self._effect_router.release(deliveries)

    def _note_idle(self) -> None:
        if not (self._gathered or self._appending or self._flushes.busy or self._teller.busy):
            self._idle.set()

    def fail(self, error: BaseException) -> None:
        """Stop: what is on disk and what is known here may differ. Nobody is told anything any more."""
        if self._dead:
            log.error("behind the failure that stops the broker comes another one: %s", error)
            return
        self._dead = True
        self._unwritten.refuse()
        self._unwritten.end()
        self._gathered.clear()
        self._hurries = False
        self._teller.end()
        self._flushes.end()
        self._idle.set()
        self._fatal(error)
