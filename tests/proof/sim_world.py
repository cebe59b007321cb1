"""A broker inside a simulation: real engine, committer, lmdb provider and checkpointer over a disk in memory.

A `World` is one machine with one data directory. Its flushes and checkpoints run in threads that stop in the middle
(`sim_loop.Crew`), so that publishes come in between. `Seat` is what the committer knows as its store.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.proof.sim_files import Machine, SimPath, path_on
from tests.proof.sim_ledger import Ledger
from tests.proof.sim_lmdb import Book, SimEnv
from tests.proof.sim_loop import Crew, CrewLock, VirtualLoop, Worker
from vibemq.engine import Engine, EngineSettings
from vibemq.errors import StorageError
from vibemq.model.commands import Command
from vibemq.model.effects import Effect
from vibemq.model.records import Record
from vibemq.server.clock import Clock
from vibemq.server.committer import Committer
from vibemq.server.lanes import Switchboard
from vibemq.server.metrics import Metrics
from vibemq.server.ticker import Ticker
from vibemq.server.turn import Turn
from vibemq.storage.lmdb.checkpointer import Checkpointer
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.migrate import migrate
from vibemq.storage.store_file import read_store_info
from vibemq.testing.sim_disk import PowerCut, SimDisk

DATA_DIR = "/data"
WALL_S = 1_800_000_000.0
FLUSH_S = (0.001, 0.002, 0.005, 0.015)
FLUSH_S_MAX = max(FLUSH_S)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is small here so that rare things happen often."""

    segment_bytes: int = 8 << 10
    buffer_bytes: int = 6_000
    checkpoint_lag_bytes: int = 10_000
    weak_flush_ms: int = 400


class Machinery:
    """What every process on the simulated machine shares: clock, threads, randomness of their timing."""

    def __init__(self, machine: Machine, seed: str) -> None:
        self.machine = machine
        self.loop = VirtualLoop()
        self.crew = Crew()
        self.random = random.Random(seed)

    def pause_s(self) -> float:
        return self.random.choice(FLUSH_S)

    def drive(self, worker: Worker, done: Callable[[], None]) -> None:
        """Resume the worker again and again, after the time a flush takes, and call `done` at its end."""
        if worker.ended():
            done()
        else:
            self.loop.call_later(self.pause_s(), self._go_on, worker, done)

    def _go_on(self, worker: Worker, done: Callable[[], None]) -> None:
        worker.resume()
        self.drive(worker, done)


class Seat:
    """The face of `server.store.Store` that the committer uses; flushes run in a worker."""

    blocking = False

    def __init__(self, provider: LmdbProvider, machinery: Machinery) -> None:
        self.provider = provider
        self._machinery = machinery

    def begin_sync(self) -> Any:
        future = self._machinery.loop.create_future()
        worker = self._machinery.crew.start(self.provider.sync)

        def done() -> None:
            if worker.error is not None:
                future.set_exception(worker.error)
            else:
                future.set_result(worker.result)

        self._machinery.drive(worker, done)
        return future


class SimLink:
    """`CheckpointerLink` with the checkpointer in a worker of this process; it may be killed at any moment."""

    def __init__(self, machinery: Machinery, data_dir: SimPath) -> None:
        self._machinery = machinery
        self._layout = Layout(data_dir)  # type: ignore[arg-type]
        self._answers: deque[dict[str, Any]] = deque()
        self._checkpointer: Checkpointer | None = None
        self._worker: Worker | None = None
        self._orders: deque[dict[str, Any]] = deque()
        self._pids = count(100)
        self.pid: int | None = None
        self.restarts = 0
        self.last_error = ""

    @property
    def running(self) -> bool:
        return self._checkpointer is not None

    def works(self) -> None:
        pass

    def ensure_running(self) -> bool:
        if self.running:
            return False
        disk = self._layout.data_dir.disk  # type: ignore[attr-defined]
        book = self._layout.data_dir.book  # type: ignore[attr-defined]
        env: Any = SimEnv(disk, str(self._layout.store), book, create=False)
        self._checkpointer = Checkpointer(env)
        self.pid = next(self._pids)
        self._answers.append({"ready": self._checkpointer.applied_lsn})
        return True

    def ask(self, order: dict[str, Any]) -> bool:
        if self._checkpointer is None:
            return False
        self._orders.append(order)
        self._work()
        return True

    def _work(self) -> None:
        checkpointer = self._checkpointer
        if self._worker is None and self._orders and checkpointer is not None:
            order = self._orders.popleft()
            worker = self._worker = self._machinery.crew.start(lambda: checkpointer.carry_out(order))
            self._machinery.drive(worker, lambda: self._done(worker))

    def _done(self, worker: Worker) -> None:
        if worker is not self._worker:
            return
        self._worker = None
        if isinstance(worker.error, StorageError):
            self.last_error = str(worker.error)
            self._answers.append({"failed": worker.error.code.value, "error": self.last_error})
            self._end()
        elif worker.error is not None:
            raise worker.error
        else:
            assert isinstance(worker.result, dict)
            self._answers.append(worker.result)
            self._work()

    def die(self) -> None:
        """kill -9 of the checkpointer."""
        worker, self._worker = self._worker, None
        if worker is not None and not worker.ended():
            worker.abandon()
        if self.running:
            self._end()

    def _end(self) -> None:
        self._checkpointer = None
        self._orders.clear()
        self._answers.append({"ended": self.pid})

    def answers(self) -> list[dict[str, Any]]:
        taken = list(self._answers)
        self._answers.clear()
        return taken

    def wait_answer(self, timeout_s: float) -> list[dict[str, Any]]:
        while not self._answers and self._worker is not None:
            self._machinery.loop.run_one()
        return self.answers()

    def stop(self) -> None:
        while self._worker is not None:
            self._machinery.loop.run_one()
        self._checkpointer = None


