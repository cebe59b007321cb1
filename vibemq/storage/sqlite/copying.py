"""A consistent copy of a live database."""

import os
import sqlite3
from pathlib import Path

from vibemq.errors import StorageError
from vibemq.storage.interface import Progress
from vibemq.storage.local.store_file import StoreInfo, fsync_file, fsync_folder, make_folder, write_store_info
from vibemq.storage.sqlite.connection import DATABASE, VERSION

_PAGES_PER_STEP = 1024


def back_up(source: Path, target: Path, now: int, progress: Progress | None) -> None:
    """Copy the committed state of this moment into the empty or new folder `target`; writers go on meanwhile.

    Raises:
        StorageError: the target is in use, or cannot be written.
        sqlite3.Error: reading or writing failed; the target has no store file and will not be mistaken for a store.
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
        _copy(source, target / DATABASE, progress)
        fsync_file(target / DATABASE)
        fsync_folder(target)
        write_store_info(target, StoreInfo("sqlite", VERSION, now, restored=True))
    except OSError as exc:
        raise StorageError(f"the backup into {target} failed: {exc}") from exc


def _not_empty(folder: Path) -> StorageError:
    return StorageError(f"the backup folder {folder} is not empty; choose a new one")


def _copy(source: Path, target: Path, progress: Progress | None) -> None:
    def step(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

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
