"""A large record: its row is written before the record is, and read back beside everything else.

The row of a message above `LARGE_ROW_BYTES` is written to a segment that nobody else uses yet, in pieces that are
flushed one after the other, so that the flushes of others come in between. It stands where it will stand in its record:
what comes before it has a fixed size. When the message has its sequence, the record's header, the few bytes before the
row and those behind it are written, and the segment is the journal's active one. Until then it holds no valid record;
after a crash it is a file without records.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import google_crc32c

from vibemq.errors import StorageDamaged, StorageFailed
from vibemq.model.memory.fresh import fresh_memory
from vibemq.storage.lmdb.journal.crc_combine import combine
from vibemq.storage.lmdb.journal.recovery import REPAIR_HINT, Segment
from vibemq.storage.lmdb.journal.segment import HEADER, record_header
from vibemq.storage.lmdb.journal.segment_pool import SegmentPool
from vibemq.storage.local.disk import Disk, write_all

CRC_PIECE_BYTES = 256 << 10
"""A checksum, and the copy that it is made of, hold the interpreter lock; of so much they take less than a tenth of a
millisecond."""
FLUSH_BYTES = 2 << 20
TAIL_BYTES_MAX = 256 << 10
"""Of other facts in the same record."""


class RowThreads:
    """Who writes or reads a large row beside everything else: the journal's files stay open for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Raises StorageFailed when the journal is closed."""
        with self._changed:
            self.check()
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def check(self) -> None:
        """Raises StorageFailed when the journal is closed: whoever has more to write leaves it."""
        if self._closed:
            raise StorageFailed("the journal is closed")

    def end(self) -> None:
        """Let nobody begin, and wait for those who have begun: at most the flush of a piece."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._busy)


class PreparedRow:
    """A row that is on disk and in no record yet."""

    def __init__(self, pool: SegmentPool, segment: Segment, size: int) -> None:
        self._pool = pool
        self.segment: Segment | None = segment
        self.size = size
        self.checksum = 0

    def take(self) -> Segment:
        """The segment becomes part of the journal."""
        segment, self.segment = self.segment, None
        assert segment is not None
        self._pool.keep(segment)
        return segment

    def __del__(self) -> None:
        # Its message was refused, or its publisher has gone.
        if self.segment is not None:
            self._pool.give_up(self.segment)


def write_row(disk: Disk, pool: SegmentPool, row: bytes, before: int, between: Callable[[], None]) -> PreparedRow:
    """Write a row behind `before` bytes of a segment of its own, and flush it. `between`, called before each piece,
    may take its time, and raises when the row is to be left.

    Raises:
        OSError: nobody knows what was written.
        StorageFull: there is no room; nothing was written.
    """
    size = before + len(row) + TAIL_BYTES_MAX + 2 * HEADER.size
    prepared = PreparedRow(pool, pool.take_large(size, len(row)), len(row))
    segment = prepared.segment
    assert segment is not None
    unflushed = 0
    for start in range(0, len(row), CRC_PIECE_BYTES):
        between()
        piece = row[start : start + CRC_PIECE_BYTES]
        prepared.checksum = google_crc32c.extend(prepared.checksum, piece)
        write_all(disk, segment.file, [piece], before + start)
        unflushed += len(piece)
        if unflushed >= FLUSH_BYTES:
            disk.fdatasync(segment.file)
            unflushed = 0
    disk.fdatasync(segment.file)
    return prepared


def large_header(
    segment: Segment,
    head: bytes,
    prepared: PreparedRow,
    tail: Sequence[bytes],
    *,
    lsn: int,
    durable_lsn: int,
    kind: int,
) -> bytes:
    """The header of a record whose body is the head, the prepared row and the tail."""
    length = len(head) + prepared.size + sum(map(len, tail))

    def checksum(crc: int) -> int:
        crc = combine(google_crc32c.extend(crc, head), prepared.checksum, prepared.size)
        for part in tail:
            crc = google_crc32c.extend(crc, part)
        return crc

    return record_header(length, checksum, epoch=segment.serial, lsn=lsn, durable_lsn=durable_lsn, kind=kind)


def read_row(
    disk: Disk, segment: Segment, offset: int, size: int, before: int, row_bytes: int, between: Callable[[], None]
) -> bytes:
    """The row of a record at `offset`, whose body has `size` bytes, `before` of them before the row; `between` as in
    `write_row`.

    Raises:
        StorageDamaged: the bytes are not what was written.
    """
    if row_bytes > size - before:
        raise StorageDamaged("a journal record is broken", path=segment.path, offset=offset, hint=REPAIR_HINT)
    row_at = offset + HEADER.size + before
    start = disk.pread(segment.file, HEADER.size + before, offset)
    tail = disk.pread(segment.file, size - before - row_bytes, row_at + row_bytes)
    crc = google_crc32c.value(start[:4] + start[8:])
    row, crc = _read_summed(disk, segment.file, row_bytes, row_at, crc, between)
    header = HEADER.unpack_from(start)
    if (
        len(row) != row_bytes
        or (header[0], header[2]) != (size, segment.serial)
        or header[1] != google_crc32c.extend(crc, tail)
    ):
        raise StorageDamaged(
            f"journal record {header[3]} is broken", path=segment.path, offset=offset, hint=REPAIR_HINT
        )
    return row


def _read_summed(
    disk: Disk, file: int, size: int, offset: int, crc: int, between: Callable[[], None]
) -> tuple[bytes, int]:
    """Bytes of a file, fewer at its end, and the checksum continued with them.

    They are read to where they stay, so the system finds pages for them within the read, which does not hold the
    interpreter lock.
    """
    memory = fresh_memory(size)
    at = 0
    with memory.getbuffer() as buffer:
        while at < size:
            between()
            end = min(size, at + CRC_PIECE_BYTES)
            taken = disk.pread_into(file, buffer[at:end], offset + at)
            if not taken:
                break
            crc = google_crc32c.extend(crc, bytes(buffer[at : at + taken]))
            at += taken
    memory.truncate(at)
    return memory.getvalue(), crc
