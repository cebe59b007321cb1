"""The end of jobs that are paused or held, and that nobody has gone on with: exports, which keep room
from others, and those whose user is gone. And of what is kept of jobs that have ended."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from vibemq.auth.users import Accounts
from vibemq.errors import JobNotFound, JobStateConflict, StorageFull
from vibemq.model.commands import ChangeJob, Command, ForgetJobs
from vibemq.model.jobs.job import KEPT_MS, JobKind, JobState, StoredJob
from vibemq.operations.contracts import CommandSession, InstantSource
from vibemq.server.jobs.makers import maker_of

log = logging.getLogger("vibemq.jobs")

BY = "the broker"
NO_MAKER = "nobody has gone on with it for seven days, and the login that it was started with does not exist any more"
WHY = "nobody has resumed it for seven days, and its file takes room; start the export again if it is still wanted"
JOBS_MAX = 1_000
"""At a time; there are fewer."""
STILL = (JobState.PAUSED, JobState.HELD)


class TableOfJobs(Protocol):
    def get(self, job_id: int) -> StoredJob | None: ...

    def page(self, before: int, limit: int, fits: Callable[[StoredJob], bool]) -> list[StoredJob]: ...

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


class StillJobs:
    def __init__(self, jobs: TableOfJobs, local: CommandSession, accounts: Accounts, clock: InstantSource) -> None:
        self._jobs = jobs
        self._local = local
        self._accounts = accounts
        self._clock = clock

    async def tidy(self) -> None:
        """Cancel them; then their files are deleted as those of other cancelled jobs are."""
        for found in self._jobs.page(0, JOBS_MAX, self._is_still):
            # As it is by now: while another one was cancelled somebody may have gone on with it.
            job = self._jobs.get(found.job_id)
            if job is not None and self._is_still(job) and (why := self._why_over(job)):
                await self._cancel(job, why)

    async def _cancel(self, job: StoredJob, why: str) -> None:
        try:
            await self._local.ask(partial(ChangeJob, job_id=job.job_id, state=JobState.CANCELLED, by=BY, why=why))
        except (JobNotFound, JobStateConflict, StorageFull) as error:
            log.debug("job %s is not cancelled yet: %s", job.job_id, error)
        else:
            log.info("job %s: cancelled (%s)", job.job_id, why, extra={"event": "job.ended"})

    def _is_still(self, job: StoredJob) -> bool:
        return job.state in STILL and job.changed_at < self._clock.now() - KEPT_MS

    def _why_over(self, job: StoredJob) -> str:
        """ "" = it is not."""
        if job.plan.kind is JobKind.EXPORT_DEAD:
            return WHY
        return NO_MAKER if maker_of(self._accounts, job, self._clock.now()) is None else ""
