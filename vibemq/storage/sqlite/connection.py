"""One SQLite connection: how it is opened, what its errors mean, and its table as the key-value store of `storage.kv`.

table kv    key BLOB PRIMARY KEY, value BLOB            keys and sealed values as in storage/keys.py and values.py
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vibemq.errors import StorageDamaged, StorageError, StorageFailed, StorageFull

DATABASE = "vibemq.sqlite"
VERSION = 1
"""Store version that this code reads and writes: the number of the last migration."""

_FULL = {sqlite3.SQLITE_FULL}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
HINT = "restore a backup, or save what is left with `vibemq-admin check --repair`"


def connect(path: Path, *, cache_bytes: int = 16 << 20, create: bool = True) -> sqlite3.Connection:
    """Open the database for its owner: write-ahead log, no flush per commit (see `SqliteStorage.sync`)."""
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in (
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"cache_size = -{cache_bytes >> 10}",
            "temp_store = MEMORY",
            "mmap_size = 0",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


class SqliteKV:
    """`storage.kv.KV` over the connection's open transaction."""

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self.connection = connection
        self.where = where

    def get(self, key: bytes) -> bytes | None:
        row = self.connection.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: bytes, value: bytes) -> None:
        self.connection.execute("INSERT OR REPLACE INTO kv (key, value) VALUES (?, ?)", (key, value))

    def delete(self, key: bytes) -> None:
        self.connection.execute("DELETE FROM kv WHERE key = ?", (key,))

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.connection.execute("DELETE FROM kv WHERE key >= ? AND key < ?", (start, stop))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self.connection.execute(
            "SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key", (start, stop)
        )
        try:
            yield from cursor
        finally:
            cursor.close()

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        row: tuple[bytes, bytes] | None = self.connection.execute(
            "SELECT key, value FROM kv WHERE key >= ? AND key <= ? ORDER BY key DESC LIMIT 1", (start, key)
        ).fetchone()
        return row


def translate(error: sqlite3.Error, where: str) -> StorageError:
    """SQLite's error as ours. Only StorageFull and StorageDamaged leave a store that can go on."""
    # The low byte is the primary code; errors raised by the module itself have none.
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in _FULL:
        return StorageFull(f"no room in {where}: {error}; nothing was written, free space on its disk")
    if code in _DAMAGE:
        return StorageDamaged(f"SQLite cannot read its pages ({error})", path=where, hint=HINT)
    return StorageFailed(f"SQLite failed in {where}: {error}; restart to recover")


@contextmanager
def translated(where: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise translate(exc, where) from exc


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
