"""The end of exports that somebody has paused, or that hold by themselves, and that nobody has gone on with: they keep
the room of their files from others. And of all that is kept of jobs that have ended long ago."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from vibemq.errors import JobNotFound, JobStateConflict, StorageFull
from vibemq.model.commands import ChangeJob, Command, ForgetJobs
from vibemq.model.jobs.job import KEPT_MS, JobKind, JobState, StoredJob
from vibemq.operations.contracts import CommandSession, InstantSource

log = logging.getLogger("vibemq.jobs")

BY = "the broker"
WHY = "nobody has resumed it for seven days, and its file takes room; start the export again if it is still wanted"
STILL = (JobState.PAUSED, JobState.HELD)


class TableOfJobs(Protocol):
    @property
    def with_file(self) -> Iterable[int]: ...

    def get(self, job_id: int) -> StoredJob | None: ...

    def old(self, now: int) -> list[StoredJob]: ...


class OldJobs:
    def __init__(self, jobs: TableOfJobs, decide: Callable[[list[Command]], None], clock: InstantSource) -> None:
        self._jobs = jobs
        self._decide = decide
        self._clock = clock

    async def tidy(self) -> None:
        """Forget them, also where nobody starts another job."""
        if self._jobs.old(self._clock.now()):
            self._decide([ForgetJobs()])


class StillExports:
    def __init__(self, jobs: TableOfJobs, local: CommandSession, clock: InstantSource) -> None:
        self._jobs = jobs
        self._local = local
        self._clock = clock

    async def tidy(self) -> None:
        """Cancel them; then their files are deleted as those of other cancelled jobs are."""
        for job_id in list(self._jobs.with_file):
            job = self._jobs.get(job_id)
            if job is None or not self._is_too_old(job):
                continue
            try:
                await self._local.ask(partial(ChangeJob, job_id=job.job_id, state=JobState.CANCELLED, by=BY, why=WHY))
            except (JobNotFound, JobStateConflict, StorageFull) as error:
                log.debug("job %s is not cancelled yet: %s", job.job_id, error)
            else:
                log.info("job %s: cancelled (%s)", job.job_id, WHY, extra={"event": "job.ended"})

    def _is_too_old(self, job: StoredJob) -> bool:
        return (
            job.plan.kind is JobKind.EXPORT_DEAD and job.state in STILL and job.changed_at < self._clock.now() - KEPT_MS
        )
