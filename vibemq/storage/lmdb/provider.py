"""The `lmdb` provider: a journal in front of LMDB, and a process of its own that moves the one into the other.

    append    records → one journal record; rows stay at hand until a checkpoint has them
    read      rows at hand, else their journal record, else LMDB
    maintain  keeps the checkpointer alive and busy, spare segments and ballast in store

Threads: `append`, `read` and the dead-letter verbs may run in the event loop's thread, `sync` in another, `maintain`,
`backup` and `check` in further ones. `_lock` guards what they share and is never held for a flush or a checkpoint. Who
reads LMDB asks under the lock whether the store is open: `close` may come in between.
The broker itself only reads LMDB, in snapshots of milliseconds.
"""

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from vibemq.errors import StorageDamaged, StorageError, StorageFailed, StorageFull
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.options import Durability
from vibemq.model.records import (
    DeadRemoved,
    GroupCreated,
    HandedOut,
    MessagesAdded,
    QueueCreated,
    Record,
    Returned,
    Settled,
)
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow, Rows
from vibemq.model.runs import Run
from vibemq.model.stored import DamagedLetter, DeadLetter, DeadPage, DeadPageWanted, Slice, StoredState
from vibemq.storage.interface import Problem, Progress, StorageStats
from vibemq.storage.kvstore.blocks import block_infos, clip, limit, load_block, load_large_block
from vibemq.storage.kvstore.collecting import uncollected
from vibemq.storage.kvstore.dead.pages import Step, assemble, not_yet, page, queues_of, select
from vibemq.storage.kvstore.dead_letters import SORTED_AT_ONCE
from vibemq.storage.kvstore.encoding import LONE_ROW_PREFIX_BYTES, decode_batch, encode_batch, lone_row_bytes
from vibemq.storage.kvstore.integrity import load_sound_state
from vibemq.storage.kvstore.keys import BLOCK, sequence_key
from vibemq.storage.kvstore.require_alive import all_alive, need_none_of
from vibemq.storage.lmdb import backup, check, compaction
from vibemq.storage.lmdb.checkpoint.checkpoint import SegmentToApply, apply_offline
from vibemq.storage.lmdb.checkpoint.schedule import CheckpointDriver
from vibemq.storage.lmdb.dead import JournaledDead, SnapshotKV
from vibemq.storage.lmdb.environment.env import open_reader
from vibemq.storage.lmdb.environment.tables import reading, translated
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.large import TAIL_BYTES_MAX, PreparedRow
from vibemq.storage.lmdb.journal.recent import LeftOnly, RecentRows
from vibemq.storage.lmdb.journal.recovery import RecoveryReport
from vibemq.storage.lmdb.journal.room import VALUE_BYTES
from vibemq.storage.lmdb.journal.spare_segments import SpareSegments
from vibemq.storage.lmdb.layout import PROVIDER, VERSION, Layout
from vibemq.storage.lmdb.prepare import prepare
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.lmdb.store_room import FileRoom
from vibemq.storage.lmdb.stored import StoredRows
from vibemq.storage.local.ballast import Ballast
from vibemq.storage.local.disk import RealDisk
from vibemq.storage.local.file_limit import file_limit, limit_sentence, remedy_of
from vibemq.storage.local.high_water import HighWater, read_note
from vibemq.storage.local.lock import DirectoryLock, refuse_remote
from vibemq.storage.local.store_file import check_store as check_version
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.dead_letter_facts import DeadEntry
from vibemq.storage.state.large import first_large, has_large
from vibemq.storage.state.reducer import apply, is_transient, persistent, restart_transient
from vibemq.storage.state.shedding import Shedder, shed_all

logger = logging.getLogger(__name__)

_LET_GO_S = 0.000_05
_HELD_S = 0.000_5
"""`pick` holds the lock about so long at a time. Each time that it lets go, it may wait long for its next turn."""
_elapsed_s = time.perf_counter

SEGMENTS_PER_DISK = 64
SEGMENT_BYTES_MIN = 64 << 10
SHORT_PART = 10
"""A disk is short of space when less than one byte in so many is free."""
UNUSED_BYTES_MIN = 1 << 20
"""Unused pages that are not worth a copy of the store."""

