"""What a simulated broker has in place of threads and child processes: its clock, its flushes, its checkpointer."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from tests.proof.sim_files import Machine, SimPath
from tests.proof.sim_lmdb import SimEnv
from tests.proof.sim_loop import Crew, VirtualLoop, Worker
from vibemq.errors import StorageError, VibeMQError
from vibemq.server.commit.unwritten import Unwritten
from vibemq.storage.lmdb.checkpoint.checkpointer import Checkpointer
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.provider import LmdbProvider

FLUSH_S = (0.001, 0.002, 0.005, 0.015)
FLUSH_S_MAX = max(FLUSH_S)
BUSY_ELSEWHERE = 0.3


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
    """The face of `vibemq.server.commit.storage_threads.Store` that the committer uses; flushes run in a worker.

    Args:
        aside: appends come a moment after they were begun, and their end is heard of in a turn of its own, as with a
            provider whose appends block. So there is an instant at which something is decided and not written.
    """

    def __init__(self, provider: LmdbProvider, machinery: Machinery, *, aside: bool) -> None:
        self.provider = provider
        self.blocking = aside
        self.unwritten = Unwritten()
        self._machinery = machinery

    def begin_append(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        ended = self._machinery.loop.create_future()

        def append() -> None:
            try:
                ended.set_result(work())
            except VibeMQError as error:
                ended.set_exception(error)

        self._machinery.loop.call_later(self._machinery.pause_s(), append)
        return ended

    def begin_sync(self, told: Callable[[BaseException | None, float], None]) -> None:
        worker = self._machinery.crew.start(self.provider.sync)
        self._machinery.drive(worker, lambda: told(worker.error, 0.0))

    def sync_at_once(self) -> float | None:
        """None as the thread of a checkpoint would have it, which flushes at any instant."""
        if self._machinery.random.random() < BUSY_ELSEWHERE:
            return None
        return None if self.provider.try_sync() is None else 0.0

    async def sync(self) -> None:
        ended: Any = self._machinery.loop.create_future()
        self.begin_sync(lambda error, _: ended.set_result(error))
        if (error := await ended) is not None:
            raise error


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
        self._checkpointer = Checkpointer(self._layout, env)
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

    def kill(self) -> None:
        self.die()

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

    @property
    def busy(self) -> bool:
        return self._wanted

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
