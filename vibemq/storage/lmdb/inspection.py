"""Looking at a store without a broker, and without changing a file: for `check` and for dry runs."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import lmdb

from vibemq.errors import StorageError
from vibemq.model.stored import StoredState
from vibemq.storage.interface import StorageStats, StoreInspection
from vibemq.storage.kvstore.collecting import uncollected
from vibemq.storage.kvstore.encoding import decode_batch
from vibemq.storage.kvstore.integrity import load_sound_state
from vibemq.storage.lmdb import compaction
from vibemq.storage.lmdb.check import check_store
from vibemq.storage.lmdb.environment.env import DATA_FILE, length_of_gap, open_inspector
from vibemq.storage.lmdb.environment.pages import check_pages
from vibemq.storage.lmdb.environment.tables import reading, translated
from vibemq.storage.lmdb.environment.writer_lock import LEFTOVER_WAIT_S, wait_for_writer
from vibemq.storage.lmdb.journal.inspection import inspected
from vibemq.storage.lmdb.journal.recent import LeftOnly
from vibemq.storage.lmdb.layout import PROVIDER, VERSION, Layout
from vibemq.storage.lmdb.prepare import cut_off, whole_file
from vibemq.storage.lmdb.reading.dead import JournaledDead, SnapshotKV
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.local.ballast import Ballast
from vibemq.storage.local.disk import ReadOnlyDisk
from vibemq.storage.local.high_water import read_note
from vibemq.storage.local.lock import looking_at
from vibemq.storage.local.mounts import refuse_remote
from vibemq.storage.local.repaired import refuse_unfinished
from vibemq.storage.local.store_file import require_store
from vibemq.storage.state.reducer import apply, is_transient, restart_transient


class _Replayed(NamedTuple):
    state: StoredState
    bytes: int
    """Of the journal's records that the store has not."""


@contextmanager
def inspect(data_dir: Path, settings: LmdbSettings) -> Iterator[StoreInspection]:
    """See `StoragePlugin.look`."""
    layout = Layout(data_dir)
    refuse_remote(data_dir, allow=settings.allow_remote)
    require_store(data_dir, PROVIDER, VERSION)
    with looking_at(data_dir):
        require_store(data_dir, PROVIDER, VERSION)
        refuse_unfinished(layout.store)
        wait_for_writer(layout.store, wait_s=LEFTOVER_WAIT_S)
        with _mapped(layout) as env, uncollected():
            where = str(layout.data_file)
            replayed = _replay(layout, env, where)
            stats = _stats(layout, env, replayed, Ballast(data_dir, settings.ballast_bytes))
            yield StoreInspection(replayed.state, stats, partial(check_store, env, where))


@contextmanager
def _mapped(layout: Layout) -> Iterator[lmdb.Environment]:
    """The store, read-only. What is shorter than its header says is not mapped, but a copy that has the length."""
    whole_file(layout)
    missing = length_of_gap(layout.store)
    if not missing:
        check_pages(layout.data_file)
        with translated(str(layout.data_file)), closing(open_inspector(layout.store)) as env:
            yield env
        return
    with tempfile.TemporaryDirectory(prefix="vibemq-") as name:
        copy = Path(name) / DATA_FILE
        try:
            shutil.copyfile(layout.data_file, copy)
            os.truncate(copy, copy.stat().st_size + missing)
        except OSError as error:
            raise StorageError(
                f"{layout.data_file} is shorter than its header says, so a copy of it in {name} is checked, which "
                f"failed: {error}; free space there, or set TMPDIR to a folder that has it"
            ) from error
        cut_off(layout, copy, missing)
        with translated(str(layout.data_file)), closing(open_inspector(copy.parent)) as env:
            yield env


def _replay(layout: Layout, env: lmdb.Environment, where: str) -> _Replayed:
    disk, size = ReadOnlyDisk(), 0
    with reading(env, where) as kv:
        state = load_sound_state(kv)
    dead = JournaledDead(SnapshotKV(env, where), lambda queue_id: is_transient(state, queue_id))
    left = LeftOnly()
    noted_lsn = read_note(layout.note, disk)[0]
    with inspected(disk, str(layout.journal), applied_lsn=state.lsn, noted_lsn=noted_lsn) as report:
        for record in report:
            dead.lsn = record.lsn
            size += len(record.body)
            for fact in decode_batch(record.body, f"{layout.journal} record {record.lsn}"):
                apply(state, fact, dead, left)
            left.clear()
        state.lsn = report.last_lsn
    restart_transient(state, time.time_ns() // 1_000_000)
    return _Replayed(state, size)


def _stats(layout: Layout, env: lmdb.Environment, replayed: _Replayed, ballast: Ballast) -> StorageStats:
    store_bytes, reclaimable = compaction.store_size(env)
    disk = shutil.disk_usage(layout.data_dir)
    lsn = replayed.state.lsn
    return StorageStats(
        provider=PROVIDER,
        last_lsn=lsn,
        durable_lsn=lsn,
        applied_lsn=lsn,
        journal_bytes=sum(path.stat().st_blocks * 512 for path in layout.journal.glob("*")),
        store_bytes=store_bytes,
        reclaimable_bytes=reclaimable,
        buffered_bytes=0,
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
        full=ballast.obstacle(),
        unapplied_bytes=replayed.bytes,
    )
