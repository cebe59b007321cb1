"""A broker inside a simulation: real engine, committer, lmdb provider and checkpointer over a disk in memory.

A `World` is one machine with one data directory. Its flushes and checkpoints run in threads that stop in the middle
(`sim_loop.Crew`), so that publishes come in between.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.proof.sim_files import Machine, SimPath, migrate_if_old, path_on
from tests.proof.sim_ledger import Ledger
from tests.proof.sim_lmdb import Book
from tests.proof.sim_loop import CrewLock
from tests.proof.sim_machinery import Machinery, Seat, SimLink, SimUpkeep
from vibemq.engine import Batch, Engine, EngineSettings
from vibemq.model.commands import Command, Publish
from vibemq.model.effects import Effect
from vibemq.model.records import Record
from vibemq.model.rows import LargeRow
from vibemq.server.clock import Clock
from vibemq.server.commit.committer import Committer
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.timers import Timers
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.testing.sim_disk import PowerCut, SimDisk

DATA_DIR = "/data"
WALL_S = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is small here so that rare things happen often."""

    segment_bytes: int = 8 << 10
    buffer_bytes: int = 6_000
    checkpoint_lag_bytes: int = 10_000
    weak_flush_ms: int = 400


def nothing() -> None:
    pass


class Peer:
    """One connection: hears what was decided when its socket is written, at the end of the loop's turn."""

    delivers = False

    def __init__(self, world: "World", hear: Callable[[Sequence[Effect]], None]) -> None:
        self._world = world
        self._hear = hear
        self._effects: list[Effect] = []

    def take(self, effects: Sequence[Effect]) -> None:
        self._effects += effects
        self._world.loop_cycle.flush_later(self)

    def flush(self) -> None:
        effects, self._effects = self._effects, []
        self._world.ledger.heard(effects, self._world.loop.now)
        self._hear(effects)


