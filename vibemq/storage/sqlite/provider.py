"""The sqlite provider: one connection, one lock around it, the write-ahead log flushed beside it.

A batch is one transaction: state values that changed, rows as small blocks, blocks of settled messages gone. Commits do
not flush (`synchronous = NORMAL`): SQLite hands the log's frames to the kernel, which survives `kill -9`. `sync()`
is one `fdatasync` of the log through a descriptor of its own, so it needs no lock and makes every batch committed
before it durable; frames carry checksums, so a power cut without it costs a suffix and nothing else. Folding the log
into the database flushes the log first and the database after, as NORMAL has it. (The log holds no POSIX locks, so
closing that descriptor releases none.)

The log's end is what SQLite finds to be its end; `storage/local/high_water.py` keeps what it must be at least.

`maintain()` joins the small blocks and folds the log.
"""

import errno
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vibemq.errors import StorageDamaged, StorageError, StorageFailed, StorageFenced, StorageFull
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.records import MessagesAdded, Record
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.model.runs import Run
from vibemq.model.stored import DeadLetter, DeadPage, DeadPageWanted, Slice, StoredState
from vibemq.storage.interface import Problem, Progress, StorageStats
from vibemq.storage.kvstore.dead_letters import SORTED_AT_ONCE
from vibemq.storage.kvstore.transactional import TransactionalStore
from vibemq.storage.local.ballast import START_FILE, Ballast
from vibemq.storage.local.disk import RealDisk, write_again
from vibemq.storage.local.file_limit import RESTART, file_limit, limit_sentence, remedy_of
from vibemq.storage.local.high_water import HighWater, note_of
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.modes import tighten
from vibemq.storage.local.mounts import refuse_remote
from vibemq.storage.local.repaired import finish_repair
from vibemq.storage.local.store_file import check_store, fsync_folder
from vibemq.storage.migrate import create_store
from vibemq.storage.sqlite.check import check
from vibemq.storage.sqlite.connection import (
    DATABASE,
    FILES,
    HINT,
    REFUSALS,
    VERSION,
    SqliteKV,
    connect,
    epoch_of,
    fold_log,
    never_close,
    page_bytes,
    take_over,
    transaction,
    translate,
    translated,
)
from vibemq.storage.sqlite.copying import back_up
from vibemq.storage.sqlite.recovery import COMPANIONS, refuse_missing, refuse_what_is_behind
from vibemq.storage.sqlite.room import (
    DRAIN_BYTES,
    LOG_BYTES_MIN,
    PAGE_BYTES,
    START_BYTES,
    fold_pages,
    log_room,
    needed,
)
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.storage.sqlite.wal import LogGauge
from vibemq.storage.state.large import first_large, queues_with_large
from vibemq.storage.state.picking import pick_in_turns
from vibemq.storage.state.reducer import persistent
from vibemq.storage.state.shedding import Shedder
from vibemq.storage.state.turns import in_turns

logger = logging.getLogger(__name__)

SHORT_PART = 10
"""A disk is short of space when less than one byte in so many is free."""
UNUSED_BYTES_MIN = 1 << 20
"""Unused pages that are not worth writing the store anew."""
SHRINK_BYTES_MAX = 64 << 20
"""A store with more used pages is not written anew while the broker runs: appends wait for it."""
SHRINK_MARGIN_BYTES = 512 << 10
"""What the disk must have free beyond the used pages."""
DRAIN_PART = 16
"""One byte in so many of what the database's file may have stays free for the drain, when its size is limited."""
PAGES_MAX = 0xFFFFFFFE
"""SQLite's own limit."""
MERGE_BYTES = 4 << 20
"""What joining the small blocks of a queue may take, in the log and in the database."""
MERGE_S = 0.005
"""For so long small blocks are joined before appends that wait have their turn."""
SHRINK_AGAIN_S = 5.0
"""Between two of them: a queue that fills and drains all the time would have the broker do little else."""


def _now() -> int:
    return time.time_ns() // 1_000_000


def _remedy_of(error: Exception) -> str:
    # A restart does not help against damage: the next change of the same page fails again.
    if isinstance(error, StorageDamaged):
        return HINT
    return remedy_of(error) if isinstance(error, OSError) else RESTART


