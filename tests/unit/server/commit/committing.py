"""A committer to look at: the loop is real, the disk is scripted."""

from collections.abc import Sequence
from typing import Any

import anyio

from tests.unit.server.fakes import FakeEngine, FakeStorage
from vibemq.errors import VibeMQError
from vibemq.model.effects import Effect, Outcome, Published, Reply
from vibemq.model.options import Durability
from vibemq.model.records import MessagesAdded, Record
from vibemq.model.rows import Rows
from vibemq.server.clock import Clock
from vibemq.server.commit.committer import Committer
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.commit.storage_threads import Store
from vibemq.server.monitoring.metrics import Metrics


class Bench:
    """A committer with everything around it in reach."""

    def __init__(self, storage: FakeStorage, *, weak_flush_ms: int = 60_000) -> None:
        self.storage = storage
        self.engine = FakeEngine()
        self.told: list[Any] = []
        self.failures: list[BaseException] = []
        self.store = Store(storage)
        self.metrics = Metrics()
        effect_router = self.effect_router = EffectRouter()
        effect_router.connect(1, self._hear)
        loop_cycle = self.loop_cycle = LoopCycle()
        self.committer = Committer(
            store=self.store,
            engine=self.engine,
            effect_router=effect_router,
            clock=Clock(),
            metrics=self.metrics,
            weak_flush_ms=weak_flush_ms,
            wake=loop_cycle.wake,
            behind=loop_cycle.behind,
            fatal=self.failures.append,
        )
        loop_cycle.before.append(self.committer.run_cycle)

    def _hear(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                refused = isinstance(effect.result, VibeMQError)
                self.told.append(f"refused {effect.token}" if refused else effect.token)
            else:
                self.told.append((type(effect).__name__, len(self.storage.appends)))

    def submit(self, token: str, durability: Durability, *, count: int = 1, ticket: int = 0) -> None:
        self.engine.waiting[ticket] = [Reply(1, token, None)]
        self.committer.submit(
            Outcome(records=[added(count)], gated=self.engine.waiting[ticket], durability=durability, ticket=ticket)
        )

    def submit_confirmed_at_once(self, token: str, durability: Durability, *, count: int = 1, ticket: int = 0) -> None:
        """A publish whose confirm waits for no flush."""
        replies: list[Effect] = [Reply(1, token, Published("q", 1, count))]
        outcome = Outcome([added(count)], durability=durability, ticket=ticket)
        if durability is Durability.TRANSIENT:
            outcome.effects = replies
        else:
            outcome.after_append = self.engine.waiting[ticket] = replies
        self.committer.submit(outcome)

    async def settled(self) -> list[Any]:
        with anyio.fail_after(60):
            await self.committer.settled()
        return self.told


def added(count: int = 1) -> Record:
    return MessagesAdded(1, 1, 1000, Rows.of([b"\0\1x\0\0\0\0\0\0"] * count))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await anyio.sleep(0)
