"""One export at work: letters become lines of its file.

A step writes and flushes its lines, and only then asks the engine to count them. Whoever goes on after an interruption
cuts off what is not counted, so each letter stands in the file once.
"""

import base64
import logging
from collections.abc import Sequence
from typing import Any

import orjson

from vibemq.errors import StorageError
from vibemq.model.jobs.job import StoredJob
from vibemq.model.rows import LARGE_ROW_BYTES, RowView
from vibemq.model.stored import DeadLetter
from vibemq.operations.contracts import StoreAccess
from vibemq.operations.messages import letter_json, payload_json
from vibemq.operations.reading.instants import with_instants
from vibemq.server.jobs.export_files import ExportFiles, name_of
from vibemq.server.jobs.export_folder import MARK_EVERY_BYTES, NO_ROOM, ExportFolder, ExportLost, NoRoom

log = logging.getLogger("vibemq.jobs")

PIECE_BYTES = 96 << 10
"""Of a large body; a multiple of 3, so that the pieces of its base64 are one text."""


class MustWait(Exception):
    """The sentence says what for."""


class LetterExport:
    def __init__(self, store: StoreAccess, files: ExportFiles) -> None:
        self._store = store
        self._files = files
        self._lines = -1
        """Of the file, that the engine has counted; -1 = nobody has looked at it yet."""
        self._size = 0
        self._added = (0, 0)
        """(lines, bytes) behind these."""
        self._marked = 0
        """The size that the file had when its last mark was made."""
        self._is_whole = False

    async def add(self, job: StoredJob, letters: Sequence[DeadLetter]) -> None:
        """Write their lines behind those that are counted. Raises MustWait, StorageError."""
        folder = await self._begun(job)
        if not letters:
            self._added = (0, 0)
            return
        size = await self._write(folder, job, await self._store.aside(lines_of, letters))
        self._added = (len(letters), size)

    def counted(self, job: StoredJob) -> None:
        """The engine has counted what was added last."""
        lines, size = self._added
        if not lines:
            # Nothing was written, also not into a file that is whole already.
            return
        self._lines, self._size, self._added = self._lines + lines, self._size + size, (0, 0)
        self._files.note(name_of(job), self._size, is_whole=False)

    async def finish(self, job: StoredJob) -> None:
        """The file is whole. Raises MustWait, StorageError."""
        if self._is_whole:
            return
        folder = await self._begun(job)
        tail = orjson.dumps({"count": job.done, "damaged": job.damaged}) + b"\n"
        await self._write(folder, job, [tail])
        await self._do(folder.finish, name_of(job))
        self._is_whole = True
        self._files.note(name_of(job), self._size + len(tail), is_whole=True)

    async def _begun(self, job: StoredJob) -> ExportFolder:
        folder = self._files.folder
        if self._files.trouble:
            raise MustWait(self._files.trouble)
        if folder is None or not self._files.bytes_max:
            raise StorageError(f"the export cannot go on: {self._files.why_none}")
        if self._lines != job.done:
            self._size = await self._do(folder.resume, name_of(job), job.done)
            self._lines, self._marked = job.done, self._size
            self._files.note(name_of(job), self._size, is_whole=False)
        return folder

    async def _write(self, folder: ExportFolder, job: StoredJob, pieces: Sequence[bytes]) -> int:
        """How many bytes. Raises MustWait, StorageError."""
        held, most, size = self._files.bytes_held, self._files.bytes_max, sum(map(len, pieces))
        user, share = job.plan.user, self._files.user_bytes_max
        if self._size + size > share:
            raise StorageError(
                f"its file would have more than {share:,} bytes, the most that the files of a user may have (settings: "
                "exports_bytes); export fewer letters with each of several jobs"
            )
        if held + size > most:
            raise MustWait(
                f"the files of exports have {held:,} bytes, and may have {most:,} (settings: exports_bytes); delete "
                "one with `vibemq-admin job discard JOB`, or cancel the job"
            )
        if (own := self._files.bytes_of_maker(job)) + size > share:
            raise MustWait(
                f"the files of exports of user {user!r} have {own:,} bytes, and may have {share:,}, half of "
                "exports_bytes of the settings; delete one with `vibemq-admin job discard JOB`, or cancel a job"
            )
        if self._size - self._marked >= MARK_EVERY_BYTES:
            await self._mark(folder, job)
        await self._do(folder.append, name_of(job), self._size, pieces)
        return size

    async def _mark(self, folder: ExportFolder, job: StoredJob) -> None:
        """Whoever goes on after an interruption counts from there. Without a mark more is read, and nothing is lost."""
        self._marked = self._size
        try:
            await self._store.aside(folder.mark, name_of(job), self._lines, self._size)
        except OSError as error:
            log.debug("the file of job %s has no new mark: %s", job.job_id, error)

    async def _do(self, work: Any, *arguments: Any) -> Any:
        """Raises MustWait, StorageError."""
        try:
            return await self._store.aside(work, *arguments)
        except NoRoom as error:
            raise MustWait(f"{error}; it goes on when there is room") from None
        except ExportLost:
            raise StorageError(
                "its file does not hold any more what was written into it; somebody has removed or changed it: start "
                "the export again"
            ) from None
        except OSError as error:
            if error.errno in NO_ROOM:
                # A part of it may be done: whoever goes on looks at the file again.
                self._lines = -1
                raise MustWait(f"its file cannot be written: {error.strerror}; it goes on when there is room") from None
            raise StorageError(
                f"its file cannot be written: {error.strerror or error}; repair that and start the export again"
            ) from error


def lines_of(letters: Sequence[DeadLetter]) -> list[bytes]:
    """As GET /dead-letters/export writes them, and bodies of any size whole. In pieces: whoever encodes much in one go
    keeps all other threads waiting, the event loop's among them."""
    pieces: list[bytes] = []
    for letter in letters:
        view = RowView(letter.row)
        shown = with_instants(letter_json(letter, with_payload=False))
        if view.payload_size <= LARGE_ROW_BYTES:
            pieces.append(orjson.dumps({**shown, **payload_json(view.payload)}) + b"\n")
            continue
        pieces.append(orjson.dumps(shown)[:-1] + b',"payload_base64":"')
        offsets = range(0, view.payload_size, PIECE_BYTES)
        pieces += [base64.b64encode(view.payload_part(offset, PIECE_BYTES)) for offset in offsets]
        pieces.append(b'"}\n')
    return pieces
