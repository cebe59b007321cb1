"""Walking a SQLite store, and saving what can be saved of a damaged one."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from vibemq.errors import StorageFull
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore.audit import audit
from vibemq.storage.kvstore.integrity import TalliedKV
from vibemq.storage.kvstore.salvage import drop_missing, salvage
from vibemq.storage.kvstore.store import load_state
from vibemq.storage.local.high_water import note_of, write_note
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.repaired import begin_repair, finish_repair, take_place
from vibemq.storage.local.store_file import StoreInfo, check_store, read_store_info, write_store_info
from vibemq.storage.migrate import create_tables
from vibemq.storage.sqlite.connection import (
    DATABASE,
    REFUSALS,
    VERSION,
    SqliteKV,
    connect,
    fold_log,
    transaction,
    translated,
)
from vibemq.storage.sqlite.recovery import COMPANIONS, log_of, lost_batches, readable, reader
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
    check_store(data_dir, "sqlite", VERSION)
    lock = DirectoryLock(data_dir)
    lock.acquire()
    try:
        check_store(data_dir, "sqlite", VERSION)
        return _repair(data_dir, settings)
    finally:
        lock.release()


def _repair(data_dir: Path, settings: SqliteSettings) -> list[Problem]:
    path = data_dir / DATABASE
    if finish_repair(path, COMPANIONS):
        _write_info(data_dir)
        text = "an interrupted repair was completed; what it did not save is in the damaged files beside it"
        return [Problem(text, str(path))]
    fresh = begin_repair(path, COMPANIONS)
    problems: list[Problem] = []
    with translated(str(fresh)):
        target = connect(fresh, cache_bytes=settings.cache_bytes)
        try:
            with transaction(target):
                create_tables("sqlite", target)
                kv = TalliedKV(SqliteKV(target, str(path)))
                with readable(path, problems) as source:
                    problems += salvage(_pairs(source, problems), kv)
                problems += drop_missing(kv)
                kv.save()
                reached = load_state(kv).lsn
            problems += lost_batches(path, reached)
            # Its log does not come along.
            fold_log(target, str(fresh))
            if log_of(fresh).stat().st_size:
                raise StorageFull(f"no room for the repaired {fresh}; nothing was changed, free space and repair again")
        finally:
            target.close()
    _write_info(data_dir)
    # The note of the damaged one goes with it: without a note nothing is refused.
    take_place(path, COMPANIONS)
    write_note(note_of(path), reached)
    return problems


def _write_info(data_dir: Path) -> None:
    info = read_store_info(data_dir)
    write_store_info(data_dir, info or StoreInfo("sqlite", VERSION, 0))


def _pairs(path: Path, problems: list[Problem]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair that SQLite still finds: from the front up to the first broken page, then from the back down to it."""
    seen: bytes | None = None
    for order in ("ASC", "DESC"):
        try:
            connection = reader(path)
        except REFUSALS as exc:
            problems.append(Problem(f"SQLite cannot open it: {exc}", str(path)))
            return
        try:
            for key, value in connection.execute(f"SELECT key, value FROM kv ORDER BY key {order}"):  # noqa: S608
                if not isinstance(key, bytes):
                    continue
                if order == "DESC" and seen is not None and key <= seen:
                    return
                if order == "ASC":
                    seen = key
                if isinstance(value, bytes):
                    yield key, value
            return
        except REFUSALS as exc:
            problems.append(Problem(f"SQLite stopped reading: {exc}", str(path)))
        finally:
            connection.close()
