"""The sqlite provider: one connection, one lock around it, the write-ahead log flushed beside it.

A batch is one transaction: state values that changed, rows as small blocks, blocks of settled messages gone. Commits do
not flush (`synchronous = NORMAL`): SQLite hands the log's frames to the kernel, which survives `kill -9`. `sync()`
is one `fdatasync` of the log through a descriptor of its own, so it needs no lock and makes every batch committed
before it durable; frames carry checksums, so a power cut without it costs a suffix and nothing else. Folding the log
into the database flushes the log first and the database after, as NORMAL has it. (The log holds no POSIX locks, so
closing that descriptor releases none.)

`maintain()` joins the small blocks and folds the log.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path

from vibemq.errors import StorageDamaged, StorageError, StorageFailed, StorageFull
from vibemq.model.records import DeadRemoved, MessagesAdded, Record, TransactionDecided, TransactionsForgotten
from vibemq.model.stored import DeadLetter, DeadPage, DeadPageWanted, Slice, StoredQueue, StoredState
from vibemq.storage.interface import Problem, Progress, StorageStats
from vibemq.storage.kvstore.block_cache import BlocksAtHand
from vibemq.storage.kvstore.blocks import limit, merge_blocks, store_blocks
from vibemq.storage.kvstore.dead_letters import StoredDead, assemble, page, select
from vibemq.storage.kvstore.integrity import TalliedKV, load_sound_state
from vibemq.storage.kvstore.require_alive import all_alive
from vibemq.storage.kvstore.store import load_state, write_dirty
from vibemq.storage.kvstore.transient_rows import VolatileRows
from vibemq.storage.local.ballast import Ballast
from vibemq.storage.local.lock import DirectoryLock, refuse_remote
from vibemq.storage.local.store_file import check_store, fsync_folder
from vibemq.storage.migrate import create_store
from vibemq.storage.sqlite.check import check
from vibemq.storage.sqlite.connection import (
    DATABASE,
    REFUSALS,
    VERSION,
    SqliteKV,
    connect,
    fold_log,
    transaction,
    translate,
    translated,
)
from vibemq.storage.sqlite.copying import back_up
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import apply, is_transient, persistent, restart_transient

logger = logging.getLogger(__name__)

LOG_BYTES_ON_FULL_DISK = 256 << 10


def _now() -> int:
    return time.time_ns() // 1_000_000


class SqliteStorage:
    """See `IStorageProvider`. Every verb may be called from any thread; all but `sync` take turns."""

    name = "sqlite"
    blocking_append = True

    def __init__(self, data_dir: Path, settings: SqliteSettings, *, now: Callable[[], int] = _now) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._now = now
        self._path = data_dir / DATABASE
        self._where = str(self._path)
        self._lock = threading.RLock()
        self._directory = DirectoryLock(data_dir)
        self._ballast = Ballast(data_dir, settings.ballast_bytes)
        self._connection: sqlite3.Connection | None = None
        self._log = -1
        self._failed: StorageFailed | None = None
        self._state = StoredState()
        self._dirty = Dirty()
        self._rows = VolatileRows()
        self._blocks = BlocksAtHand()
        self._written_lsn = 0
        """Of the last batch that is in the log. The state is ahead of it while a batch is being committed, which `sync`
        in another thread must not take for written."""
        self._durable_lsn = 0
        self._unmerged: dict[int, int] = {}

    # -- opening and closing --------------------------------------------------------------------------------------

    def open(self) -> StoredState:
        refuse_remote(self._data_dir, allow=self._settings.allow_remote)
        self._directory.acquire()
        try:
            return self._open_on_any_disk()
        except BaseException:
            self._directory.release()
            raise

    def _open_on_any_disk(self) -> StoredState:
        """Even reading takes room: for the log's index, and for folding a log that an earlier process left."""
        try:
            state = self._open_or_release()
        except StorageFull:
            if not self._ballast.release():
                raise
            logger.warning("the disk is full; the ballast is given up so that the store can be opened")
            state = self._open_or_release()
        if not self._ballast.take():
            self._spare_room()
        return state

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
        self._connection = connect(self._path, cache_bytes=self._settings.cache_bytes, create=False)
        self._connection.execute(f"PRAGMA journal_size_limit = {self._settings.wal_bytes}")
        self._kv = TalliedKV(SqliteKV(self._connection, self._where))
        self._dead = StoredDead(self._kv, lambda queue_id: is_transient(self._state, queue_id))
        now = self._now()
        self._state = self._load(now)
        # A rewrite of one page, so that there is a log to flush, whose name is then made durable.
        self._connection.execute(f"PRAGMA user_version = {VERSION}")
        self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        fsync_folder(self._data_dir)
        self._written_lsn = self._durable_lsn = self._state.lsn
        # Read twice: that is quicker than copying what was read.
        return self._load(now)

    def _load(self, now: int) -> StoredState:
        state = load_sound_state(self._kv)
        restart_transient(state, now)
        return state

    def close(self) -> None:
        with self._lock:
            if self._connection is None:
                return
            try:
                if self._failed is None:
                    self.sync()
                    self._fold_log()
            finally:
                self._release()

    def _release(self) -> None:
        self._release_files()
        self._directory.release()

    def _release_files(self) -> None:
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        if self._connection is not None:
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
            self._failed = StorageFailed(f"the store {self._where} failed ({error}); restart to recover")
        return self._failed

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> int:
        with self._lock:
            self._ballast.refuse_messages(records)
            try:
                return self._append(records)
            except StorageFull:
                # A full disk must still be drained: what only settles messages may use the ballast.
                if any(type(record) is MessagesAdded for record in records) or not self._ballast.release():
                    raise
                logger.warning("the disk is full; the ballast is given up so that the queues can be drained")
                self._spare_room()
                return self._append(records)

    def _append(self, records: Sequence[Record]) -> int:
        with self._lock:
            connection = self._open_connection()
            kept = self._transient_copies(records)
            lsn = self._state.lsn + 1
            try:
                later = self._write(connection, records, lsn)
            except (*REFUSALS, StorageError) as exc:
                error = exc if isinstance(exc, StorageError) else translate(exc, self._where)
                if not isinstance(error, StorageFull):
                    raise self._fail(error) from exc
                self._undo(kept)
                raise error from exc
            except BaseException as exc:
                raise self._fail(RuntimeError(repr(exc))) from exc
            self._apply_volatile(later)
            # A flush may have failed meanwhile, in another thread: then this is told to nobody either.
            self._open_connection()
            self._written_lsn = lsn
            if self._ballast.missing:
                self._spare_room()
            return lsn

    def _spare_room(self) -> None:
        """Keep the log short while the ballast is missing: it must not eat the room that folding it takes."""
        if os.fstat(self._log).st_size >= LOG_BYTES_ON_FULL_DISK:
            self._fold_log()

    def _fold_log(self) -> None:
        try:
            fold_log(self._open_connection(), self._where)
        except StorageFailed as error:
            raise self._fail(error) from error

    def _write(self, connection: sqlite3.Connection, records: Sequence[Record], lsn: int) -> list[Record]:
        """Apply and commit what belongs on disk; return what is kept in memory only."""
        state, dirty = self._state, self._dirty
        later: list[Record] = []
        added: list[MessagesAdded] = []
        written = False
        for record in records:
            if not persistent(state, record):
                later.append(record)
                continue
            written = True
            apply(state, record, self._dead, dirty)
            if isinstance(record, MessagesAdded):
                added.append(record)
            elif isinstance(record, DeadRemoved) and later:
                # It may name letters of transient queues that this batch is still to bring.
                later.append(record)
        state.lsn = lsn
        if written:
            with self._transaction(connection):
                write_dirty(self._kv, state, dirty, volatile_dead=len(self._dead.volatile.entries))
                self._dead.flush()
                store_blocks(self._kv, state, added, dirty.left, merge_tail=False)
            self._rows.forget(state, dirty.left)
        self._dead.forget()
        dirty.clear()
        for record in added:
            self._unmerged.setdefault(record.queue_id, record.first_sequence)
        return later

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        try:
            with transaction(connection):
                yield
                self._kv.save()
        finally:
            self._kv.forget()

    def _apply_volatile(self, records: Sequence[Record]) -> None:
        if not records:
            return
        for record in records:
            if isinstance(record, MessagesAdded) and record.queue_id in self._state.queues:
                self._rows.add(record)
            apply(self._state, record, self._dead, self._dirty)
        self._rows.forget(self._state, self._dirty.left)
        self._dead.forget()
        self._dirty.clear()

    def _transient_copies(self, records: Sequence[Record]) -> dict[int, StoredQueue]:
        """Transient queues as they are, if the batch changes them by facts that are written."""
        named: set[int] = set()
        for record in records:
            if isinstance(record, DeadRemoved):
                entries = map(self._dead.volatile.get, record.dead_ids)
                named.update(entry.queue_id for entry in entries if entry is not None)
            elif isinstance(record, TransactionDecided | TransactionsForgotten):
                continue
            elif persistent(self._state, record) and is_transient(self._state, record.queue_id):
                named.add(record.queue_id)
        return {queue_id: deepcopy(self._state.queues[queue_id]) for queue_id in named}

    def _undo(self, kept: dict[int, StoredQueue]) -> None:
        """Nothing of the batch was written: back to what the store says, and transient queues as they were."""
        self._dirty.clear()
        self._dead.revert()
        before = self._state
        with translated(self._where):
            state = load_state(self._kv)
        for queue_id in list(state.queues):
            if is_transient(state, queue_id):
                old = kept.get(queue_id, before.queues.get(queue_id))
                if old is not None:
                    state.queues[queue_id] = old
        state.lsn = max(state.lsn, before.lsn - 1)
        state.dead_count += len(self._dead.volatile.entries)
        state.next_dead_id = max(state.next_dead_id, before.next_dead_id)
        state.instant = max(state.instant, before.instant)
        self._state = state

    def sync(self) -> int:
        self._open_connection()
        lsn = self._written_lsn
        if lsn <= self._durable_lsn:
            return self._durable_lsn
        try:
            os.fdatasync(self._log)
        except OSError as exc:
            raise self._fail(exc) from exc
        self._durable_lsn = max(self._durable_lsn, lsn)
        return lsn

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        with self._lock, translated(self._where):
            self._open_connection()
            queue = self._state.queues.get(queue_id)
            if queue is None:
                return []
            if is_transient(self._state, queue_id):
                return self._rows.read(queue_id, first, last, max_bytes)
            parts = self._blocks.parts(self._kv, queue_id, first, last, queue.name)
            return list(limit(all_alive(queue, parts, first, last, self._where), max_bytes))

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        with self._lock, translated(self._where):
            self._open_connection()
            entries = select(self._state, self._dead.after(after), limit, queue)
            return [assemble(self._state, entry, self.read, self._where) for entry in entries]

    def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        with self._lock, translated(self._where):
            self._open_connection()
            entries = partial(self._dead.after, wanted.after)
            return page(self._state, entries, self.read, self._where, wanted)

    def dead_letter(self, dead_id: int) -> DeadLetter | None:
        with self._lock, translated(self._where):
            self._open_connection()
            entry = self._dead.get(dead_id)
            return None if entry is None else assemble(self._state, entry, self.read, self._where)

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def maintain(self) -> None:
        with self._lock:
            connection = self._open_connection()
            self._ballast.take()
            try:
                self._merge(connection)
                if os.fstat(self._log).st_size > self._settings.wal_bytes:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except REFUSALS as exc:
                error = translate(exc, self._where)
                if isinstance(error, StorageFailed):
                    raise self._fail(error) from exc
                # A full disk undid the upkeep and harmed nothing; damage is for reads and `check` to name.

    def _merge(self, connection: sqlite3.Connection) -> None:
        for queue_id, start in list(self._unmerged.items()):
            if queue_id not in self._state.queues:
                del self._unmerged[queue_id]
                continue
            try:
                with self._transaction(connection):
                    self._unmerged[queue_id] = merge_blocks(self._kv, self._state, queue_id, start)
            except StorageDamaged:
                # Left alone: reads and `check` name the place.
                del self._unmerged[queue_id]

    def stats(self) -> StorageStats:
        with self._lock, translated(self._where):
            connection = self._open_connection()
            page_bytes, free_pages = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "freelist_count")
            )
            disk = os.statvfs(self._data_dir)
            return StorageStats(
                provider=self.name,
                full=self._ballast.missing,
                last_lsn=self._state.lsn,
                durable_lsn=self._durable_lsn,
                applied_lsn=self._state.lsn,
                journal_bytes=os.fstat(self._log).st_size,
                store_bytes=self._path.stat().st_size,
                reclaimable_bytes=page_bytes * free_pages,
                buffered_bytes=self._rows.size,
                disk_free_bytes=disk.f_bavail * disk.f_frsize,
                disk_total_bytes=disk.f_blocks * disk.f_frsize,
                details={"dead_letters": self._state.dead_count, "ballast_held": self._ballast.held},
            )

    def check(self) -> Iterator[Problem]:
        # Collected first: nobody may write while the walk is under way.
        with self._lock:
            problems = list(check(self._open_connection(), self._where))
        yield from problems

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        with self._lock:
            self._open_connection()
        with translated(self._where):
            back_up(self._path, target, self._now(), progress)

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
        steps = len(self._state.queues) + 1
        for done, queue_id in enumerate(list(self._state.queues)):
            self._unmerged[queue_id] = 0
            if progress is not None:
                progress(done, steps)
        while (starts := dict(self._unmerged)) and not self._merged(connection, starts):
            pass
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if progress is not None:
            progress(steps, steps)
        return max(0, before - self._path.stat().st_size - os.fstat(self._log).st_size)

    def _merged(self, connection: sqlite3.Connection, starts: dict[int, int]) -> bool:
        """One round of merging; True when it found nothing further."""
        self._merge(connection)
        return starts == self._unmerged
