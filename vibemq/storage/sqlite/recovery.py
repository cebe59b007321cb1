"""What a store must have after a start, and what can be saved of one that has lost it."""

import errno
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vibemq.errors import StorageDamaged
from vibemq.model.stored import StoredState
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.encoding import GARBAGE, unseal
from vibemq.storage.local.high_water import SUFFIX, note_of, read_note
from vibemq.storage.sqlite.connection import HINT, REFUSALS, any_text
from vibemq.storage.sqlite.wal import Scan, has_commit, scan

logger = logging.getLogger(__name__)

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
"""Of a file system on which a file has one name."""
COMPANIONS = ("-wal", "-shm", SUFFIX)
"""Files that belong to a database, by what follows its name."""


def log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def refuse_missing(database: Path) -> None:
    """Raise StorageDamaged for a store that has lost its database, of which SQLite says no more than that it cannot be
    opened."""
    if not database.exists():
        raise StorageDamaged("the file is missing", path=str(database), offset=0, hint=HINT)


def refuse_what_is_behind(database: Path) -> None:
    """Compare the store with the note of how far it was durable, before anything is written.

    Nothing is changed by it: the last connection that may write moves what SQLite has read of the log into the
    database and deletes the log, and with it what could still be saved.

    Raises:
        StorageDamaged: batches that were flushed are not there; names the log and where it breaks.
    """
    noted, damaged = read_note(note_of(database))
    if damaged:
        logger.warning("%s is damaged; what the log lost before now may go unnoticed", note_of(database))
    if not noted:
        return
    found = _lsn_in(database)
    if found is None or found >= noted:
        return
    log = scan(log_of(database), database)
    lost = f"the log ends with batch {found}, but batch {noted} was flushed: {noted - found} batches cannot be read"
    if log is None:
        raise StorageDamaged(f"{lost}, the log is missing or empty", path=str(log_of(database)), hint=HINT)
    at = log.broken_at if log.broken_at is not None else log.end
    raise StorageDamaged(lost, path=str(log_of(database)), offset=at, hint=HINT)


def _lsn_in(database: Path) -> int | None:
    """Of the last batch that SQLite reads; 0 for a database without any, None when that cannot be told."""
    try:
        with closing(reader(database)) as connection:
            row = connection.execute("SELECT value FROM kv WHERE key = ?", (keys.STATE_META,)).fetchone()
        if row is None:
            return 0
        state = StoredState()
        values.unpack_meta(state, unseal(keys.STATE_META, row[0], str(database)))
    except sqlite3.OperationalError as error:
        # A log that begins with the tables themselves is empty without them.
        return 0 if "no such table" in str(error) else None
    except (*REFUSALS, *GARBAGE, StorageDamaged):
        # Opening says it better.
        return None
    return state.lsn


def reader(database: Path) -> sqlite3.Connection:
    """A connection that changes no file: not the log, nor its index. Nobody else may have the database open.

    A log makes SQLite write its index, unless the connection says that it is the only one: then the mode is exclusive,
    which needs locks that a read-only file cannot have; "unix-none" takes none. On closing SQLite removes a log that
    it has moved into the database; that fails, for the database is open for reading only. A log without a commit needs
    no moving and would be removed, and a missing one would be made. Without either, the database alone says it all.

    Before it tries to move the log SQLite flushes it, and keeps quiet about an error. Nobody is told that error again:
    a later flush of the same pages would succeed. So this connection flushes nothing.
    """
    has_log = has_commit(log_of(database))
    how = "vfs=unix-none" if has_log else "immutable=1"
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro&{how}", uri=True, isolation_level=None)
    connection.text_factory = any_text
    if has_log:
        # First, for every other statement opens the log.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").close()
        connection.execute("PRAGMA synchronous = OFF").close()
    return connection


@contextmanager
def readable(database: Path, problems: list[Problem]) -> Iterator[Path]:
    """A database to read from: the damaged one, or beside it one whose log can be read beyond its damage."""
    log = scan(log_of(database), database) if database.exists() else None
    found, noted = _lsn_in(database), read_note(note_of(database))[0]
    behind = found is not None and found < noted
    if log is None or not (log.broken_at is not None or behind):
        yield database
        return
    _name_damage(log, database, problems)
    copy = database.with_name(f"{database.name}.salvage")
    remove(copy)
    try:
        _give_another_name(database, copy)
        log_of(copy).write_bytes(log.rebuilt(with_tail=behind))
        yield copy
    finally:
        remove(copy)


def _give_another_name(file: Path, name: Path) -> None:
    """The same bytes, which nobody writes to."""
    try:
        os.link(file, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(file, name)


def _name_damage(log: Scan, database: Path, problems: list[Problem]) -> None:
    at = log.broken_at if log.broken_at is not None else log.end
    problems.append(
        Problem(
            f"the log is damaged; {log.behind} pages behind that place were saved, {max(1, len(log.damaged))} may be "
            "wrong or old",
            str(log_of(database)),
            at,
        )
    )


def lost_batches(database: Path, reached: int) -> Iterator[Problem]:
    """What a repair could not bring back, by the note."""
    noted, _ = read_note(note_of(database))
    if reached < noted:
        yield Problem(f"batches {reached + 1} to {noted} were confirmed and cannot be read", str(log_of(database)))


def remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