def _kept_to_drain(limit: int) -> int:
    return max(DRAIN_BYTES, limit // DRAIN_PART)


class SqliteStorage:
    """See `IStorageProvider`. Every verb may be called from any thread; all but `sync` take turns."""

    name = "sqlite"
    blocking_append = True
    in_flight_max = 1
    concurrent_reads = True

    def __init__(
        self,
        data_dir: Path,
        settings: SqliteSettings,
        *,
        now: Callable[[], int] = _now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._now = now
        self._monotonic = monotonic
        self._path = data_dir / DATABASE
        self._where = str(self._path)
        self._lock = threading.RLock()
        self._directory = DirectoryLock(data_dir)
        self._ballast = Ballast(data_dir, settings.ballast_bytes)
        self._start_room = Ballast(data_dir, min(START_BYTES, settings.ballast_bytes), START_FILE)
        """Either it is held, or the log and its index have its blocks, and whoever opens the store can use those."""
        self._connection: sqlite3.Connection | None = None
        self._log = -1
        self._gauge = LogGauge(self._log, PAGE_BYTES)
        self._fold_frames = 0
        self._note: HighWater | None = None
        self._failed: StorageFailed | None = None
        self._ends = False
        """A backup that is under way does not go on."""
        self._pages_limited = False
        self._shrink_not_before = 0.0
        self._large_queues: set[int] = set()
        """Queues that have, or had, rows above `LARGE_ROW_BYTES`."""
        self.epoch = 0
        self._written_lsn = 0
        """Of the last batch that is in the log. The state is ahead of it while a batch is being committed, which `sync`
        in another thread must not take for written."""
        self._durable_lsn = 0

    # -- opening and closing --------------------------------------------------------------------------------------

    def open(self) -> StoredState:
        refuse_remote(self._data_dir, allow=self._settings.allow_remote)
        # Asked again under the lock; a folder of somebody else does not even get the lock's file.
        check_store(self._data_dir, self.name, VERSION)
        self._directory.acquire()
        self._ends = False
        try:
            return self._open_on_any_disk()
        except BaseException:
            try:
                self._release_files()
            finally:
                self._directory.release()
            raise

    def _open_on_any_disk(self) -> StoredState:
        """Even reading takes room: for the log's index, and for folding a log that an earlier process left."""
        try:
            state = self._open_or_release()
        except StorageFull:
            # Tried again without it, too: what had been opened was closed, and SQLite has folded the log in doing so.
            self._start_room.release()
            state = self._open_on_the_ballast()
        if not self._ballast.take(reusable=self._unused_bytes()):
            self._spare_room()
        self._start_room.take_back()
        return state

    def _open_on_the_ballast(self) -> StoredState:
        try:
            return self._open_or_release()
        except StorageFull as error:
            if not self._ballast.release(error.limit):
                raise
            logger.warning("the ballast is given up so that the store can be opened: %s", self._ballast.why)
            return self._open_or_release()

    def _open_or_release(self) -> StoredState:
        try:
            return self._open()
        except REFUSALS as exc:
            self._release_files()
            raise translate(exc, self._where) from exc
        except BaseException:
            self._release_files()
            raise

    def _open(self) -> StoredState:
        exists = check_store(self._data_dir, self.name, VERSION)
        if not exists:
            create_store(self._data_dir, self.name, self._now())
        elif finish_repair(self._path, COMPANIONS):
            logger.warning("an interrupted repair of %s was completed", self._where)
        refuse_missing(self._path)
        tighten(self._data_dir, FILES)
        refuse_what_is_behind(self._path)
        self._connection = connect(self._path, cache_bytes=self._settings.cache_bytes, create=False)
        self._connection.execute(f"PRAGMA journal_size_limit = {self._settings.wal_bytes}")
        connection = self._connection
        self._store = TransactionalStore(SqliteKV(connection, self._where), lambda: self._own_transaction(connection))
        self._letters = self._store.letter_reader(self.read)
        state = self._store.load(self._now())
        self._shedder = Shedder(self._lock, lambda: self._store.state)
        self._large_queues = queues_with_large(state)
        # This also leaves a log to flush, whose name is then made durable.
        self.epoch = take_over(connection)
        self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._gauge = LogGauge(self._log, connection.execute("PRAGMA page_size").fetchone()[0])
        self._fold_frames = fold_pages(self._ballast.size)
        self._flush_what_was_left()
        self._written_lsn = self._durable_lsn = state.lsn
        return state

    def _flush_what_was_left(self) -> None:
        """What an earlier process wrote and nobody has flushed must be durable before anybody builds on it."""
        try:
            self._write_log_again()
            self._note = self._open_note()
            fsync_folder(self._data_dir)
            self._note.write(self._store.stored_lsn)
            self._note.flush()
        except OSError as exc:
            raise self._fail(exc) from exc

    def _write_log_again(self) -> None:
        disk = RealDisk()
        file = disk.open(f"{self._path}-wal")
        try:
            # Behind its frames stand those of a log that was folded.
            write_again(disk, file, min(disk.size(file), self._gauge.end()))
        finally:
            disk.close(file)

    @contextmanager
    def _own_transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        """The lock on the directory keeps other brokers out, unless the file system does not keep locks."""
        with transaction(connection):
            epoch = epoch_of(connection)
            if epoch != self.epoch:
                raise self._end(
                    StorageFenced(
                        f"another broker has taken {self._where} over (epoch {epoch}, ours was {self.epoch}); nothing "
                        "was written, and this broker confirms nothing more. Find out who the other is: owner.json "
                        "names it"
                    )
                )
            yield

    def _open_note(self) -> HighWater:
        try:
            return HighWater(note_of(self._path))
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StorageFull(f"no room beside {self._where}: {exc}; nothing was written, free space") from exc
            raise StorageFailed(f"{note_of(self._path)} cannot be opened: {exc}") from exc

    def close(self) -> None:
        self._ends = True
        with self._lock:
            if self._connection is None:
                return
            try:
                if self._failed is None:
                    self._require_directory()
                    self.sync()
                    self._fold_log()
            finally:
                self._release()

    def _release(self) -> None:
        self._release_files()
        try:
            if self._failed is None:
                # SQLite has removed the log, and its blocks are free.
                self._start_room.take_back()
        finally:
            self._directory.release()

    def _release_files(self) -> None:
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        if self._note is not None:
            self._note.close()
            self._note = None
        if self._connection is not None:
            if self._failed is None:
                self._connection.close()
            self._connection = None

    def _open_connection(self) -> sqlite3.Connection:
        if self._failed is not None:
            raise self._failed
        if self._connection is None:
            raise StorageFailed(f"the store {self._where} is not open")
        return self._connection

    def _fail(self, error: Exception) -> StorageFailed:
        """Whatever went wrong, nothing may be trusted or tried again."""
        if self._failed is None:
            remedy = _remedy_of(error)
            what = str(error).removesuffix(f"; {remedy}")
            self._end(StorageFailed(f"the store {self._where} failed ({what}); {remedy}"))
        assert self._failed is not None
        return self._failed

    def _end(self, failure: StorageFailed) -> StorageFailed:
        """Every later call raises it, and not another word is said to the files."""
        self._failed = failure
        if self._connection is not None:
            never_close(self._connection)
        return failure

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> int:
        with self._lock:
            # What is kept in memory only is never refused for want of disk.
            durable = [record for record in records if persistent(self._store.state, record)]
            self._ballast.refuse_messages(durable)
            remedies = iter(
                (
                    self._cut_the_log,
                    partial(self._give_the_ballast_up, durable),
                    partial(self._give_the_start_room_up, durable),
                )
            )
            while True:
                try:
                    return self._append(records, durable)
                except StorageFull as error:
                    # Each is tried once, and the next one only when the one before did not help.
                    if not any(remedy(error.limit) for remedy in remedies):
                        raise

    def _cut_the_log(self, limit: str) -> bool:
        return self._spare_room()

    def _give_the_ballast_up(self, records: Sequence[Record], limit: str) -> bool:
        """A full disk must still be drained: what only settles messages may use the ballast."""
        if any(type(record) is MessagesAdded for record in records) or not self._ballast.release(limit):
            return False
        logger.warning("the ballast is given up so that the queues can be drained: %s", self._ballast.why)
        self._spare_room()
        return True

    def _give_the_start_room_up(self, records: Sequence[Record], limit: str) -> bool:
        """The log takes it, and gives it back when it is folded."""
        return not any(type(record) is MessagesAdded for record in records) and self._start_room.release(limit)

    def _append(self, records: Sequence[Record], durable: Sequence[Record]) -> int:
        with self._lock:
            self._limit_pages(self._open_connection(), durable)
            self._keep_room_to_fold(durable)
            kept = self._store.transient_copies(records)
            lsn = self._store.state.lsn + 1
            try:
                later = self._store.write(records, lsn)
            except (*REFUSALS, StorageError) as exc:
                error = exc if isinstance(exc, StorageError) else translate(exc, self._where)
                if not isinstance(error, StorageFull):
                    raise self._fail(error) from exc
                with translated(self._where):
                    self._store.undo(kept)
                raise error from exc
            except BaseException as exc:
                raise self._fail(RuntimeError(repr(exc))) from exc
            self._store.apply_volatile(later)
            for record in records:
                if type(record) is MessagesAdded and record.rows.size > LARGE_ROW_BYTES:
                    self._large_queues.add(record.queue_id)
            # A flush may have failed meanwhile, in another thread: then this is told to nobody either.
            self._open_connection()
            self._written_lsn = lsn
            if self._ballast.missing:
                self._spare_room()
            self._fold_a_long_log()
            return lsn

    def _limit_pages(self, connection: sqlite3.Connection, records: Sequence[Record]) -> None:
        """Where files may not grow without end, have SQLite refuse the pages for which folding would find no room.

        A log that cannot be folded grows with every settlement, and so the database could never be drained.
        """
        limit = file_limit()
        if limit is None and not self._pages_limited:
            return
        self._pages_limited = limit is not None
        adding = any(type(record) is MessagesAdded for record in records)
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        pages = PAGES_MAX if limit is None else (limit - adding * _kept_to_drain(limit)) // size
        connection.execute(f"PRAGMA max_page_count = {min(max(1, pages), PAGES_MAX)}").fetchone()

    def _file_limited(self, used: int) -> str:
        """Why messages are refused, when it is a limit of this process."""
        limit = file_limit()
        if limit is None or used + DRAIN_BYTES < limit - _kept_to_drain(limit):
            return ""
        return (
            f"{self._where} has {used} bytes in use, {_kept_to_drain(limit)} more are kept for draining the queues: "
            f"{limit_sentence(limit)}"
        )

    def _keep_room_to_fold(self, records: Sequence[Record]) -> None:
        """Raise StorageFull for messages after which the log could not be folded without the ballast.

        A log that cannot be folded grows with every settlement, and so the disk could never be drained.
        """
        rows = sum(record.rows.size for record in records if type(record) is MessagesAdded)
        if not rows:
            return
        disk = shutil.disk_usage(self._data_dir)
        if disk.free >= os.fstat(self._log).st_size + needed(rows, growth=0, unused=0, disk_bytes=disk.total):
            return  # no log takes more than its own size
        growth, unused = self._growth(), self._unused_bytes()
        need = needed(rows, growth=growth, unused=unused, disk_bytes=disk.total)
        if need > disk.free:
            raise StorageFull(
                f"no room in {self._where}: {disk.free} bytes of its disk are free, and {need} must be for messages "
                f"of {rows} bytes, so that the queues can be drained after them; free some disk space or "
                "drain queues"
            )

    def _growth(self) -> int:
        """Bytes that the database's file lacks of the pages which the log has for it."""
        used, unused = page_bytes(self._open_connection())
        return max(0, used + unused - self._path.stat().st_size)

    def _has_room_to_merge(self) -> bool:
        """The last room of a disk is for the drain."""
        disk = shutil.disk_usage(self._data_dir)
        wanted = os.fstat(self._log).st_size + MERGE_BYTES + log_room(disk.total)
        return disk.free >= wanted and not self._ballast.missing

    def _spare_room(self) -> bool:
        """Keep the log short on a full disk: it must not eat the room that folding it takes. Whether it was cut."""
        size = os.fstat(self._log).st_size
        if size < LOG_BYTES_MIN:
            return False
        self._fold_log()
        if os.fstat(self._log).st_size >= size and self._ballast.held and self._lacks_disk():
            self._fold_on_the_ballast()
        self._start_room.take_back()
        return os.fstat(self._log).st_size < size

    def _lacks_disk(self) -> bool:
        """Whether it is the disk, or a quota, on which the log's new pages find no place."""
        growth = self._growth()
        return growth > 0 and (file_limit() is None or shutil.disk_usage(self._data_dir).free < growth)

    def _fold_on_the_ballast(self) -> None:
        """Fold a log whose new pages find no place, because settlements or other programs have taken it.

        Nothing else could: when everything is drained no settlement comes that would give the ballast up. The log has
        every page for which the file must grow, so it gives back no less than folding it takes.
        """
        self._ballast.release()
        logger.warning("the ballast is given up until the write-ahead log of %s is folded", self._where)
        self._fold_log()
        self._ballast.take_back()

    def _spare_room_on_a_short_disk(self) -> None:
        disk = shutil.disk_usage(self._data_dir)
        if disk.free < os.fstat(self._log).st_size + log_room(disk.total):
            self._spare_room()

    def _fold_a_long_log(self) -> None:
        try:
            frames = self._gauge.frames()
        except OSError as exc:
            raise self._fail(exc) from exc
        if frames >= self._fold_frames:
            self._fold_log(cut=False)

    def _fold_log(self, *, cut: bool = True) -> None:
        try:
            fold_log(self._open_connection(), self._where, cut=cut)
        except StorageFailed as error:
            raise self._fail(error) from error

    def sync(self) -> int:
        self._open_connection()
        lsn, stored = self._written_lsn, self._store.stored_lsn
        if lsn <= self._durable_lsn:
            return self._durable_lsn
        try:
            os.fdatasync(self._log)
            if self._note is not None:
                self._note.write(stored)
        except OSError as exc:
            raise self._fail(exc) from exc
        self._durable_lsn = max(self._durable_lsn, lsn)
        return lsn

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        with self._reading():
            return self._store.read(queue_id, first, last, max_bytes)

    def picks(self, queue_id: int) -> bool:
        """Whether `pick` serves: its rows are many to a block."""
        return queue_id not in self._large_queues

    def pick(self, queue_id: int, sequences: Sequence[int], max_bytes: int) -> tuple[list[Slice], int]:
        """See `PicksRows`."""
        return pick_in_turns(self._reading, partial(self._store.pick, queue_id, sequences), sequences, max_bytes)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, translated(self._where):
            self._open_connection()
            yield

    def first_large(self, queue_id: int, runs: Sequence[Run]) -> tuple[int, int] | None:
        """(sequence, size) of the first row in the runs that is above `LARGE_ROW_BYTES`.

        The event loop asks, and cannot wait for the lock, which a commit holds: it looks at a copy.
        """
        if queue_id not in self._large_queues:
            return None
        queue = self._store.state.queues.get(queue_id)
        chunks = None if queue is None else queue.peek("chunks")
        return first_large(chunks.copy(), runs) if chunks else None

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        with self._reading():
            return self._letters.letters(after, limit, queue)

    def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        with self._reading():
            return self._letters.page(wanted)

    def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        with self._reading():
            return self._letters.groups(wanted)

    def dead_queues(self, after: int = 0, limit: int = 100, name: str | None = None) -> list[tuple[int, str]]:
        with self._reading():
            return self._letters.queues(after, limit, name)

    def dead_letter(self, dead_id: int) -> DeadLetter | None:
        with self._reading():
            return self._letters.letter(dead_id)

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def maintain(self) -> None:
        in_turns(self._sort_in_some_letters)
        self._shedder.shed()
        with self._lock:
            connection = self._open_connection()
            self._require_directory()
            self._spare_room_on_a_short_disk()
            self._ballast.take(reusable=self._unused_bytes())
            self._flush_note()
            self._store.begin_merge()
            with self._upkeep():
                self._tidy_some()
                self._shrink(connection)
                self._fold_a_log_above_its_size()

    def maintain_on(self) -> bool:
        """See `MaintainsInTurns`."""
        more = False
        with self._lock:
            self._open_connection()
            with self._upkeep():
                more = self._tidy_some()
                self._fold_a_log_above_its_size()
        return more

    @contextmanager
    def _upkeep(self) -> Iterator[None]:
        """A full disk undoes the upkeep and harms nothing; damage is for reads and `check` to name."""
        try:
            yield
        except REFUSALS as exc:
            error = translate(exc, self._where)
            if isinstance(error, StorageFailed):
                raise self._fail(error) from exc

    def _tidy_some(self) -> bool:
        """Whether there is more to do in this round."""
        if self._store.remove_left_behind(self._has_room_to_merge):
            return True
        ends_at = self._monotonic() + MERGE_S
        return self._store.merge_some(self._has_room_to_merge, lambda: self._monotonic() >= ends_at)

    def _fold_a_log_above_its_size(self) -> None:
        if os.fstat(self._log).st_size > self._settings.wal_bytes:
            self._fold_log(cut=False)

    def _require_directory(self) -> None:
        try:
            self._directory.require_name()
        except StorageFailed as failure:
            raise self._end(failure) from None

    def _sort_in_some_letters(self) -> bool:
        """Those of transient queues."""
        with self._lock:
            self._open_connection()
            return self._store.sort_in_letters(SORTED_AT_ONCE)

    def _unused_bytes(self) -> int:
        """Of the database's pages: new messages go there first."""
        return page_bytes(self._open_connection())[1]

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """On a short disk, give most of a drained backlog's pages back to it. Called with the lock held.

        The used pages are written anew, through the log, so a store with many of them is left to `compact`.
        """
        disk = shutil.disk_usage(self._data_dir)
        short = self._ballast.missing or disk.free < disk.total // SHORT_PART
        if not short or self._monotonic() < self._shrink_not_before:
            return
        used, unused = page_bytes(connection)
        fits = used <= SHRINK_BYTES_MAX and disk.free > used + SHRINK_MARGIN_BYTES
        if not fits or unused <= max(used, UNUSED_BYTES_MIN):
            return
        self._shrink_not_before = self._monotonic() + SHRINK_AGAIN_S
        logger.warning("the disk is short and %d MiB of the store are unused: giving them back", unused >> 20)
        with self._own_transaction(connection):
            pass  # a store that another broker has taken over is not touched
        connection.execute("VACUUM")
        self._fold_log()
        self._ballast.take(reusable=self._unused_bytes())
        self._start_room.take_back()

    def _flush_note(self) -> None:
        if self._note is not None:
            try:
                self._note.flush()
            except OSError as exc:
                raise self._fail(exc) from exc

    def stats(self) -> StorageStats:
        with self._lock, translated(self._where):
            connection = self._open_connection()
            used, unused = page_bytes(connection)
            disk = os.statvfs(self._data_dir)
            return StorageStats(
                provider=self.name,
                full=self._ballast.why or self._file_limited(used),
                last_lsn=self._store.state.lsn,
                durable_lsn=self._durable_lsn,
                applied_lsn=self._store.state.lsn,
                journal_bytes=os.fstat(self._log).st_size,
                store_bytes=self._path.stat().st_size,
                reclaimable_bytes=unused,
                buffered_bytes=self._store.rows.size,
                disk_free_bytes=disk.f_bavail * disk.f_frsize,
                disk_total_bytes=disk.f_blocks * disk.f_frsize,
                reusable_bytes=unused + self._ballast.bytes_held,
                details={"dead_letters": self._store.state.dead_count, "ballast_held": self._ballast.held},
            )

    def check(self) -> Iterator[Problem]:
        # Collected first: nobody may write while the walk is under way.
        with self._lock:
            problems = list(check(self._open_connection(), self._where))
        yield from problems

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        with self._lock:
            self._open_connection()
        try:
            back_up(self._path, target, self._now(), progress, lambda: self._ends)
        except REFUSALS as exc:
            error = translate(exc, self._where)
            if isinstance(error, StorageDamaged):
                raise error from exc
            # The store was only read: what is wrong is wrong with the copy.
            told = f"the backup into {target} failed: {exc}"
            full = isinstance(error, StorageFull)
            raise (StorageFull(f"{told}; free space on its disk") if full else StorageError(told)) from exc

    def compact(self, progress: Progress | None = None) -> int:
        with self._lock:
            connection = self._open_connection()
            try:
                return self._compact(connection, progress)
            except REFUSALS as exc:
                error = translate(exc, self._where)
                raise (self._fail(error) if isinstance(error, StorageFailed) else error) from exc

    def _compact(self, connection: sqlite3.Connection, progress: Progress | None) -> int:
        before = self._path.stat().st_size + os.fstat(self._log).st_size
        steps = len(self._store.state.queues) + 1
        self._store.merge_all(lambda done, _: None if progress is None else progress(done, steps))
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if progress is not None:
            progress(steps, steps)
        return max(0, before - self._path.stat().st_size - os.fstat(self._log).st_size)
