"""Looking at a store without a broker, and without changing a file: for `check` and for dry runs."""

import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vibemq.storage.interface import StorageStats, StoreInspection
from vibemq.storage.kvstore.integrity import load_sound_state
from vibemq.storage.local.ballast import Ballast
from vibemq.storage.local.lock import looking_at
from vibemq.storage.local.mounts import refuse_remote
from vibemq.storage.local.repaired import refuse_unfinished
from vibemq.storage.local.store_file import require_store
from vibemq.storage.sqlite.check import check
from vibemq.storage.sqlite.connection import DATABASE, VERSION, SqliteKV, page_bytes, translated
from vibemq.storage.sqlite.recovery import log_of, reader, refuse_missing, refuse_what_is_behind
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.storage.state.reducer import restart_transient


@contextmanager
def inspect(data_dir: Path, settings: SqliteSettings) -> Iterator[StoreInspection]:
    """See `StoragePlugin.look`."""
    path = data_dir / DATABASE
    refuse_remote(data_dir, allow=settings.allow_remote)
    require_store(data_dir, "sqlite", VERSION)
    with looking_at(data_dir):
        require_store(data_dir, "sqlite", VERSION)
        refuse_unfinished(path)
        refuse_missing(path)
        refuse_what_is_behind(path)
        with translated(str(path)), closing(reader(path)) as connection:
            state = load_sound_state(SqliteKV(connection, str(path)))
            restart_transient(state, time.time_ns() // 1_000_000)
            stats = _stats(path, page_bytes(connection), state.lsn, Ballast(data_dir, settings.ballast_bytes))
            yield StoreInspection(state, stats, lambda: list(check(connection, str(path))))


def _stats(path: Path, pages: tuple[int, int], lsn: int, ballast: Ballast) -> StorageStats:
    used, unused = pages
    log, disk = log_of(path), shutil.disk_usage(path.parent)
    store_bytes = path.stat().st_size
    return StorageStats(
        provider="sqlite",
        last_lsn=lsn,
        durable_lsn=lsn,
        applied_lsn=lsn,
        journal_bytes=log.stat().st_size if log.exists() else 0,
        store_bytes=store_bytes,
        reclaimable_bytes=unused,
        buffered_bytes=0,
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
        full=ballast.obstacle(reusable=unused),
        # Pages that are in the log only, and make the database longer once they are moved into it.
        unapplied_bytes=max(0, used + unused - store_bytes),
    )
