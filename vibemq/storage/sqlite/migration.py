"""The SQLite store as `vibemq.storage.migrate` sees it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vibemq.errors import StorageDamaged
from vibemq.storage.local.repaired import finish_repair, is_interrupted
from vibemq.storage.migrate import MigrationStore
from vibemq.storage.sqlite.connection import (
    DATABASE,
    HINT,
    VERSION,
    SqliteKV,
    connect,
    fold_log,
    transaction,
    translated,
)
from vibemq.storage.sqlite.recovery import COMPANIONS, refuse_what_is_behind

__all__ = ["VERSION", "need_store", "open_store"]


class SqliteMigration:
    """A connection that flushes at every commit: nothing else runs, and a step is done only when it is on disk. SQLite
    does not fold the log by itself here, and a step may write all of a store: the log holds one step, not all."""

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection = connection
        self._where = where

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with transaction(self._connection) as begun:
            yield begun
        fold_log(self._connection, self._where)

    def kv(self, transaction: sqlite3.Connection) -> SqliteKV:
        # Version 0 had this table from the start; an empty store has it once step 1 ran.
        transaction.execute("CREATE TABLE IF NOT EXISTS kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        return SqliteKV(transaction, self._where)


def need_store(data_dir: Path, *, dry_run: bool) -> None:
    path = data_dir / DATABASE
    if dry_run and is_interrupted(path):
        return
    finish_repair(path, COMPANIONS)
    if not path.exists() or not path.stat().st_size:
        raise StorageDamaged("the file is missing or empty", path=str(path), offset=0, hint=HINT)


@contextmanager
def open_store(data_dir: Path) -> Iterator[MigrationStore]:
    path = data_dir / DATABASE
    if path.exists():
        refuse_what_is_behind(path)
    with translated(str(path)), closing(connect(path)) as connection:
        path.chmod(0o600)
        connection.execute("PRAGMA synchronous = FULL")
        yield SqliteMigration(connection, str(path))
