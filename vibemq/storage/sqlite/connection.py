"""One SQLite connection: how it is opened, what its errors mean, and its table as the store of `storage.kvstore`.

table kv       key BLOB PRIMARY KEY, value BLOB         storage/kvstore/keys.py, and sealed: storage/kvstore/values.py
table owner    epoch INTEGER                            one row: how often the store was opened for writing
"""

import ctypes
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vibemq.errors import StorageDamaged, StorageError, StorageFailed, StorageFull
from vibemq.storage.local.file_limit import RESTART, file_limit, limit_sentence, why_no_growth

DATABASE = "vibemq.sqlite"
VERSION = 10
FILES = (DATABASE, f"{DATABASE}-*", f"{DATABASE}.*")
"""Store version that this code reads and writes: the number of the last migration."""

DISK_FULL_BELOW_BYTES = 1 << 20
LOG_INDEX_BYTES = 32 << 10
"""SQLite's file beside the log (`-shm`) has so many, or several times as many."""
REFUSALS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite's module raises. SQLite quotes a damaged schema in its message, and the quotation may be no text."""
_FULL = {sqlite3.SQLITE_FULL}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
HINT = "restore a backup, or save what is left with `vibemq-admin check --repair`"


any_text = partial(str, encoding="utf-8", errors="replace")
"""A damaged row may claim that its bytes are text; reading on is more use than an error."""