class World:
    """One life of a broker, from its start to a power cut."""

    def __init__(
        self,
        disk: SimDisk,
        book: Book,
        ledger: Ledger,
        machine: Machine,
        *,
        seed: str,
        now_s: float,
        sizes: Sizes,
        aside: bool = False,
    ) -> None:
        """`aside`: appends are made beside the loop (`Seat`)."""
        self.disk = disk
        self.book = book
        self.ledger = ledger
        self.sizes = sizes
        self.aside = aside
        self._failure: BaseException | None = None
        self.machinery = Machinery(machine, seed)
        self.loop = self.machinery.loop
        self.loop.now = now_s
        self.crew = self.machinery.crew
        self.links: list[SimLink] = []
        self.sessions: dict[int, Callable[[Sequence[Effect]], None]] = {}
        self.tokens = count(1)
        self._asked: dict[int, deque[tuple[Command, Callable[[], None]]]] = {}
        """Of each session: what is being decided, and what comes behind it."""
        self.data_dir = path_on(disk, book, DATA_DIR)
        disk.pause = self.crew.park

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What runs within uses this world's disk, clock and threads."""
        machine = self.machinery.machine
        machine.monotonic = self.loop.time
        machine.new_link = lambda *_, **__: self._new_link()
        machine.new_upkeep = lambda work: SimUpkeep(self.machinery, work)
        with machine.at(self.disk), self.loop.running():
            try:
                yield
            except PowerCut:
                self.crew.abandon()
                raise

    def _new_link(self) -> SimLink:
        self.links.append(SimLink(self.machinery, self.data_dir))
        return self.links[-1]

    # -- life -----------------------------------------------------------------------------------------------------

    def wall_ms(self) -> int:
        return int((WALL_S + self.loop.now) * 1000)

    def start(self) -> None:
        """Migrate if need be, recover, and restore the engine, as `vibemq serve` does."""
        migrate_if_old(self.data_dir)
        self.provider = new_provider(self.data_dir, self.sizes, self.wall_ms)
        state = self.provider.open()
        self._watch_the_journal()
        self.ledger.recovered(state.lsn)
        clock = Clock(not_before=state.instant, wall=lambda: WALL_S + self.loop.now, monotonic=self.loop.time)
        self.clock = clock
        ids = count(1)
        self.engine = Engine(
            EngineSettings(auto_create=False, block_timeout_ms=3_000),
            jitter=self.machinery.random.random,
            new_id=lambda: f"{self.ledger.life:08x}{next(ids):024x}",
        )
        loop_cycle = self.loop_cycle = LoopCycle()
        self.effect_router = EffectRouter()

        def behind(work: Callable[[], None]) -> None:
            loop_cycle.behind(work)
            loop_cycle.behind(self._timers.look_at_engine)

        self.committer = Committer(
            store=Seat(self.provider, self.machinery, aside=self.aside),  # type: ignore[arg-type]
            engine=self.engine,
            effect_router=self.effect_router,
            clock=clock,
            metrics=Metrics(),
            weak_flush_ms=self.sizes.weak_flush_ms,
            wake=loop_cycle.wake,
            behind=behind,
            fatal=self._fatal,
        )
        self._timers = Timers(self.engine, self.committer, clock)
        loop_cycle.before += [self.committer.run_cycle, self._timers.look_at_engine]
        self.committer.submit(self.engine.restore(state, clock.now()))

    def close(self) -> None:
        """The end of a graceful stop: settle, flush, close the provider."""
        self.settle_down()
        while any(self._asked.values()):
            self.loop.run_one()
        self._timers.stop()
        while not self.committer._idle.is_set():
            self.loop.run_one()
        last_words = self.committer.finish()
        try:
            while True:
                waiting = last_words.send(None)
                while not waiting.done():
                    self.loop.run_one()
        except StopIteration:
            pass
        self.settle_down()
        self.loop.run_until(self.loop.now)
        self._raise_failure()
        self.provider.close()

    def _fatal(self, error: BaseException) -> None:
        self._failure = self._failure or error
        raise error

    def _raise_failure(self) -> None:
        """Where the committer has met it twice, once in what it did about the other, it has told the log alone."""
        if self._failure is not None:
            raise self._failure

    def _watch_the_journal(self) -> None:
        journal = self.provider._journal
        journal._sync_lock = CrewLock(self.crew)  # type: ignore[assignment]
        journal.pool._change_lock = CrewLock(self.crew)  # type: ignore[assignment]
        append, write = self.provider.append, journal.append

        def watched_write(parts: Sequence[bytes], **how: Any) -> Any:
            self.ledger.writing(b"".join(parts), journal.last_lsn + 1)
            return write(parts, **how)

        def watched_append(records: Sequence[Record]) -> int:
            lsn = append(records)
            self.ledger.appended(records, lsn)
            return lsn

        prepare_row, append_prepared = journal.prepare_row, journal.append_prepared

        def watched_prepare(row: bytes, before: int) -> Any:
            prepared: Any = prepare_row(row, before)
            prepared.row = row
            return prepared

        def watched_prepared(head: bytes, prepared: Any, tail: Sequence[bytes]) -> Any:
            self.ledger.writing(b"".join([head, prepared.row, *tail]), journal.last_lsn + 1)
            self.ledger.counts.written_ahead += 1
            return append_prepared(head, prepared, tail)

        journal.append = watched_write  # type: ignore[method-assign]
        journal.prepare_row = watched_prepare  # type: ignore[method-assign]
        journal.append_prepared = watched_prepared  # type: ignore[method-assign]
        self.provider.append = watched_append  # type: ignore[method-assign]

    # -- sessions -------------------------------------------------------------------------------------------------

    def connect(self, session: int, take: Callable[[Sequence[Effect]], None]) -> None:
        self.effect_router.connect(session, Peer(self, take).take)

    def ask(self, command: Command, before_step: Callable[[], None] = nothing) -> None:
        """Have it decided when what its session asked before is, in steps as the server does."""
        waiting = self._asked.setdefault(getattr(command, "session", 0), deque())
        waiting.append((command, before_step))
        if len(waiting) == 1:
            self._begin(waiting)

    def is_asking(self, session: int) -> bool:
        """Whether something that it asked is not decided yet."""
        return bool(self._asked.get(session))

    def ask_large(self, command: Publish | None, row: LargeRow) -> None:
        """As a connection does with a large message: its row is written ahead, beside everything else. None: its peer
        has gone meanwhile."""
        worker = self.crew.start(lambda: self.provider.prepare(row))

        def prepared() -> None:
            if worker.error is not None:
                raise worker.error
            if command is not None:
                self.ask(command)

        self.machinery.drive(worker, prepared)

    def _begin(self, waiting: "deque[tuple[Command, Callable[[], None]]]") -> None:
        command, _ = waiting[0]
        named = self.engine.queue_info(getattr(command, "queue", ""))
        self.ledger.asked(command, None if named is None else named.queue_id)
        self._go_on(waiting, Batch([command]))

    def _go_on(self, waiting: "deque[tuple[Command, Callable[[], None]]]", batch: Batch) -> None:
        command, before_step = waiting[0]
        before_step()
        outcome = self.engine.advance(batch, self.clock.now())
        if batch.fault is not None:
            raise batch.fault
        self.ledger.decided(command, outcome)
        self.committer.submit(outcome)
        if not batch.done:
            self.ledger.counts.later_steps += 1
            self.loop.call_later(self.machinery.pause_s() / 5, self._go_on, waiting, batch)
            return
        waiting.popleft()
        if waiting:
            self.loop.call_soon(self._begin, waiting)

    def pass_time(self, ms: int) -> None:
        self.loop.run_until(self.loop.now + ms / 1000)
        self._raise_failure()

    def kill_checkpointer(self) -> None:
        self.links[-1].die()

    def settle_down(self) -> None:
        """Wait for whatever is under way, so that a verb that excludes all others can run."""
        while self.crew.parked:
            self.loop.run_one()


def new_provider(data_dir: SimPath, sizes: Sizes, now: Callable[[], int]) -> LmdbProvider:
    settings = LmdbSettings.model_construct(
        segment_bytes=sizes.segment_bytes,
        buffer_bytes=sizes.buffer_bytes,
        checkpoint_lag_bytes=sizes.checkpoint_lag_bytes,
        checkpoint_ms=1_000,
        ballast_bytes=0,
        allow_remote=True,
    )
    return LmdbProvider(data_dir, settings, now=now)  # type: ignore[arg-type]
