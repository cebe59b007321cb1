"""Room: what the store gives back by itself, what it refuses, and a checkpointer that makes no progress."""

import errno
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.storage.test_lmdb_provider import a_queue, messages, sequences
from tests.waiting import wait_until
from vibemq.errors import StorageFailed, StorageFull
from vibemq.model.records import HandedOut, Settled
from vibemq.storage.lmdb import compaction
from vibemq.storage.lmdb.compaction import COMPACTING
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.lmdb.store_room import DiskUsage
from vibemq.storage.local.disk import RealDisk

SETTINGS = LmdbSettings(
    segment_bytes=64 << 10,
    ballast_bytes=0,
    checkpoint_lag_bytes=0,
    checkpoint_ms=100,
    checkpointer_silence_ms=3_600_000,
)
IMPATIENT = SETTINGS.model_copy(update={"checkpointer_silence_ms": 500})
BOUNDED = SETTINGS.model_copy(update={"journal_bytes_max": 1 << 20})
GIB = 1 << 30


class Disk:
    """What the provider is told about its disk."""

    def __init__(self) -> None:
        self.usage = DiskUsage(100 * GIB, 50 * GIB)

    def __call__(self, folder: Path) -> DiskUsage:
        return self.usage


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def opened(folder: Path, settings: LmdbSettings, disk: Disk) -> LmdbProvider:
    provider = LmdbProvider(folder, settings, disk_usage=disk)
    provider.open()
    return provider


@pytest.fixture
def provider(folder: Path, disk: Disk) -> Iterator[LmdbProvider]:
    store = opened(folder, SETTINGS, disk)
    yield store
    store.close()


def housekeep_until(provider: LmdbProvider, happened: Callable[[], bool]) -> None:
    def has_happened() -> bool:
        if happened():
            return True
        provider.maintain()
        return False

    wait_until(has_happened, lambda: provider.stats())


def fill(provider: LmdbProvider, count: int = 8_000) -> None:
    provider.append(a_queue())
    for first in range(1, count, 100):
        provider.append([messages(first, 100, size=2000)])
    provider.sync()
    provider.checkpoint()


def drain(provider: LmdbProvider, count: int = 8_000) -> None:
    provider.append([HandedOut(1, 0, [(1, count)]), Settled(1, 0, [(1, count)])])
    provider.sync()
    provider.checkpoint()


def test_unused_pages_and_free_segments_count_as_room(provider: LmdbProvider) -> None:
    fill(provider)
    full = provider.stats()
    drain(provider)
    empty = provider.stats()
    assert empty.writable_bytes - full.writable_bytes > 8_000 * 900
    assert empty.writable_bytes > empty.disk_free_bytes


