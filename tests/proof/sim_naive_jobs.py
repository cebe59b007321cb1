"""A naive account of jobs: what their batches say, compared with the letters that these have moved."""

from dataclasses import dataclass, field, replace

from vibemq.model.jobs.job import ACKNOWLEDGED, UNTRIED, JobState, StoredJob
from vibemq.model.jobs.job_records import (
    JobAdvanced,
    JobChanged,
    JobLettersDied,
    JobMadeSettled,
    JobRecord,
    JobsForgotten,
    JobStarted,
)
from vibemq.model.records import DeadLettered, DeadRemoved, Dropped, MessagesAdded, Reason, Record, Settled

_WITHOUT_LETTER = (Reason.REJECTED, Reason.MAX_ATTEMPTS)


class Unbalanced(AssertionError):
    """A record counts what its batch has not done."""


@dataclass(slots=True)
class NaiveJob:
    """What the batches of a job say of it."""

    state: JobState
    done: int = 0
    skipped: int = 0
    cursor: int = 0
    dead_again: int = 0
    gone: int = 0
    acknowledged: bool = False
    untried: bool = False
    made: set[tuple[int, int]] = field(default_factory=set)
    """(queue_id, sequence)"""

    def copy(self) -> "NaiveJob":
        return replace(self, made=set(self.made))

    def agrees(self, job: StoredJob) -> bool:
        made = {(queue_id, s) for queue_id, first, last in job.made for s in range(first, last + 1)}
        return self == NaiveJob(
            job.state,
            job.done,
            job.skipped,
            job.cursor,
            job.dead_again,
            job.gone,
            job.acknowledged,
            job.untried,
            made,
        )


def apply_job_record(jobs: dict[int, NaiveJob], record: JobRecord, batch: list[Record]) -> None:
    """Raises Unbalanced: what the record counts is not what its batch has done."""
    match record:
        case JobStarted(job):
            jobs[job.job_id] = NaiveJob(job.state)
        case JobsForgotten(job_ids):
            for job_id in job_ids:
                jobs.pop(job_id, None)
        case _ if record.job_id not in jobs:
            return
        case JobAdvanced():
            _advance(jobs[record.job_id], record, batch)
        case JobChanged():
            _change(jobs[record.job_id], record)
        case JobMadeSettled():
            for queue_id, first, last in record.stretches:
                jobs[record.job_id].made -= {(queue_id, s) for s in range(first, last + 1)}
        case JobLettersDied():
            job = jobs[record.job_id]
            died = {(record.queue_id, s) for first, last in record.runs for s in range(first, last + 1)}
            if record.gone:
                if not died <= job.made:
                    raise Unbalanced(f"job {record.job_id} counts as gone what it has not made: {sorted(died)}")
                job.gone += len(died)
                return
            if not died <= job.made or not died <= _failed(batch):
                raise Unbalanced(f"job {record.job_id} counts deaths that are none of its messages: {sorted(died)}")
            job.dead_again += len(died)


def _change(job: NaiveJob, record: JobChanged) -> None:
    job.state = record.state or job.state
    if record.event.event == ACKNOWLEDGED:
        # Of which message is not checked: one that a full disk has taken back was acknowledged all the same, and the
        # commit of a cursor that holds settles nothing yet.
        job.acknowledged = True
    if record.event.event == UNTRIED:
        if job.acknowledged:
            raise Unbalanced(f"job {record.job_id} was acknowledged, and is told that it is untried")
        job.untried = True


def _settled(batch: list[Record]) -> set[tuple[int, int]]:
    settled = (record for record in batch if isinstance(record, Settled))
    return {(r.queue_id, s) for r in settled for first, last in r.runs for s in range(first, last + 1)}


def _failed(batch: list[Record]) -> set[tuple[int, int]]:
    """What leaves a group as a letter, or, where none are kept, without one."""
    failed = {(r.queue_id, one.sequence) for r in batch if isinstance(r, DeadLettered) for one in r.letters}
    failed |= _settled(batch)
    for record in batch:
        if isinstance(record, Dropped) and record.reason in _WITHOUT_LETTER:
            failed |= {(record.queue_id, s) for first, last in record.runs for s in range(first, last + 1)}
    return failed


def _advance(job: NaiveJob, record: JobAdvanced, batch: list[Record]) -> None:
    removed = [len(r.dead_ids) for r in batch if isinstance(r, DeadRemoved)]
    if record.done and record.done not in removed:
        raise Unbalanced(f"job {record.job_id} counts {record.done} letters, and {removed} have left in its batch")
    if record.queue_id:
        added = [
            (r.first_sequence, r.first_sequence + r.rows.count - 1)
            for r in batch
            if isinstance(r, MessagesAdded) and r.queue_id == record.queue_id
        ]
        within = any(first <= record.first and record.last <= last for first, last in added)
        if not within or record.last - record.first + 1 != record.done:
            raise Unbalanced(f"job {record.job_id} counts messages {record.first} to {record.last}, made were {added}")
        job.made |= {(record.queue_id, s) for s in range(record.first, record.last + 1)}
    job.done += record.done
    job.skipped += record.skipped
    job.cursor = max(job.cursor, record.cursor)
