"""A short disk: the log can always be folded, and a store that was full takes messages again once it is drained."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.full_store import FullStore, ReportedDisk
from vibemq.storage.local.ballast import BALLAST_FILE, DISK_PART
from vibemq.storage.sqlite import provider as provider_module
from vibemq.storage.sqlite.connection import fold_log
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.room import LOG_BYTES_MAX, LOG_BYTES_MIN, PAGE_BYTES, fold_pages, log_room, needed
from vibemq.storage.sqlite.settings import SqliteSettings

MIB = 1 << 20


class Clock:
    """Every look at it is a minute later than the one before: no round is too early for anything."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 60.0
        return self.now


class Room:
    """A store on a reported disk, whose log is folded only when the file may grow as far as that takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, data_dir: Path, mebibytes: int, body: int, batch: int) -> None:
        data_dir.mkdir()
        self.disk = ReportedDisk(monkeypatch, data_dir, mebibytes * MIB)
        self.ballast = data_dir / BALLAST_FILE
        self.storage = SqliteStorage(data_dir, SqliteSettings(), monotonic=Clock())
        monkeypatch.setattr(provider_module, "fold_log", self._fold)
        self.store = FullStore(self.storage, body, batch)

    def _fold(self, connection: object, where: str, *, cut: bool = True) -> None:
        if self.storage._growth() <= self.disk.free:
            fold_log(self.storage._open_connection(), where, cut=cut)

    @property
    def log_bytes(self) -> int:
        return os.fstat(self.storage._log).st_size


@contextmanager
def room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mebibytes: int, body: int, batch: int = 1_000_000
) -> Iterator[Room]:
    with monkeypatch.context() as patch:
        found = Room(patch, tmp_path / "data", mebibytes, body, batch)
        with closing(found.storage):
            yield found


BODIES = [200, 4_000, 20_000, 200_000]
CASES = [(mebibytes, body) for mebibytes in (8, 12, 24) for body in BODIES]
MORE_CASES = [(48, 20_000), (64, 4_000)]


@pytest.mark.parametrize("part", [1.0, 0.5], ids=["drained", "half drained"])
@pytest.mark.parametrize(
    ("mebibytes", "body"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE_CASES)]
)
@pytest.mark.long_where(part=0.5, body=[200, 20_000])
@pytest.mark.long_where(part=1.0, body=[4_000, 200_000])
@pytest.mark.long_where(mebibytes=24, body=[200, 20_000])
def test_a_full_store_takes_messages_again_when_it_is_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mebibytes: int, body: int, part: float
) -> None:
    with room(monkeypatch, tmp_path, mebibytes, body) as found:
        store = found.store
        taken = store.fill()
        assert taken * body > mebibytes * MIB // 3, "the disk is used"
        assert found.disk.free >= found.storage._growth(), "the log can be folded without the ballast"
        store.settle(part)
        store.publish_again(int(taken * part) // 3)
        store.assert_nothing_lost()
        store.fill()
        store.settle()
        store.publish_again(taken // 3)
        assert found.disk.free >= 0, "no more is written than the disk has"


def test_a_log_that_lacks_room_is_folded_on_the_ballast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is drained and other programs have the rest of the disk: no settlement will give the ballast up."""
    with room(monkeypatch, tmp_path, 24, 20_000, 200_000) as found:
        storage = found.storage
        # Nothing else folds it meanwhile.
        storage._fold_frames = 1 << 30
        for _ in range(3):
            for _ in range(5):
                assert found.store.publish()
            found.store.settle()
        found.disk.others = found.disk.free
        assert LOG_BYTES_MIN < storage._growth() < found.log_bytes
        storage.maintain()
        assert found.log_bytes < LOG_BYTES_MIN
        assert storage._growth() == 0
        assert found.ballast.exists()
        assert storage.stats().full == ""
        assert found.store.publish()


@given(
    rows=st.integers(1, 16 * MIB),
    growth=st.integers(0, LOG_BYTES_MAX),
    unused=st.integers(0, 32 * MIB),
    disk_bytes=st.integers(MIB, 128 * MIB),
)
def test_what_is_left_behind_messages_folds_the_log(rows: int, growth: int, unused: int, disk_bytes: int) -> None:
    """However much of the messages goes into unused pages; and behind growth a publish of 1 MiB still fits those."""
    need = needed(rows, growth=growth, unused=unused, disk_bytes=disk_bytes)
    growth_after = growth + max(0, rows - unused)
    left = need - rows
    assert left > growth_after
    if rows > unused:
        assert left - growth_after >= log_room(disk_bytes)
    if disk_bytes >= 8 * MIB:
        assert needed(MIB, growth=0, unused=2 * MIB, disk_bytes=disk_bytes) <= log_room(disk_bytes)


@pytest.mark.parametrize("ballast", [0, 64 << 10, 512 << 10, 2 * MIB, 16 * MIB, 1 << 30])
def test_the_log_is_folded_before_its_pages_outgrow_the_ballast(ballast: int) -> None:
    size = fold_pages(ballast) * PAGE_BYTES
    assert LOG_BYTES_MIN <= size <= LOG_BYTES_MAX
    if ballast >= 8 * MIB // DISK_PART:
        assert size <= ballast // 2
