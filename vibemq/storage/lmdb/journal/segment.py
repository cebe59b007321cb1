"""One file of the journal: its records, read and checked.

    length        u32 BE   bytes of body
    crc32c        u32 BE   of everything else in the record, `length` included
    epoch         u64 BE   the segment's serial, which is also its file name
    lsn           u64 BE   one more than the record before it
    durable_lsn   u64 BE   everything up to here was on disk when this record was written
    type          u8       0 mark, 1.. the writer's own
    body          `length` bytes

A segment is written from its first byte on and ends where no valid record follows. Segments are used again without
being wiped, so what follows is often a whole valid record of the segment's earlier life: its epoch gives it away. It
is random, so that a payload cannot be made to look like a record of a later life.
A *mark* is written when the journal closes or is idle; it repeats the last lsn and states that all is durable. Room
for one is kept at the end of every segment.
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import google_crc32c

from vibemq.errors import StorageDamaged
from vibemq.storage.local.disk import Disk

HEADER = struct.Struct("!IIQQQB")
_LENGTH = struct.Struct("!I")
_LENGTH_CRC = struct.Struct("!II")
_AFTER_CRC = struct.Struct("!QQQB")

LSN_MAX = (1 << 64) - 1
MARK = 0
DATA = 1

SUFFIX = ".journal"
NEW_SUFFIX = ".new"
ZEROES = bytes(1 << 20)
WINDOW_BYTES = 1 << 20


class JournalRecord(NamedTuple):
    """`segment` and `offset` say where the record's header is; `body` is a copy the caller owns."""

    lsn: int
    type: int
    body: bytes
    segment: int
    offset: int
    durable_lsn: int

    @property
    def end(self) -> int:
        return self.offset + HEADER.size + len(self.body)


def new_serial() -> int:
    """One that no segment has had, and that nobody can guess: what is left of an earlier life in a file, or of a row
    without its record, are bytes of users, who may make them look like records."""
    return int.from_bytes(os.urandom(8))


def segment_name(serial: int) -> str:
    return f"{serial:016x}{SUFFIX}"


def serial_of(name: str) -> int | None:
    """The serial in a segment's file name; None for any other file."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or len(stem) != 16:
        return None
    try:
        return int(stem, 16)
    except ValueError:
        return None


def pack_header(parts: Sequence[bytes], *, epoch: int, lsn: int, durable_lsn: int, kind: int) -> bytes:
    """The header of a record whose body is `parts`, joined."""
    length = sum(map(len, parts))
    rest = _AFTER_CRC.pack(epoch, lsn, durable_lsn, kind)
    crc = google_crc32c.value(_LENGTH.pack(length) + rest)
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return _LENGTH_CRC.pack(length, crc) + rest


def record_header(
    length: int, checksum: Callable[[int], int], *, epoch: int, lsn: int, durable_lsn: int, kind: int
) -> bytes:
    """As `pack_header`, of a body that is not at hand. `checksum`: that of the fields -> that with the body behind."""
    rest = _AFTER_CRC.pack(epoch, lsn, durable_lsn, kind)
    return _LENGTH_CRC.pack(length, checksum(google_crc32c.value(_LENGTH.pack(length) + rest))) + rest


class SegmentReader:
    """Reads one segment through a window of about 1 MiB. Owns neither the disk nor the file."""

    def __init__(self, disk: Disk, file: int, serial: int) -> None:
        self._disk = disk
        self._file = file
        self._serial = serial
        self._epoch = serial.to_bytes(8, "big")
        self._window = b""
        self._window_at = 0
        self.size = disk.size(file)

    def record_at(self, offset: int) -> JournalRecord | None:
        """The record whose header starts at `offset`, or None when there is no valid one of this epoch."""
        header = self._bytes(offset, HEADER.size)
        if len(header) < HEADER.size or header[8:16] != self._epoch:
            return None
        length, crc, _, lsn, durable_lsn, kind = HEADER.unpack(header)
        if length > self.size - offset - HEADER.size:
            return None
        body = self._bytes(offset + HEADER.size, length)
        if google_crc32c.extend(google_crc32c.value(header[:4] + header[8:]), body) != crc:
            return None
        return JournalRecord(lsn, kind, body, self._serial, offset, durable_lsn)

    def records(self) -> Iterator[JournalRecord]:
        """The unbroken run of records from the first byte on, marks included."""
        offset = 0
        last_lsn: int | None = None
        while record := self.record_at(offset):
            if last_lsn is not None and record.lsn != last_lsn + (record.type != MARK):
                return
            last_lsn, offset = record.lsn, record.end
            yield record
            # A record may have megabytes: not two of them at a time.
            del record

    def islands(self, offset: int, above_lsn: int, lsn_max: int) -> Iterator[JournalRecord]:
        """Valid records after a broken one: every record of this epoch at or after `offset` with an lsn above
        `above_lsn`, up to `lsn_max`."""
        rest = self._disk.pread(self._file, self.size - offset, offset)
        at = rest.find(self._epoch, 8)
        while at >= 0:
            record = self._plausible(rest, at - 8, offset, above_lsn, lsn_max)
            if record is not None:
                yield record
                at = rest.find(self._epoch, record.end - offset + 8)
            else:
                at = rest.find(self._epoch, at + 1)

    def broken_end(self, offset: int, above_lsn: int) -> int:
        """Where the broken record at `offset` says it ends.

        `offset` itself when nothing of this epoch is there, or a record that does not matter (lsn <= `above_lsn`).
        """
        header = self._bytes(offset, HEADER.size)
        if len(header) < HEADER.size or header[8:16] != self._epoch or HEADER.unpack(header)[3] <= above_lsn:
            return offset
        return int(min(self.size, offset + HEADER.size + _LENGTH.unpack_from(header)[0]))

    def _plausible(self, rest: bytes, at: int, base: int, above_lsn: int, lsn_max: int) -> JournalRecord | None:
        # The lsn is looked at before the checksum: a payload full of look-alikes must not cost a checksum each.
        if len(rest) - at < HEADER.size:
            return None
        _, _, _, lsn, durable_lsn, _ = HEADER.unpack_from(rest, at)
        if not above_lsn < lsn <= lsn_max or durable_lsn > lsn:
            return None
        return self.record_at(base + at)

    def _bytes(self, offset: int, size: int) -> bytes:
        start = offset - self._window_at
        if start < 0 or start + size > len(self._window):
            self._window = b""
            self._window = self._disk.pread(self._file, max(size, min(WINDOW_BYTES, self.size)), offset)
            self._window_at = offset
            start = 0
        return self._window[start : start + size]


def read_segment(disk: Disk, path: str, *, above_lsn: int, last_lsn: int) -> Iterator[JournalRecord]:
    """Yield a sealed segment's records with lsn > `above_lsn`, without marks. For any process; opens its own file.

    Raises:
        StorageDamaged: the records end before `last_lsn`, which the journal says is in there.
    """
    serial = serial_of(path.rpartition("/")[2])
    if serial is None:
        raise ValueError(f"{path!r} is not the name of a journal segment")
    file = disk.open(path, readonly=True)
    try:
        end, found = 0, 0
        for record in SegmentReader(disk, file, serial).records():
            end, found = record.end, record.lsn
            if record.lsn > above_lsn and record.type != MARK:
                yield record
            del record
        if found < last_lsn:
            raise StorageDamaged(
                f"journal record {found + 1} is broken", path=path, offset=end, hint="run vibemq-admin check --repair"
            )
    finally:
        disk.close(file)
