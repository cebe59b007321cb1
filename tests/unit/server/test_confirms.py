"""Whatever is confirmed has been appended: every command, every provider, and the broker's own session."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.simulation.engine_driver import rows_of
from vibemq import plugins
from vibemq.engine import Engine, EngineSettings
from vibemq.engine.command_handlers import HANDLERS
from vibemq.engine.stage_names import plain_stage
from vibemq.errors import VibeMQError
from vibemq.model import commands as ask
from vibemq.model.commands import Command, Settlement, StartAt
from vibemq.model.effects import CursorInfo, Effect, Outcome, Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.jobs.job import JobKind, JobPlan, JobStep
from vibemq.model.options import DeliveryMode, Durability, QueueOptions
from vibemq.model.records import Record, UserRemoved, tag_of
from vibemq.model.selector import Selector
from vibemq.server.clock import Clock
from vibemq.server.commit.committer import Committer
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.commit.storage_threads import Store
from vibemq.server.local_session import INNER_SESSION, LocalSession
from vibemq.server.monitoring.metrics import Metrics

pytestmark = pytest.mark.anyio
SESSION = 1
TOLD_AT_ONCE = {ask.DescribeQueue, ask.ListQueues, ask.Extend, ask.SetCapacity, ask.SetShare, ask.Respond, ask.GiveUp}
"""They say how things are, or change what no restart keeps."""
NEVER_ANSWERED = {ask.EndConsumers, ask.SetFlow, ask.CloseSession, ask.SetPressure, ask.Classified, ask.ForgetJobs}
STAGE = "~stage/1/s/app"


class World:
    """An engine, a committer and a real store; knows of every reply whether what it follows from was appended."""

    def __init__(self, name: str, data_dir: Path) -> None:
        plugin = plugins.find("storage", name)
        self.provider = plugin.create(data_dir, plugin.settings())
        self.store = Store(self.provider)
        # What these tests ask of the memory store is the order of things, not that it keeps them.
        self.engine = Engine(EngineSettings(), jitter=lambda: 0.0, new_id=lambda: f"{next(self._ids):032x}")
        self._ids = count(1)
        self._tokens = count(1)
        self._asked: dict[int, tuple[int, type]] = {}
        """How many records had left for storage with the step that answers this token."""
        self.submitted = 0
        self.appended = 0
        self.answers: dict[int, Any] = {}
        self.too_early: list[str] = []
        self.failures: list[BaseException] = []
        self._watch_appends()

    def _watch_appends(self) -> None:
        append = self.provider.append

        def watched(records: Sequence[Record]) -> int:
            lsn = append(records)
            self.appended += len(records)
            return lsn

        self.provider.append = watched

    async def start(self) -> None:
        state = await self.store.begin(self.provider.open)
        loop_cycle, effect_router = LoopCycle(), EffectRouter()
        self.committer = Committer(
            store=self.store,
            engine=self.engine,
            effect_router=effect_router,
            clock=Clock(),
            metrics=Metrics(),
            weak_flush_ms=60_000,
            wake=loop_cycle.wake,
            behind=loop_cycle.behind,
            fatal=self.failures.append,
        )
        loop_cycle.before.append(self.committer.run_cycle)
        effect_router.connect(SESSION, self._hear)
        self.local_session = LocalSession(self.decide, lambda gone: None, lambda asked: None)
        effect_router.connect(INNER_SESSION, self.local_session.take)
        self.submit(self.engine.restore(state, 1_000))

    def _hear(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self.answers[effect.token] = effect.result
                needed, kind = self._asked[effect.token]
                says = kind not in TOLD_AT_ONCE and not isinstance(effect.result, VibeMQError)
                if says and self.appended < needed:
                    self.too_early.append(f"{effect.token}: {effect.result!r}")

    def decide(self, commands: Sequence[Command]) -> None:
        outcome = self.engine.handle(commands, 1_000)
        for command in commands:
            token = getattr(command, "token", None)
            if token is not None:
                self._asked[token] = (self.submitted + len(outcome.records), type(command))
        self.submit(outcome)

    def submit(self, outcome: Outcome) -> None:
        self.submitted += len(outcome.records)
        self.committer.submit(outcome)

    def send(self, command: Any) -> int:
        command.token = next(self._tokens)
        self.decide([command])
        return int(command.token)

    async def done(self, command: Any) -> Any:
        token = self.send(command)
        with anyio.fail_after(60):
            while token not in self.answers:
                await self.committer.settled()
                await asyncio.sleep(0)
        assert not isinstance(self.answers[token], VibeMQError), (command, self.answers[token])
        return self.answers[token]


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    world = World(request.param, data_dir)
    await world.start()
    yield world
    await world.store.close()
    assert world.failures == []


async def furnish(world: World) -> int:
    """Something for every command to work on; the cursor's epoch."""
    kept = QueueOptions(durability=Durability.ASYNC)
    await world.done(ask.CreateQueue(SESSION, None, "q", kept))
    await world.done(ask.CreateQueue(SESSION, None, "log", kept.with_changes(mode=DeliveryMode.FAN_OUT_WITH_ACK)))
    joined: CursorInfo = await world.done(ask.JoinCursor(SESSION, None, "log", "reader"))
    await world.done(ask.PlanBatch(SESSION, None, "log", "reader", joined.epoch, "planned", "end"))
    await world.done(ask.SeekGroup(SESSION, None, "log", "other", StartAt.BEGINNING))
    await world.done(ask.Subscribe(SESSION, None, 1, "q", capacity_messages=5))
    await world.done(ask.Publish(SESSION, None, "q", rows_of(10)))
    await world.done(ask.Publish(SESSION, None, "log", rows_of(10)))
    await world.done(ask.Settle(SESSION, None, 1, Settlement.REJECT, [(1, 1)], reason="bad"))
    await world.done(ask.Stage(SESSION, None, "q", "app", 1, "s", 0, rows_of(1), {0: MessageExtra(2)}))
    await world.done(ask.Stage(SESSION, None, "q", "app", 1, "loser", 0, rows_of(1), {0: MessageExtra(2)}))
    await world.done(ask.Stage(SESSION, None, "q", "done", 1, "s", 0, rows_of(1), {0: MessageExtra(2)}))
    await world.done(ask.Stage(SESSION, None, "q", "app", 1, "plain", 0, rows_of(1)))
    await world.done(ask.DecideTransaction(SESSION, None, "done", 1, ["s"]))
    await world.done(ask.MoveStaged(SESSION, None, "~stage/1/s/done", 1, "q", rows_of(1)))
    await world.done(ask.DropStages(SESSION, None, ["~stage/1/s/done"]))
    await world.done(ask.StartJob(SESSION, None, JobPlan(kind=JobKind.REPLAY, filter={}, last_id=1)))
    await world.done(ask.Subscribe(SESSION, None, 2, "log"))
    await world.done(
        ask.Publish(SESSION, None, "asked", rows_of(1), requester=ask.Requester("a" * 32, "request", 60_000))
    )
    return joined.epoch


