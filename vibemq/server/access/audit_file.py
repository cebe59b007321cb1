"""The audit file: one JSON object on each line, in numbered files of the folder `audit/` of the data directory.

    audit-000001.jsonl    mode 0600, in a folder of mode 0700; the highest number is the one that is written
    reserve               blocks that are given up for records when the disk is full

A file that has reached its size is followed by the next one, and the oldest goes when there are too many. Nothing else
shortens the record. A position is "number.offset" of a line's begin; both ascend with time.

Everything here blocks. Bytes are written at once and flushed by `flush`; after a failed flush nobody knows what of them
is on the disk, so `begin_anew` leaves the file as it is and the next one follows. A line that a crash has cut is left
out by readers, and the next one begins on a line of its own.
"""

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from vibemq.storage.local.store_file import make_folder

FOLDER = "audit"
FILE_BYTES_MAX = 16 << 20
FILES_MAX = 8
RESERVE_FILE = "reserve"
RESERVE_BYTES = 512 << 10
"""Of some thousand records: what is done until it is known that the disk is full has its record."""
BLOCK_BYTES = 64 << 10
LINE_BYTES_MAX = 64 << 10
"""Of one record; the arguments of a longer one are left out."""
_NAME = re.compile(r"audit-([0-9]{6,12})\.jsonl")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NOT_RESERVED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""Of file systems on which no blocks can be kept."""

Position = tuple[int, int]
"""(number of the file, offset)."""


def numbers_in(folder: Path) -> list[int]:
    """Of the files there, ascending."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)


def _path(folder: Path, number: int) -> Path:
    return folder / f"audit-{number:06}.jsonl"


class FlushFailed(OSError):
    """Nobody knows what the file holds of what was written since the last flush, and another flush would not tell."""


class AuditFile:
    """Writes it; one at a time. Opened by the first `append`."""

    def __init__(self, folder: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files_max: int = FILES_MAX) -> None:
        self.folder = folder
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._descriptor: int | None = None
        self._number = 0
        self._size = 0
        self._begins_anew = False
        self.has_reserve = False
        """Or the file system can keep none."""
        self._is_unproven = False
        """It was begun after a failed flush, and not flushed yet: nothing that it holds counts."""
        self._names: int | None = None
        """The folder, until the file's name is on the disk. It is opened first: that too many files are open is no
        flush that failed."""

    def open(self) -> None:
        """Raises OSError."""
        if self._descriptor is not None:
            return
        make_folder(self.folder)
        last = max(numbers_in(self.folder), default=0)
        self._number = last + 1 if self._begins_anew else max(last, 1)
        self._descriptor = self._opened()
        self._is_unproven, self._begins_anew = self._begins_anew, False
        if self._size and not self._ends_a_line():
            self._write(b"\n")

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """All of them or, when OSError is raised, none."""
        self.open()
        if self._size >= self._file_bytes_max:
            self._begin_the_next()
        data = b"".join(map(_line, records))
        try:
            self._write(data)
        except OSError as error:
            if error.errno not in _NO_ROOM or not self.has_reserve:
                raise
            self.has_reserve = False
            (self.folder / RESERVE_FILE).unlink(missing_ok=True)
            self._write(data)

    def reserve(self) -> None:
        """Have room for what is done before it is known that there is none. Raises OSError."""
        if self.has_reserve:
            return
        path = self.folder / RESERVE_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError as error:
            path.unlink(missing_ok=True)
            if error.errno not in _NOT_RESERVED:
                raise
        finally:
            os.close(descriptor)
        self.has_reserve = True

    def flush(self) -> None:
        """Raises FlushFailed."""
        if self._descriptor is not None:
            try:
                os.fsync(self._descriptor)
                if self._names is not None:
                    os.fsync(self._names)
            except OSError as error:
                raise FlushFailed(error.errno, error.strerror) from error
            self._is_unproven = False
            self._close_names()

    def begin_anew(self) -> None:
        """After a failed flush: the next `append` goes to another file. A disk that fails for long does not make one
        empty file after the other."""
        path = _path(self.folder, self._number) if self._is_unproven else None
        self._begins_anew, self._is_unproven = True, False
        self.close()
        if path is not None:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        self._close_names()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _close_names(self) -> None:
        if self._names is not None:
            os.close(self._names)
            self._names = None

    def _opened(self) -> int:
        path = _path(self.folder, self._number)
        names = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            os.close(names)
            raise
        self._size, self._names = os.fstat(descriptor).st_size, names
        return descriptor

    def _ends_a_line(self) -> bool:
        assert self._descriptor is not None
        return os.pread(self._descriptor, 1, self._size - 1) == b"\n"

    def _write(self, data: bytes) -> None:
        assert self._descriptor is not None
        before, rest = self._size, memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            # What has come through of it would be written a second time.
            os.ftruncate(self._descriptor, before)
            raise
        self._size = before + len(data)

    def _begin_the_next(self) -> None:
        self.flush()
        self.close()
        self._number += 1
        self._descriptor = self._opened()
        for number in numbers_in(self.folder)[: -self._files_max]:
            _path(self.folder, number).unlink(missing_ok=True)


def _line(record: Mapping[str, Any]) -> bytes:
    line = json.dumps(record, default=str)
    if len(line) >= LINE_BYTES_MAX:
        line = json.dumps({**record, "arguments": {"left_out": f"{len(line)} characters"}, "reason": ""}, default=str)
    return line.encode("ascii") + b"\n"


# -- reading ------------------------------------------------------------------------------------------------------


def newest_first(folder: Path, before: Position | None) -> Iterator[tuple[Position, bytes]]:
    """(position, line) of every whole line before the position; None: of all."""
    for number in reversed(numbers_in(folder)):
        if before is not None and number > before[0]:
            continue
        end = before[1] if before is not None and number == before[0] else None
        try:
            with _path(folder, number).open("rb") as file:
                yield from (((number, at), line) for at, line in _backwards(file, end))
        except FileNotFoundError:
            continue  # It has just gone, as the oldest.


def oldest_first(folder: Path, start: Position) -> Iterator[tuple[Position, bytes]]:
    """(position behind it, line) of every whole line from the position on."""
    for number in numbers_in(folder):
        if number < start[0]:
            continue
        at = start[1] if number == start[0] else 0
        try:
            with _path(folder, number).open("rb") as file:
                file.seek(at)
                while (line := file.readline(LINE_BYTES_MAX)).endswith(b"\n"):
                    at += len(line)
                    yield (number, at), line
        except FileNotFoundError:
            continue


def end_of(folder: Path) -> Position:
    """Where the next record will stand, or a little before."""
    number = max(numbers_in(folder), default=1)
    try:
        return number, _path(folder, number).stat().st_size
    except FileNotFoundError:
        return number, 0


def _backwards(file: BinaryIO, end: int | None) -> Iterator[tuple[int, bytes]]:
    at = file.seek(0, os.SEEK_END) if end is None else min(end, file.seek(0, os.SEEK_END))
    rest = b""
    """From `at` on, up to the last line that was yielded."""
    while at > 0:
        begin = max(0, at - BLOCK_BYTES)
        file.seek(begin)
        rest = file.read(at - begin) + rest
        at = begin
        first, *lines = rest.split(b"\n")
        # The last piece is what follows the last line: nothing, or a line that is being written.
        stop = at + len(rest) - len(lines[-1] if lines else first)
        for line in reversed(lines[:-1]):
            stop -= len(line) + 1
            yield stop, line
        rest = first + b"\n" if lines else rest
    if rest.endswith(b"\n"):
        yield 0, rest[:-1]
