"""A driver with dead letters, and a job on them."""

from collections.abc import Sequence
from typing import Any

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.model.commands import AdvanceJob, ChangeJob, PurgeDead, ReplayDead, Settlement, StartJob
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, JobStep, StoredJob


class JobsDriver(Driver):
    def bury(self, count: int, queue: str = "q") -> list[int]:
        """So many new dead letters of the queue; their ids."""
        first = self.engine.readers.last_dead_id() + 1
        done = self.publish(count, queue=queue)
        self.subscribe(1, queue, capacity_messages=count)
        sequences = range(done.first_sequence, done.first_sequence + count)
        self.settle(1, *sequences, verb=Settlement.REJECT)
        self.close(1)
        return list(range(first, first + count))

    def start(self, kind: JobKind = JobKind.REPLAY, *, rate: float = 0.0, **plan: Any) -> StoredJob:
        plan = {"filter": {}, "last_id": self.engine.readers.last_dead_id(), **plan}
        job = self.ask(StartJob(0, None, JobPlan(kind=kind, **plan), rate))
        assert isinstance(job, StoredJob)
        return job

    def job(self, job_id: int = 1) -> StoredJob:
        job = self.engine.jobs.get(job_id)
        assert job is not None
        return job

    def change(self, state: JobState | None = None, *, job_id: int = 1, by: str = "ann", **more: Any) -> Any:
        return self.ask(ChangeJob(0, None, job_id, state, by=by, **more))

    def replay(self, ids: Sequence[int], *, cursor: int = 0, job_id: int = 1, queue: str = "q", origin: int = 1) -> Any:
        step = JobStep(job_id, cursor, len(ids) if cursor else 0, 0)
        origins = dict.fromkeys(ids, origin)
        return self.ask(ReplayDead(0, None, queue, list(ids), rows_of(len(ids)), origins=origins, step=step))

    def purge(self, ids: Sequence[int], *, cursor: int = 0) -> Any:
        step = JobStep(1, cursor, len(ids), 0)
        return self.ask(PurgeDead(0, None, list(ids), dict.fromkeys(ids, 1), step=step))

    def step(self, cursor: int, *, done: int = 0) -> Any:
        return self.ask(AdvanceJob(0, None, JobStep(1, cursor, 3, 1, done)))
