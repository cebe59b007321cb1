"""Copies of a store: a backup of the living one, and back."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from vibemq.errors import StorageError
from vibemq.storage.interface import Progress
from vibemq.storage.lmdb.checkpoint.schedule import CheckpointDriver
from vibemq.storage.lmdb.environment.env import DATA_FILE
from vibemq.storage.lmdb.layout import FILES, PROVIDER, VERSION, Layout
from vibemq.storage.local.modes import tighten
from vibemq.storage.local.store_file import (
    STORE_FILE,
    StoreInfo,
    check_store,
    fsync_file,
    fsync_folder,
    make_folder,
    read_store_info,
    write_store_info,
)

logger = logging.getLogger(__name__)


def make(driver: CheckpointDriver, source: Path, target: Path, progress: Progress | None) -> None:
    """Write a consistent copy of everything appended before the call. `open` accepts the folder as a data directory.

    The copy needs no journal: the store is brought up to date first. The version file comes last, so a folder
    without one is an unfinished backup. After a failure the folder is empty again.
    """
    _need_empty(target)
    report = progress or _silent
    report(0, 3)
    copy = Layout(target)
    make_folder(target)
    try:
        # Whoever makes it has the folder: another backup into it may have begun meanwhile, and nobody removes that.
        copy.store.mkdir(mode=0o700)
    except FileExistsError:
        raise _not_empty(target) from None
    try:
        driver.copy_store(copy.store)
        tighten(target, FILES)
        report(2, 3)
        fsync_file(copy.store / DATA_FILE)
        fsync_folder(copy.store)
        _write_info(source, target)
    except BaseException:
        _remove((target / f"{STORE_FILE}.new", target / STORE_FILE, copy.store))
        raise
    report(3, 3)


def _remove(parts: Sequence[Path]) -> None:
    """Of an unfinished backup."""
    for part in parts:
        try:
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s, a part of an unfinished backup, stays (%s): remove it before the next try", part, error)


def restore(source: Path, data_dir: Path, progress: Progress | None = None) -> None:
    """Copy a backup into an empty or new data directory.

    Raises:
        StorageError: `source` is not a complete backup, or `data_dir` is not empty.
    """
    if not check_store(source, PROVIDER, VERSION):
        raise StorageError(f"{source} is not a complete backup (it has no {STORE_FILE})")
    _need_empty(data_dir)
    report = progress or _silent
    report(0, 2)
    make_folder(data_dir)
    for name in (Layout(source).store.name, Layout(source).journal.name):
        if (source / name).exists():
            shutil.copytree(source / name, data_dir / name, ignore=shutil.ignore_patterns("lock.mdb", "*.lock"))
    report(1, 2)
    for path in sorted(data_dir.rglob("*")):
        if path.is_file():
            fsync_file(path)
        else:
            fsync_folder(path)
    _write_info(source, data_dir)
    report(2, 2)


def _write_info(source: Path, target: Path) -> None:
    info = read_store_info(source)
    created_at = info.created_at if info is not None else 0
    write_store_info(target, StoreInfo(PROVIDER, VERSION, created_at, restored=True))


def _need_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise _not_empty(folder)


def _not_empty(folder: Path) -> StorageError:
    return StorageError(f"{folder} is not empty; choose a new folder")


def _silent(done: int, total: int) -> None:
    pass
