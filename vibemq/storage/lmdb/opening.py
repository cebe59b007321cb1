"""Becoming the owner of a data directory, and giving a fresh one its empty store."""

import os

from vibemq.errors import StorageDamaged
from vibemq.model.stored import StoredState
from vibemq.storage import keys
from vibemq.storage.kv import write_state
from vibemq.storage.lmdb.check import check_store
from vibemq.storage.lmdb.env import DATA_FILE, missing_bytes, open_reader, open_writer
from vibemq.storage.lmdb.layout import Layout, check_version, fsync_folder, write_version
from vibemq.storage.lmdb.lock import OWNER_LOCK, WRITER_LOCK, DirectoryLock, refuse_remote, write_owner
from vibemq.storage.lmdb.recovery import REPAIR_HINT
from vibemq.storage.lmdb.tables import translated, writing

LEFTOVER_WAIT_S = 30.0
"""How long a killed broker's checkpointer may take to notice. It ends at once unless the disk hangs."""


def own(layout: Layout, *, allow_remote: bool) -> DirectoryLock:
    """Lock the directory (made if missing) and note the owner.

    Raises:
        StorageLocked: another process owns it.
        StoreVersionError: the store inside is not for this code.
    """
    layout.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not allow_remote:
        refuse_remote(layout.data_dir)
    lock = DirectoryLock(layout.data_dir, OWNER_LOCK)
    lock.acquire()
    try:
        check_version(layout)
        write_owner(layout.data_dir)
        if layout.store.exists():
            wait_for_leftover(layout)
    except BaseException:
        lock.release()
        raise
    return lock


def wait_for_leftover(layout: Layout) -> None:
    leftover = DirectoryLock(layout.store, WRITER_LOCK)
    leftover.acquire(wait_s=LEFTOVER_WAIT_S)
    leftover.release()


def create_store(layout: Layout) -> None:
    """Make the empty store of a fresh directory. An interrupted creation is finished by the next one."""
    if check_version(layout):
        return
    layout.store.mkdir(exist_ok=True, mode=0o700)
    where = str(layout.store / DATA_FILE)
    with translated(where):
        env = open_writer(layout.store)
    try:
        with writing(env, where) as kv:
            if kv.get(keys.STATE_META) is None:
                write_state(kv, StoredState())
    finally:
        env.close()
    fsync_folder(layout.store)
    write_version(layout)


def make_whole(layout: Layout) -> None:
    """Make a file that is shorter than its header says safe to map, if what it lacks never held anything.

    Raises:
        StorageDamaged: something was cut off; the file is left as it was.
    """
    missing = missing_bytes(layout.store)
    if not missing:
        return
    path = layout.store / DATA_FILE
    with translated(str(path)):
        env = open_reader(layout.store)
    try:
        problem = next(check_store(env, str(path)), None)
    finally:
        env.close()
    if problem is not None:
        size = path.stat().st_size - missing
        os.truncate(path, size)
        raise StorageDamaged(
            f"the file ends {missing} bytes before its header says ({problem.what})",
            path=str(path),
            offset=size,
            hint=REPAIR_HINT,
        )