Make = Callable[[int], Command]
COMMANDS: dict[str, Make] = {
    "publish": lambda _: ask.Publish(SESSION, None, "q", rows_of(3)),
    "publish with a dedup id": lambda _: ask.Publish(
        SESSION, None, "q", rows_of(1), {0: MessageExtra(dedup_id=b"once")}
    ),
    "publish to a new queue": lambda _: ask.Publish(SESSION, None, "new", rows_of(3)),
    "subscribe": lambda _: ask.Subscribe(SESSION, None, 7, "q"),
    "subscribe to a new queue": lambda _: ask.Subscribe(SESSION, None, 8, "newer"),
    "unsubscribe": lambda _: ask.Unsubscribe(SESSION, None, 2),
    "ack": lambda _: ask.Settle(SESSION, None, 1, Settlement.ACK, [(2, 3)]),
    "retry": lambda _: ask.Settle(SESSION, None, 1, Settlement.RETRY, [(2, 3)]),
    "release": lambda _: ask.Settle(SESSION, None, 1, Settlement.RELEASE, [(2, 3)]),
    "reject": lambda _: ask.Settle(SESSION, None, 1, Settlement.REJECT, [(2, 3)]),
    "create": lambda _: ask.CreateQueue(SESSION, None, "new"),
    "change": lambda _: ask.ChangeQueue(SESSION, None, "q", {"max_messages": 100}),
    "delete": lambda _: ask.DeleteQueue(SESSION, None, "q"),
    "purge": lambda _: ask.PurgeQueue(SESSION, None, "q"),
    "remove": lambda _: ask.RemoveMessages(SESSION, None, "q", [(8, 9)]),
    "remove listed": lambda _: ask.RemoveListed(SESSION, None, "q", [8, 9]),
    "drop group": lambda _: ask.DeleteGroup(SESSION, None, "log", "other"),
    "seek": lambda _: ask.SeekGroup(SESSION, None, "log", "other", StartAt.NOW),
    "filter": lambda _: ask.FilterGroup(SESSION, None, "log", "other", Selector.parse("n > 3")),
    "join": lambda _: ask.JoinCursor(SESSION, None, "log", "reader"),
    "commit": lambda epoch: ask.CommitCursor(SESSION, None, "log", "reader", epoch, 5),
    "plan": lambda epoch: ask.PlanBatch(SESSION, None, "log", "reader", epoch, tag_of("end"), "later"),
    "enter": lambda epoch: ask.EnterBatch(SESSION, None, "log", "reader", epoch, "planned", tag_of("end"), "query", 0),
    "reject at": lambda _: ask.RejectAt(SESSION, None, "log", "reader", [(2, "bad")]),
    "quarantine": lambda _: ask.Quarantine(SESSION, None, "log", "reader", [(2, 3)]),
    "stage": lambda _: ask.Stage(SESSION, None, "q", "app", 1, "s", 1, rows_of(1)),
    "decide": lambda _: ask.DecideTransaction(SESSION, None, "app", 1, ["s"]),
    "move": lambda _: ask.MoveStaged(SESSION, None, STAGE, 1, "q", rows_of(2)),
    "move whole": lambda _: ask.MoveStage(SESSION, None, plain_stage("~stage/1/plain/app", "q"), "q"),
    "drop stages": lambda _: ask.DropStages(SESSION, None, ["~stage/1/loser/app"]),
    "forget": lambda _: ask.ForgetApplication(SESSION, None, "done"),
    "change accounts": lambda _: ask.ChangeAccounts(SESSION, None, [UserRemoved("ann")]),
    "move to another queue": lambda _: ask.MoveMessages(
        SESSION, None, "q", f"{1:032x}", "log", [8, 9], [1, 1], rows_of(2)
    ),
    "import": lambda _: ask.ImportMessages(SESSION, None, "q", "file", 0, rows_of(2)),
    "replay": lambda _: ask.ReplayDead(SESSION, None, "q", [1], rows_of(1)),
    "purge dead": lambda _: ask.PurgeDead(SESSION, None, [1]),
    "replay for a job": lambda _: ask.ReplayDead(SESSION, None, "q", [1], rows_of(1), step=JobStep(1, 1, 1)),
    "purge dead for a job": lambda _: ask.PurgeDead(SESSION, None, [1], step=JobStep(1, 1, 1)),
    "start a job": lambda _: ask.StartJob(SESSION, None, JobPlan(kind=JobKind.PURGE_DEAD, filter={}, last_id=1)),
    "change a job": lambda _: ask.ChangeJob(SESSION, None, 1, rate=5.0),
    "advance a job": lambda _: ask.AdvanceJob(SESSION, None, JobStep(1, 1, 1)),
    "forget what a job has made": lambda _: ask.ForgetMade(SESSION, None, 1, []),
    "describe": lambda _: ask.DescribeQueue(SESSION, None, "q"),
    "list": lambda _: ask.ListQueues(SESSION, None),
    "extend": lambda _: ask.Extend(SESSION, None, 1, [(2, 3)]),
    "capacity": lambda _: ask.SetCapacity(SESSION, None, 1, 50),
    "give up": lambda _: ask.GiveUp(SESSION, None, "a" * 32),
    "reply": lambda _: ask.Respond(SESSION, None, "a" * 32, rows_of(1)),
    "shared capacity": lambda _: ask.SetShare(SESSION, None, "share", 50),
}


