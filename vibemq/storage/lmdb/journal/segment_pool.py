"""Segments of the journal that hold no record: they are made, used again under another serial, and deleted here.

    spare   has its serial and is ready for the next record
    free    was released; it gets another serial before it is used again

The room that checkpoints need is kept: a journal that fills the disk could not be checkpointed, so never be emptied.
How much that is, is said in `room.py`.

Threads: every method may be called in any thread. One at a time makes, renames or deletes segments.
"""

import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vibemq.errors import StorageFull
from vibemq.storage.lmdb.journal.fail_stop import FailStop
from vibemq.storage.lmdb.journal.recovery import Segment
from vibemq.storage.lmdb.journal.room import VALUE_BYTES, StoreRoom, in_store, needed
from vibemq.storage.lmdb.journal.segment import HEADER, NEW_SUFFIX, ZEROES, new_serial, segment_name
from vibemq.storage.local.disk import Disk, write_all
from vibemq.storage.local.file_limit import WHERE_SET, no_file_fits

FREE_SEGMENTS_MAX = 12
LARGE_TAIL_BYTES = 1 << 20
"""Behind a large record, for the small ones that follow it."""
LARGE_FREE_MAX = 4
"""Free segments of large records that are kept for others, for a while."""
LARGE_DELETED_AT_ONCE = 8
MISSED_ROUNDS = 60
"""Of housekeeping, for which a disk is short that had no room for a segment."""
_MENDS = {
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "free space on its disk or raise the quota",
    errno.EFBIG: f"raise the process's limit of file size ({WHERE_SET}), or drain queues",
    errno.EMFILE: "raise the process's limit of open files",
    errno.ENFILE: "raise the system's limit of open files",
}
"""Errors after which nothing was written and all is well, and what to do about them."""
_NO_INODE = "its file system has no inode left (`df -i`): delete files there"
URGENT_BYTES = 256 << 10
"""Of a segment on a full disk, for what drains it: the last room must not become one big segment."""


class IdleSegments(NamedTuple):
    """How many segments hold nothing, and what they take on the disk."""

    segments: int
    size_bytes: int


