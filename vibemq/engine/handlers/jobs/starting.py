"""Jobs begin, change their state, and are forgotten.

At most `RUNNING_MAX` go on at a time; the others wait in the order in which they were made. A job that runs and has to
wait for something, such as a queue that is not there, gives its turn to another one, and asks for one again later.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from functools import partial, reduce

from vibemq.engine.handlers.jobs.guards import why_held
from vibemq.engine.jobs.job_table import RUNNING_MAX, JobTable
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import IdempotencyConflict, InvalidOptions, JobNotFound, JobStateConflict
from vibemq.model.commands import ChangeJob, ForgetJobs, StartJob
from vibemq.model.jobs.job import CANARY_PASSED, UNTRIED, JobEvent, JobKind, JobState, StoredJob
from vibemq.model.jobs.job_records import JobChanged, JobsForgotten, JobStarted, changed
from vibemq.model.options import Durability

UNFINISHED_MAX = 200
"""Jobs that have not ended; more are refused."""
UNFINISHED_OF_USER_MAX = 50
"""The same, of one user: nobody takes all the room."""
FINISHED_MAX = 200
"""So many that have ended are kept beside those that have a file: where there are more, the oldest of whoever has the
most is forgotten, so nobody has the jobs of others forgotten."""
EXPORTS_MAX = 50
"""Files of exports, those of jobs that have not ended among them."""
EXPORTS_OF_USER_MAX = 20
"""The same, of one user."""

_BY_USERS = {
    JobState.PAUSED: {JobState.QUEUED, JobState.RUNNING},
    JobState.RUNNING: {JobState.PAUSED, JobState.HELD},
    JobState.CANCELLED: {JobState.QUEUED, JobState.RUNNING, JobState.PAUSED, JobState.HELD},
}
"""State -> those from which a user may bring a job into it."""
_WORDS = {JobState.PAUSED: "paused", JobState.RUNNING: "resumed", JobState.CANCELLED: "cancelled"}


def start(state: EngineState, step: Step, command: StartJob) -> None:
    plan, jobs = command.plan, state.jobs
    known = jobs.with_key(plan.user, plan.key, command.since, step.now) if plan.key else None
    if known is not None:
        if known.plan.digest != plan.digest:
            raise IdempotencyConflict(
                f"job {known.job_id} was started with the same key and another request; use another key"
            )
        step.answer_unchanged(command, state.need_of_known, known)
        return
    unfinished = [job for job in jobs.by_id.values() if not job.has_ended]
    if _count_of(unfinished, command) >= UNFINISHED_OF_USER_MAX:
        raise InvalidOptions(
            f"{UNFINISHED_OF_USER_MAX} jobs of user {plan.user!r} have not ended yet, the most there may be; cancel "
            "some of them, or wait"
        )
    if len(unfinished) >= UNFINISHED_MAX:
        raise InvalidOptions(
            f"{UNFINISHED_MAX} jobs have not ended yet, the most there may be; cancel some of them, or wait"
        )
    if plan.kind is JobKind.EXPORT_DEAD:
        _check_room_for_export(jobs, command)
    job = StoredJob(
        job_id=jobs.next_id,
        plan=plan,
        created_at=command.asked_at or step.now,
        changed_at=step.now,
        state=JobState.QUEUED,
        rate=command.rate,
        cursor=plan.first_id - 1,
        events=(JobEvent(step.now, "created", plan.note),),
    )
    # Before: what is forgotten stays so, also where there is no room for the new one, and the latest has to stay.
    forget_old(state, step)
    jobs.add(job)
    step.note(JobStarted(job), Durability.STRONG)
    step.undo.append(partial(jobs.drop, [job.job_id]))
    let_run(state, step)
    step.answer(command, jobs.by_id[job.job_id], Durability.STRONG)


def _count_of(jobs: list[StoredJob], command: StartJob) -> int:
    """How many belong to the user, and not to somebody who had the name before."""
    return sum(job.belongs_to(command.plan.user, command.since) for job in jobs)


def _check_room_for_export(jobs: JobTable, command: StartJob) -> None:
    """Raises InvalidOptions."""
    exports, user = jobs.exports(), command.plan.user
    remedy = "delete some with `vibemq-admin job discard JOB`"
    if user and _count_of(exports, command) >= EXPORTS_OF_USER_MAX:
        raise InvalidOptions(
            f"user {user!r} has {EXPORTS_OF_USER_MAX} files of exports, the most that a user may have; {remedy}"
        )
    if len(exports) >= EXPORTS_MAX:
        raise InvalidOptions(f"there are {EXPORTS_MAX} files of exports, the most there may be; {remedy}")


def change(state: EngineState, step: Step, command: ChangeJob) -> None:
    """Raises JobNotFound, JobStateConflict."""
    job = job_of(state, command.job_id)
    if command.turn is not None:
        _turn(state, step, job, wants=command.turn)
        step.answer(command, job, Durability.TRANSIENT)
        return
    wanted = None if command.state is job.state else command.state
    if wanted is None and command.rate in (None, job.rate) and not command.canary_passed:
        step.answer(command, job, state.need_of_known)
        return
    if job.has_ended:
        raise JobStateConflict(f"job {job.job_id} has ended ({job.state}); nothing of it can be changed")
    if wanted is not None:
        _check_move(job, wanted, by_user=bool(command.by))
    stopping = _stopping(step, job) if command.canary_passed else []
    records = stopping or _changes(state, step, job, command, wanted)
    if command.dry_run:
        would_be = reduce(changed, records, job)
        held = _held(step, would_be) if would_be.state is JobState.QUEUED and wanted is not None else None
        step.answer(command, would_be if held is None else changed(would_be, held), state.need_of_known)
        return
    for record in records:
        note(state, step, record)
    if stopping or wanted is not None:
        let_run(state, step)
        forget_old(state, step)
    step.answer(command, state.jobs.by_id[job.job_id], Durability.STRONG)


def _stopping(step: Step, job: StoredJob) -> list[JobChanged]:
    """What keeps a canary from passing, and holds its job: its first letters were looked at one after the other, none
    is left, and one may have died after the look. Nothing: it passes."""
    if job.state is not JobState.RUNNING:
        raise JobStateConflict(f"job {job.job_id} is {job.state}, and its first letters are not looked at")
    untried: list[JobChanged] = []
    if job.awaits_ack and not why_held(job):
        detail = "none of the letters replayed first was acknowledged, and none is left"
        untried = [JobChanged(job.job_id, step.now, JobEvent(step.now, UNTRIED, detail))]
    held = _held(step, reduce(changed, untried, job))
    return [*untried, held] if held is not None else []


def _changes(
    state: EngineState, step: Step, job: StoredJob, command: ChangeJob, wanted: JobState | None
) -> list[JobChanged]:
    """`wanted`: None when the job is in that state already."""
    knows = wanted is JobState.RUNNING and job.state is JobState.HELD and bool(why_held(job))
    records: list[JobChanged] = []
    for number, event in enumerate(_events(step, job, command, wanted)):
        first = number == 0
        records.append(
            JobChanged(
                job.job_id,
                step.now,
                event,
                _reached(state, job, wanted) if first else None,
                command.why if first else "",
                command.rate if first and command.rate is not None else -1.0,
                # Whoever lets a job go on that is held because of its letters knows of them.
                command.canary_passed or (first and knows),
            )
        )
    return records


def _reached(state: EngineState, job: StoredJob, wanted: JobState | None) -> JobState | None:
    """A job that shall go on waits while others run; what died meanwhile holds it when its turn comes."""
    if wanted is not JobState.RUNNING:
        return wanted
    died = job.state is not JobState.HELD and why_held(job)
    return JobState.QUEUED if died or not state.jobs.has_room() else wanted


def _turn(state: EngineState, step: Step, job: StoredJob, *, wants: bool) -> None:
    jobs = state.jobs
    if job.state is not JobState.RUNNING:
        raise JobStateConflict(f"job {job.job_id} is {job.state}, and does nothing")
    if not wants:
        jobs.waiting.add(job.job_id)
        let_run(state, step)
    elif job.job_id in jobs.waiting:
        if not jobs.has_room():
            raise JobStateConflict(f"it is not the turn of job {job.job_id}: {RUNNING_MAX} others go on")
        jobs.waiting.discard(job.job_id)


def _check_move(job: StoredJob, wanted: JobState, *, by_user: bool) -> None:
    if by_user:
        if wanted not in _BY_USERS:
            raise JobStateConflict(f"a job becomes {wanted} by itself; ask for paused, running or cancelled")
        allowed = job.state in _BY_USERS[wanted]
        # One that waits for its turn would run if it could.
        allowed = allowed or (wanted is JobState.RUNNING and job.state is JobState.QUEUED)
    else:
        allowed = job.state is JobState.RUNNING
    if not allowed:
        raise JobStateConflict(f"job {job.job_id} is {job.state}, and cannot become {wanted}")


def _events(step: Step, job: StoredJob, command: ChangeJob, wanted: JobState | None) -> list[JobEvent]:
    events: list[JobEvent] = []
    by = f"by {command.by}" if command.by else ""
    if wanted is not None:
        name = _WORDS.get(wanted, wanted.value) if command.by else wanted.value
        events.append(JobEvent(step.now, name, command.why or by))
    if command.rate is not None and command.rate != job.rate:
        limit = f"{command.rate:g} letters/s" if command.rate else "no limit"
        events.append(JobEvent(step.now, "rate", f"{limit} {by}".strip()))
    if command.canary_passed:
        events.append(JobEvent(step.now, CANARY_PASSED, command.why))
    return events


def note(state: EngineState, step: Step, record: JobChanged) -> None:
    state.jobs.put(changed(state.jobs.by_id[record.job_id], record))
    step.note(record, Durability.STRONG)


def job_of(state: EngineState, job_id: int) -> StoredJob:
    job = state.jobs.by_id.get(job_id)
    if job is None:
        raise JobNotFound(str(job_id))
    return job


def hold(state: EngineState, step: Step, job: StoredJob) -> bool:
    """If its guards say so."""
    held = _held(step, job)
    if held is not None:
        note(state, step, held)
    return held is not None


def _held(step: Step, job: StoredJob) -> JobChanged | None:
    why = why_held(job)
    return JobChanged(job.job_id, step.now, JobEvent(step.now, "held", why), JobState.HELD, why) if why else None


def let_run(state: EngineState, step: Step) -> None:
    """As many as may, those that were made first before the others."""
    room = state.jobs.room
    for job in list(state.jobs.by_id.values()):
        if job.state is not JobState.QUEUED or hold(state, step, job) or room <= 0:
            continue
        room -= 1
        word = "resumed" if job.started_at else "started"
        note(state, step, JobChanged(job.job_id, step.now, JobEvent(step.now, word), JobState.RUNNING))


def forget(state: EngineState, step: Step, command: ForgetJobs) -> None:
    forget_old(state, step)


def forget_old(state: EngineState, step: Step) -> None:
    """Those that have ended long ago, or are too many; the latest job stays, since the next is numbered behind it."""
    jobs = state.jobs
    old = jobs.old(step.now)
    others = {job.job_id for job in old} | jobs.with_file | {jobs.latest_id}
    counted = sorted(
        (job for job in jobs.by_id.values() if job.has_ended and job.job_id not in others),
        key=lambda job: (job.ended_at, job.job_id),
    )
    gone = [job.job_id for job in (*old, *_too_many(counted))]
    if gone:
        state.jobs.drop(gone)
        step.note(JobsForgotten(gone), Durability.STRONG)


def _too_many(ended: Iterable[StoredJob]) -> list[StoredJob]:
    """`ended`: the oldest first."""
    by_user: defaultdict[str, deque[StoredJob]] = defaultdict(deque)
    for job in ended:
        by_user[job.plan.user].append(job)
    count = sum(map(len, by_user.values())) - FINISHED_MAX
    # `max` takes the first of equals, which has the oldest job.
    return [max(by_user.values(), key=len).popleft() for _ in range(count)]
