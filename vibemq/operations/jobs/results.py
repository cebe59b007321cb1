"""The files that jobs leave: exported letters, read in parts, and deleted."""

import logging
from typing import Any, Protocol

from pydantic import Field

from vibemq.auth.policy import Policy
from vibemq.errors import InvalidOptions, JobStateConflict
from vibemq.model.jobs.job import JobKind, JobState, StoredJob
from vibemq.operations.arguments import CanBeTried, Whole
from vibemq.operations.contracts import EngineQuestions
from vibemq.operations.jobs.numbers import OfJob
from vibemq.operations.jobs.rights import check_discard, check_seen, check_work, queue_of
from vibemq.operations.registry import Caller, Operation

log = logging.getLogger("vibemq.jobs")

PART_BYTES = 256 << 10


class ExportedFiles(Protocol):
    @property
    def why_none(self) -> str:
        """Why none can be made; "" = they can."""

    def size(self, job: StoredJob) -> int | None:
        """None: it has no file."""

    def is_whole(self, job: StoredJob) -> bool: ...

    async def read(self, job: StoredJob, offset: int, size: int) -> str:
        """A part of a whole file, as base64. Raises StorageError."""

    async def discard(self, job: StoredJob) -> None:
        """Raises StorageError."""


def result_json(job: StoredJob, files: ExportedFiles) -> dict[str, Any]:
    """What a job shows of its file."""
    if job.plan.kind is not JobKind.EXPORT_DEAD:
        return {}
    return {"size_bytes": files.size(job), "has_result": _has_result(job, files)}


def check_export(files: ExportedFiles) -> None:
    """Raises InvalidOptions."""
    if files.why_none:
        raise InvalidOptions(f"nothing can be exported by a job: {files.why_none}; use `vibemq-admin dlq export FILE`")


def _has_result(job: StoredJob, files: ExportedFiles) -> bool:
    return job.state is JobState.DONE and files.is_whole(job)


class ResultArguments(OfJob):
    offset: Whole = Field(0, description="Where the part begins, in bytes.")


class DiscardArguments(CanBeTried, OfJob):
    """The job whose file shall go."""


class JobResults:
    def __init__(self, engine: EngineQuestions, policy: Policy, files: ExportedFiles) -> None:
        self._engine = engine
        self._policy = policy
        self._files = files

    async def result(self, caller: Caller, wanted: ResultArguments) -> dict[str, Any]:
        """Raises JobNotFound, NotAuthorized, JobStateConflict, StorageError."""
        job = check_seen(self._policy, caller.principal, self._engine.jobs.get(int(wanted.job)), wanted.job)
        # Whoever made it may have lost the right since.
        check_work(self._policy, caller.principal, job.plan.kind, queue_of(job), job.plan.to, "job.result")
        size = self._size(job)
        if not wanted.offset:
            # Once for a download: whoever leaves out the beginning has not got the file.
            log.info("the file of job %s (%s bytes) is read by %s", job.job_id, size, _name_of(caller))
        data = await self._files.read(job, wanted.offset, PART_BYTES) if wanted.offset < size else ""
        end = wanted.offset + PART_BYTES
        return {
            "job": wanted.job,
            "size_bytes": size,
            "offset": wanted.offset,
            "data": data,
            "next": end if end < size else None,
        }

    async def discard(self, caller: Caller, wanted: DiscardArguments) -> dict[str, Any]:
        """Raises JobNotFound, NotAuthorized, JobStateConflict, StorageError."""
        job = check_seen(self._policy, caller.principal, self._engine.jobs.get(int(wanted.job)), wanted.job)
        check_discard(self._policy, caller.principal, job)
        size = self._size(job)
        if not wanted.dry_run:
            await self._files.discard(job)
            log.info("the file of job %s (%s bytes) was deleted by %s", job.job_id, size, _name_of(caller))
        return {"job": wanted.job, "size_bytes": size}

    def _size(self, job: StoredJob) -> int:
        """Of its file. Raises JobStateConflict: there is none to be had."""
        number = job.job_id
        if job.plan.kind is not JobKind.EXPORT_DEAD:
            raise JobStateConflict(f"job {number} is no export, and has no file")
        if not job.has_ended:
            raise JobStateConflict(f"job {number} is {job.state}; its file can be had when it is done")
        if not _has_result(job, self._files):
            raise JobStateConflict(
                f"job {number} is {job.state} and has no file any more: it was deleted, or the job did not come to its "
                "end; start the export again"
            )
        size = self._files.size(job)
        assert size is not None
        return size


def _name_of(caller: Caller) -> str:
    return caller.principal.name if caller.principal is not None else "nobody"


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "job.result",
        "A part of the file of an export, as base64: lines of JSON, the last of which counts the letters. What the job "
        "needs is needed.",
        ResultArguments,
        JobResults,
        task=JobResults.result,
        reads_bodies=lambda wanted: True,
    ),
    Operation(
        "job.discard",
        "Delete the file of an export before its time, which is seven days after the end of the job. The maker of the "
        "job may, and superusers.",
        DiscardArguments,
        JobResults,
        task=JobResults.discard,
        logged=True,
        audited=True,
    ),
]
