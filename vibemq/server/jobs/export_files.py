"""What is known of the files of exports without asking the disk, and the end of those that nobody wants any more."""

import base64
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from vibemq.errors import StorageError
from vibemq.model.jobs.job import JobState, StoredJob
from vibemq.operations.contracts import InstantSource
from vibemq.server.jobs.export_folder import ExportFolder, ExportName, ExportSize

log = logging.getLogger("vibemq.jobs")

USER_SHARE = 2
Aside = Callable[..., Awaitable[Any]]
"""`StoreAccess.aside`: a long verb in a thread."""


class KeptJobs(Protocol):
    def get(self, job_id: int) -> StoredJob | None: ...

    def file_kept(self, job_id: int) -> None: ...

    def file_gone(self, job_id: int) -> None: ...


def name_of(job: StoredJob) -> ExportName:
    return ExportName(job.job_id, job.created_at)


class ExportFiles:
    """Of one broker. Without a data directory, or with `bytes_max` 0, there are none."""

    def __init__(
        self,
        folder: ExportFolder | None,
        jobs: KeptJobs,
        clock: InstantSource,
        aside: Aside,
        *,
        bytes_max: int,
        has_users: Callable[[], bool],
    ) -> None:
        """`has_users`: whether there is authentication."""
        self.folder = folder
        self._clock = clock
        self.bytes_max = bytes_max
        self._jobs = jobs
        self._aside = aside
        self._has_users = has_users
        self._sizes: dict[ExportName, ExportSize] = {}
        self._kept_on: set[ExportName] = set()
        """Those that cannot be deleted, as the log says."""
        self.trouble = ""
        """Why the folder cannot be used; "" = it can."""

    async def begin(self) -> None:
        """Look what is there. A broker starts also where nothing can be exported."""
        if self.folder is None:
            return
        try:
            found: dict[ExportName, ExportSize] = await self._aside(self.folder.found)
        except OSError as error:
            self.trouble = (
                f"the folder {self.folder.path} cannot be used ({error.strerror or error}); repair that and start the "
                "broker again"
            )
            log.error("dead letters are not exported by jobs: %s", self.trouble)
            return
        for name, size in found.items():
            self.note(name, size.size_bytes, is_whole=size.is_whole)

    @property
    def why_none(self) -> str:
        """Why none can be made; "" = they can."""
        if self.folder is None:
            return "this broker has no data directory to write the file of an export into"
        if self.trouble:
            return self.trouble
        if not self.bytes_max:
            return "the broker's settings (exports_bytes = 0) allow no files of exports"
        return ""

    @property
    def user_bytes_max(self) -> int:
        """Of the files of one user: nobody takes all the room. Without authentication there is one user."""
        return self.bytes_max // USER_SHARE if self._has_users() else self.bytes_max

    @property
    def bytes_held(self) -> int:
        return sum(file.size_bytes for file in self._sizes.values())

    def bytes_of_maker(self, job: StoredJob) -> int:
        """Of the files that the jobs of its user have written."""
        others = ((self._jobs.get(name.job_id), file) for name, file in self._sizes.items())
        return sum(file.size_bytes for other, file in others if other is not None and other.has_maker_of(job))

    def size(self, job: StoredJob) -> int | None:
        """None: it has no file."""
        file = self._sizes.get(name_of(job))
        return None if file is None else file.size_bytes

    def is_whole(self, job: StoredJob) -> bool:
        file = self._sizes.get(name_of(job))
        return file is not None and file.is_whole

    def note(self, name: ExportName, size_bytes: int, *, is_whole: bool) -> None:
        self._sizes[name] = ExportSize(size_bytes, is_whole)
        self._jobs.file_kept(name.job_id)

    def _forget(self, name: ExportName) -> None:
        self._sizes.pop(name, None)
        if all(other.job_id != name.job_id for other in self._sizes):
            self._jobs.file_gone(name.job_id)

    async def read(self, job: StoredJob, offset: int, size: int) -> str:
        """A part of a whole file, as base64. Raises StorageError: it cannot be read."""
        assert self.folder is not None
        try:
            return str(await self._aside(_read, self.folder, name_of(job), offset, size))
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                self._forget(name_of(job))
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
        self._forget(name)

    async def tidy(self) -> None:
        """Delete the files of jobs that are not kept any more, or have ended long ago or without a whole one. One that
        cannot be deleted is tried again the next time."""
        waste = [(name, why) for name in self._sizes if (why := self._why_waste(name))]
        self._kept_on.intersection_update(name for name, _ in waste)
        for name, why in waste:
            try:
                await self._remove(name)
            except StorageError as error:
                if name not in self._kept_on:
                    self._kept_on.add(name)
                    log.error("%s; it is tried again and again", error)
            else:
                self._kept_on.discard(name)
                log.info("the file of job %s was deleted: %s", name.job_id, why)

    def _why_waste(self, name: ExportName) -> str:
        """ "" = it is none."""
        job = self._jobs.get(name.job_id)
        if job is None or job.created_at != name.created_at:
            return "there is no such job any more"
        if job.state in (JobState.CANCELLED, JobState.FAILED):
            return f"the job is {job.state}"
        return "the job has ended seven days ago" if job.is_over(self._clock.now()) else ""


def _read(folder: ExportFolder, name: ExportName, offset: int, size: int) -> str:
    return base64.b64encode(folder.read(name, offset, size)).decode()
