"""What becomes of the messages that a job has made: they are acknowledged, are dead letters again, or leave their queue
otherwise."""

from collections.abc import Iterable

from vibemq.engine.handlers.jobs.guards import why_held
from vibemq.engine.handlers.jobs.starting import hold, let_run
from vibemq.engine.queue.queue import Queue
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step, heavy
from vibemq.model.jobs.job import ACKNOWLEDGED, JobEvent, JobState, StoredJob
from vibemq.model.jobs.job_records import JobChanged, JobLettersDied, bereaved, changed
from vibemq.model.options import Durability
from vibemq.model.runs import Run

_HOLDS = frozenset((JobState.QUEUED, JobState.RUNNING))
"""One that somebody has paused is held when it shall go on."""


def note_tried(state: EngineState, step: Step, queue: Queue, runs: Iterable[Run]) -> None:
    """A consumer has acknowledged them: it is noted once of each canary."""
    made = state.jobs.made.get(queue.queue_id)
    if made is None:
        return
    for run in runs:
        for job_id, (first, _) in made.within(*run):
            if job_id not in state.jobs.awaiting_ack:
                continue
            event = JobEvent(step.now, ACKNOWLEDGED, f"message {first} of queue {queue.name}, the first of its canary")
            record = JobChanged(job_id, step.now, event)
            state.jobs.put(changed(state.jobs.by_id[job_id], record))
            # It is lost, if ever, with the acknowledgement, which is then given again.
            step.note(record, Durability.ASYNC)
            if not state.jobs.awaiting_ack:
                return


def note_gone(state: EngineState, step: Step) -> None:
    """What the step has given up: each canary counts those of its own messages."""
    given_up, step.given_up = step.given_up, {}
    for queue, gone in given_up.items():
        made = state.jobs.made.get(queue.queue_id)
        for job in list(state.jobs.by_id.values()) if made is not None else ():
            if not job.in_canary:
                continue
            runs = [part for queue_id, *run in job.made if queue_id == queue.queue_id for part in gone.overlap(*run)]
            if runs:
                record = JobLettersDied(job.job_id, queue.queue_id, runs, gone=True)
                after = bereaved(job, record)
                state.jobs.put(after)
                step.note(record, max(Durability.ASYNC, heavy(queue)))
                if _is_to_be_told(job):
                    hold(state, step, after)


def note_deaths(state: EngineState, step: Step, queue: Queue, runs: Iterable[Run]) -> None:
    """In the batch of the letters: each job counts those of its own messages, and is held when its guards say so."""
    made = state.jobs.made.get(queue.queue_id)
    if made is None:
        return
    by_job: dict[int, list[Run]] = {}
    for run in runs:
        for job_id, part in made.within(*run):
            if job_id in state.jobs.by_id:
                by_job.setdefault(job_id, []).append(part)
    for job_id, died in by_job.items():
        record = JobLettersDied(job_id, queue.queue_id, died)
        before = state.jobs.by_id[job_id]
        job = bereaved(before, record)
        state.jobs.put(job)
        step.note(record, max(Durability.ASYNC, heavy(queue)))
        if (job.state in _HOLDS or _is_to_be_told(before)) and hold(state, step, job):
            let_run(state, step)


def _is_to_be_told(before: StoredJob) -> bool:
    """Whether a job that is held for another reason has to say this one too: whoever resumes it shall know."""
    return before.state is JobState.HELD and not why_held(before)
