"""How long a backup may take, and how it ends early."""

import errno
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from vibemq.errors import StorageDamaged, StorageError
from vibemq.storage.lmdb.backup import make
from vibemq.storage.lmdb.checkpoint import schedule
from vibemq.storage.lmdb.checkpoint.schedule import CheckpointDriver
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.local import store_file
from vibemq.storage.local.store_file import STORE_FILE

LOOKS_FOR_AN_HOUR = 7200


class SlowCheckpointer:
    """Stands in for the link and for the clock: half a second passes with each look at the answers."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pid = 1
        self.running = False
        self.last_error = ""
        self.grows_for = LOOKS_FOR_AN_HOUR
        self.done_after = LOOKS_FOR_AN_HOUR
        self.stopped_after = 2 * LOOKS_FOR_AN_HOUR
        self.driver: CheckpointDriver | None = None
        self.refusal: dict[str, Any] | None = None
        self._copy: Path | None = None
        self._looks = 0

    def monotonic(self) -> float:
        return self.now

    def ensure_running(self) -> bool:
        if self.running:
            return False
        self.pid += 1
        self.running = True
        self._copy, self._looks = None, 0
        return True

    def ask(self, order: dict[str, Any]) -> bool:
        self._copy = Path(order["backup"]) / "data.mdb"
        self._copy.touch()
        return True

    def kill(self) -> None:
        self.running = False

    def wait_answer(self, timeout_s: float) -> list[dict[str, Any]]:
        self.now += timeout_s
        if self._copy is None:
            return [{"ready": 0}]
        self._looks += 1
        if self.refusal is not None:
            return [self.refusal]
        if self._looks == self.stopped_after:
            assert self.driver is not None
            self.driver.end_backups()
        if self._looks <= self.grows_for:
            with self._copy.open("ab") as file:
                file.write(b"page")
        return [{"done": "backup"}] if self._looks == self.done_after else []


class IdleJournal:
    last_lsn = 0


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowCheckpointer:
    slow = SlowCheckpointer()
    monkeypatch.setattr(schedule, "time", slow)
    monkeypatch.setattr(schedule, "CheckpointerLink", lambda *_, **__: slow)
    return slow


def back_up(slow: SlowCheckpointer, tmp_path: Path) -> Path:
    journal: Any = IdleJournal()
    room: Any = IdleJournal()
    settings = LmdbSettings(checkpointer_silence_ms=20_000)
    slow.driver = CheckpointDriver(
        Layout(tmp_path / "data"),
        settings,
        journal,
        room,
        nullcontext(),
        lambda lsn: None,
        lambda: None,
        lambda: None,
        applied_lsn=0,
    )
    target = tmp_path / "backup"
    make(slow.driver, tmp_path / "data", target, None)
    return target


def test_a_copy_takes_as_long_as_it_grows(slow: SlowCheckpointer, tmp_path: Path) -> None:
    target = back_up(slow, tmp_path)
    assert (target / STORE_FILE).exists()
    assert (target / "store" / "data.mdb").stat().st_size == 4 * LOOKS_FOR_AN_HOUR
    assert slow.running


def test_a_copy_that_grows_no_more_is_given_up_and_leaves_nothing(slow: SlowCheckpointer, tmp_path: Path) -> None:
    slow.grows_for = 100
    with pytest.raises(StorageError, match=r"the copy was not finished: it did not grow for 20 s"):
        back_up(slow, tmp_path)
    assert list((tmp_path / "backup").iterdir()) == []
    assert slow.driver is not None
    assert slow.driver.hung == 1
    # The next one finds the folder as it needs it.
    slow.grows_for = LOOKS_FOR_AN_HOUR
    assert (back_up(slow, tmp_path) / STORE_FILE).exists()


def test_a_store_that_cannot_be_read_is_told_as_that(slow: SlowCheckpointer, tmp_path: Path) -> None:
    store = str(tmp_path / "data" / "store" / "data.mdb")
    slow.refusal = {"refused": "backup", "error": "page 7", "code": "STORAGE_DAMAGED", "path": store}
    with pytest.raises(StorageDamaged, match=f"the copy was not finished: page 7 in {store}; .*repair"):
        back_up(slow, tmp_path)
    assert slow.running


def test_a_stop_ends_a_copy_and_the_process_that_writes_it(slow: SlowCheckpointer, tmp_path: Path) -> None:
    slow.stopped_after = 100
    with pytest.raises(StorageError, match="the backup was not finished: the broker stops"):
        back_up(slow, tmp_path)
    assert not slow.running
    assert list((tmp_path / "backup").iterdir()) == []


def test_a_backup_whose_last_flush_fails_leaves_nothing(
    slow: SlowCheckpointer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path) -> None:
        if (folder / STORE_FILE).exists():
            raise OSError(errno.EIO, "no more")

    monkeypatch.setattr(store_file, "fsync_folder", fails)
    with pytest.raises(OSError, match="no more"):
        back_up(slow, tmp_path)
    assert list((tmp_path / "backup").iterdir()) == []
