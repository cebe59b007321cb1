"""A job's step: what it counts stands in the batch of the letters that it has moved."""

from functools import partial

from vibemq.engine.handlers.jobs.starting import job_of
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import JobStateConflict
from vibemq.model.commands import AdvanceJob, ForgetMade, PurgeDead, ReplayDead
from vibemq.model.effects import JobStepped
from vibemq.model.jobs.job import JobState, JobStep, StoredJob
from vibemq.model.jobs.job_records import JobAdvanced, JobMadeSettled, advanced, relieved, taken_back
from vibemq.model.options import Durability
from vibemq.model.runs import Run


def running_job(state: EngineState, of: JobStep) -> StoredJob:
    """Raises JobNotFound, JobStateConflict: nothing may be done for it now."""
    job = job_of(state, of.job_id)
    if job.state is not JobState.RUNNING:
        raise JobStateConflict(f"job {job.job_id} is {job.state}, and does nothing")
    return job


def count_step(
    state: EngineState,
    step: Step,
    command: ReplayDead | PurgeDead | AdvanceJob,
    *,
    done: int,
    skipped: int = 0,
    passed: int = 0,
    left: int = 0,
    too_large: int = 0,
    queue: Queue | None = None,
    run: Run | None = None,
    need: Durability = Durability.STRONG,
) -> None:
    """And answer the command. `run`: the messages that the step has made in `queue`.

    When letters are left, the cursor stays before them, and they are counted when it moves on. So are those that are
    `passed` over.
    """
    of = command.step
    assert of is not None
    before = running_job(state, of)
    moves = bool(of.cursor) and not left
    made = (queue.queue_id, *run) if queue is not None and run is not None else (0, 0, 0)
    record = JobAdvanced(
        of.job_id,
        step.now,
        of.cursor if moves else 0,
        of.examined if moves else done + skipped,
        done,
        skipped + (passed + of.passed if moves else 0),
        of.damaged if moves else 0,
        *made,
    )
    job = advanced(before, record)
    if job != before:
        state.jobs.put(job)
        step.note(record, need)
        if made[0]:
            state.jobs.note_made(*made, of.job_id)
            state.jobs.forget_made(before, job)
            # It counts with the messages, and goes with them when they cannot be stored.
            step.undo.append(partial(_take_back, state, record, before.cursor))
    answer = step.answer if made[0] else step.answer_standing
    answer(command, JobStepped(done, left, job, passed, too_large), need)


def advance(state: EngineState, step: Step, command: AdvanceJob) -> None:
    running_job(state, command.step)
    count_step(state, step, command, done=command.step.done)


def forget_made(state: EngineState, step: Step, command: ForgetMade) -> None:
    """Raises JobNotFound."""
    job = job_of(state, command.job_id)
    known = set(job.made)
    record = JobMadeSettled(job.job_id, [stretch for stretch in command.stretches if stretch in known])
    state.jobs.put(relieved(job, record))
    for stretch in record.stretches:
        state.jobs.forget_stretch(*stretch)
    # The settlements stand before it: it is lost, if ever, together with them.
    step.note(record, Durability.ASYNC)
    step.answer_standing(command, None, Durability.ASYNC)


def _take_back(state: EngineState, record: JobAdvanced, cursor: int) -> None:
    """What could not be stored was not counted. `cursor`: where the job was before."""
    job = state.jobs.by_id.get(record.job_id)
    if job is not None:
        state.jobs.put(taken_back(job, record, cursor))
        state.jobs.forget_stretch(record.queue_id, record.first, record.last)
