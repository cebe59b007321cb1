"""SQLite's write-ahead log as a file (sqlite.org/fileformat2.html#walformat): where it breaks, and what is behind.

    header 32   magic | version | page size | checkpoint number | salt 1, 2 | checksum 1, 2
    frame       page number | pages of the database after a commit, or 0 | salt 1, 2 | checksum 1, 2 | page

A frame's checksum continues that of the frame before it. SQLite stops at the first that is wrong. But each frame can
be held against the checksum that stands in its predecessor, so those behind a damaged one can be told from garbage,
and a log with all of them, and checksums that are right, can be written.
"""

import os
import struct
import sys
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from pathlib import Path

HEADER = struct.Struct("!8I")
FRAME = struct.Struct("!6I")
_SALTS = slice(16, 24)
_SALTS_OF_FRAME = slice(8, 16)
_MAGIC = 0x377F0682
"""The lowest bit says that checksums are computed of big-endian words."""
_VERSION = 3007000
_MASK = 0xFFFFFFFF
Sums = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Scan:
    """What a log holds."""

    broken_at: int | None
    """Offset of the first byte that SQLite will not read, though frames of the same log are behind it; None: nothing
    of that kind."""
    damaged: list[int]
    """Offsets of damaged frames."""
    behind: int
    """Sound frames behind the first damaged one."""
    frames: list[bytes]
    """Page number, size and page of every frame up to the last sound one that can be placed."""
    tail: list[bytes]
    """The same of frames that follow the last sound one: torn by a crash, or damaged."""
    end: int
    """Offset behind the last sound frame."""
    page_bytes: int
    salts: Sums
    big_endian: bool

    def rebuilt(self, *, with_tail: bool) -> bytes:
        """The same log with the checksums that SQLite expects."""
        magic = _MAGIC | self.big_endian
        head = struct.pack("!6I", magic, _VERSION, self.page_bytes, 0, *self.salts)
        sums = checksum((0, 0), head, big_endian=self.big_endian)
        parts = [head, struct.pack("!2I", *sums)]
        for frame in self.frames + (self.tail if with_tail else []):
            sums = checksum(sums, frame, big_endian=self.big_endian)
            parts += [frame[:8], struct.pack("!4I", *self.salts, *sums), frame[8:]]
        return b"".join(parts)


