"""One worker for each job that runs. Time comes from the broker's clock and its timers, so a broker whose time is moved
by a test moves its jobs."""

import asyncio
import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from vibemq.errors import StorageFailed
from vibemq.operations.jobs.shown import LiveJob
from vibemq.server.jobs.worker import JobServices, JobWorker

log = logging.getLogger("vibemq.jobs")


class JobRunner:
    """Begin it with `run` when the engine has been restored, end it with `stop`."""

    scheduled_tick: int | None = None
    ending = False

    def __init__(
        self, services: JobServices, watch: Callable[["JobRunner"], None], fatal: Callable[[BaseException], None]
    ) -> None:
        """`watch`: the broker's timers are told that this has another deadline."""
        self._services = services
        self._watch = watch
        self._fatal = fatal
        self._workers: dict[int, JobWorker] = {}
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._begun = False
        self._stopping = False

    # -- what operations ask ------------------------------------------------------------------------------------------

    def live(self, job_id: int) -> LiveJob | None:
        worker = self._workers.get(job_id)
        return None if worker is None else worker.live()

    def wake(self) -> None:
        self._changed.set()
        for worker in self._workers.values():
            worker.nudge()

    # -- time ---------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        return min((worker.due for worker in self._workers.values() if worker.due is not None), default=None)

    def tick(self) -> None:
        now = self._services.clock.now()
        for worker in self._workers.values():
            if worker.due is not None and worker.due <= now:
                worker.nudge()

    def due_changed(self) -> None:
        self._watch(self)

    def others_may_run(self) -> None:
        self._changed.set()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        self._begun = True
        try:
            async with anyio.create_task_group() as tasks:
                while not self._stopping:
                    self._changed.clear()
                    for job in self._services.engine.jobs.running():
                        if job.job_id not in self._workers:
                            self._begin(tasks, job.job_id)
                    await self._changed.wait()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Return when no job does anything any more: each ends between two steps, and goes on with the next start."""
        self._stopping = True
        self.wake()
        if self._begun:
            await self._ended.wait()

    def _begin(self, tasks: TaskGroup, job_id: int) -> None:
        worker = self._workers[job_id] = JobWorker(self._services, job_id, self)
        tasks.start_soon(self._carry_out, worker)

    async def _carry_out(self, worker: JobWorker) -> None:
        try:
            try:
                await worker.run()
            except StorageFailed:
                raise
            except Exception:
                log.exception("job %s has failed", worker.job_id)
                await worker.fail()
        except StorageFailed as error:
            self._fatal(error)
        else:
            del self._workers[worker.job_id]
            self._changed.set()

    @property
    def stopping(self) -> bool:
        return self._stopping
