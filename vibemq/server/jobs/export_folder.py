"""The files of exports, one for each job, in the folder `exports/` of the data directory.

    dead-letters-17-1764123456789.ndjson        of job 17, which was made at that instant: whole
    dead-letters-17-1764123456789.ndjson.part   not whole: the job goes on with it, and its last line may be cut
    dead-letters-17-1764123456789.ndjson.mark   how many lines stand before an offset of that, see `ExportMark`

Mode 0600, in a folder of mode 0700. Each line is a letter; the last line of a whole file counts them. A file is whole,
and flushed, when it takes its name without `.part`.

Everything here blocks. The engine's records say how many lines count: what is behind them was written before the broker
ended, and not counted. Whoever goes on cuts it off.
"""

import errno
import logging
import os
import re
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vibemq.storage.local.store_file import fsync_folder, make_folder

log = logging.getLogger("vibemq.jobs")

FOLDER = "exports"
FREE_KEPT_SHARE = 5
"""An export leaves a fifth of the disk free, or twice the reserve below which the broker slows publishers down."""
NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Errors after which the same may be done when there is room."""
BLOCK_BYTES = 1 << 20
MARK_EVERY_BYTES = 16 << 20
"""Whoever goes on with a file reads no more than that of it, and what the mark is checked by."""
MARKED_BYTES = 64 << 10
"""So many before the offset of a mark are in its sum."""
MARK_BYTES_MAX = 64
_PART = ".part"
_MARK = ".mark"
_NEW = ".new"
_NAME = re.compile(r"dead-letters-([1-9][0-9]{0,17})-([0-9]{1,18})\.ndjson(\.part)?")
_MARK_NAME = re.compile(r"(dead-letters-[1-9][0-9]{0,17}-[0-9]{1,18}\.ndjson)\.mark(\.new)?")
_MARK_LINE = re.compile(rb"([0-9]{1,15}) ([0-9]{1,18}) ([0-9a-f]{8})\n")


class ExportName(NamedTuple):
    job_id: int
    created_at: int
    """A number may come again, when a store is lost or replaced; not with the same instant."""

    @property
    def whole(self) -> str:
        return f"dead-letters-{self.job_id}-{self.created_at}.ndjson"

    @property
    def part(self) -> str:
        return self.whole + _PART

    @property
    def mark(self) -> str:
        return self.whole + _MARK


class ExportSize(NamedTuple):
    size_bytes: int
    is_whole: bool


class ExportMark(NamedTuple):
    """So many lines end there, if the bytes before have the sum. Without a mark a file is counted from its start."""

    lines: int
    offset: int
    crc: int


class ExportLost(Exception):
    """The file does not hold what the job has written into it."""


class NoRoom(Exception):
    """Nothing was written."""


class ExportFolder:
    def __init__(
        self,
        folder: Path,
        *,
        reserve: Callable[[], int],
        disk_usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage,
    ) -> None:
        """
        Args:
            reserve: what `limits.disk_reserve_bytes` is now.
            disk_usage: (all, used, free) bytes of the disk that holds the folder.
        """
        self.path = folder
        self._reserve = reserve
        self._disk_usage = disk_usage

    def found(self) -> dict[ExportName, ExportSize]:
        """What is there. It is for its owner alone from now on; marks without a file are deleted. Raises OSError."""
        try:
            entries = sorted(os.listdir(self.path))
        except FileNotFoundError:
            return {}
        about = self.path.stat()
        # What belongs to somebody else, such as the root of a mounted volume, is left as it is.
        if about.st_mode & 0o077 and about.st_uid == os.geteuid():
            self.path.chmod(0o700)
        found: dict[ExportName, ExportSize] = {}
        for match in filter(None, map(_NAME.fullmatch, entries)):
            size = (self.path / match[0]).lstat().st_size
            found[ExportName(int(match[1]), int(match[2]))] = ExportSize(size, is_whole=match[3] is None)
        names = set(entries)
        for entry in entries:
            mark = _MARK_NAME.fullmatch(entry)
            if mark is not None and mark[1] + _PART not in names:
                self._drop_mark(entry)
        return found

    def resume(self, name: ExportName, lines: int) -> int:
        """Cut the file behind so many lines, of which 0 may be a file that is not there. The size that it has then.

        Raises ExportLost, OSError.
        """
        make_folder(self.path)
        whole, part = self.path / name.whole, self.path / name.part
        if whole.exists() and not part.exists():
            # It was finished, and the engine was not told before the broker ended.
            whole.rename(part)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if lines else os.O_CREAT)
        try:
            descriptor = os.open(part, flags, 0o600)
        except FileNotFoundError:
            raise ExportLost from None
        try:
            os.fchmod(descriptor, 0o600)
            size = _end_of_lines(descriptor, lines, self._mark_of(name, descriptor))
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)
        fsync_folder(self.path)
        return size

    def append(self, name: ExportName, offset: int, pieces: Sequence[bytes]) -> None:
        """Write and flush them there, in place of whatever stands behind.

        Raises:
            NoRoom: the disk is full, or nearly.
            ExportLost, OSError
        """
        self._check_room(sum(map(len, pieces)))
        try:
            descriptor = os.open(self.path / name.part, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise ExportLost from None
        try:
            if os.fstat(descriptor).st_size < offset:
                raise ExportLost
            os.ftruncate(descriptor, offset)
            _write_all(descriptor, pieces, offset)
            os.fdatasync(descriptor)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            os.ftruncate(descriptor, offset)
            raise NoRoom(f"the disk is full ({error.strerror})") from error
        finally:
            os.close(descriptor)

    def mark(self, name: ExportName, lines: int, offset: int) -> None:
        """So many lines of the file end there, and are flushed and counted. Raises OSError."""
        with open(self.path / name.part, "rb") as file:
            line = f"{lines} {offset} {_sum_before(file.fileno(), offset):08x}\n".encode()
        fresh = self.path / (name.mark + _NEW)
        # It counts only with its sum, so it needs no flush.
        with open(fresh, "wb", opener=_for_its_owner) as file:
            file.write(line)
        fresh.rename(self.path / name.mark)

    def _mark_of(self, name: ExportName, descriptor: int) -> ExportMark:
        """The start of the file, where there is no valid one."""
        try:
            marked = os.open(self.path / name.mark, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                line = os.read(marked, MARK_BYTES_MAX)
            finally:
                os.close(marked)
        except OSError as error:
            # The file is counted without it, whatever it is.
            if not isinstance(error, FileNotFoundError):
                log.warning("the mark of an export cannot be read, and its file is counted from the start: %s", error)
            line = b""
        match = _MARK_LINE.fullmatch(line)
        if match is not None:
            mark = ExportMark(int(match[1]), int(match[2]), int(match[3], 16))
            if mark.offset <= os.fstat(descriptor).st_size and _sum_before(descriptor, mark.offset) == mark.crc:
                return mark
        return ExportMark(0, 0, 0)

    def finish(self, name: ExportName) -> None:
        """It is whole. Raises OSError."""
        self._drop_marks(name)
        (self.path / name.part).rename(self.path / name.whole)
        fsync_folder(self.path)

    def remove(self, name: ExportName) -> None:
        """Raises OSError."""
        # Marks first: when this ends in between, the file is still there, and is removed later.
        self._drop_marks(name)
        for file in (name.whole, name.part):
            (self.path / file).unlink(missing_ok=True)
        if self.path.exists():
            fsync_folder(self.path)

    def _drop_marks(self, name: ExportName) -> None:
        for file in (name.mark, name.mark + _NEW):
            self._drop_mark(file)

    def _drop_mark(self, file: str) -> None:
        """A job does not end for what it does not need."""
        try:
            (self.path / file).unlink(missing_ok=True)
        except OSError as error:
            log.warning("the mark of an export cannot be deleted: %s", error)

    def read(self, name: ExportName, offset: int, size: int) -> bytes:
        """Of a whole file, so much at most. Raises FileNotFoundError, OSError."""
        descriptor = os.open(self.path / name.whole, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def _check_room(self, size: int) -> None:
        total, _, free = self._disk_usage(self.path)
        kept = min(2 * self._reserve(), total // FREE_KEPT_SHARE)
        if free - size < kept:
            raise NoRoom(f"the disk has {free:,} bytes free, and an export leaves {kept:,} of them for messages")


def _write_all(descriptor: int, pieces: Sequence[bytes], offset: int) -> None:
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _sum_before(descriptor: int, offset: int) -> int:
    start = max(0, offset - MARKED_BYTES)
    return zlib.crc32(os.pread(descriptor, offset - start, start))


def _end_of_lines(descriptor: int, lines: int, mark: ExportMark) -> int:
    """The offset behind so many lines. Raises ExportLost: there are fewer."""
    offset = 0
    if mark.lines <= lines:
        offset, lines = mark.offset, lines - mark.lines
    while lines:
        block = os.pread(descriptor, BLOCK_BYTES, offset)
        if not block:
            raise ExportLost
        count = block.count(b"\n")
        if count < lines:
            lines -= count
            offset += len(block)
            continue
        end = -1
        for _ in range(lines):
            end = block.index(b"\n", end + 1)
        return offset + end + 1
    return offset
