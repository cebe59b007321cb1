"""A disk of its own, filled up: publishes are refused, the drain goes on, and the broker comes out of it."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.integration.conditions import small_disk as disk_of
from tests.unit.storage.full_store import REFUSALS, FullStore
from vibemq.errors import StorageFull
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, HandedOut, MessagesAdded, QueueCreated, Record, Settled
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings

pytestmark = pytest.mark.slow

SETTINGS = LmdbSettings(
    segment_bytes=1 << 20, buffer_bytes=1 << 20, ballast_bytes=2 << 20, checkpoint_lag_bytes=2 << 20, checkpoint_ms=200
)
ROWS = Rows.of([pack_row(f"m{index}", b"x" * 1000) for index in range(100)])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def append_patiently(provider: LmdbProvider, records: list[Record], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            provider.append(records)
            return
        except StorageFull:
            assert time.monotonic() < deadline, "the disk stayed full"
            provider.maintain()
            time.sleep(0.05)


def fill(provider: LmdbProvider) -> int:
    """Publish until it is refused for a while; return how many messages were accepted."""
    accepted = refused = 0
    while refused < 30:
        try:
            provider.append([MessagesAdded(1, accepted + 1, 1, ROWS)])
            accepted += 100
        except StorageFull:
            refused += 1
            time.sleep(0.02)
        provider.maintain()
    return accepted


def drain(provider: LmdbProvider, count: int) -> None:
    first = 1
    while first <= count:
        parts = provider.read(1, first, count, 1 << 17)
        assert parts[0].first_sequence == first
        last = parts[-1].first_sequence + parts[-1].rows.count - 1
        append_patiently(provider, [HandedOut(1, 0, [(first, last)])])
        append_patiently(provider, [Settled(1, 0, [(first, last)])])
        first = last + 1


def test_from_full_to_empty_without_help(small_disk: Path) -> None:
    provider = LmdbProvider(small_disk / "data", SETTINGS)
    provider.open()
    provider.append([QueueCreated(1, "q", QueueOptions(), 0, "a"), GroupCreated(1, 0, "", True, 1)])
    count = fill(provider)
    assert count > 5_000
    provider.sync()
    provider.close()
    state = provider.open()
    assert state.queues[1].next_sequence == count + 1
    drain(provider, count)
    append_patiently(provider, [MessagesAdded(1, count + 1, 1, ROWS)])
    assert list(provider.check()) == []
    provider.close()


def test_a_checkpoint_has_the_room_that_is_kept_for_it(small_disk: Path) -> None:
    """Free segments count as room for it. Here nothing but the checkpoint itself gives them back to the disk."""
    settings = SETTINGS.model_copy(update={"segment_bytes": 1 << 16, "checkpoint_lag_bytes": 1 << 20})
    with closing(LmdbProvider(small_disk / "data", settings)) as provider:
        provider.open()
        provider.append([QueueCreated(1, "q", QueueOptions(), 0, "a"), GroupCreated(1, 0, "", True, 1)])
        provider.maintain()
        accepted = refused = 0
        while refused < 30:
            try:
                provider.append([MessagesAdded(1, accepted + 1, 1, ROWS)])
                provider.sync()
                accepted += 100
            except StorageFull:
                refused += 1
                time.sleep(0.02)
        provider.checkpoint()
        assert accepted > 5_000
        assert provider.stats().details["checkpointer_error"] == ""
        assert provider.stats().details["ballast_held"]


@pytest.mark.parametrize("mebibytes", [8, 12])
def test_a_drained_store_that_has_nearly_all_of_the_disk_gives_it_back(tmp_path: Path, mebibytes: int) -> None:
    """What checkpoints have left free is enough for the copy of an empty store."""
    with (
        disk_of(tmp_path / "disk", mebibytes) as disk,
        closing(LmdbProvider(disk / "data", LmdbSettings())) as provider,
    ):
        store = FullStore(provider, 20_000, 300_000)
        refused = 0
        while refused < 2 * REFUSALS:
            refused = 0 if store.publish() else refused + 1
            if refused:
                provider.maintain()
                with suppress(StorageFull):
                    provider.checkpoint()
        store.settle()
        append_patiently(provider, [MessagesAdded(1, store.next, 5, ROWS)], seconds=20)