def connect(path: Path, *, cache_bytes: int = 16 << 20, create: bool = True) -> sqlite3.Connection:
    """Open the database for its owner: write-ahead log, no flush per commit (see `SqliteStorage.sync`).

    SQLite never folds the log by itself: it would keep quiet about a write or a flush that failed in doing so.
    """
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = any_text
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            # SQLite says no more than this, whatever kept it from changing the mode.
            raise sqlite3.OperationalError(f"the write-ahead log cannot be used, the mode stays {mode}")
        for pragma in (
            "synchronous = NORMAL",
            "wal_autocheckpoint = 0",
            f"cache_size = -{cache_bytes >> 10}",
            "temp_store = MEMORY",
            # Some distributions have SQLite overwrite what is deleted: every settled page would go through the log.
            "secure_delete = OFF",
            "mmap_size = 0",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


class SqliteKV:
    """`storage.kvstore.store.KV` over the connection's open transaction."""

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self.connection = connection
        self.where = where

    def get(self, key: bytes) -> bytes | None:
        row = self.connection.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._pair((key, row[0]))[1]

    def put(self, key: bytes, value: bytes) -> None:
        self.connection.execute("INSERT OR REPLACE INTO kv (key, value) VALUES (?, ?)", (key, value))

    def delete(self, key: bytes) -> None:
        self.connection.execute("DELETE FROM kv WHERE key = ?", (key,))

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.connection.execute("DELETE FROM kv WHERE key >= ? AND key < ?", (start, stop))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._scan("SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key", start, stop)

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._scan("SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key DESC", start, stop)

    def _scan(self, query: str, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self.connection.execute(query, (start, stop))
        try:
            yield from map(self._pair, cursor)
        finally:
            cursor.close()

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        row = self.connection.execute(
            "SELECT key, value FROM kv WHERE key >= ? AND key <= ? ORDER BY key DESC LIMIT 1", (start, key)
        ).fetchone()
        return None if row is None else self._pair(row)

    def _pair(self, row: tuple[object, object]) -> tuple[bytes, bytes]:
        """A row as it was written: a damaged one may hold values of any type."""
        key, value = row
        if isinstance(key, bytes) and isinstance(value, bytes):
            return key, value
        raise StorageDamaged(f"the row of key {key!r} holds no bytes", path=self.where, hint=HINT)


def translate(error: sqlite3.Error | UnicodeDecodeError, where: str) -> StorageError:
    """SQLite's error as ours. Only StorageFull and StorageDamaged leave a store that can go on."""
    if isinstance(error, UnicodeDecodeError):
        said = error.object.decode(errors="replace")
        return StorageDamaged(f"SQLite cannot read its pages ({said})", path=where, hint=HINT)
    # The low byte is the primary code; errors raised by the module itself have none.
    extended = getattr(error, "sqlite_errorcode", None) or 0
    code = extended & 0xFF
    database = Path(where)
    if code in _FULL:
        most = file_limit()
        if most is not None and shutil.disk_usage(database.parent).free > DISK_FULL_BELOW_BYTES:
            return _limited(where, limit_sentence(most), "raise that limit or drain queues")
        return StorageFull(f"no room in {where}: {error}; free space on its disk")
    if extended == sqlite3.SQLITE_IOERR_SHMSIZE and shutil.disk_usage(database.parent).free < LOG_INDEX_BYTES:
        return StorageFull(f"no room for the index of the log of {where}; free space on its disk")
    files = (database, database.with_name(database.name + "-wal"))
    limit = why_no_growth(files, database.parent) if extended == sqlite3.SQLITE_IOERR_WRITE else None
    if limit is not None:
        return _limited(where, limit, "raise that limit or free space")
    # An emptied file, and one with a damaged schema, are sound databases to SQLite, only not one of ours: then it finds
    # fault with our statements. One whose header names an unknown format for writing may only be read.
    not_ours = code == sqlite3.SQLITE_ERROR and "transaction" not in str(error)
    made_readonly = code == sqlite3.SQLITE_READONLY and os.access(where, os.W_OK)
    if code in _DAMAGE or not_ours or made_readonly:
        return StorageDamaged(f"SQLite cannot read its pages ({error})", path=where, hint=HINT)
    if code in _LOCKED:
        return StorageFailed(
            f"another program keeps {where} locked ({error}), such as a shell of SQLite within a transaction: end it, "
            f"`fuser {where}` names it; {RESTART}"
        )
    return StorageFailed(f"SQLite failed in {where}: {error}; {RESTART}")


def _limited(where: str, limit: str, remedy: str) -> StorageFull:
    return StorageFull(f"no room in {where}: {limit}; {remedy}", limit=f"{limit}, {remedy}")


@contextmanager
def translated(where: str) -> Iterator[None]:
    try:
        yield
    except REFUSALS as exc:
        raise translate(exc, where) from exc


def fold_log(connection: sqlite3.Connection, where: str, *, cut: bool = True) -> None:
    """Move the write-ahead log into the database; on a full disk it stays, and harms nothing.

    Args:
        cut: also empty the log's file. Without it the next frames overwrite those of the folded log, which takes no
            new blocks; nothing waits for readers either.

    Closing the last connection would do it too, but keep quiet about errors.

    Raises:
        StorageFailed: a write or a flush failed. Damage is left for reads and `check` to name.
    """
    try:
        connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if cut else 'PASSIVE'})").fetchone()
    except REFUSALS as exc:
        error = translate(exc, where)
        if isinstance(error, StorageFailed):
            raise error from exc


def never_close(connection: sqlite3.Connection) -> None:
    """Of a store that has failed: on closing the last connection, also when it is finalised, SQLite would flush the log
    once more, which succeeds although the disk has not got it, move it into the database, and delete it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Commit on leaving, roll back on any exception; SQLite's own errors come through."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # Some errors (a full disk among them) have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def page_bytes(connection: sqlite3.Connection) -> tuple[int, int]:
    """(bytes of the pages in use, bytes of those that nothing uses)."""
    size, count, unused = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return size * (count - unused), size * unused


def take_over(connection: sqlite3.Connection) -> int:
    """Own the store from now on, and return the epoch; whoever owned it before is refused at its next commit."""
    with transaction(connection):
        connection.execute("CREATE TABLE IF NOT EXISTS owner (epoch INTEGER NOT NULL)")
        epoch = epoch_of(connection) + 1
        connection.execute("DELETE FROM owner")
        connection.execute("INSERT INTO owner (epoch) VALUES (?)", (epoch,))
    return epoch


def epoch_of(connection: sqlite3.Connection) -> int:
    """Of the last owner; 0 when there was none, or its row makes no sense."""
    row = connection.execute("SELECT max(epoch) FROM owner").fetchone()
    return row[0] if isinstance(row[0], int) else 0
