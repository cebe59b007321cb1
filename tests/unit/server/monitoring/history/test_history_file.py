"""The file of the history: what is saved is read again, and what cannot be read is told and no more."""

import errno
import os
import stat
from pathlib import Path

import pytest

from vibemq.server.monitoring.history.history_file import Saved, UnreadableHistory, load, save
from vibemq.server.monitoring.history.rings import Ring

AT = 1_700_000_000_000
MOST = 10_000_000


def saved() -> Saved:
    broker, jobs = Ring(16), Ring(6)
    broker.record(AT, [1.5] * 16)
    jobs.record(AT, [2.5] * 6)
    return Saved(broker, {("jobs", "ab"): jobs, ("ก.\n", "cd"): Ring(6)}, [AT - 5], AT)


def read(path: Path) -> Saved:
    found = load(path, 16, 6, bytes_max=MOST)
    assert found is not None
    return found


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "history"
    for _ in range(2):
        save(path, saved())
    found = read(path)
    assert (found.restarts, found.saved_at, list(found.queues)) == ([AT - 5], AT, [("jobs", "ab"), ("ก.\n", "cd")])
    assert found.broker.buffer == saved().broker.buffer
    assert found.queues["jobs", "ab"].points(0, 5, AT)[-1] == 2.5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["history"]


def test_a_full_disk_keeps_the_last_file_and_nothing_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history"
    save(path, saved())

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, saved())
    assert [file.name for file in tmp_path.iterdir()] == ["history"]
    assert read(path).restarts == [AT - 5]


def test_no_file_is_no_trouble(tmp_path: Path) -> None:
    assert load(tmp_path / "history", 16, 6, bytes_max=MOST) is None


@pytest.mark.parametrize("cut", [0, 3, 20, 31, 40, 100, -1])
def test_a_file_that_was_cut_or_changed_is_told(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "history"
    save(path, saved())
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    with pytest.raises(UnreadableHistory):
        read(path)
    path.write_bytes(data[:cut] + bytes([data[cut] ^ 1]) + (data[cut + 1 :] if cut >= 0 else b""))
    with pytest.raises(UnreadableHistory):
        read(path)


def test_other_series_another_version_and_a_folder_are_told(tmp_path: Path) -> None:
    path = tmp_path / "history"
    save(path, saved())
    with pytest.raises(UnreadableHistory, match="version"):
        load(path, 16, 7, bytes_max=MOST)
    with pytest.raises(UnreadableHistory, match="damaged"):
        load(path, 16, 6, bytes_max=1_000)
    path.write_bytes(b"vibemq-history 2" + path.read_bytes()[16:])
    with pytest.raises(UnreadableHistory, match="version"):
        read(path)
    with pytest.raises(UnreadableHistory, match="cannot be read"):
        load(tmp_path, 16, 6, bytes_max=MOST)