def checksum(sums: Sums, data: bytes, *, big_endian: bool) -> Sums:
    first, second = sums
    words = struct.unpack(f"{'>' if big_endian else '<'}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & _MASK
        second = (second + words[at + 1] + first) & _MASK
    return first, second


class LogGauge:
    """How many frames an open log holds. Its file does not say: frames of a folded log are overwritten from the first.

    Args:
        log: descriptor of the file; it stays the caller's.
    """

    def __init__(self, log: int, page_bytes: int) -> None:
        self._log = log
        self._frame_bytes = FRAME.size + page_bytes
        self._salts = b""
        self._frames = 0

    def frames(self) -> int:
        """Those with the salts of the header, which change with every beginning; also those of an open transaction.

        Raises:
            OSError: the log cannot be read.
        """
        salts = os.pread(self._log, HEADER.size, 0)[_SALTS]
        if salts != self._salts:
            self._salts, self._frames = salts, 0
        if not salts:
            return 0
        step = 1
        while self._has(self._frames + step):
            self._frames += step
            step *= 2
        while step > 1:
            step //= 2
            if self._has(self._frames + step):
                self._frames += step
        return self._frames

    def end(self) -> int:
        """Where its frames end in the file."""
        return HEADER.size + self.frames() * self._frame_bytes

    def _has(self, frames: int) -> bool:
        at = HEADER.size + (frames - 1) * self._frame_bytes
        return os.pread(self._log, FRAME.size, at)[_SALTS_OF_FRAME] == self._salts


def has_commit(log: Path) -> bool:
    """Whether SQLite finds a committed transaction in the log, and so more than the database holds without it."""
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return False
    with file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return False
        magic, _, page_bytes, _, *salts, sum_1, sum_2 = HEADER.unpack(head)
        big_endian = bool(magic & 1)
        if magic & ~1 != _MAGIC or checksum((0, 0), head[:24], big_endian=big_endian) != (sum_1, sum_2):
            return False
        sums: Sums = (sum_1, sum_2)
        while len(frame := file.read(FRAME.size + page_bytes)) == FRAME.size + page_bytes:
            page, pages_after, *rest = FRAME.unpack_from(frame)
            sums = checksum(sums, frame[:8] + frame[FRAME.size :], big_endian=big_endian)
            if not page or rest[:2] != salts or tuple(rest[2:]) != sums:
                return False
            if pages_after:
                return True
    return False


def scan(log: Path, database: Path) -> Scan | None:
    """Read a log frame by frame; None when it is missing or too short to hold a frame."""
    try:
        content = log.read_bytes()
    except FileNotFoundError:
        return None
    page_bytes = _page_bytes(content, database)
    size = FRAME.size + page_bytes
    count = max(0, len(content) - HEADER.size) // size
    if not count:
        return None
    magic, _, _, _, salt_1, salt_2, sum_1, sum_2 = HEADER.unpack_from(content)
    known = magic & ~1 == _MAGIC
    big_endian = bool(magic & 1) if known else sys.byteorder == "big"
    sound_header = known and checksum((0, 0), content[:24], big_endian=big_endian) == (sum_1, sum_2)
    salts = (salt_1, salt_2) if sound_header else _salts_of_frames(content, size, count)
    before: Sums = (sum_1, sum_2)
    # A damaged header cannot vouch for the first frame; its salts do.
    trusted = sound_header
    frames: list[tuple[int, bytes, bool, bool]] = []
    for number in range(count):
        at = HEADER.size + number * size
        page, _, *rest = FRAME.unpack_from(content, at)
        body = content[at : at + 8] + content[at + FRAME.size : at + size]
        ours = tuple(rest[:2]) == salts
        stored: Sums = (rest[2], rest[3])
        sound = ours and checksum(before, body, big_endian=big_endian) == stored
        frames.append((at, body, ours and 0 < page < 1 << 31, sound or (ours and not trusted)))
        before, trusted = stored, True
    last = max((number for number, frame in enumerate(frames) if frame[3]), default=-1)
    used = frames[: last + 1]
    damaged = [at for at, _, _, sound in used if not sound]
    first = 0 if not sound_header else damaged[0] if damaged else None
    if last < 0:
        first = None
    return Scan(
        broken_at=first,
        damaged=damaged,
        behind=sum(sound for at, _, _, sound in used if first is not None and at > first),
        frames=[body for _, body, usable, _ in used if usable],
        tail=[body for _, body, usable, _ in takewhile(itemgetter(2), frames[last + 1 :])],
        end=HEADER.size + (last + 1) * size,
        page_bytes=page_bytes,
        salts=salts,
        big_endian=big_endian,
    )


def _page_bytes(content: bytes, database: Path) -> int:
    """From the log's header, or that of the database, whichever makes sense."""
    found: list[int] = [HEADER.unpack_from(content)[2]] if len(content) >= HEADER.size else []
    with database.open("rb") as file:
        head = file.read(18)
    if len(head) == 18:
        of_database = int.from_bytes(head[16:18], "big")
        found.insert(0, 1 << 16 if of_database == 1 else of_database)
    for size in found:
        if 512 <= size <= 1 << 16 and size & (size - 1) == 0:
            return size
    return 4096


def _salts_of_frames(content: bytes, size: int, count: int) -> Sums:
    """Of the log's beginning: those that its first two frames agree on, else the first frame's."""
    found = [FRAME.unpack_from(content, HEADER.size + number * size)[2:4] for number in range(min(count, 3))]
    for salts in found:
        if found.count(salts) > 1:
            return salts
    return found[0]
