"""Messages that a job has made and that become dead letters again."""

from collections.abc import Sequence

from vibemq.engine.handlers.jobs.starting import let_run, note
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy
from vibemq.model.jobs.job import JobEvent, JobState, StoredJob
from vibemq.model.jobs.job_records import JobChanged, JobLettersDied, bereaved
from vibemq.model.options import Durability
from vibemq.model.runs import runs_of


def note_deaths(state: EngineState, step: Step, queue: Queue, sequences: Sequence[int]) -> None:
    """In the batch of the letters: each job counts those of its own messages, and is held when its guards say so."""
    made = state.jobs.made.get(queue.queue_id)
    if made is None:
        return
    by_job: dict[int, list[int]] = {}
    for sequence in sequences:
        job_id = made.maker(sequence)
        if job_id in state.jobs.by_id:
            by_job.setdefault(job_id, []).append(sequence)
    for job_id, died in by_job.items():
        record = JobLettersDied(job_id, queue.queue_id, runs_of(died))
        job = bereaved(state.jobs.by_id[job_id], record)
        state.jobs.put(job)
        step.note(record, max(Durability.ASYNC, heavy(queue)))
        why = _why_held(job)
        if why:
            event = JobEvent(step.now, "held", why)
            note(state, step, JobChanged(job_id, step.now, event, JobState.HELD, why))
            let_run(state, step)


def _why_held(job: StoredJob) -> str:
    """ "" = it goes on."""
    if job.state is not JobState.RUNNING:
        return ""
    died = job.dead_again - job.forgiven
    if job.in_canary and died:
        return (
            f"{died} of the first {job.done} letters died again, so no others were replayed; look at their errors, "
            "then resume the job or cancel it"
        )
    stop = job.plan.stop_after_dead_again
    if stop and died >= stop:
        return f"{died} of its letters died again; look at their errors, then resume the job or cancel it"
    return ""
