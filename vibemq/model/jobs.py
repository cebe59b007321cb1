"""Jobs: long work on dead letters that the broker keeps, and goes on with after a restart.

A job is a value. What happens to it is one of the records below, and the engine and the store apply them with the same
functions. What a step of a job has done is counted in the batch that did it, so a job that is interrupted anywhere goes
on exactly where it was.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from vibemq.model.runs import Run, run_count

EVENTS_MAX = 50
"""Of one job. The first stays, and the latest."""
MADE_RUNS_MAX = 512
"""Stretches of messages that a job has made and remembers; the oldest is forgotten first."""


class JobKind(StrEnum):
    REPLAY = "replay"
    """Letters go back into queues."""
    PURGE_DEAD = "purge_dead"
    """Letters are deleted."""
    EXPORT_DEAD = "export_dead"
    """Letters are written into a file, and stay."""


class JobState(StrEnum):
    QUEUED = "queued"
    """It waits until fewer jobs run."""
    RUNNING = "running"
    PAUSED = "paused"
    """By somebody who may."""
    HELD = "held"
    """By one of its own guards, or because its maker has not the rights any more."""
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


ENDED = frozenset((JobState.DONE, JobState.CANCELLED, JobState.FAILED))
"""Nothing follows these."""


class JobEvent(NamedTuple):
    at: int
    event: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What was asked for; it stays as it is."""

    kind: JobKind
    filter: dict[str, Any]
    """As it was asked for. Ages are measured at the instant when the job was made."""
    to: str = ""
    """Queue that letters go to; "" = the one in which each died."""
    limit: int = 0
    """Most letters to do; 0 = all."""
    max_ready: int = -1
    """The job waits while its target has more messages ready; -1 = it never does."""
    canary: int = 0
    """So many letters are done first, and the others only if none of these dies again."""
    stop_after_dead_again: int = 0
    """The job is held when so many of its messages have died again; 0 = never."""
    note: str = ""
    first_id: int = 1
    last_id: int
    """Letters with other ids are not the job's: those that die later never join."""
    selected: int = -1
    """Letters that fitted when the job was made; -1 = they were not counted."""
    user: str = ""
    """Whose job it is."""
    token_id: str = ""
    """Of the access token that it was asked for with; "" = none."""
    key: str = ""
    """Whoever asks again with the same one is given this job."""
    digest: str = ""
    """Of the whole request, to compare those that have the same key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    job_id: int
    plan: JobPlan
    created_at: int
    state: JobState
    why: str = ""
    """A sentence that says why it is in this state."""
    rate: int = 0
    """Most letters in a second; 0 = as many as can be done."""
    started_at: int = 0
    changed_at: int = 0
    ended_at: int = 0
    cursor: int = 0
    """Every letter up to this id was dealt with; of those behind it, the ones that are done are gone."""
    examined: int = 0
    """Letters looked at, up to the cursor."""
    done: int = 0
    skipped: int = 0
    """Letters that somebody else had taken before the job came to them."""
    damaged: int = 0
    """Letters that could not be read and stay where they are."""
    dead_again: int = 0
    forgiven: int = 0
    """How many had died again when somebody let the job go on nevertheless."""
    canary_passed: bool = False
    made: tuple[tuple[int, int, int], ...] = ()
    """(queue_id, first, last) of messages that it has made, in the order in which it made them."""
    made_forgotten: bool = False
    """There were more than are remembered, so more may have died again than are counted."""
    size: int = 0
    """Bytes of the file that an export has written."""
    events: tuple[JobEvent, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def left(self) -> int | None:
        """Of its limit; None = it has none."""
        return max(0, self.plan.limit - self.done) if self.plan.limit else None

    @property
    def in_canary(self) -> bool:
        return self.plan.canary > 0 and not self.canary_passed


class JobStep(NamedTuple):
    """What a command does for a job: see `JobAdvanced`. It counts with the letters of the command, or not at all."""

    job_id: int
    cursor: int = 0
    """Behind the last letter of the command; 0 = it stays, because more commands follow for the same letters."""
    examined: int = 0
    damaged: int = 0


# -- records ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JobStarted:
    job: StoredJob


@dataclass(slots=True)
class JobAdvanced:
    """In the batch of the letters that it counts."""

    job_id: int
    at: int
    cursor: int
    """0 = it stays."""
    examined: int
    done: int
    skipped: int
    damaged: int
    queue_id: int = 0
    """Of the queue that messages were made in; 0 = none were."""
    first: int = 0
    last: int = 0
    size: int = 0
    """Bytes of the export's file from now on; 0 = it stays."""


@dataclass(slots=True)
class JobChanged:
    """Its state, its rate, or what is known of its guards."""

    job_id: int
    at: int
    event: JobEvent
    state: JobState | None = None
    why: str = ""
    rate: int = -1
    """-1 = it stays."""
    absolved: bool = False
    """The canary has passed, or somebody goes on although letters have died again."""


@dataclass(slots=True)
class JobLettersDied:
    """Messages that the job has made are dead letters again: in the batch that says so."""

    job_id: int
    queue_id: int
    runs: list[Run]


@dataclass(slots=True)
class JobsForgotten:
    job_ids: list[int]


JobRecord = JobStarted | JobAdvanced | JobChanged | JobLettersDied | JobsForgotten


def advanced(job: StoredJob, record: JobAdvanced) -> StoredJob:
    made, forgotten = job.made, job.made_forgotten
    if record.queue_id:
        made = _with_run(made, record.queue_id, record.first, record.last)
        if len(made) > MADE_RUNS_MAX:
            made, forgotten = made[-MADE_RUNS_MAX:], True
    return replace(
        job,
        cursor=max(job.cursor, record.cursor),
        examined=job.examined + record.examined,
        done=job.done + record.done,
        skipped=job.skipped + record.skipped,
        damaged=job.damaged + record.damaged,
        made=made,
        made_forgotten=forgotten,
        size=record.size or job.size,
        changed_at=max(job.changed_at, record.at),
    )


def changed(job: StoredJob, record: JobChanged) -> StoredJob:
    state = job.state if record.state is None else record.state
    events = (*job.events, record.event)
    if len(events) > EVENTS_MAX:
        events = (events[0], *events[1 - EVENTS_MAX :])
    begins = state is JobState.RUNNING and not job.started_at
    return replace(
        job,
        state=state,
        why=job.why if record.state is None else record.why,
        rate=job.rate if record.rate < 0 else record.rate,
        started_at=record.at if begins else job.started_at,
        ended_at=record.at if state in ENDED and not job.ended_at else job.ended_at,
        canary_passed=job.canary_passed or record.absolved,
        forgiven=job.dead_again if record.absolved else job.forgiven,
        events=events,
        changed_at=max(job.changed_at, record.at),
    )


def bereaved(job: StoredJob, record: JobLettersDied) -> StoredJob:
    return replace(job, dead_again=job.dead_again + run_count(record.runs))


def _with_run(
    made: tuple[tuple[int, int, int], ...], queue_id: int, first: int, last: int
) -> tuple[tuple[int, int, int], ...]:
    if made and made[-1][0] == queue_id and made[-1][2] + 1 == first:
        return (*made[:-1], (queue_id, made[-1][1], last))
    return (*made, (queue_id, first, last))
