"""Save what is valid of a damaged data directory. Offline.

First the store: what can be read of it goes into a new one (`vibemq.storage.audit.salvage` decides), and the old file
stays beside it as `store.damaged-<time>`. Then the journal's readable records are applied to the new store. Every loss
is a `Problem`.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.storage.audit import drop_missing, salvage
from vibemq.storage.disk import RealDisk
from vibemq.storage.interface import Problem
from vibemq.storage.lmdb.checkpoint import Checkpoint
from vibemq.storage.lmdb.env import missing_bytes, open_reader, open_writer
from vibemq.storage.lmdb.journal import Journal
from vibemq.storage.lmdb.layout import PROVIDER, VERSION, Layout
from vibemq.storage.lmdb.opening import whole_file
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.lmdb.tables import translated, writing
from vibemq.storage.lock import DirectoryLock
from vibemq.storage.store_file import StoreInfo, check_store, fsync_folder, read_store_info, write_store_info


def repair(data_dir: Path, settings: LmdbSettings) -> list[Problem]:
    """Repair and return what could not be saved.

    Raises:
        StorageLocked: the store is in use.
        StoreVersionError: it is not for this code.
    """
    layout = Layout(data_dir)
    lock = DirectoryLock(data_dir)
    lock.acquire()
    try:
        check_store(data_dir, PROVIDER, VERSION)
        problems = _repair_store(layout)
        with translated(str(layout.data_file)), closing(open_writer(layout.store)) as env:
            problems += _repair_journal(env, layout, settings)
            with writing(env, str(layout.data_file)) as kv:
                problems += drop_missing(kv)
        info = read_store_info(data_dir)
        write_store_info(data_dir, StoreInfo(PROVIDER, VERSION, info.created_at if info is not None else 0))
        return problems
    finally:
        lock.release()


def _repair_store(layout: Layout) -> list[Problem]:
    fresh = layout.data_dir / "store.repaired"
    shutil.rmtree(fresh, ignore_errors=True)
    problems: list[Problem] = []
    with translated(str(fresh)), closing(open_writer(fresh)) as target, writing(target, str(layout.data_file)) as kv:
        problems += salvage(_pairs(layout, problems), kv)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    if layout.store.exists():
        layout.store.rename(layout.data_dir / f"store.damaged-{stamp}")
    fresh.rename(layout.store)
    fsync_folder(layout.data_dir)
    return problems


def _pairs(layout: Layout, problems: list[Problem]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair that LMDB still finds: from the front up to the first broken page, then from the back down to it."""
    where = str(layout.data_file)
    try:
        whole_file(layout)
        missing_bytes(layout.store)  # stretches a file that was cut short: the gap reads as zeros, and so as damaged
    except StorageDamaged as damage:
        problems.append(Problem(f"nothing of the store can be read: {damage}", where))
        return
    with closing(open_reader(layout.store)) as env, env.begin() as transaction:
        seen: bytes | None = None
        for forward in (True, False):
            try:
                with transaction.cursor() as cursor:
                    for key, value in cursor.iternext() if forward else cursor.iterprev():
                        if not forward and seen is not None and bytes(key) <= seen:
                            return
                        seen = bytes(key) if forward else seen
                        yield bytes(key), bytes(value)
                return
            except lmdb.Error as error:
                problems.append(Problem(f"LMDB stopped reading: {error}", where))


def _repair_journal(env: lmdb.Environment, layout: Layout, settings: LmdbSettings) -> list[Problem]:
    """Apply every readable record to the store, after which the broken ones no longer matter."""
    checkpoint = Checkpoint(env)
    journal, report = Journal.open(
        RealDisk(),
        str(layout.journal),
        segment_bytes=settings.segment_bytes,
        applied_lsn=checkpoint.applied_lsn,
        repair=True,
    )
    try:
        checkpoint.apply_records(((str(layout.journal), r) for r in report), up_to_lsn=report.last_lsn)
    finally:
        journal.close()
    return [Problem(f"journal records {first} to {last} are lost", str(layout.journal)) for first, last in report.lost]