NOT_PREPARED = object()
"""Instead of a prepared row: there was no room for it."""
PARTS_BEFORE_ROW = 2
"""Of an encoded batch whose first record adds one row."""
HOLD_ALONE = frozenset({QueueCreated, GroupCreated, Settled, HandedOut, Returned})
"""Facts that do not depend on a message that is added behind them in one batch."""
LETTERS_FORGOTTEN_AT_ONCE = 1000
"""A millisecond of work."""
_SHED_AFTER = 5_000
"""Records that are replayed between two rounds in which queues give back what they do not need any more."""


def _now() -> int:
    return time.time_ns() // 1_000_000


class DiskUsage(NamedTuple):
    total: int
    free: int


def _disk_usage(folder: Path) -> DiskUsage:
    found = shutil.disk_usage(folder)
    return DiskUsage(found.total, found.free)


class LmdbProvider:
    """See `IStorageProvider`."""

    name = "lmdb"
    blocking_append = False
    in_flight_max = 1
    concurrent_reads = False
    epoch = 0

    def __init__(
        self,
        data_dir: Path,
        settings: LmdbSettings,
        *,
        now: Callable[[], int] = _now,
        disk_usage: Callable[[Path], DiskUsage] = _disk_usage,
    ) -> None:
        self._layout = Layout(data_dir)
        self._settings = settings
        self._now = now
        self._disk_usage = disk_usage
        self._where = str(self._layout.data_file)
        self._owner = DirectoryLock(data_dir)
        self._lock = threading.RLock()
        self._large_lock = threading.Lock()
        """Held while a large row is read from LMDB; taken before `_lock`."""
        self._prepares = False
        """A row was written ahead of its record at some time."""
        self._large_queues: set[int] = set()
        """Queues that have, or had, rows above `LARGE_ROW_BYTES`."""
        self._left: Dirty = LeftOnly()
        self._ballast = Ballast(data_dir, settings.ballast_bytes)
        self._torn_bytes = 0
        self._spare_missing = False
        self._compacted = False
        """No spare segment is made before the next round of housekeeping: it would take what was just freed."""
        self._note: HighWater | None = None
        self._refusal = ""
        """Why new messages are refused although the disk has room; empty when they are not."""
        self._closed = True

    # -- opening and closing --------------------------------------------------------------------------------------

    def open(self) -> StoredState:
        refuse_remote(self._layout.data_dir, allow=self._settings.allow_remote)
        # Asked again under the lock; a folder of somebody else does not even get the lock's file.
        check_version(self._layout.data_dir, PROVIDER, VERSION)
        self._owner.acquire()
        try:
            with uncollected():
                return self._open()
        except BaseException:
            self._owner.release()
            raise

    def _open(self) -> StoredState:
        prepare(self._layout, now=self._now())
        with translated(self._where):
            self._env = open_reader(self._layout.store)
        try:
            self._note = self._open_note()
            with reading(self._env, self._where) as kv:
                self._state = load_sound_state(kv)
            self._room = FileRoom(self._disk_usage(self._layout.data_dir).total, self._segment_bytes())
            self._journal, report = Journal.open(
                RealDisk(),
                str(self._layout.journal),
                segment_bytes=self._segment_bytes(),
                applied_lsn=self._state.lsn,
                noted_lsn=self._note.lsn if self._note is not None else 0,
                store_room=self._room,
            )
        except BaseException:
            self._env.close()
            self._close_note()
            raise
        self._note_store_size()
        self._applied_lsn = self._state.lsn
        self._recent = RecentRows(self._journal, buffer_bytes=self._settings.buffer_bytes)
        self._stored = StoredRows(self._env, self._where)
        self._dead = JournaledDead(SnapshotKV(self._env, self._where), lambda q: is_transient(self._state, q))
        self._driver = CheckpointDriver(
            self._layout,
            self._settings,
            self._journal,
            self._room,
            self._lock,
            self._on_applied,
            self._on_answer,
            self._swap_store,
            applied_lsn=self._applied_lsn,
        )
        self._large_queues = {queue_id for queue_id, queue in self._state.queues.items() if has_large(queue)}
        self._shedder = Shedder(self._lock, lambda: self._state)
        self._replay(report)
        self._ballast.take()
        self._spare_segments = SpareSegments(self._keep_up)
        self._spare_segments.wake()
        self._closed = False
        # A million entries are not copied for somebody who only looks at them once.
        state = self._state
        return replace(
            state,
            queues=dict(state.queues),
            transactions=dict(state.transactions),
            users=dict(state.users),
            tokens=dict(state.tokens),
            jobs=dict(state.jobs),
        )

    def _open_note(self) -> HighWater | None:
        """None on a full disk that has none yet: the store goes on without."""
        disk = RealDisk()
        if read_note(self._layout.note, disk)[1]:
            logger.warning("%s is damaged; what the journal lost before now may go unnoticed", self._layout.note)
        try:
            note = HighWater(self._layout.note, disk)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StorageFailed(f"{self._layout.note} cannot be opened: {error}") from error
            logger.warning("no room for %s: damage to the journal's last record may go unnoticed", self._layout.note)
            return None
        disk.fsync_dir(str(self._layout.data_dir))
        return note

    def _note_durable(self, lsn: int) -> None:
        if self._note is not None:
            with self._noting():
                self._note.write(lsn)

    def _flush_note(self) -> None:
        if self._note is not None:
            with self._noting():
                self._note.flush()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"{self._layout.note} cannot be written: {error}; {remedy_of(error)}") from error

    def _close_note(self) -> None:
        if self._note is not None:
            self._note.close()

    def _segment_bytes(self) -> int:
        """As the settings say, and less on a small disk, which a few of the default size would fill."""
        limit = file_limit()
        total = self._disk_usage(self._layout.data_dir).total
        part = (total if limit is None else min(total, limit)) // SEGMENTS_PER_DISK
        return min(self._settings.segment_bytes, max(part, SEGMENT_BYTES_MIN))

    def _replay(self, report: RecoveryReport) -> None:
        replayed = 0
        for record in report:
            position = JournalPosition(record.lsn, record.segment, record.offset, len(record.body))
            batch = decode_batch(record.body, f"{self._layout.journal} record {record.lsn}")
            self._apply(batch, record.lsn, position)
            replayed += len(batch)
            if replayed > _SHED_AFTER:
                self._shedder.shed()
                replayed = 0
        self._state.lsn = report.last_lsn
        # What recovery believes it has flushed.
        self._note_durable(report.last_lsn)
        self._torn_bytes = report.cut_bytes
        if report.cut_at is not None:
            path, offset = report.cut_at
            logger.warning(
                "cut a torn tail of %d bytes (%d whole records) off the journal in %s at offset %d; "
                "none of it had been confirmed as flushed",
                report.cut_bytes,
                report.cut_records,
                path,
                offset,
            )
        restart_transient(self._state, self._now())
        shed_all(self._state)

    def close(self) -> None:
        if self._closed:
            return
        self._begin_end()
        self._spare_segments.stop()
        try:
            self._driver.stop(final_checkpoint=True)
            left = self._driver.hand_over()
            self._journal.close()
            self._env.close()
            self._apply_last(left)
        finally:
            self._driver.stop(final_checkpoint=False)
            self._journal.close()
            self._close_note()
            self._env.close()
            self._owner.release()

    def _begin_end(self) -> None:
        """Nobody reads any more: who is reading comes to its end, and who waits for its turn finds the store closed."""
        with self._large_lock, self._lock:
            self._closed = True

    def abandon(self) -> None:
        """Let go of everything and write nothing more, as a crash would. The next `open` recovers."""
        if self._closed:
            return
        self._begin_end()
        self._spare_segments.stop()
        self._driver.abandon()
        self._journal.abandon()
        self._close_note()
        self._env.close()
        self._owner.release()

    def _apply_last(self, segments: Sequence[SegmentToApply]) -> None:
        """A checkpoint in this process, when the checkpointer was not there to do it: nothing else runs any more."""
        if not segments:
            return
        try:
            apply_offline(self._layout, segments)
        except StorageError as error:
            logger.warning("no checkpoint at the end (%s); the next start reads the journal", error)

    # -- records --------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> int:
        self._check_open()
        with self._lock:
            durable = self._durable_part(records)
            position = self._write(durable) if durable else None
            lsn = self._state.lsn if position is None else position.lsn
            self._apply(records, lsn, position)
        if position is not None and position.offset == 0:
            # A segment was begun: have the next one ready, and see whether the old ones are worth a checkpoint.
            self._spare_segments.wake()
        return lsn

    def sync(self) -> int:
        self._check_open()
        lsn = self._journal.sync()
        self._note_durable(lsn)
        return lsn

    def room_is_ready(self) -> bool:
        """Whether appends of some megabytes need not wait for a journal segment that is being made."""
        return self._journal.room_is_ready or not self._spare_segments.busy

    def try_sync(self) -> int | None:
        """See `FlushesAtOnce`."""
        self._check_open()
        lsn = self._journal.try_sync()
        if lsn is not None:
            self._note_durable(lsn)
        return lsn

    def _durable_part(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that may reach the disk."""
        state = self._state
        born_transient = {
            record.queue_id
            for record in records
            if type(record) is QueueCreated and record.options.durability is Durability.TRANSIENT
        }
        if born_transient:
            # `persistent` knows only queues of earlier batches.
            state = StoredState(queues=dict(state.queues))
            for record in records:
                if type(record) is QueueCreated:
                    apply(state, record, self._dead)
        durable = [record for record in records if persistent(state, record)]
        return records if len(durable) == len(records) else durable

    def _write(self, records: Sequence[Record]) -> JournalPosition:
        self._ballast.refuse_messages(records)
        if self._refusal and any(type(record) is MessagesAdded for record in records):
            raise StorageFull(self._refusal)
        if self._prepares:
            before = _before_large(records)
            position = self._write_prepared(records[:before], records[before:])
            if position is not None:
                return position
        parts = encode_batch(records)
        # A full disk must still be drained: what only settles messages may use the last room, and the ballast.
        urgent = not any(type(record) is MessagesAdded for record in records)
        try:
            return self._journal.append(
                parts, urgent=urgent, largest=None if urgent else partial(_largest_row, records)
            )
        except StorageFull as error:
            # A checkpoint may make room: of what is settled by now it leaves nothing.
            self._spare_segments.wake()
            if not urgent or not self._ballast.release(error.limit):
                raise
            logger.warning("the ballast is given up so that the queues can be drained: %s", self._ballast.why)
            return self._journal.append(parts, urgent=True)

    def _write_prepared(self, before: Sequence[Record], records: Sequence[Record]) -> JournalPosition | None:
        """In a record of its own, when its row was written ahead and the rest is small enough to stand behind it.
        `before` then is a record before that."""
        prepared = self._prepared_of(records)
        if prepared is None:
            return None
        parts = encode_batch(records)
        if sum(map(len, parts)) > prepared.size + TAIL_BYTES_MAX:
            return None
        if before:
            self._journal.append(encode_batch(before))
        return self._journal.append_prepared(
            b"".join(parts[:PARTS_BEFORE_ROW]), prepared, parts[PARTS_BEFORE_ROW + 1 :]
        )

    def prepare(self, row: LargeRow) -> None:
        """Write a row ahead of its record: then its commit is as short as that of any message. May run beside all other
        verbs. Where there is no room the row stays as it is, and `append` says so."""
        self._check_open()
        self._prepares = True
        try:
            row.prepared = self._journal.prepare_row(row.data, LONE_ROW_PREFIX_BYTES)
        except StorageFull:
            row.prepared = NOT_PREPARED

    def _prepared_of(self, records: Sequence[Record]) -> PreparedRow | None:
        """The row of the first record, when it was written ahead and the rest is small enough to stand behind it."""
        first = records[0] if records else None
        if type(first) is not MessagesAdded or type(first.rows) is not LargeRow:
            return None
        row, prepared = first.rows, first.rows.prepared
        row.prepared = None
        if not isinstance(prepared, PreparedRow) or prepared.size != row.size:
            return None
        return prepared

    def _apply(self, records: Sequence[Record], lsn: int, position: JournalPosition | None) -> None:
        state, left = self._state, self._left
        self._dead.lsn = lsn
        for record in records:
            if type(record) is DeadRemoved:
                with self._dead.kv.one_snapshot():
                    apply(state, record, self._dead, left)
                continue
            apply(state, record, self._dead, left)
            if type(record) is MessagesAdded:
                self._recent.add(state, record, position)
                if record.rows.size > LARGE_ROW_BYTES and position is not None:
                    self._large_queues.add(record.queue_id)
        state.lsn = lsn
        if left.left:
            self._recent.forget(state, left.left)
            left.left.clear()

    def _on_answer(self) -> None:
        self._spare_segments.wake()

    def _on_applied(self, lsn: int) -> None:
        """Called with the lock held when the store has everything up to `lsn`."""
        self._applied_lsn = lsn
        self._note_store_size()
        self._recent.release(lsn)
        self._journal.release(lsn)

    def _note_store_size(self) -> None:
        size, unused = compaction.store_size(self._env)
        self._room.used = size - unused

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        if queue_id in self._large_queues:
            return self._read_around_large(queue_id, first, last, max_bytes)
        with self._lock:
            return self._read(queue_id, first, last, max_bytes)

    def _read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        # Under the lock: the store may be closed while somebody waits for it.
        self._check_open()
        if is_transient(self._state, queue_id):
            return self._recent.read_transient(queue_id, first, last, max_bytes)
        queue = self._state.queues.get(queue_id)
        parts = self._parts(queue_id, first, last)
        if queue is not None:
            parts = all_alive(queue, parts, first, last, self._where)
        return list(limit(parts, max_bytes))

    def _read_around_large(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """A row above `max_bytes` is not read only to be found too much, and alone it is read without the lock."""
        with self._lock:
            queue = self._state.queues.get(queue_id)
            found = None if queue is None else first_large(queue.chunks, [(first, last)])
            if found is None or found[1] <= max_bytes:
                return self._read(queue_id, first, last, max_bytes)
            sequence = found[0]
            before = self._read(queue_id, first, sequence - 1, max_bytes) if sequence > first else []
        return before or self.read_large(queue_id, sequence)

    def picks(self, queue_id: int) -> bool:
        """Whether `pick` serves: its rows are many to a block."""
        return queue_id not in self._large_queues

    def pick(self, queue_id: int, sequences: Sequence[int], max_bytes: int) -> tuple[list[Slice], int]:
        """See `PicksRows`. The lock is let go now and then, and behind each block that has taken long."""
        found: list[Slice] = []
        at = used = 0
        while True:
            with self._lock:
                self._check_open()
                until = _elapsed_s() + _HELD_S
                while at < len(sequences) and used < max_bytes:
                    some, at = self._pick(queue_id, sequences, at)
                    used += sum(part.rows.size for part in some)
                    found += some
                    if _elapsed_s() >= until:
                        break
            if at >= len(sequences) or used >= max_bytes:
                return found, at
            # Without a pause the lock is taken again before whoever waits for it, as appends do, has woken up.
            time.sleep(_LET_GO_S)

    def _pick(self, queue_id: int, sequences: Sequence[int], start: int) -> tuple[list[Slice], int]:
        queue = self._state.queues.get(queue_id)
        if queue is None or is_transient(self._state, queue_id):
            return self._recent.read_transient(queue_id, sequences[start], sequences[start], 1), start + 1
        buffered = self._recent.first_buffered(queue_id)
        if buffered is None or sequences[start] < buffered:
            found, stop = self._stored.pick(queue_id, sequences, start, name=queue.name)
        else:
            found, stop = self._recent.pick(queue_id, sequences, start)
        if len(found) < stop - start:
            there = {part.first_sequence for part in found}
            need_none_of(queue, [number for number in sequences[start:stop] if number not in there], self._where)
        return found, stop

    def first_large(self, queue_id: int, runs: Sequence[Run]) -> tuple[int, int] | None:
        """(sequence, size) of the first row in the runs that is above `LARGE_ROW_BYTES`."""
        if queue_id not in self._large_queues:
            return None
        with self._lock:
            queue = self._state.queues.get(queue_id)
            return None if queue is None else first_large(queue.chunks, runs)

    def read_large(self, queue_id: int, sequence: int) -> list[Slice]:
        """As `read` of one row, without the lock that appends take. May run beside all other verbs."""
        self._check_open()
        with self._lock:
            place = self._recent.place_of(queue_id, sequence)
        if place is not None:
            position, published_at = place
            wanted = partial(lone_row_bytes, queue_id=queue_id, sequence=sequence)
            try:
                row = self._journal.read_row(position, LONE_ROW_PREFIX_BYTES, wanted)
                if row is not None:
                    return [Slice(sequence, published_at, Rows.of([row]))]
            except (StorageDamaged, LookupError):
                pass  # A checkpoint may have it by now; if not, the read below says what is wrong.
        with self._large_lock:
            found = self._stored_large(queue_id, sequence)
        if found:
            return found
        with self._lock:
            return self._read(queue_id, sequence, sequence, 1)

    def _stored_large(self, queue_id: int, sequence: int) -> list[Slice]:
        self._check_open()
        with reading(self._env, self._where, views=True) as kv:
            info = next(block_infos(kv, queue_id, sequence, sequence), None)
            if info is None:
                return []
            if info.rows == 1 and info.size > LARGE_ROW_BYTES:
                try:
                    view = kv.view(sequence_key(BLOCK, queue_id, info.first))
                except KeyError:
                    pass  # As below, which says so.
                else:
                    return list(load_large_block(kv, queue_id, info, view))
            return clip(load_block(kv, queue_id, info), [(sequence, sequence)])

    def _parts(self, queue_id: int, first: int, last: int) -> Iterator[Slice]:
        """From the store below the first recent row, from the recent rows from there on."""
        start = self._recent.first_buffered(queue_id)
        queue = self._state.queues.get(queue_id)
        if queue is not None and (start is None or first < start):
            stop = last if start is None else min(last, start - 1)
            yield from self._stored.read(queue_id, first, stop, name=queue.name)
        if start is not None:
            yield from self._recent.read(queue_id, max(first, start), last)

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        with self._lock:
            self._check_open()
            entries = select(self._state, self._dead.after(after), limit, queue)
            return [assemble(self._state, entry, self._read, self._where) for entry in entries]

    def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        """May run beside all other verbs: the rows are read without the lock that appends take."""
        if wanted.choice.needs_index and not self._letters_are_sorted_in():
            return not_yet(wanted)
        walk = partial(self._walk_letters, wanted)
        return page(self._state, walk, self._read_letters, self._where, wanted, lock=self._lock, get=self._letter)

    def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        with self._lock:
            if not self._letters_are_sorted_in():
                return DeadGroupPage(last=wanted.after)
            return self._dead.group_page(wanted, self._state.name_of)

    def dead_queues(self, after: int = 0, limit: int = 100, name: str | None = None) -> list[tuple[int, str]]:
        with self._lock:
            self._check_open()
            return queues_of(self._state, self._dead.queues, after, limit, name)

    def _letters_are_sorted_in(self) -> bool:
        with self._lock:
            self._check_open()
            return self._dead.is_sorted_in(SORTED_AT_ONCE)

    def _read_letters(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """As `read`. The state does not know how large messages are for which only a letter stands, so the blocks are
        asked: a large one is read without the lock."""
        with self._lock:
            self._check_open()
            large = self._first_large_block(queue_id, first, last, max_bytes)
            if large is None:
                return self._read(queue_id, first, last, max_bytes)
            before = self._read(queue_id, first, large - 1, max_bytes) if large > first else []
        return before or self.read_large(queue_id, large)

    def _first_large_block(self, queue_id: int, first: int, last: int, max_bytes: int) -> int | None:
        """The first large row in [first, last], as far as a read of so many bytes reaches."""
        if is_transient(self._state, queue_id):
            return None
        start = self._recent.first_buffered(queue_id)
        with reading(self._env, self._where) as kv:
            for info in block_infos(kv, queue_id, first, last if start is None else min(last, start - 1)):
                if info.size > LARGE_ROW_BYTES:
                    return info.first
                max_bytes -= info.size
                if max_bytes <= 0:
                    return None
        return None if start is None else self._recent.first_large(queue_id, max(first, start), last)

    def _walk_letters(self, wanted: DeadPageWanted, damaged: list[DamagedLetter]) -> Iterator[Step]:
        self._check_open()
        return self._dead.walk(wanted, damaged)

    def _letter(self, dead_id: int) -> DeadEntry | None:
        self._check_open()
        return self._dead.get(dead_id)

    def dead_letter(self, dead_id: int) -> DeadLetter | None:
        with self._lock:
            self._check_open()
            entry = self._dead.get(dead_id)
            return None if entry is None else assemble(self._state, entry, self._read, self._where)

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def maintain(self) -> None:
        """One round of housekeeping. Blocking, at most for a zero-filled segment; never for a checkpoint."""
        self._check_open()
        self._driver.poll()
        self._forget_applied_letters()
        with self._lock:
            self._journal.note_durable()
        self._flush_note()
        self._shedder.shed()
        short = self._check_disk()
        self._check_journal()
        self._journal.pool.give_back(short=short)
        self._compacted = False
        self._prepare_spare()

    def _forget_applied_letters(self) -> None:
        """Appends and reads, which are called in the event loop's thread, take the lock in between."""
        more = True
        while more:
            with self._lock:
                more = self._dead.applied(self._applied_lsn, LETTERS_FORGOTTEN_AT_ONCE)
                more |= self._dead.sort_in(SORTED_AT_ONCE)
            time.sleep(0)

    def _keep_up(self) -> None:
        self._check_journal()
        try:
            if not self._compacted:
                self._prepare_spare()
        finally:
            if self._driver.details()["checkpointer_running"]:
                self._driver.poll()

    def _prepare_spare(self) -> None:
        """A missing one is told once, when it begins."""
        self._driver.room_wanted = self._journal.pool.room_is_short
        try:
            self._journal.pool.prepare_spare()
            self._spare_missing = False
        except StorageFull as error:
            # A checkpoint gives back room, not files; it would seal a segment that others can still write to.
            if getattr(error.__cause__, "errno", None) not in (errno.EMFILE, errno.ENFILE):
                self._driver.room_wanted = True
            if not self._spare_missing:
                self._spare_missing = True
                logger.warning("no spare journal segment: %s", error)

    def _check_disk(self) -> bool:
        """Ballast, and the store's own unused pages; return whether the disk is short of space.

        LMDB keeps the pages of a drained backlog. Only it can use them; on a short disk they are given back.
        """
        met = self._driver.met
        if met is not None:
            self._journal.pool.trim()
            self._journal.cut_sealed()
            if self._ballast.release(met):
                logger.warning("the ballast is given up so that checkpoints can go on: %s", self._ballast.why)
        else:
            if self._ballast.missing:
                self._journal.pool.trim()
            self._ballast.take(beside=self._journal.pool.room_kept, reusable=self._room.unused(VALUE_BYTES))
        disk = self._disk_usage(self._layout.data_dir)
        short = met is not None or self._ballast.missing or self._spare_missing
        short = short or disk.free < disk.total // SHORT_PART
        with self._lock:
            size, unused = compaction.store_size(self._env)
        used = size - unused
        wanted = short and unused > max(used, UNUSED_BYTES_MIN) and disk.free > used + compaction.MARGIN_BYTES
        if wanted and not self._driver.compaction_wanted:
            logger.warning("the disk is short and %d MiB of the store are unused: compacting it", unused >> 20)
        self._driver.compaction_wanted = wanted
        return short

    def _check_journal(self) -> None:
        """Refuse messages behind a checkpointer that does not come along: the journal must not take the whole disk."""
        waiting, limit_bytes = self._journal.stats().bytes_unreleased, self._settings.journal_bytes_max
        if waiting < (limit_bytes // 2 if self._refusal else limit_bytes):
            self._refusal = ""
            return
        if not self._refusal:
            logger.error(
                "%d MiB of journal are not checkpointed: new messages are refused until they are", waiting >> 20
            )
        error = self._driver.details()["checkpointer_error"]
        self._refusal = (
            f"the journal in {self._layout.journal} holds {waiting >> 20} MiB that are not checkpointed, "
            f"{limit_bytes >> 20} MiB are allowed (journal_bytes_max): the checkpointer does not come along"
            f"{f' ({error})' if error else ''}; publish again later, and see the broker's log"
        )

    def checkpoint(self) -> None:
        """Wait until the store has everything appended before the call. Raises StorageError after ten minutes."""
        self._check_open()
        self._driver.checkpoint_now()

    def stats(self) -> StorageStats:
        self._check_open()
        journal = self._journal.stats()
        disk = self._disk_usage(self._layout.data_dir)
        with self._lock:
            self._check_open()
            store_bytes, reclaimable = compaction.store_size(self._env)
            map_used_ratio = compaction.map_used_ratio(self._env)
        return StorageStats(
            provider=self.name,
            last_lsn=journal.last_lsn,
            durable_lsn=journal.durable_lsn,
            applied_lsn=self._applied_lsn,
            journal_bytes=journal.bytes_on_disk,
            store_bytes=store_bytes,
            reclaimable_bytes=reclaimable,
            buffered_bytes=self._recent.bytes_held,
            disk_free_bytes=disk.free,
            disk_total_bytes=disk.total,
            torn_tail_bytes=self._torn_bytes,
            full=self._ballast.why or self._file_limit(),
            unapplied_bytes=journal.bytes_unreleased,
            journal_bytes_max=self._settings.journal_bytes_max,
            checkpoint_interval_s=self._settings.checkpoint_ms / 1000,
            reusable_bytes=reclaimable + journal.bytes_reusable + self._ballast.bytes_held,
            details={
                "journal_segments": journal.segments,
                "journal_spares": journal.spares,
                "journal_bytes_unreleased": journal.bytes_unreleased,
                "journal_appends": journal.appends,
                "journal_flushes": journal.syncs,
                "unsynced_bytes": journal.bytes_unsynced,
                "map_used_ratio": map_used_ratio,
                "messages_refused": self._refusal,
                "ballast_held": self._ballast.held,
                **self._driver.details(),
            },
        )

    def _file_limit(self) -> str:
        """Why messages are refused, when it is a limit of this process."""
        room = self._room.limit()
        if room is None or room >= self._journal.pool.room_kept + self._segment_bytes():
            return ""
        return (
            f"the store {self._where} may grow by {room} bytes more, which are kept for checkpoints and for draining: "
            f"{limit_sentence(room + self._room.used)}"
        )

    def check(self) -> Iterator[Problem]:
        # While the turn is taken no checkpoint is ordered, so the snapshot costs no space.
        with self._driver.turn:
            self._check_open()
            problems = [*check.check_store(self._env, self._where), *check.check_journal(self._journal)]
        yield from problems

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        self._check_open()
        backup.make(self._driver, self._layout.data_dir, target, progress)

    def compact(self, progress: Progress | None = None) -> int:
        """As the interface says. Appends and reads go on; only the swap at the end holds them up, for milliseconds.

        Raises:
            StorageFull: no room for the copy, even without the ballast; says how much is missing. Nothing changed.
        """
        self._check_open()
        report = progress or _silent
        before = directory_bytes(self._layout.data_dir)
        self._compacted = True
        with self._driver.turn:
            report(0, 3)
            behind = self._checkpoint_if_there_is_room()
            self._journal.pool.trim()
            self._driver.stop(final_checkpoint=False)
            report(1, 3)
            self._write_compacted()
            report(2, 3)
            self._swap_store()
            if behind:
                self._checkpoint_if_there_is_room()
            self._journal.pool.trim()
            self._ballast.take()
        report(3, 3)
        return max(0, before - directory_bytes(self._layout.data_dir))

    def _checkpoint_if_there_is_room(self) -> bool:
        """Whether the store is still behind the journal. It may be compacted all the same, and have the room then."""
        try:
            self._driver.checkpoint_now()
        except StorageFull as error:
            logger.warning("%s", error)
            return True
        return False

    def _write_compacted(self) -> None:
        free = self._disk_usage(self._layout.data_dir).free
        compaction.need_room(self._layout, self._env, free + self._ballast.bytes_held)
        try:
            compaction.need_room(self._layout, self._env, free)
        except StorageFull:
            # What the ballast is for: room to get out of a full disk.
            self._ballast.release()
        compaction.write_compacted(self._layout, self._env)

    def _swap_store(self) -> None:
        """Put the compacted copy in the store's place. The caller has the turn, and there is no checkpointer."""
        with self._large_lock, self._lock:
            self._env.close()
            try:
                compaction.swap_compacted(self._layout)
            finally:
                self._env = open_reader(self._layout.store)
                self._stored.env = self._env
                self._dead.kv = SnapshotKV(self._env, self._where)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageFailed(f"the store in {self._layout.data_dir} is not open")


def _before_large(records: Sequence[Record]) -> int:
    """How many records come before the first with a large row, when each of them holds without it: after a crash in
    between they have happened, and the message, of which nobody was told, has not."""
    for index, record in enumerate(records):
        if type(record) is MessagesAdded:
            return index if type(record.rows) is LargeRow else 0
        if type(record) not in HOLD_ALONE:
            break
    return 0


def _largest_row(records: Sequence[Record]) -> int:
    return max((max(record.rows.row_lengths()) for record in records if type(record) is MessagesAdded), default=0)


def directory_bytes(folder: Path) -> int:
    """Disk space of all files below the folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _silent(done: int, total: int) -> None:
    pass
