"""What is known of the files of exports without asking the disk, and the end of those that nobody wants any more."""

import base64
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from vibemq.engine.handlers.jobs.starting import FINISHED_MS
from vibemq.errors import StorageError
from vibemq.model.jobs.job import JobState, StoredJob
from vibemq.operations.contracts import InstantSource
from vibemq.server.jobs.export_folder import ExportFolder, ExportName, ExportSize

Aside = Callable[..., Awaitable[Any]]
"""`StoreAccess.aside`: a long verb in a thread."""


class KeptJobs(Protocol):
    def get(self, job_id: int) -> StoredJob | None: ...


def name_of(job: StoredJob) -> ExportName:
    return ExportName(job.job_id, job.created_at)


class ExportFiles:
    """Of one broker. Without a data directory, or with `bytes_max` 0, there are none."""

    def __init__(
        self, folder: ExportFolder | None, jobs: KeptJobs, clock: InstantSource, aside: Aside, *, bytes_max: int
    ) -> None:
        self.folder = folder
        self._clock = clock
        self.bytes_max = bytes_max
        self._jobs = jobs
        self._aside = aside
        self._sizes: dict[ExportName, ExportSize] = {}

    async def begin(self) -> None:
        """Look what is there."""
        if self.folder is not None:
            self._sizes = await self._aside(self.folder.found)

    @property
    def why_none(self) -> str:
        """Why none can be made; "" = they can."""
        if self.folder is None:
            return "this broker has no data directory to write the file of an export into"
        if not self.bytes_max:
            return "the broker's settings (exports_bytes = 0) allow no files of exports"
        return ""

    @property
    def bytes_held(self) -> int:
        return sum(file.size_bytes for file in self._sizes.values())

    def size(self, job: StoredJob) -> int | None:
        """None: it has no file."""
        file = self._sizes.get(name_of(job))
        return None if file is None else file.size_bytes

    def is_whole(self, job: StoredJob) -> bool:
        file = self._sizes.get(name_of(job))
        return file is not None and file.is_whole

    def note(self, name: ExportName, size_bytes: int, *, is_whole: bool) -> None:
        self._sizes[name] = ExportSize(size_bytes, is_whole)

    async def read(self, job: StoredJob, offset: int, size: int) -> str:
        """A part of a whole file, as base64. Raises StorageError: it cannot be read."""
        assert self.folder is not None
        try:
            return str(await self._aside(_read, self.folder, name_of(job), offset, size))
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                self._sizes.pop(name_of(job), None)
            raise StorageError(
                f"the file of job {job.job_id} cannot be read: {error.strerror or error}; start the export again"
            ) from error

    async def discard(self, job: StoredJob) -> None:
        """Raises StorageError."""
        await self._remove(name_of(job))

    async def _remove(self, name: ExportName) -> None:
        """Raises StorageError."""
        assert self.folder is not None
        try:
            await self._aside(self.folder.remove, name)
        except OSError as error:
            raise StorageError(f"the file of job {name.job_id} cannot be deleted: {error.strerror or error}") from error
        self._sizes.pop(name, None)

    async def tidy(self) -> None:
        """Delete the files of jobs that are not kept any more, or have ended long ago or without a whole one. Raises
        StorageError."""
        for name in [name for name in self._sizes if self._is_waste(name)]:
            await self._remove(name)

    def _is_waste(self, name: ExportName) -> bool:
        job = self._jobs.get(name.job_id)
        if job is None or job.created_at != name.created_at:
            return True
        too_old = job.has_ended and job.ended_at < self._clock.now() - FINISHED_MS
        return too_old or job.state in (JobState.CANCELLED, JobState.FAILED)


def _read(folder: ExportFolder, name: ExportName, offset: int, size: int) -> str:
    return base64.b64encode(folder.read(name, offset, size)).decode()