class SimUpkeep:
    """`Upkeep` without a thread: the work is done in the next turn of the loop."""

    def __init__(self, machinery: Machinery, work: Callable[[], None]) -> None:
        self._machinery = machinery
        self._work: Callable[[], None] | None = work
        self._wanted = False

    def wake(self) -> None:
        if not self._wanted:
            self._wanted = True
            self._machinery.loop.call_soon(self._run)

    def _run(self) -> None:
        self._wanted = False
        if self._work is not None:
            self._work()

    def stop(self) -> None:
        self._work = None


class Peer:
    """One connection: hears what was decided when its socket is written, at the end of the loop's turn."""

    def __init__(self, world: "World", hear: Callable[[Sequence[Effect]], None]) -> None:
        self._world = world
        self._hear = hear
        self._effects: list[Effect] = []

    def take(self, effects: Sequence[Effect]) -> None:
        self._effects += effects
        self._world.turn.flush_later(self)

    def flush(self) -> None:
        effects, self._effects = self._effects, []
        self._world.ledger.heard(effects, self._world.loop.now)
        self._hear(effects)


class World:
    """One life of a broker, from its start to a power cut."""

    def __init__(
        self, disk: SimDisk, book: Book, ledger: Ledger, machine: Machine, *, seed: str, now_s: float, sizes: Sizes
    ) -> None:
        self.disk = disk
        self.book = book
        self.ledger = ledger
        self.sizes = sizes
        self.machinery = Machinery(machine, seed)
        self.loop = self.machinery.loop
        self.loop.now = now_s
        self.crew = self.machinery.crew
        self.links: list[SimLink] = []
        self.sessions: dict[int, Callable[[Sequence[Effect]], None]] = {}
        self.tokens = count(1)
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
        info = read_store_info(self.data_dir)  # type: ignore[arg-type]
        if info is not None and info.version < 1:
            migrate(self.data_dir)  # type: ignore[arg-type]
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
        turn = self.turn = Turn()
        self.switchboard = Switchboard()
        self.committer = Committer(
            store=Seat(self.provider, self.machinery),  # type: ignore[arg-type]
            engine=self.engine,
            switchboard=self.switchboard,
            clock=clock,
            metrics=Metrics(),
            weak_flush_ms=self.sizes.weak_flush_ms,
            wake=turn.wake,
            fatal=self._fatal,
        )
        self._ticker = Ticker(self.engine, self.committer, clock)
        turn.before += [self.committer.turn, self._ticker.look_at_engine]
        self.committer.submit(self.engine.restore(state, clock.now()))

    def close(self) -> None:
        """The end of a graceful stop: settle, flush, close the provider."""
        self._ticker.stop()
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
        self.provider.close()

    def _fatal(self, error: BaseException) -> None:
        raise error

    def _watch_the_journal(self) -> None:
        journal = self.provider._journal
        journal._sync_lock = CrewLock(self.crew)  # type: ignore[assignment]
        journal._create_lock = CrewLock(self.crew)  # type: ignore[assignment]
        append, write = self.provider.append, journal.append

        def watched_write(parts: Sequence[bytes], **how: Any) -> Any:
            self.ledger.writing(b"".join(parts), journal.last_lsn + 1)
            return write(parts, **how)

        def watched_append(records: Sequence[Record]) -> int:
            lsn = append(records)
            self.ledger.appended(records, lsn)
            return lsn

        journal.append = watched_write  # type: ignore[method-assign]
        self.provider.append = watched_append  # type: ignore[method-assign]

    # -- sessions -------------------------------------------------------------------------------------------------

    def connect(self, session: int, take: Callable[[Sequence[Effect]], None]) -> None:
        self.switchboard.connect(session, Peer(self, take).take)

    def ask(self, command: Command) -> None:
        """One engine step, submitted as the server does."""
        named = self.engine.queue_info(getattr(command, "queue", ""))
        outcome = self.engine.handle([command], self.clock.now())
        self.ledger.asked(command, None if named is None else named.queue_id, outcome)
        mixed = outcome.gated and outcome.effects
        self.committer.submit(outcome, [getattr(command, "token", None)] if mixed else ())

    def pass_time(self, ms: int) -> None:
        self.loop.run_until(self.loop.now + ms / 1000)

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
