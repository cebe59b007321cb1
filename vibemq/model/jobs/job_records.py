"""What happens to jobs, and what becomes of a job by it: the engine and the store apply the same functions.

What a step of a job has done is counted in the batch that did it, so a job that is interrupted anywhere goes on exactly
where it was.
"""

from dataclasses import dataclass, replace

from vibemq.model.jobs.job import ACKNOWLEDGED, CANARY_PASSED, ENDED, UNTRIED, JobEvent, JobState, StoredJob, Stretch
from vibemq.model.runs import Run, run_count

EVENTS_MAX = 50
"""Of one job. The first stays, and the latest."""
MADE_RUNS_MAX = 512
"""Stretches of messages that a job has made and remembers; then those that are settled are forgotten, and the oldest
where none is. Those of a canary are all remembered until it has passed, since it passes by what became of each."""


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


@dataclass(slots=True)
class JobChanged:
    """Its state, its rate, or what is known of its guards."""

    job_id: int
    at: int
    event: JobEvent
    state: JobState | None = None
    why: str = ""
    rate: float = -1.0
    """-1 = it stays."""
    absolved: bool = False
    """The canary has passed, or somebody goes on although letters have died again."""


@dataclass(slots=True)
class JobLettersDied:
    """Messages that the job has made are dead letters again, or would be if their queue kept any: in that batch."""

    job_id: int
    queue_id: int
    runs: list[Run]
    gone: bool = False
    """They are no letters: they have left their queue, and nobody has settled them."""


@dataclass(slots=True)
class JobMadeSettled:
    """Nobody has any message of these stretches any more, so none of them dies: the job need not remember them.

    Where a queue keeps what is settled, a group that goes back to them may still have some die: these are not counted.
    """

    job_id: int
    stretches: list[Stretch]


@dataclass(slots=True)
class JobsForgotten:
    job_ids: list[int]


JobRecord = JobStarted | JobAdvanced | JobChanged | JobLettersDied | JobMadeSettled | JobsForgotten


def advanced(job: StoredJob, record: JobAdvanced) -> StoredJob:
    made, forgotten = job.made, job.made_forgotten
    if record.queue_id:
        made = _with_run(made, record.queue_id, record.first, record.last)
        if len(made) > MADE_RUNS_MAX and not job.in_canary:
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
    )


def taken_back(job: StoredJob, record: JobAdvanced, cursor: int) -> StoredJob:
    """The opposite of `advanced`, whatever has happened to the job since. `cursor`: where it was before."""
    made = job.made
    if record.queue_id:
        made = tuple(part for run in made for part in _without(run, record))
    return replace(
        job,
        cursor=min(job.cursor, cursor),
        examined=job.examined - record.examined,
        done=job.done - record.done,
        skipped=job.skipped - record.skipped,
        damaged=job.damaged - record.damaged,
        made=made,
    )


def _without(run: Stretch, record: JobAdvanced) -> list[Stretch]:
    queue_id, first, last = run
    if queue_id != record.queue_id or last < record.first or record.last < first:
        return [run]
    parts = [(queue_id, first, record.first - 1), (queue_id, record.last + 1, last)]
    return [part for part in parts if part[1] <= part[2]]


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
        canary_waived=job.canary_waived or _waives_canary(job, record),
        acknowledged=job.acknowledged or record.event.event == ACKNOWLEDGED,
        untried=job.untried or record.event.event == UNTRIED,
        forgiven=job.dead_again if record.absolved else job.forgiven,
        events=events,
        changed_at=max(job.changed_at, record.at),
    )


def _waives_canary(job: StoredJob, record: JobChanged) -> bool:
    return record.absolved and job.in_canary and record.event.event != CANARY_PASSED


def bereaved(job: StoredJob, record: JobLettersDied) -> StoredJob:
    count = run_count(record.runs)
    if record.gone:
        return replace(job, gone=job.gone + count)
    return replace(job, dead_again=job.dead_again + count)


def revived(job: StoredJob, record: JobLettersDied, runs: list[Run]) -> StoredJob:
    """The opposite, for a part of its messages."""
    count = run_count(runs)
    if record.gone:
        return replace(job, gone=job.gone - count)
    return replace(job, dead_again=job.dead_again - count)


def relieved(job: StoredJob, record: JobMadeSettled) -> StoredJob:
    settled = set(record.stretches)
    return replace(job, made=tuple(stretch for stretch in job.made if stretch not in settled))


def _with_run(made: tuple[Stretch, ...], queue_id: int, first: int, last: int) -> tuple[Stretch, ...]:
    """Behind the others, as one with what was made last in the same queue if it follows that."""
    for index in range(len(made) - 1, -1, -1):
        if made[index][0] == queue_id:
            if made[index][2] + 1 == first:
                return (*made[:index], *made[index + 1 :], (queue_id, made[index][1], last))
            break
    return (*made, (queue_id, first, last))
