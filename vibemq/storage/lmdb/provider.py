"""The `lmdb` provider: a journal in front of LMDB, and a process of its own that moves the one into the other.

    append    records → one journal record; rows stay at hand until a checkpoint has them
    read      rows at hand, else their journal record, else LMDB
    maintain  keeps the checkpointer alive and busy, spare segments and ballast in store

Threads: `append`, `read` and the dead-letter verbs may run in the event loop's thread, `sync` in another, `maintain`,
`backup` and `check` in further ones. The lock of the `OpenStore` guards what they share. Who reads LMDB asks under the
lock whether the store is open: `close` may come in between.
The broker itself only reads LMDB, in snapshots of milliseconds.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from vibemq.errors import StorageError
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.records import (
    DeadRemoved,
    MessagesAdded,
    Record,
    StageMoved,
)
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow
from vibemq.model.runs import Run
from vibemq.model.stored import DeadLetter, DeadPage, DeadPageWanted, Slice, StoredState
from vibemq.storage.interface import Problem, Progress, StorageStats
from vibemq.storage.kvstore.collecting import uncollected
from vibemq.storage.kvstore.encoding import decode_batch
from vibemq.storage.kvstore.integrity import load_sound_state
from vibemq.storage.lmdb import backup, check, compaction
from vibemq.storage.lmdb.checkpoint.checkpoint import SegmentToApply, apply_offline
from vibemq.storage.lmdb.checkpoint.schedule import CheckpointDriver
from vibemq.storage.lmdb.compacting import Compactor
from vibemq.storage.lmdb.environment.env import open_reader
from vibemq.storage.lmdb.environment.tables import reading, translated
from vibemq.storage.lmdb.journal.durable_note import DurableNote
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.recent import LeftOnly, RecentRows
from vibemq.storage.lmdb.journal.record_writer import RecordWriter, durable_part
from vibemq.storage.lmdb.journal.recovery import RecoveryReport
from vibemq.storage.lmdb.journal.spare_segments import SpareSegments
from vibemq.storage.lmdb.layout import PROVIDER, VERSION, Layout
from vibemq.storage.lmdb.open_store import OpenStore
from vibemq.storage.lmdb.prepare import prepare
from vibemq.storage.lmdb.reading.dead import JournaledDead, SnapshotKV
from vibemq.storage.lmdb.reading.letters import JournaledLetters
from vibemq.storage.lmdb.reading.rows import RowReader
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.lmdb.store_room import DiskUsage, FileRoom
from vibemq.storage.lmdb.upkeep import Upkeep
from vibemq.storage.local.ballast import Ballast
from vibemq.storage.local.disk import RealDisk
from vibemq.storage.local.file_limit import file_limit, limit_sentence
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.mounts import refuse_remote
from vibemq.storage.local.store_file import check_store as check_version
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import apply, is_transient, restart_transient
from vibemq.storage.state.shedding import shed_all
from vibemq.storage.state.turns import in_turns

logger = logging.getLogger(__name__)

SEGMENTS_PER_DISK = 64
SEGMENT_BYTES_MIN = 64 << 10
STRETCHES_AT_ONCE = 1_000
"""Let go of while appends wait for the lock: a millisecond of work."""
SHED_AFTER = 5_000
"""Records that are replayed between two rounds in which queues give back what they do not need any more."""


def _now() -> int:
    return time.time_ns() // 1_000_000


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
        self._store = OpenStore(self._layout)
        self._owner = DirectoryLock(data_dir)
        self._left: Dirty = LeftOnly()
        self._ballast = Ballast(data_dir, settings.ballast_bytes)
        self._torn_bytes = 0

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
        report = self._open_files()
        try:
            self._make_parts()
            self._replay(report)
            self._ballast.take()
            self._spare_segments = SpareSegments(self._upkeep.keep_up)
        except BaseException:
            self._close_files()
            raise
        self._spare_segments.wake()
        self._store.closed = False
        return self._store.state.for_a_look()

    def _open_files(self) -> RecoveryReport:
        store = self._store
        note: DurableNote | None = None
        with translated(store.where):
            store.env = open_reader(self._layout.store)
        try:
            self._note = note = DurableNote(self._layout.note, RealDisk())
            with reading(store.env, store.where) as kv:
                store.state = load_sound_state(kv)
            self._room = FileRoom(self._disk_usage(self._layout.data_dir).total, self._segment_bytes())
            self._journal, report = Journal.open(
                RealDisk(),
                str(self._layout.journal),
                segment_bytes=self._segment_bytes(),
                applied_lsn=store.state.lsn,
                noted_lsn=note.lsn,
                store_room=self._room,
            )
        except BaseException:
            store.env.close()
            if note is not None:
                note.close()
            raise
        return report

    def _make_parts(self) -> None:
        store, journal = self._store, self._journal
        self._note_store_size()
        store.applied_lsn = store.state.lsn
        self._recent = RecentRows(journal, buffer_bytes=self._settings.buffer_bytes)
        self._rows = RowReader(store, journal, self._recent)
        self._dead = JournaledDead(SnapshotKV(store.env, store.where), lambda q: is_transient(store.state, q))
        self._letters = JournaledLetters(store, self._rows, self._dead)
        self._writer = RecordWriter(journal, self._ballast, self._wake_upkeep)
        self._driver = CheckpointDriver(
            self._layout,
            self._settings,
            journal,
            self._room,
            store.lock,
            self._on_applied,
            self._wake_upkeep,
            self._swap_store,
            applied_lsn=store.applied_lsn,
        )
        self._upkeep = Upkeep(
            store,
            self._settings,
            journal,
            self._driver,
            self._room,
            self._ballast,
            self._dead,
            self._writer,
            self._note,
            self._disk_usage,
            self._map_anew,
        )
        self._compactor = Compactor(
            store, self._driver, journal.pool, self._ballast, self._free_bytes, self._swap_store
        )

    def _free_bytes(self) -> int:
        """Of the store's own disk, on which it is copied."""
        return self._disk_usage(self._layout.store).free

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
            if replayed > SHED_AFTER:
                self._upkeep.shedder.shed()
                replayed = 0
        self._store.state.lsn = report.last_lsn
        # What recovery believes it has flushed.
        self._note.write(report.last_lsn)
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
        restart_transient(self._store.state, self._now())
        shed_all(self._store.state)

    def close(self) -> None:
        if self._store.closed:
            return
        try:
            # A last checkpoint is for this store, not for another one that has its name now.
            self._owner.require_name()
        except StorageError:
            self.abandon()
            raise
        self._store.end()
        self._driver.end_backups()
        self._spare_segments.stop()
        try:
            goes_on = self._driver.stop(final_checkpoint=True)
            left = self._driver.hand_over() if goes_on else []
            self._journal.close()
            self._store.env.close()
            self._apply_last(left)
        finally:
            self._driver.stop(final_checkpoint=False)
            self._journal.close()
            self._note.close()
            self._store.env.close()
            self._owner.release()

    def abandon(self) -> None:
        """Let go of everything and write nothing more, as a crash would. The next `open` recovers."""
        if self._store.closed:
            return
        self._store.end()
        self._driver.end_backups()
        self._spare_segments.stop()
        self._driver.abandon()
        self._close_files()
        self._owner.release()

    def _close_files(self) -> None:
        self._journal.abandon()
        self._note.close()
        self._store.env.close()

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
        store = self._store
        store.require_open()
        with store.lock:
            durable = durable_part(store.state, self._dead, records)
            position = self._writer.write(durable) if durable else None
            lsn = store.state.lsn if position is None else position.lsn
            self._apply(records, lsn, position)
        if position is not None and position.offset == 0:
            # A segment was begun: have the next one ready, and see whether the old ones are worth a checkpoint.
            self._spare_segments.wake()
        return lsn

    def sync(self) -> int:
        self._store.require_open()
        lsn = self._journal.sync()
        self._note.write(lsn)
        return lsn

    def room_is_ready(self) -> bool:
        """Whether appends of some megabytes need not wait for a journal segment that is being made."""
        return self._journal.room_is_ready or not self._spare_segments.busy

    def try_sync(self) -> int | None:
        """See `FlushesAtOnce`."""
        self._store.require_open()
        lsn = self._journal.try_sync()
        if lsn is not None:
            self._note.write(lsn)
        return lsn

    def prepare(self, row: LargeRow) -> None:
        """See `PreparesRows`."""
        self._store.require_open()
        self._writer.prepare_row(row)

    def _apply(self, records: Sequence[Record], lsn: int, position: JournalPosition | None) -> None:
        state, left = self._store.state, self._left
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
                    self._rows.large_queues.add(record.queue_id)
            elif type(record) is StageMoved:
                self._recent.move(record, lsn)
        state.lsn = lsn
        if left.left:
            self._recent.forget(state, left.left)
            left.left.clear()

    def _wake_upkeep(self) -> None:
        self._spare_segments.wake()

    def _on_applied(self, lsn: int) -> None:
        """The store has everything up to `lsn`."""
        with self._store.lock:
            self._store.applied_lsn = lsn
            self._note_store_size()
        in_turns(partial(self._release_some, lsn))
        with self._store.lock:
            # Last: rows are read from it until they are forgotten.
            self._journal.release(lsn)

    def _release_some(self, lsn: int) -> bool:
        with self._store.lock:
            return self._recent.release(lsn, STRETCHES_AT_ONCE)

    def _note_store_size(self) -> None:
        size, unused = compaction.store_size(self._store.env)
        self._room.used = size - unused

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        self._store.require_open()
        return self._rows.read(queue_id, first, last, max_bytes)

    def picks(self, queue_id: int) -> bool:
        self._store.require_open()
        return self._rows.picks(queue_id)

    def pick(self, queue_id: int, sequences: Sequence[int], max_bytes: int) -> tuple[list[Slice], int]:
        """See `PicksRows`."""
        self._store.require_open()
        return self._rows.pick(queue_id, sequences, max_bytes)

    def first_large(self, queue_id: int, runs: Sequence[Run]) -> tuple[int, int] | None:
        self._store.require_open()
        return self._rows.first_large(queue_id, runs)

    def read_large(self, queue_id: int, sequence: int) -> list[Slice]:
        self._store.require_open()
        return self._rows.read_large(queue_id, sequence)

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        with self._store.lock:
            self._store.require_open()
            return self._letters.letters(after, limit, queue)

    def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        """May run beside all other verbs: the rows are read without the lock that appends take."""
        self._store.require_open()
        return self._letters.page(wanted)

    def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        with self._store.lock:
            self._store.require_open()
            return self._letters.groups(wanted)

    def dead_queues(self, after: int = 0, limit: int = 100, name: str | None = None) -> list[tuple[int, str]]:
        with self._store.lock:
            self._store.require_open()
            return self._letters.queues(after, limit, name)

    def dead_letter(self, dead_id: int) -> DeadLetter | None:
        with self._store.lock:
            self._store.require_open()
            return self._letters.letter(dead_id)

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def maintain(self) -> None:
        """One round of housekeeping. Blocking, at most for a zero-filled segment; never for a checkpoint."""
        self._store.require_open()
        self._owner.require_name()
        self._upkeep.maintain()

    def checkpoint(self) -> None:
        """Wait until the store has everything appended before the call. Raises StorageError after ten minutes."""
        self._store.require_open()
        self._driver.checkpoint_now()

    def stats(self) -> StorageStats:
        self._store.require_open()
        journal = self._journal.stats()
        disk = self._disk_usage(self._layout.data_dir)
        with self._store.lock:
            self._store.require_open()
            store_bytes, reclaimable = compaction.store_size(self._store.env)
            map_used_ratio = compaction.map_used_ratio(self._store.env)
        return StorageStats(
            provider=self.name,
            last_lsn=journal.last_lsn,
            durable_lsn=journal.durable_lsn,
            applied_lsn=self._store.applied_lsn,
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
                "messages_refused": self._writer.refusal,
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
            f"the store {self._store.where} may grow by {room} bytes more, which are kept for checkpoints and for "
            f"draining: "
            f"{limit_sentence(room + self._room.used)}"
        )

    def check(self) -> Iterator[Problem]:
        # While the turn is taken no checkpoint is ordered, so the snapshot costs no space.
        with self._driver.turn:
            self._store.require_open()
            problems = [*check.check_store(self._store.env, self._store.where), *check.check_journal(self._journal)]
        yield from problems

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        self._store.require_open()
        backup.make(self._driver, self._layout.data_dir, target, progress)

    def compact(self, progress: Progress | None = None) -> int:
        """As the interface says. Appends and reads go on; only the swap at the end holds them up, for milliseconds.

        Raises:
            StorageFull: no room for the copy, even without the ballast; says how much is missing. Nothing changed.
        """
        self._store.require_open()
        self._upkeep.compacted = True
        return self._compactor.compact(progress)

    def _swap_store(self) -> None:
        """Put the compacted copy in the store's place. The caller has the turn, and there is no checkpointer: the next
        one may write the new file once this returns.

        Raises:
            StorageFailed: whether a restart finds the old file or the new one is unknown, so nothing is released.
        """
        self._map_anew(lambda: compaction.swap_compacted(self._layout))
        try:
            # Behind the locks, which the event loop needs.
            compaction.flush_swap(self._layout)
        except OSError as error:
            raise self._journal.fail("goes no further: the flush of a compacted store's folder", error) from error

    def _map_anew(self, between: Callable[[], None] | None = None) -> None:
        """`between`: what is done while nobody has the store mapped."""
        with self._store.large_lock, self._store.lock:
            self._store.env.close()
            try:
                if between is not None:
                    between()
            finally:
                with translated(self._store.where):
                    self._store.env = open_reader(self._layout.store)
                self._dead.kv = SnapshotKV(self._store.env, self._store.where)