def test_every_command_is_here() -> None:
    here = {type(make(1)) for make in COMMANDS.values()}
    assert here | NEVER_ANSWERED == set(HANDLERS)


# A store in memory is asked by every command, and each of the others by every second one.
@pytest.mark.long_where(world="sqlite", name=list(COMMANDS)[::2])
@pytest.mark.long_where(world="lmdb", name=list(COMMANDS)[1::2])
@pytest.mark.parametrize("name", COMMANDS)
async def test_no_answer_comes_before_the_append(world: World, name: str) -> None:
    make = COMMANDS[name]
    epoch = await furnish(world)
    kind = type(make(epoch))
    before = world.submitted
    first = world.send(make(epoch))
    # The same once more, in the same turn of the loop: its answer may speak of what the first one did.
    second = world.send(make(epoch))
    if kind not in TOLD_AT_ONCE:
        assert world.submitted > before, "it changes nothing"
        assert first not in world.answers
    with anyio.fail_after(60):
        await world.committer.settled()
    assert not isinstance(world.answers[first], VibeMQError), world.answers[first]
    assert second in world.answers
    assert world.too_early == []


async def test_the_brokers_own_session_is_told_after_the_append(world: World) -> None:
    epoch = await furnish(world)
    seen: list[bool] = []

    async def commit() -> None:
        await world.local_session.ask(lambda s, t: ask.CommitCursor(s, t, "log", "reader", epoch, 5))
        seen.append(world.appended == world.submitted)

    with anyio.fail_after(60):
        await commit()
    assert seen == [True]