def test_the_store_is_compacted_by_itself_when_the_disk_is_short(
    provider: LmdbProvider, folder: Path, disk: Disk
) -> None:
    fill(provider)
    size = provider.stats().store_bytes
    disk.usage = DiskUsage(100 * GIB, 5 * GIB)
    housekeep_until(provider, lambda: provider.stats().journal_bytes <= 4 * SETTINGS.segment_bytes)
    assert provider.stats().store_bytes == size, "it is full of messages"
    drain(provider)
    housekeep_until(provider, lambda: provider.stats().store_bytes < size // 10)
    assert (folder / "store" / "data.mdb").stat().st_size < size // 10
    # The swap is flushed behind the locks, after the size is seen.
    housekeep_until(provider, lambda: not (folder / "store" / COMPACTING).exists())
    provider.append([messages(8_001, 10)])
    provider.checkpoint()
    assert sequences(provider, 8_001) == list(range(8_001, 8_011))
    assert list(provider.check()) == []


def test_a_disk_that_is_enlarged_takes_a_bigger_store(
    folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpointer is a process of its own, and sees the disk as it is now when it starts."""
    with monkeypatch.context() as before:
        before.setattr("vibemq.storage.lmdb.environment.env.map_bytes", lambda _: 4 << 20)
        provider = opened(folder, SETTINGS.model_copy(update={"buffer_bytes": 0}), disk)
    provider.maintain()
    fill(provider)
    assert provider.stats().store_bytes > 4 << 20
    assert sequences(provider, 1)[:3] == [1, 2, 3]
    provider.maintain()
    assert provider.stats().details["checkpointer_restarts"] == 0
    provider.close()


def test_a_roomy_disk_is_left_alone(provider: LmdbProvider) -> None:
    fill(provider)
    size = provider.stats().store_bytes
    drain(provider)
    for _ in range(5):
        provider.maintain()
    assert provider.stats().store_bytes >= size
    assert provider.stats().details["checkpointer_restarts"] == 0


def test_an_unfinished_copy_is_removed_at_the_start(folder: Path, disk: Disk) -> None:
    opened(folder, SETTINGS, disk).close()
    # The second is the place of earlier versions.
    copies = (folder / "store" / COMPACTING, folder / COMPACTING)
    for copy in copies:
        copy.mkdir()
        (copy / "data.mdb").write_bytes(bytes(1 << 20))
    provider = opened(folder, SETTINGS, disk)
    assert not any(copy.exists() for copy in copies)
    provider.close()


def test_a_store_on_another_disk_than_its_directory_is_compacted(
    provider: LmdbProvider, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is a symbolic link there, or a mount point."""
    rename = os.rename

    def on_one_disk(old: Path, new: Path) -> None:
        inside = [path.is_relative_to(folder / "store") for path in (old, new)]
        if inside[0] != inside[1]:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(old, new)

    fill(provider, 800)
    drain(provider, 800)
    monkeypatch.setattr(os, "rename", on_one_disk)
    assert provider.compact()
    assert list(provider.check()) == []


def test_appends_and_reads_go_on_while_the_swap_of_a_compacted_store_is_flushed(
    provider: LmdbProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushing, go_on = threading.Event(), threading.Event()
    flush = compaction.fsync_folder

    def slow(folder: Path) -> None:
        flushing.set()
        assert go_on.wait(120)
        flush(folder)

    def append_and_read() -> list[int]:
        provider.append([messages(801, 10)])
        provider.sync()
        return sequences(provider, 801)

    fill(provider, 800)
    drain(provider, 800)
    monkeypatch.setattr(compaction, "fsync_folder", slow)
    with ThreadPoolExecutor(2) as pool:
        compacted = pool.submit(provider.compact)
        try:
            assert flushing.wait(120)
            assert pool.submit(append_and_read).result(10) == list(range(801, 811))
            # No checkpoint is ordered, and nothing of the journal released.
            provider.maintain()
            stats = provider.stats()
            assert not stats.details["checkpointer_running"]
            assert stats.applied_lsn < stats.last_lsn
        finally:
            go_on.set()
        compacted.result(120)
    provider.checkpoint()
    assert list(provider.check()) == []


def test_a_swap_that_cannot_be_flushed_ends_the_store_with_all_of_its_journal(
    folder: Path, provider: LmdbProvider, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(place: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    fill(provider, 800)
    drain(provider, 700)
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "fsync_folder", fails)
        with pytest.raises(StorageFailed, match="flush of a compacted store's folder failed"):
            provider.compact()
    with pytest.raises(StorageFailed):
        provider.append([messages(801, 10)])
    with pytest.raises(StorageFailed):
        provider.sync()
    provider.abandon()
    again = opened(folder, LmdbSettings(), disk)
    assert sequences(again, 701) == list(range(701, 801))
    assert list(again.check()) == []
    again.close()


def test_compact_says_what_it_lacks(provider: LmdbProvider, disk: Disk) -> None:
    fill(provider)
    disk.usage = DiskUsage(100 * GIB, 4096)
    with pytest.raises(StorageFull, match=r"needs \d+ bytes beside it and 4096 are free; free \d+ bytes"):
        provider.compact()
    assert sequences(provider, 7_990) == list(range(7_990, 8_001))
    disk.usage = DiskUsage(100 * GIB, 50 * GIB)
    provider.append([messages(8_001, 10)])
    provider.compact()
    assert list(provider.check()) == []


def test_segments_are_small_on_a_small_disk(folder: Path, disk: Disk) -> None:
    disk.usage = DiskUsage(8 << 20, 8 << 20)
    provider = opened(folder, LmdbSettings(ballast_bytes=0), disk)
    provider.append(a_queue())
    assert provider.stats().journal_bytes <= 2 * (128 << 10)
    provider.close()


def test_a_checkpointer_that_stands_still_is_replaced(folder: Path, disk: Disk) -> None:
    provider = opened(folder, IMPATIENT, disk)
    provider.append(a_queue())
    provider.checkpoint()
    os.kill(provider.stats().details["checkpointer_pid"], signal.SIGSTOP)
    provider.append([messages(1, 100)])
    provider.sync()
    housekeep_until(provider, lambda: provider.stats().details["checkpoint_age_s"] > 0)
    housekeep_until(provider, lambda: provider.stats().applied_lsn == provider.stats().last_lsn)
    details = provider.stats().details
    assert details["checkpointer_hung"] >= 1
    assert details["checkpointer_restarts"] >= 1
    assert details["checkpoint_age_s"] == 0.0
    assert sequences(provider) == list(range(1, 101))
    provider.close()


def test_the_journal_has_a_bound(folder: Path, disk: Disk) -> None:
    provider = opened(folder, BOUNDED, disk)
    provider.append(a_queue())
    provider.checkpoint()
    pid = provider.stats().details["checkpointer_pid"]
    os.kill(pid, signal.SIGSTOP)
    first = 1
    while not provider.stats().details["messages_refused"]:
        provider.append([messages(first, 100)])
        first += 100
        provider.maintain()
    with pytest.raises(StorageFull, match=r"not checkpointed, 1 MiB are allowed \(journal_bytes_max\)"):
        provider.append([messages(first, 100)])
    assert provider.stats().details["messages_refused"]
    # What makes the backlog smaller is taken.
    provider.append([HandedOut(1, 0, [(1, 50)]), Settled(1, 0, [(1, 50)])])
    provider.sync()
    os.kill(pid, signal.SIGCONT)
    housekeep_until(provider, lambda: not provider.stats().details["messages_refused"])
    provider.append([messages(first, 100)])
    assert sequences(provider, 51) == list(range(51, first + 100))
    provider.close()


def test_a_limit_that_the_checkpointer_meets_is_the_reason(folder: Path, disk: Disk) -> None:
    """The journal has met none, and the disk has room: whoever looks is told of the limit, and of nothing else."""
    provider = opened(folder, SETTINGS.model_copy(update={"ballast_bytes": 1 << 20}), disk)
    provider.append(a_queue())
    provider.checkpoint()
    pid = provider.stats().details["checkpointer_pid"]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    for first in range(1, 2_001, 100):
        provider.append([messages(first, 100, size=2000)])
    provider.sync()
    housekeep_until(provider, lambda: bool(provider.stats().full))
    full = provider.stats().full
    assert "a file may have 1048576 bytes in this process (`ulimit -f`" in full
    assert "disk" not in full
    with pytest.raises(StorageFull, match=r"a file may have 1048576 bytes in this process .*raise that limit"):
        provider.append([messages(2_001, 1)])
    # The next checkpointer has no limit.
    housekeep_until(provider, lambda: not provider.stats().full)
    provider.append([messages(2_001, 1)])
    assert sequences(provider, 1_990) == list(range(1_990, 2_002))
    provider.close()


def test_what_is_not_flushed_and_the_map_are_told(provider: LmdbProvider) -> None:
    provider.append(a_queue())
    provider.sync()
    assert provider.stats().details["unsynced_bytes"] == 0
    provider.append([messages(1, 100)])
    assert provider.stats().details["unsynced_bytes"] > 3_000
    assert 0.0 < provider.stats().details["map_used_ratio"] < 0.01


@pytest.mark.parametrize(("missing", "checkpoints"), [(errno.ENOSPC, True), (errno.EMFILE, False)])
def test_only_where_room_is_missing_a_spare_segment_asks_for_a_checkpoint(
    folder: Path, disk: Disk, missing: int, checkpoints: bool
) -> None:
    """One gives back room, not files, and it would seal the segment that still has room for messages."""
    provider = opened(folder, SETTINGS.model_copy(update={"checkpoint_ms": 3_600_000}), disk)
    try:
        provider.append(a_queue())
        provider.sync()
        provider._spare_segments.stop()
        provider._journal.pool.trim()

        def refuse(size: int) -> None:
            raise OSError(missing, os.strerror(missing))

        provider._journal.pool._create = refuse  # type: ignore[method-assign,assignment]
        provider._upkeep.prepare_spare()
        assert provider._driver.room_wanted is checkpoints
        provider.append([messages(1, 1)])
        assert sequences(provider) == [1]
    finally:
        provider.close()


def test_a_compacted_store_has_no_spare_segment_before_housekeeping(provider: LmdbProvider) -> None:
    """However late the thread that makes them comes to its turn."""
    fill(provider, count=200)
    provider.compact()
    provider._upkeep.keep_up()
    assert provider.stats().details["journal_spares"] == 0
    provider.maintain()
    assert provider.stats().details["journal_spares"] == 1


def test_a_disk_without_inodes_is_told_from_one_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = LmdbProvider(tmp_path / "data", SETTINGS)
    provider.open()
    try:
        provider.append(a_queue())

        def full(disk: RealDisk, file: int, size: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        statvfs = os.statvfs

        def without_inodes(path: object) -> os.statvfs_result:
            facts = list(statvfs(path))  # type: ignore[call-overload]
            facts[5:8] = (60, 0, 0)
            return os.statvfs_result(facts)

        monkeypatch.setattr(RealDisk, "fallocate", full)
        first = 1
        for remedy, patched in (("free space on its disk", statvfs), (r"no inode left \(`df -i`\)", without_inodes)):
            monkeypatch.setattr(os, "statvfs", patched)
            with pytest.raises(StorageFull, match=remedy):  # noqa: PT012  # the spare segments have room for some
                for _ in range(100):
                    provider.append([messages(first, 10, size=1_000)])
                    first += 10
    finally:
        monkeypatch.undo()
        provider.close()
