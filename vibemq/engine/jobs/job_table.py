"""The jobs of a broker: all that are kept, and which messages they have made."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from vibemq.engine.jobs.made import MadeIn
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, StoredJob
from vibemq.model.jobs.job_records import JobLettersDied, revived
from vibemq.model.runs import RunSet

RUNNING_MAX = 8
"""Jobs that go on at a time."""


class JobTable:
    def __init__(self) -> None:
        self.by_id: dict[int, StoredJob] = {}
        """Ascending."""
        self.next_id = 1
        self.by_key: dict[tuple[str, str, int], int] = {}
        """(user, key, when the user was made) -> job_id, of those that have a key."""
        self.made: dict[int, MadeIn] = {}
        """queue_id -> messages of the queue that jobs have made."""

        self.with_file: set[int] = set()
        """Exports whose files are kept, as whoever keeps these has told."""
        self.waiting: set[int] = set()
        """Those that run and go on when it is their turn: they had to wait, and others took their place."""
        self.awaiting_ack: set[int] = set()
        """Those of whose canary nobody has acknowledged a message yet."""

    def restore(self, jobs: Mapping[int, StoredJob]) -> None:
        for job_id in sorted(jobs):
            self.add(jobs[job_id])
            for queue_id, first, last in jobs[job_id].made:
                self.note_made(queue_id, first, last, job_id)
        self.waiting.update(job.job_id for job in self.running()[RUNNING_MAX:])

    def add(self, job: StoredJob) -> None:
        self._keep(job)
        self.next_id = max(self.next_id, job.job_id + 1)
        if job.plan.key:
            self.by_key[_key_of(job.plan)] = job.job_id

    def put(self, job: StoredJob) -> None:
        """Instead of the one that was there under its number."""
        self._keep(job)
        if job.state is not JobState.RUNNING:
            self.waiting.discard(job.job_id)

    def _keep(self, job: StoredJob) -> None:
        self.by_id[job.job_id] = job
        if job.awaits_ack:
            self.awaiting_ack.add(job.job_id)
        else:
            self.awaiting_ack.discard(job.job_id)

    def drop(self, job_ids: Iterable[int]) -> None:
        gone = [job for job_id in job_ids if (job := self.by_id.pop(job_id, None)) is not None]
        for job in gone:
            self.waiting.discard(job.job_id)
            self.awaiting_ack.discard(job.job_id)
            self.with_file.discard(job.job_id)
            if self.by_key.get(_key_of(job.plan)) == job.job_id:
                del self.by_key[_key_of(job.plan)]
        for queue_id in {made[0] for job in gone for made in job.made}:
            self.keep_made(queue_id)

    def file_kept(self, job_id: int) -> None:
        """The job has a file: it counts among those that there may be, and is kept with its job."""
        self.with_file.add(job_id)

    def file_gone(self, job_id: int) -> None:
        self.with_file.discard(job_id)

    def note_made(self, queue_id: int, first: int, last: int, job_id: int) -> None:
        self.made.setdefault(queue_id, MadeIn()).add(first, last, job_id)

    def forget_made(self, before: StoredJob, after: StoredJob) -> None:
        """What the job itself does not remember after its step: its oldest stretches."""
        if not after.made_forgotten:
            return
        kept = {stretch[:2] for stretch in after.made}
        for stretch in before.made:
            if stretch[:2] not in kept:
                self.forget_stretch(*stretch)

    def forget_stretch(self, queue_id: int, first: int, last: int) -> None:
        """What one job has made."""
        made = self.made.get(queue_id)
        if made is not None:
            made.remove(first, last)
            if not made:
                del self.made[queue_id]

    def keep_made(self, queue_id: int) -> None:
        """Forget what jobs that are gone have made in the queue."""
        made = self.made.get(queue_id)
        if made is not None:
            made.keep(self.by_id.__contains__)
            if not made:
                del self.made[queue_id]

    def revive(self, record: JobLettersDied, gone: RunSet) -> None:
        """The messages in `gone` were never there, so they have not died either."""
        job = self.by_id.get(record.job_id)
        if job is not None:
            self.put(revived(job, record, [part for run in record.runs for part in gone.overlap(*run)]))

    # -- questions ----------------------------------------------------------------------------------------------------

    def get(self, job_id: int) -> StoredJob | None:
        return self.by_id.get(job_id)

    def with_key(self, user: str, key: str, since: int, now: int) -> StoredJob | None:
        """The user's job with this key, which ends some time after its job. `since`: when the user was made."""
        # One of an older store does not tell when its user was made.
        for made in (since, -1):
            job = self.by_id.get(self.by_key.get((user, key, made), 0))
            if job is not None and job.belongs_to(user, since) and not job.is_over(now):
                return job
        return None

    def old(self, now: int) -> list[StoredJob]:
        """Those that have ended long ago, the oldest first, without the latest of all jobs: the next is numbered behind
        it."""
        latest = self.latest_id
        found = (job for job in self.by_id.values() if job.is_over(now) and job.job_id != latest)
        return sorted(found, key=lambda job: (job.ended_at, job.job_id))

    @property
    def latest_id(self) -> int:
        """0 = there is none."""
        return max(self.by_id, default=0)

    def exports(self) -> list[StoredJob]:
        """Those that have a file, or will have one."""
        return [
            job
            for job in self.by_id.values()
            if job.plan.kind is JobKind.EXPORT_DEAD and (not job.has_ended or job.job_id in self.with_file)
        ]

    def running(self) -> list[StoredJob]:
        return [job for job in self.by_id.values() if job.state is JobState.RUNNING]

    @property
    def room(self) -> int:
        """For so many more that go on."""
        return RUNNING_MAX - (len(self.running()) - len(self.waiting))

    def has_room(self) -> bool:
        """For one more."""
        return self.room > 0

    def page(self, before: int, limit: int, fits: Callable[[StoredJob], bool]) -> list[StoredJob]:
        """At most so many with numbers below `before`, the latest first; 0 = from the latest on."""
        found = (job for job in reversed(self.by_id.values()) if (not before or job.job_id < before) and fits(job))
        return list(islice(found, limit))


def _key_of(plan: JobPlan) -> tuple[str, str, int]:
    return plan.user, plan.key, plan.user_since