class SegmentPool:
    """The spare and the free segments of one journal, and the room on its disk."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        fail_stop: FailStop,
        *,
        segment_bytes: int,
        store_room: StoreRoom,
        lock: threading.Lock,
        live_bytes: Callable[[], int],
    ) -> None:
        """
        Args:
            lock: guards the collections, those of the journal too; held for no system call.
            store_room: of the file that checkpoints write.
            live_bytes: bytes of records that no checkpoint has released, and of those that the active segment still
                takes. Called without the lock.
        """
        self._disk = disk
        self._folder = folder
        self._fail_stop = fail_stop
        self._segment_bytes = segment_bytes
        self._store_room = store_room
        self._live_bytes = live_bytes
        self._lock = lock
        self._change_lock = threading.Lock()
        """One thread at a time makes, renames or deletes."""
        self._spares: deque[Segment] = deque()
        self._free: deque[Segment] = deque()
        self._lent: dict[int, Segment] = {}
        """Of `take_large`, that have no record yet."""
        self._given_up: deque[Segment] = deque()
        self._missed = 0
        """Size of the biggest segment for which there was no room lately."""
        self._missed_rounds = 0

    # -- segments to write to -------------------------------------------------------------------------------------

    def take(self, body_size: int, *, urgent: bool, value_bytes: int) -> Segment:
        """A segment that has room for a record of `body_size` and a mark; it is the caller's from now on.

        Args:
            urgent: may take the room that is kept for a checkpoint.
            value_bytes: no message of the record has more.

        Raises:
            StorageFull: no room for a new segment; nothing was written.
            StorageFailed: the disk refused an operation.
        """
        need = body_size + 2 * HEADER.size
        # Waiting for a spare that another thread is making costs no more than making one.
        with self._change_lock:
            if need > self._segment_bytes:
                return self._new(need, urgent, value_bytes, recycle=False)
            if self._spares:
                if not urgent and value_bytes > self._spares[0].value_bytes:
                    self._admit(self._spares[0], value_bytes)
                return self._spares.popleft()
            return self._new_urgent(need) if urgent else self._new(self._segment_bytes, urgent, value_bytes)

    def take_large(self, record_bytes: int, value_bytes: int) -> Segment:
        """A segment for one large record at its start and small ones behind it; it is the caller's from now on.

        Raises as `take` does.
        """
        size = record_bytes + LARGE_TAIL_BYTES
        with self._change_lock:
            with self._refused(size):
                admitted = self._keep_room(size, value_bytes)
                segment = self._reusable_large(size)
                if segment is None:
                    segment = self._create(size, filled_from=record_bytes)
                else:
                    self._rename(segment)
                    self._disk.fsync_dir(self._folder)
                    with self._lock:
                        self._free.remove(segment)
            segment.value_bytes = admitted
            self._lent[segment.serial] = segment
            return segment

    def keep(self, segment: Segment) -> None:
        """A segment of `take_large` has its record: it is one of the journal's now."""
        self._lent.pop(segment.serial, None)

    def give_up(self, segment: Segment) -> None:
        """A segment of `take_large` gets no record. In any thread, and within anything: it is looked at later."""
        self._given_up.append(segment)

    def _take_given_up(self) -> None:
        while self._given_up:
            segment = self._given_up.popleft()
            if self._lent.pop(segment.serial, None) is not None:
                with self._lock:
                    self._free.append(segment)

    def _reusable_large(self, size: int) -> Segment | None:
        self._take_given_up()
        with self._lock:
            fitting = [s for s in self._free if size <= s.size <= 2 * size and s.size != self._segment_bytes]
        return fitting[0] if fitting else None

    def prepare_spare(self) -> None:
        """Have one segment ready before it is needed. Raises as `take` does."""
        self._fail_stop.check()
        with self._change_lock:
            if not self._spares:
                self._spares.append(self._new(self._segment_bytes, urgent=False))

    @property
    def has_spare(self) -> bool:
        return bool(self._spares)

    def put_back(self, segments: Sequence[Segment]) -> None:
        """Nothing needs their records any more. The caller holds the lock, under which they ceased to be live."""
        self._free.extend(segments)

    def forget(self, segment: Segment) -> None:
        """Put back a segment whose bytes must never be believed again, whatever they say: it gets another serial now.

        For recovery, which syncs the folder. Raises OSError.
        """
        self._rename(segment)
        self._free.append(segment)

    # -- room -----------------------------------------------------------------------------------------------------

    @property
    def room_kept(self) -> int:
        """Bytes of the disk that a checkpoint of the whole journal may take."""
        return max(0, in_store(self._live_bytes()) - self._store_room.unused(VALUE_BYTES))

    @property
    def room_is_short(self) -> bool:
        """Whether a checkpoint may take half of what is free: one now leaves more room for messages than one later.

        Then unused pages of the store's file count.
        """
        size, waiting, room = max(self._segment_bytes, self._missed), self._waiting(), self._store_room.limit()
        need = needed(size, waiting=2 * waiting + size, unused=0, reserve=self._store_room.reserve)
        return self._free_bytes() < need or (room is not None and room < 2 * in_store(waiting))

    def admit(self, segment: Segment, value_bytes: int) -> None:
        """Let messages of up to `value_bytes` into the active segment, which may have been made for what drains a full
        disk. Raises StorageFull."""
        with self._change_lock:
            self._admit(segment, value_bytes)

    def idle(self) -> IdleSegments:
        """The caller holds the lock."""
        segments = [*self._spares, *self._free]
        return IdleSegments(len(segments), sum(segment.size for segment in segments))

    def give_back(self, *, short: bool = False) -> None:
        """Delete one of the free segments beyond a handful. Called once a second, it leaves those of a burst to the
        next one for a while: to make a segment costs more than to fill it.

        Args:
            short: the disk is short of space: delete all of them but one.
        """
        self._fail_stop.check()
        self._missed_rounds -= 1
        if self._missed_rounds < 0:
            self._missed = 0
        with self._change_lock:
            self._take_given_up()
            if short:
                self._delete(self._surplus(1))
                return
            odd = self._odd()
            too_many = odd[:-LARGE_FREE_MAX][:LARGE_DELETED_AT_ONCE]
            self._delete(too_many or (odd or self._surplus(FREE_SEGMENTS_MAX))[:1])

    def make_room(self) -> None:
        """Delete free segments until the disk has the room that is kept for a checkpoint.

        They count as room as long as there are files enough to delete; a checkpoint cannot use it before.
        """
        self._fail_stop.check()
        more, kept = True, self.room_kept
        while more and self._disk.free_bytes(self._folder) < kept:
            # Appends that need a new segment take the lock in between.
            with self._change_lock:
                more = self._delete_one()

    def trim(self) -> None:
        """Delete every spare and free segment."""
        with self._change_lock:
            with self._lock:
                self._free.extend(self._spares)
                self._spares.clear()
            self._delete(self._surplus(0))

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing is made, renamed or deleted meanwhile."""
        with self._change_lock:
            yield

    def close_files(self) -> None:
        for segment in [*self._spares, *self._free, *self._lent.values()]:
            self._disk.close(segment.file)
        self._lent.clear()
        self._spares.clear()
        self._free.clear()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _new_urgent(self, need: int) -> Segment:
        """One like all others where there is room for it, else one that is just big enough for a while."""
        try:
            return self._new(self._segment_bytes, urgent=False)
        except StorageFull:
            segment = self._new(min(self._segment_bytes, need + URGENT_BYTES), urgent=True)
            segment.urgent = True
            return segment

    def _admit(self, segment: Segment, value_bytes: int) -> None:
        left, value_bytes = segment.size - segment.end, max(value_bytes, segment.value_bytes)
        with self._refused(segment.size):
            admitted = self._keep_room(left, value_bytes, there=True, counted=0 if segment.urgent else left)
        segment.urgent, segment.value_bytes = False, admitted

    def _new(self, size: int, urgent: bool, value_bytes: int = VALUE_BYTES, *, recycle: bool = True) -> Segment:
        with self._refused(size):
            admitted = VALUE_BYTES if urgent else self._keep_room(size, max(value_bytes, VALUE_BYTES))
            segment = self._reusable() if recycle else None
            if segment is not None:
                self._rename(segment)
                self._disk.fsync_dir(self._folder)
                with self._lock:
                    self._free.remove(segment)
            else:
                if not urgent:
                    # A checkpoint that is under way cannot turn free segments into room.
                    while self._disk.free_bytes(self._folder) < size + self.room_kept and self._delete_one():
                        pass
                segment = self._create(size)
            segment.value_bytes = admitted
            return segment

    @contextmanager
    def _refused(self, size: int) -> Iterator[None]:
        """Errors of the disk as ours."""
        try:
            yield
        except OSError as error:
            mend = _NO_INODE if self._lacks_inodes(error) else _MENDS.get(error.errno or 0)
            if mend is not None:
                raise StorageFull(
                    f"no room for a journal segment of {size} bytes in {self._folder}: {error.strerror}; {mend}",
                    limit="" if error.errno == errno.ENOSPC else f"{error.strerror}, {mend}",
                ) from error
            raise self._fail_stop.fail("making a segment", error) from error

    def _lacks_inodes(self, error: OSError) -> bool:
        """The system's own word for a full disk is the same for both."""
        is_full = error.errno == errno.ENOSPC and error.strerror == os.strerror(errno.ENOSPC)
        return is_full and no_file_fits(Path(self._folder))

    def _reusable(self) -> Segment | None:
        """A free segment that has room for whatever is asked for."""
        with self._lock:
            return next((segment for segment in self._free if segment.size >= self._segment_bytes), None)

    def _free_bytes(self) -> int:
        with self._lock:
            idle = sum(segment.size for segment in self._free)
        return self._disk.free_bytes(self._folder) + idle

    def _waiting(self) -> int:
        """What a checkpoint may have to move, once the segments that there are have been filled."""
        with self._lock:
            spare = sum(segment.size for segment in self._spares)
        lent = sum(segment.size for segment in list(self._lent.values()))
        return self._live_bytes() + spare + lent

    def _keep_room(self, size: int, value_bytes: int, *, there: bool = False, counted: int = 0) -> int:
        """Return up to which size messages have room.

        Args:
            value_bytes: no message has more.
            there: the segment has its place on the disk already.
            counted: what of the segment is part of what waits already.
        """
        waiting, free = self._waiting() - counted, self._free_bytes() + (size if there else 0)
        reserve = self._store_room.reserve
        if free >= needed(size, waiting=waiting, unused=0, reserve=reserve):
            # Then it does not matter what can be used of the store's file.
            value_bytes, need = sys.maxsize, 0
        else:
            need = needed(size, waiting=waiting, unused=self._store_room.unused(value_bytes), reserve=reserve)
        if free < need:
            self._missed, self._missed_rounds = max(self._missed, size), MISSED_ROUNDS
            kept = min(free, need - size)
            raise OSError(
                errno.ENOSPC,
                f"{free} bytes are free, {kept} of them are kept for the next checkpoint and for draining the queues, "
                f"{free - kept} can be used",
            )
        room, taken = self._store_room.limit(), in_store(waiting)
        if room is not None and room < size + taken:
            raise OSError(
                errno.EFBIG,
                f"the store's file may grow by {room} bytes, and {min(room, taken)} of them are kept for the next "
                "checkpoint",
            )
        return value_bytes

    def _create(self, size: int, filled_from: int = 0) -> Segment:
        """`filled_from`: what stands before is written by the caller before it is flushed."""
        serial = new_serial()
        path = f"{self._folder}/{segment_name(serial)}"
        file = self._disk.open(path + NEW_SUFFIX, create=True)
        try:
            self._disk.fallocate(file, size)
            for offset in range(filled_from, size, len(ZEROES)):
                write_all(self._disk, file, [ZEROES[: size - offset]], offset)
                if offset + len(ZEROES) < size:
                    # Piece by piece: a flush that somebody waits for stands behind no more than one of them.
                    self._disk.fdatasync(file)
            self._disk.fsync(file)
            self._disk.rename(path + NEW_SUFFIX, path)
            self._disk.fsync_dir(self._folder)
        except OSError:
            self._disk.close(file)
            # It may have its name already, under which nobody would delete it before the next start.
            for name in (path + NEW_SUFFIX, path):
                self._discard(name)
            raise
        return Segment(serial, path, file, size)

    def _discard(self, path: str) -> None:
        try:
            self._disk.unlink(path)
        except OSError:
            pass  # recovery deletes it; the error that brought us here is the one to report

    def _rename(self, segment: Segment) -> None:
        """Give a segment a serial never used before, so that nothing in it is believed again."""
        serial = new_serial()
        path = f"{self._folder}/{segment_name(serial)}"
        self._disk.rename(segment.path, path)
        segment.serial, segment.path = serial, path
        segment.first_lsn = segment.last_lsn = segment.end = 0
        segment.urgent, segment.value_bytes = False, VALUE_BYTES

    def _odd(self) -> list[Segment]:
        """Free segments of another size than most, the oldest first."""
        with self._lock:
            return [s for s in self._free if s.size != self._segment_bytes]

    def _surplus(self, keep: int) -> list[Segment]:
        """Free segments beyond `keep`; those of another size, which are not used again, come first."""
        with self._lock:
            odd = [s for s in self._free if s.size != self._segment_bytes]
            plain = [s for s in self._free if s.size == self._segment_bytes]
        return odd + plain[keep:]

    def _delete_one(self) -> bool:
        """Whether there was one."""
        first = self._surplus(0)[:1]
        self._delete(first)
        return bool(first)

    def _delete(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            with self._lock:
                self._free.remove(segment)
            try:
                self._disk.unlink(segment.path)
                self._disk.close(segment.file)
            except OSError as error:
                raise self._fail_stop.fail("deleting a segment", error) from error
