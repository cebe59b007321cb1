"""Giving a fresh directory its empty store, and making sure that an old one is safe to map."""

import logging
import os
from contextlib import closing
from pathlib import Path

from vibemq.errors import StorageDamaged
from vibemq.storage.lmdb.check import check_store
from vibemq.storage.lmdb.compaction import remove_leftover
from vibemq.storage.lmdb.environment.env import flush_again, missing_bytes, open_inspector, remove_unborn
from vibemq.storage.lmdb.environment.pages import check_pages
from vibemq.storage.lmdb.environment.tables import translated
from vibemq.storage.lmdb.environment.writer_lock import LEFTOVER_WAIT_S, WriterLock
from vibemq.storage.lmdb.journal.recovery import REPAIR_HINT
from vibemq.storage.lmdb.layout import FILES, PROVIDER, VERSION, Layout
from vibemq.storage.local.disk import RealDisk
from vibemq.storage.local.modes import tighten
from vibemq.storage.local.repaired import finish_repair
from vibemq.storage.local.store_file import check_store as check_version
from vibemq.storage.migrate import create_store

logger = logging.getLogger(__name__)


def prepare(layout: Layout, *, now: int) -> None:
    """Leave a store that can be mapped. The caller holds the directory's lock.

    Args:
        now: milliseconds, for a store that is made now.

    Raises:
        StoreVersionError: the store inside is not for this code.
        StorageDamaged: part of the file was cut off.
        StorageLocked: the checkpointer of a killed broker does not end.
    """
    if not check_version(layout.data_dir, PROVIDER, VERSION):
        has_journal = layout.journal.exists() and any(layout.journal.iterdir())
        remove_unborn(layout.store, has_journal=has_journal)
        create_store(layout.data_dir, PROVIDER, now)
    elif finish_repair(layout.store):
        logger.warning("an interrupted repair of %s was completed", layout.store)
    tighten(layout.data_dir, FILES)
    leftover = WriterLock(layout.store)
    leftover.acquire(wait_s=LEFTOVER_WAIT_S)
    leftover.release()
    remove_leftover(layout)
    _make_whole(layout)
    # What a killed process committed may be in the page cache only; it must not be believed now and lost later.
    flush_again(RealDisk(), layout.store)


def _make_whole(layout: Layout) -> None:
    """Only pages that LMDB can be trusted with; a file shorter than its header says is fine if nothing is missing."""
    whole_file(layout)
    path = layout.data_file
    missing = missing_bytes(layout.store)
    if not missing:
        check_pages(path)
        return
    try:
        cut_off(layout, path, missing)
    except StorageDamaged:
        # What was found stays as it was, for a better tool than this one.
        os.truncate(path, path.stat().st_size - missing)
        raise


def cut_off(layout: Layout, stretched: Path, missing: int) -> None:
    """Raise StorageDamaged when something is lost with the end of the store's file.

    Args:
        stretched: the file, or a copy of it, with `missing` bytes of zeros behind its end.
    """
    what = _what_is_cut(stretched)
    if what is not None:
        raise StorageDamaged(
            f"the file ends {missing} bytes before its header says ({what})",
            path=str(layout.data_file),
            offset=stretched.stat().st_size - missing,
            hint=REPAIR_HINT,
        )


def _what_is_cut(path: Path) -> str | None:
    try:
        check_pages(path)
    except StorageDamaged as damage:
        return str(damage)
    with translated(str(path)), closing(open_inspector(path.parent)) as env:
        problem = next(iter(check_store(env, str(path))), None)
    return None if problem is None else problem.what


def whole_file(layout: Layout) -> None:
    """Raise StorageDamaged when the file that every store has is not there, or has nothing in it."""
    path = layout.data_file
    if not path.exists() or not path.stat().st_size:
        raise StorageDamaged("the file is missing or empty", path=str(path), offset=0, hint=REPAIR_HINT)
