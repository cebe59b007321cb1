"""Which jobs that nobody goes on with are cancelled."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.auth.users import Accounts
from vibemq.model.access import Principal
from vibemq.model.jobs.job import KEPT_MS, JobKind, JobPlan, JobState, StoredJob
from vibemq.server.jobs.expiry import StillJobs

pytestmark = pytest.mark.anyio


class World:
    """Jobs of ann, who was made at 5, and a user of that name who is there now, made at `since`."""

    def __init__(self, *jobs: StoredJob, since: int) -> None:
        self.jobs = jobs
        self.since = since
        self.cancelled: list[int] = []
        self.enabled = True
        self.resumed: StoredJob | None = None
        """Somebody goes on with it while the first one is cancelled."""

    def get(self, job_id: int) -> StoredJob | None:
        return next((job for job in self.jobs if job.job_id == job_id), None)

    def page(self, before: int, limit: int, fits: Callable[[StoredJob], bool]) -> list[StoredJob]:
        return [job for job in self.jobs if fits(job)]

    def old(self, now: int) -> list[StoredJob]:
        return []

    def now(self) -> int:
        return KEPT_MS + 100

    def acting(self, name: str, token_id: str, now: int) -> Principal | None:
        return cast(Principal, SimpleNamespace(name=name, since=self.since)) if self.since else None

    async def ask(self, make: Callable[[int, int], Any]) -> None:
        command = make(0, 1)
        assert command.state is JobState.CANCELLED
        self.cancelled.append(command.job_id)
        self.jobs = tuple(
            replace(job, state=JobState.RUNNING) if job is self.resumed else job
            for job in self.jobs
            if job.job_id != command.job_id
        )

    async def ask_whole(self, make: Callable[[int, int], Any]) -> Any:
        raise NotImplementedError

    async def tidy(self) -> list[int]:
        await StillJobs(self, self, cast(Accounts, self), self).tidy()
        return self.cancelled


def job(number: int, state: JobState, changed_at: int, kind: JobKind = JobKind.REPLAY) -> StoredJob:
    plan = JobPlan(kind=kind, filter={}, last_id=1, user="ann", user_since=5)
    return StoredJob(job_id=number, plan=plan, created_at=5, changed_at=changed_at, state=state)


@pytest.mark.parametrize(("since", "expected"), [(5, []), (6, [1, 2]), (0, [1, 2])])
async def test_jobs_whose_user_is_gone_end_some_day(since: int, expected: list[int]) -> None:
    jobs = (
        job(1, JobState.HELD, 99),
        job(2, JobState.PAUSED, 99),
        job(3, JobState.HELD, 100),
        job(4, JobState.RUNNING, 99),
        job(5, JobState.DONE, 99),
    )
    assert await World(*jobs, since=since).tidy() == expected


async def test_exports_that_nobody_goes_on_with_end_whosever_they_are() -> None:
    jobs = (job(1, JobState.PAUSED, 99, JobKind.EXPORT_DEAD), job(2, JobState.PAUSED, 100, JobKind.EXPORT_DEAD))
    assert await World(*jobs, since=5).tidy() == [1]


async def test_one_that_somebody_goes_on_with_meanwhile_is_not_cancelled() -> None:
    jobs = [job(number, JobState.PAUSED, 99, JobKind.EXPORT_DEAD) for number in (1, 2, 3)]
    world = World(*jobs, since=5)
    world.resumed = jobs[1]
    assert await world.tidy() == [1, 3]
