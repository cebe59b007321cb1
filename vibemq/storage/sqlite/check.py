"""Walking a SQLite store, and saving what can be saved of a damaged one."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from vibemq.storage.interface import Problem
from vibemq.storage.kvstore.audit import audit
from vibemq.storage.kvstore.integrity import TalliedKV
from vibemq.storage.kvstore.salvage import drop_missing, salvage
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.store_file import StoreInfo, check_store, fsync_folder, read_store_info, write_store_info
from vibemq.storage.migrate import create_tables
from vibemq.storage.sqlite.connection import (
    DATABASE,
    REFUSALS,
    VERSION,
    SqliteKV,
    any_text,
    connect,
    transaction,
    translated,
)
from vibemq.storage.sqlite.settings import SqliteSettings


def check(connection: sqlite3.Connection, where: str) -> Iterator[Problem]:
    """SQLite's own check of its pages first, then every value."""
    try:
        for (text,) in connection.execute("PRAGMA integrity_check(20)"):
            if text != "ok":
                yield Problem(f"SQLite: {text}", where, repairable=True)
        yield from audit(SqliteKV(connection, where))
    except REFUSALS as exc:
        yield Problem(f"SQLite cannot go on reading: {exc}", where, repairable=True)


def repair(data_dir: Path, settings: SqliteSettings) -> list[Problem]:
    """Build a new database of what is valid; the old file stays beside it as `vibemq.sqlite.damaged-<time>`.

    Raises:
        StorageLocked: the store is in use.
        StoreVersionError: it has another version; its values would be taken for broken ones.
    """
    lock = DirectoryLock(data_dir)
    lock.acquire()
    try:
        check_store(data_dir, "sqlite", VERSION)
        return _repair(data_dir, settings)
    finally:
        lock.release()


def _repair(data_dir: Path, settings: SqliteSettings) -> list[Problem]:
    path, fresh = data_dir / DATABASE, data_dir / f"{DATABASE}.repaired"
    _unlink(fresh)
    problems: list[Problem] = []
    with translated(str(fresh)):
        target = connect(fresh, cache_bytes=settings.cache_bytes)
        try:
            with transaction(target):
                create_tables("sqlite", target)
                kv = TalliedKV(SqliteKV(target, str(path)))
                problems += salvage(_pairs(path, problems), kv)
                problems += drop_missing(kv)
                kv.save()
        finally:
            target.close()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(path.with_name(f"{DATABASE}.damaged-{stamp}{suffix}"))
    fresh.rename(path)
    fsync_folder(data_dir)
    info = read_store_info(data_dir)
    write_store_info(data_dir, StoreInfo("sqlite", VERSION, info.created_at if info is not None else 0))
    return problems


def _unlink(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _pairs(path: Path, problems: list[Problem]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair that SQLite still finds: from the front up to the first broken page, then from the back down to it."""
    seen: bytes | None = None
    for order in ("ASC", "DESC"):
        connection = sqlite3.connect(path, isolation_level=None)
        connection.text_factory = any_text
        try:
            for key, value in connection.execute(f"SELECT key, value FROM kv ORDER BY key {order}"):  # noqa: S608
                if order == "DESC" and seen is not None and key <= seen:
                    return
                if order == "ASC":
                    seen = key
                if isinstance(key, bytes) and isinstance(value, bytes):
                    yield key, value
            return
        except REFUSALS as exc:
            problems.append(Problem(f"SQLite stopped reading: {exc}", str(path)))
        finally:
            connection.close()
