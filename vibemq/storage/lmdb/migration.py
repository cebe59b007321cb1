"""The LMDB store as `vibemq.storage.migrate` sees it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import lmdb

from vibemq.storage.lmdb.environment.env import missing_bytes, open_writer
from vibemq.storage.lmdb.environment.tables import LmdbKV, translated
from vibemq.storage.lmdb.environment.writer_lock import LEFTOVER_WAIT_S, WriterLock
from vibemq.storage.lmdb.layout import VERSION, Layout
from vibemq.storage.lmdb.prepare import whole_file
from vibemq.storage.local.repaired import finish_repair, is_interrupted
from vibemq.storage.local.store_file import fsync_folder
from vibemq.storage.migrate import MigrationStore

__all__ = ["VERSION", "need_store", "open_store"]


class LmdbMigration:
    """Every transaction is synced on leaving."""

    def __init__(self, env: lmdb.Environment, where: str) -> None:
        self._env = env
        self._where = where

    @contextmanager
    def _transaction(self) -> Iterator[lmdb.Transaction]:
        with translated(self._where), self._env.begin(write=True) as transaction:
            yield transaction

    def transaction(self) -> AbstractContextManager[lmdb.Transaction]:
        return self._transaction()

    def kv(self, transaction: lmdb.Transaction) -> LmdbKV:
        return LmdbKV(transaction, self._where)


def need_store(data_dir: Path, *, dry_run: bool) -> None:
    layout = Layout(data_dir)
    if dry_run and is_interrupted(layout.store):
        return
    finish_repair(layout.store)
    whole_file(layout)


@contextmanager
def open_store(data_dir: Path) -> Iterator[MigrationStore]:
    layout = Layout(data_dir)
    layout.store.mkdir(exist_ok=True, mode=0o700)
    lock = WriterLock(layout.store)
    lock.acquire(wait_s=LEFTOVER_WAIT_S)
    try:
        missing_bytes(layout.store)
        with translated(str(layout.data_file)), closing(open_writer(layout.store)) as env:
            yield LmdbMigration(env, str(layout.data_file))
        # The version file that follows must not outlive the store it speaks of.
        fsync_folder(layout.store)
        fsync_folder(layout.data_dir)
    finally:
        lock.release()
