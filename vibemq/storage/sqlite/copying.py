"""A consistent copy of a live database."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from vibemq.errors import StorageError
from vibemq.storage.interface import Progress
from vibemq.storage.local.backup_folder import remove_unfinished
from vibemq.storage.local.store_file import (
    STORE_FILE,
    StoreInfo,
    fsync_file,
    fsync_folder,
    make_folder,
    write_store_info,
)
from vibemq.storage.sqlite.connection import DATABASE, VERSION

_PAGES_PER_STEP = 1024
_BESIDE = (f"{DATABASE}-journal", f"{DATABASE}-wal", f"{DATABASE}-shm")
"""What SQLite may have made for the copy."""


def back_up(source: Path, target: Path, now: int, progress: Progress | None, is_over: Callable[[], bool]) -> None:
    """Copy the committed state of this moment into the empty or new folder `target`; writers go on meanwhile. After a
    failure the folder is empty again.

    Args:
        is_over: asked between the steps, whether the store ends.

    Raises:
        StorageError: the target is in use, or cannot be written, or the store ends.
        sqlite3.Error: reading or writing failed.
    """
    try:
        make_folder(target)
        if any(target.iterdir()):
            raise _not_empty(target)
        try:
            # Whoever makes it has the folder: another backup into it may have begun meanwhile.
            os.close(os.open(target / DATABASE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise _not_empty(target) from None
        try:
            _copy(source, target / DATABASE, progress, is_over)
            fsync_file(target / DATABASE)
            fsync_folder(target)
            write_store_info(target, StoreInfo("sqlite", VERSION, now, restored=True))
        except BaseException:
            # The database last: as long as it is there, nobody else begins here.
            remove_unfinished([target / name for name in (f"{STORE_FILE}.new", STORE_FILE, *_BESIDE, DATABASE)])
            raise
    except OSError as exc:
        raise StorageError(f"the backup into {target} failed: {exc}") from exc


def _not_empty(folder: Path) -> StorageError:
    return StorageError(f"the backup folder {folder} is not empty; choose a new one")


def _copy(source: Path, target: Path, progress: Progress | None, is_over: Callable[[], bool]) -> None:
    def step(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)
        if is_over():
            raise StorageError("the backup was not finished: the broker stops")

    reader = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        # The open transaction pins one snapshot, so that commits do not start the copy over.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        writer = sqlite3.connect(target)
        try:
            reader.backup(writer, pages=_PAGES_PER_STEP, progress=step)
        finally:
            writer.close()
        reader.execute("COMMIT")
    finally:
        reader.close()
    os.chmod(target, 0o600)
