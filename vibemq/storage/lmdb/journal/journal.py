"""The write-ahead journal: one stream of records over recycled, zero-filled segments.

`append` is one pwritev and no flush; `sync` flushes whatever was appended before it. The record layout is drawn in
`segment.py`, the rules of belief are in `recovery.py`.

Life of a segment:

    pool.prepare_spare: fallocate, zero-fill once, fsync, rename to its serial, fsync folder → spare
    append: spare → active;  seal: active → sealed;  release: sealed → free
    pool.prepare_spare: free, renamed to a new serial, fsync folder → spare

The serial is also the epoch in every record; it is random, and never used twice. So nothing written in an earlier life
of a file is believed, and neither is a tail that recovery cut: after a start, no segment is ever appended to again.

Threads: `append`, `read`, `seal` and `release` are for one thread at a time (the provider's lock sees to that). `sync`,
`sealed_segments` and the pool's methods may run in others at the same time.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vibemq.errors import StorageDamaged, StorageFailed, StorageFull
from vibemq.storage.lmdb.journal.fail_stop import FailStop
from vibemq.storage.lmdb.journal.large import PreparedRow, RowThreads, large_header, read_row, write_row
from vibemq.storage.lmdb.journal.pace import RowPace
from vibemq.storage.lmdb.journal.recovery import (
    REPAIR_HINT,
    Chain,
    RecoveryReport,
    Segment,
    judge,
    refuse_damage,
    scan_all,
)
from vibemq.storage.lmdb.journal.room import StoreRoom
from vibemq.storage.lmdb.journal.segment import DATA, HEADER, MARK, NEW_SUFFIX, ZEROES, pack_header, serial_of
from vibemq.storage.lmdb.journal.segment_pool import SegmentPool
from vibemq.storage.local.disk import Disk, write_again, write_all

SEGMENT_BYTES = 16 << 20
READY_BYTES = 4 << 20
"""Room of the active segment that is for those who publish little, until the next segment is ready."""
FRAME_BYTES = 2 * HEADER.size
"""Of a record, and of the mark behind it."""


class JournalPosition(NamedTuple):
    """Where a record is: its header starts at `offset` of segment number `segment`; its body has `size` bytes."""

    lsn: int
    segment: int
    offset: int
    size: int


class SealedSegment(NamedTuple):
    """A segment that will not grow and whose records are durable: food for a checkpoint."""

    serial: int
    path: str
    first_lsn: int
    last_lsn: int
    bytes_used: int


@dataclass(slots=True)
class JournalStats:
    last_lsn: int
    durable_lsn: int
    segments: int
    spares: int
    bytes_on_disk: int
    bytes_unreleased: int
    bytes_unsynced: int
    """Appended and not flushed yet."""
    bytes_reusable: int
    """Room for records in files that are there: what is left of the active segment, and segments that nothing needs."""
    appends: int
    syncs: int


class Journal:
    """See the module's docstring. Made by `Journal.open`."""

    def __init__(self, disk: Disk, folder: str, *, segment_bytes: int, store_room: StoreRoom) -> None:
        self._disk = disk
        self._folder = folder
        self._fail_stop = FailStop(folder)
        self._lock = threading.Lock()
        """Guards the collections below, and the pool's; held for no system call."""
        self._sync_lock = threading.Lock()
        """One flush at a time: a second one must not report lsns that the first is still flushing."""
        self._live: dict[int, Segment] = {}
        self._active: Segment | None = None
        self._dirty: dict[int, Segment] = {}
        self.pool = SegmentPool(
            disk,
            folder,
            self._fail_stop,
            segment_bytes=segment_bytes,
            store_room=store_room,
            lock=self._lock,
            live_bytes=self._live_bytes,
        )
        """Segments without records, and the room for more."""
        self._row_threads = RowThreads()
        self._last_lsn = 0
        self._durable_lsn = 0
        self._marked_lsn = 0
        """Of the last mark."""
        self._bytes_appended = 0
        self._bytes_durable = 0
        self._appends = 0
        self._syncs = 0
        self._closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        applied_lsn: int = 0,
        noted_lsn: int = 0,
        repair: bool = False,
        store_room: StoreRoom | None = None,
    ) -> "tuple[Journal, RecoveryReport]":
        """Recover what is in `folder` (made if missing) and be ready to append.

        Args:
            applied_lsn: everything up to here is safe elsewhere and need not be found.
            noted_lsn: everything up to here was flushed, as a note beside the journal says.
            repair: instead of refusing damage, keep every readable record; the report lists what is lost. The
                caller must save the report's records elsewhere: the next open with the old `applied_lsn` refuses.
            store_room: of the file that checkpoints write; asked with no lock of the journal's but the one for making
                segments. None: it may grow as far as the disk has room.

        Raises:
            StorageDamaged: a record that was durable is broken; names file and offset.
            StorageFailed: the disk refused an operation.
        """
        if segment_bytes < 4 * HEADER.size:
            raise ValueError(f"a segment of {segment_bytes} bytes holds no record")
        journal = cls(disk, folder, segment_bytes=segment_bytes, store_room=store_room or StoreRoom())
        try:
            return journal, journal._recover(applied_lsn, noted_lsn, repair)
        except OSError as error:
            journal._close_files()
            raise journal._fail_stop.fail("recovery", error) from error
        except StorageDamaged:
            journal._close_files()
            raise

    @property
    def last_lsn(self) -> int:
        """Of the newest record, durable or not."""
        return self._last_lsn

    @property
    def durable_lsn(self) -> int:
        return self._durable_lsn

    # -- writing --------------------------------------------------------------------------------------------------

    def append(
        self,
        parts: Sequence[bytes],
        *,
        kind: int = DATA,
        urgent: bool = False,
        largest: Callable[[], int] | None = None,
    ) -> JournalPosition:
        """Write one record whose body is `parts`, joined; it survives the process, not yet a power cut.

        Args:
            urgent: may take the room that is kept for a checkpoint of what the journal holds.
            largest: finds the size of the biggest message, which decides what the store can do with unused pages.
                Called when there is no other room.

        Raises:
            StorageFull: no room for a new segment; nothing was written, the journal works on.
            StorageFailed: the outcome is unknown, now and for every later call.
        """
        self._fail_stop.check()
        size = sum(map(len, parts))
        segment = self._active
        if (
            segment is None
            or segment.end + size + FRAME_BYTES > segment.size
            or (not urgent and (segment.urgent or size > segment.value_bytes))
        ):
            segment = self._segment_for(size, urgent, largest)
        lsn = self._last_lsn + 1
        position = JournalPosition(lsn, segment.serial, segment.end, size)
        self._write(segment, parts, lsn, kind)
        segment.first_lsn = segment.first_lsn or lsn
        segment.last_lsn = lsn
        self._appends += 1
        with self._lock:
            self._last_lsn = lsn
            self._bytes_appended += size + HEADER.size
            self._dirty[segment.serial] = segment
        # A flush may have failed meanwhile, in another thread: then this is told to nobody either.
        self._fail_stop.check()
        return position

    def prepare_row(self, row: bytes, before: int) -> PreparedRow:
        """Write a row ahead of its record, behind `before` bytes of the record's body. May run beside everything else.

        Raises as `append` does.
        """
        self._fail_stop.check()
        try:
            with self._row_threads.one():
                return write_row(self._disk, self.pool, row, HEADER.size + before, self._between_pieces())
        except OSError as error:
            raise self._fail_stop.fail("write", error) from error

    def append_prepared(self, head: bytes, prepared: PreparedRow, tail: Sequence[bytes]) -> JournalPosition:
        """Write the record whose body is `head`, the row and `tail`, at the start of the row's segment, which becomes
        the active one. Its row is durable already. Raises StorageFailed as `append` does."""
        self._fail_stop.check()
        segment = prepared.take()
        lsn = self._last_lsn + 1
        size = len(head) + prepared.size + sum(map(len, tail))
        header = large_header(segment, head, prepared, tail, lsn=lsn, durable_lsn=self._durable_lsn, kind=DATA)
        try:
            if tail:
                write_all(self._disk, segment.file, tail, HEADER.size + len(head) + prepared.size)
            # The header last: what comes before it is no record.
            write_all(self._disk, segment.file, [header + head], 0)
        except OSError as error:
            raise self._fail_stop.fail("write", error) from error
        segment.end = HEADER.size + size
        segment.first_lsn = segment.last_lsn = lsn
        self._appends += 1
        with self._lock:
            self._live[segment.serial] = segment
            self._active = segment
            self._last_lsn = lsn
            self._bytes_appended += size + HEADER.size
            self._dirty[segment.serial] = segment
        self._fail_stop.check()
        return JournalPosition(lsn, segment.serial, 0, size)

    def fail(self, action: str, error: OSError) -> StorageFailed:
        """The error to raise when the store cannot have what is released from the journal: from here on nothing is
        appended, flushed or released."""
        return self._fail_stop.fail(action, error)

    def sync(self) -> int:
        """Flush everything appended before the call and return the lsn up to which all is durable.

        Raises:
            StorageFailed: never try again; what the disk holds is known only to a new recovery.
        """
        with self._sync_lock:
            return self._flush()

    def try_sync(self) -> int | None:
        """As `sync`; None when a flush is under way in another thread, which may take as long as it likes."""
        if not self._sync_lock.acquire(blocking=False):
            return None
        try:
            return self._flush()
        finally:
            self._sync_lock.release()

    def _flush(self) -> int:
        self._fail_stop.check()
        with self._lock:
            target, appended = self._last_lsn, self._bytes_appended
            dirty = list(self._dirty.values())
            self._dirty.clear()
        try:
            for segment in dirty:
                self._disk.fdatasync(segment.file)
        except OSError as error:
            raise self._fail_stop.fail("flush", error) from error
        self._syncs += len(dirty)
        self._durable_lsn, self._bytes_durable = target, appended
        return target

    @property
    def room_is_ready(self) -> bool:
        """Whether some megabytes can be appended without waiting for a segment."""
        segment = self._active
        if self.pool.has_spare or segment is None:
            return True
        return segment.size - segment.end >= min(READY_BYTES, segment.size // 4)

    def note_durable(self) -> None:
        """Say in a mark that all is durable, when no record follows that would; call it when the journal is idle.

        Damage to the last records is then told from a torn tail. The mark itself is not flushed.
        """
        self._fail_stop.check()
        segment = self._active
        if segment is None or not segment.last_lsn or self._marked_lsn == self._last_lsn:
            return
        # The room for the closing mark stays.
        if self._durable_lsn == self._last_lsn and segment.end + 2 * HEADER.size <= segment.size:
            self._write(segment, [], self._durable_lsn, MARK)
            self._marked_lsn = self._durable_lsn

    def seal(self) -> None:
        """Let the next record start a new segment, so that a checkpoint can have this one."""
        self._active = None

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, position: JournalPosition) -> bytes:
        """Read one record's body back and check it.

        Raises:
            StorageDamaged: the bytes are not what was written.
            LookupError: the segment was released.
        """
        self._fail_stop.check()
        segment = self._live[position.segment]
        try:
            data = self._disk.pread(segment.file, HEADER.size + position.size, position.offset)
        except OSError as error:
            raise StorageDamaged(
                f"journal record {position.lsn} cannot be read ({error})", path=segment.path, offset=position.offset
            ) from error
        body = data[HEADER.size :]
        header = HEADER.unpack_from(data) if len(data) >= HEADER.size else (0,) * 6
        expected = pack_header([body], epoch=position.segment, lsn=position.lsn, durable_lsn=header[4], kind=header[5])
        if data[: HEADER.size] != expected:
            raise StorageDamaged(
                f"journal record {position.lsn} is broken", path=segment.path, offset=position.offset, hint=REPAIR_HINT
            )
        return body

    def read_part(self, position: JournalPosition, offset: int, size: int) -> bytes:
        """Some of the bytes of a record, `offset` from where its header begins; unchecked.

        Raises:
            StorageDamaged: they cannot be read.
            LookupError: the segment was released.
        """
        self._fail_stop.check()
        segment = self._live[position.segment]
        try:
            return self._disk.pread(segment.file, size, position.offset + offset)
        except OSError as error:
            raise StorageDamaged(
                f"journal record {position.lsn} cannot be read ({error})", path=segment.path, offset=position.offset
            ) from error

    def read_row(self, position: JournalPosition, before: int, row_bytes: Callable[[bytes], int]) -> bytes | None:
        """The row of a record that stands behind `before` bytes of its body; None when it does not. May run beside
        everything else.

        Args:
            row_bytes: finds the size of the row in the bytes before it; 0: it is not this row.

        Raises:
            StorageDamaged: the bytes are not what was written.
            LookupError: the segment was released.
        """
        with self._row_threads.one():
            with self._lock:
                segment = self._live[position.segment]
                segment.readers += 1
            try:
                size = row_bytes(self._disk.pread(segment.file, before, position.offset + HEADER.size))
                if not size:
                    return None
                return read_row(
                    self._disk, segment, position.offset, position.size, before, size, self._between_pieces()
                )
            except OSError as error:
                raise StorageDamaged(
                    f"journal record {position.lsn} cannot be read ({error})", path=segment.path, offset=position.offset
                ) from error
            finally:
                with self._lock:
                    segment.readers -= 1

    def _between_pieces(self) -> Callable[[], None]:
        """Of one large row."""
        pace = RowPace(lambda: self._syncs)

        def between() -> None:
            pace.rest()
            self._row_threads.check()

        return between

    # -- segments -------------------------------------------------------------------------------------------------

    def sealed_segments(self) -> list[SealedSegment]:
        """Segments that are complete, durable and not released, oldest first."""
        with self._lock:
            ready = [s for s in self._live.values() if s is not self._active and s.serial not in self._dirty]
        ready = [s for s in ready if s.last_lsn <= self._durable_lsn]
        ready.sort(key=lambda s: s.first_lsn)
        return [SealedSegment(s.serial, s.path, s.first_lsn, s.last_lsn, s.end) for s in ready]

    def release(self, applied_lsn: int) -> None:
        """Sealed segments wholly at or below `applied_lsn` may be used again. No system call."""
        with self._lock:
            done = [s for s in self._live.values() if s is not self._active and s.last_lsn <= applied_lsn]
            done = sorted((s for s in done if s.serial not in self._dirty and not s.readers), key=lambda s: s.first_lsn)
            for segment in done:
                del self._live[segment.serial]
            self.pool.put_back(done)

    def cut_sealed(self) -> None:
        """Give back what sealed segments have left behind their last record. For a full disk: a file that was made
        shorter is not used again."""
        self._fail_stop.check()
        with self.pool.unchanged():
            with self._lock:
                sealed = [s for s in self._live.values() if s is not self._active and s.size > s.end + HEADER.size]
            for segment in sealed:
                try:
                    self._disk.truncate(segment.file, segment.end)
                except OSError as error:
                    raise self._fail_stop.fail("cutting a segment", error) from error
                segment.size = segment.end

    def stats(self) -> JournalStats:
        with self._lock:
            live, idle = list(self._live.values()), self.pool.idle()
            active = self._active
        return JournalStats(
            last_lsn=self._last_lsn,
            durable_lsn=self._durable_lsn,
            segments=len(live),
            spares=idle.segments,
            bytes_on_disk=sum(s.size for s in live) + idle.size_bytes,
            bytes_unreleased=sum(s.end for s in live),
            bytes_unsynced=self._bytes_appended - self._bytes_durable,
            bytes_reusable=idle.size_bytes + (active.size - active.end if active is not None else 0),
            appends=self._appends,
            syncs=self._syncs,
        )

    def close(self) -> None:
        """Flush, note in a mark that all is durable, and close the files. Idempotent; after a failure only closes."""
        if self._closed:
            return
        self._closed = True
        self._row_threads.end()
        try:
            if not self._fail_stop.failed:
                self._write_mark()
        finally:
            self._fail_stop.close()
            self._close_files()

    def abandon(self) -> None:
        """Close the files and write nothing, as a crash would."""
        self._closed = True
        self._row_threads.end()
        self._fail_stop.close()
        self._close_files()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _write(self, segment: Segment, parts: Sequence[bytes], lsn: int, kind: int) -> None:
        header = pack_header(parts, epoch=segment.serial, lsn=lsn, durable_lsn=self._durable_lsn, kind=kind)
        try:
            write_all(self._disk, segment.file, [header, *parts], segment.end)
        except OSError as error:
            raise self._fail_stop.fail("write", error) from error
        segment.end += len(header) + sum(map(len, parts))

    def _write_mark(self) -> None:
        durable_lsn = self.sync()
        segment = self._active
        if segment is not None and segment.last_lsn:
            self._write(segment, [], durable_lsn, MARK)
            try:
                self._disk.fdatasync(segment.file)
            except OSError as error:
                raise self._fail_stop.fail("flush", error) from error

    def _segment_for(self, size: int, urgent: bool, largest: Callable[[], int] | None) -> Segment:
        try:
            return self._writable(size, urgent, size)
        except StorageFull:
            if urgent or largest is None:
                raise
            return self._writable(size, urgent, largest())

    def _writable(self, size: int, urgent: bool, value_bytes: int) -> Segment:
        """The active segment, which has room for the record and a mark; and the disk for what becomes of it."""
        segment = self._active
        if segment is None or segment.end + size + 2 * HEADER.size > segment.size:
            return self._roll(size, urgent, value_bytes)
        if not urgent and (segment.urgent or value_bytes > segment.value_bytes):
            self.pool.admit(segment, value_bytes)
        return segment

    def _roll(self, body_size: int, urgent: bool, value_bytes: int) -> Segment:
        """Make a segment active that has room for a record of `body_size` and a mark."""
        segment = self.pool.take(body_size, urgent=urgent, value_bytes=value_bytes)
        with self._lock:
            self._live[segment.serial] = segment
            self._active = segment
        return segment

    def _live_bytes(self) -> int:
        with self._lock:
            active = self._active
            return sum(s.size if s is active and not s.urgent else s.end for s in self._live.values())

    def _close_files(self) -> None:
        for segment in self._live.values():
            self._disk.close(segment.file)
        self._live.clear()
        self.pool.close_files()

    # -- recovery -------------------------------------------------------------------------------------------------

    def _recover(self, applied_lsn: int, noted_lsn: int, repair: bool) -> RecoveryReport:
        self._open_files()
        segments = list(self._live.values())
        scan_all(self._disk, segments, applied_lsn)
        chain = judge(self._disk, segments, applied_lsn, noted_lsn)
        if not repair:
            refuse_damage(chain, self._folder)
        for segment in chain.believed:
            if segment.last_lsn > max(applied_lsn, noted_lsn):
                write_again(self._disk, segment.file, segment.end)
        repaired = chain.is_damaged
        report = RecoveryReport(self._disk, chain, applied_lsn=applied_lsn, repaired=repaired)
        self._keep_evidence(chain) if repaired else self._cut(chain)
        self._last_lsn = self._durable_lsn = report.last_lsn
        self.release(applied_lsn)
        return report

    def _open_files(self) -> None:
        self._disk.mkdir(self._folder)
        self._disk.fsync_dir(self._folder.rpartition("/")[0] or "/")
        for name in self._disk.listdir(self._folder):
            path = f"{self._folder}/{name}"
            serial = serial_of(name.removesuffix(NEW_SUFFIX))
            if serial is None:
                continue
            if name.endswith(NEW_SUFFIX):
                self._disk.unlink(path)
            else:
                file = self._disk.open(path)
                self._live[serial] = Segment(serial, path, file, self._disk.size(file))

    def _cut(self, chain: Chain) -> None:
        """Forget everything behind the break, for good, before anything new is written."""
        if chain.torn_bytes and chain.believed:
            last = chain.believed[-1]
            self._wipe(last)
        for segment in [*chain.unchained, *chain.empty]:
            self._forget(segment)
        self._disk.fsync_dir(self._folder)

    def _forget(self, segment: Segment) -> None:
        del self._live[segment.serial]
        self.pool.forget(segment)

    def _wipe(self, segment: Segment) -> None:
        for offset in range(segment.end, segment.size, len(ZEROES)):
            write_all(self._disk, segment.file, [ZEROES[: segment.size - offset]], offset)
        self._disk.fdatasync(segment.file)

    def _keep_evidence(self, chain: Chain) -> None:
        """Hold on to every segment that repair reads from, until its last lsn is released."""
        kept = {place.segment: place.lsn for place in chain.evidence}
        for segment in [*chain.believed, *chain.unchained, *chain.empty]:
            if segment.serial in kept:
                segment.last_lsn = max(segment.last_lsn, kept[segment.serial])
            elif segment in chain.empty:
                self._forget(segment)
        self._disk.fsync_dir(self._folder)
