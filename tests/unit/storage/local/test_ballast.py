"""Room kept for the drain of a full disk."""

import errno
import os
import resource
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from vibemq.errors import StorageFull
from vibemq.model.records import MessagesAdded, Settled
from vibemq.model.rows import Rows
from vibemq.storage.local.ballast import BALLAST_FILE, DISK_PART, Ballast

MIB = 1 << 20
Usage = namedtuple("Usage", "total used free")
MESSAGES = MessagesAdded(1, 1, 0, Rows.of([b"x"]))
SETTLED = Settled(1, 0, [(1, 1)])


class Disk:
    """What `shutil.disk_usage` says; the ballast's blocks are real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, total: int, free: int) -> None:
        self.total, self.free = total, free
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(self.total, self.total - self.free, self.free))


def test_taken_given_up_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, total=100 * MIB, free=50 * MIB)
    ballast = Ballast(tmp_path, MIB)
    assert ballast.take()
    assert (tmp_path / BALLAST_FILE).stat().st_blocks * 512 >= MIB
    ballast.refuse_messages([MESSAGES])

    assert ballast.release()
    assert not (tmp_path / BALLAST_FILE).exists()
    assert not ballast.release()
    disk.free = 2 * MIB - 1
    assert not ballast.take()
    with pytest.raises(StorageFull, match="free 2 MiB or more"):
        ballast.refuse_messages([SETTLED, MESSAGES])
    ballast.refuse_messages([SETTLED])

    disk.free = 2 * MIB
    assert ballast.take()
    ballast.refuse_messages([MESSAGES])


def test_what_the_settings_do_not_want_any_more_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, total=100 * MIB, free=50 * MIB)
    file = tmp_path / BALLAST_FILE
    for take in (Ballast.take, Ballast.take_back):
        assert Ballast(tmp_path, 2 * MIB).take()
        assert take(Ballast(tmp_path, MIB))
        assert MIB <= file.stat().st_blocks * 512 < 2 * MIB
        assert not take(Ballast(tmp_path, 0))
        assert not file.exists()


def test_what_was_given_up_for_work_that_frees_as_much_is_taken_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Disk(monkeypatch, total=100 * MIB, free=2 * MIB)
    ballast = Ballast(tmp_path, MIB)
    assert ballast.take()
    Disk(monkeypatch, total=100 * MIB, free=0)
    ballast.release()
    assert not ballast.take()
    assert ballast.take_back()
    assert ballast.held
    ballast.refuse_messages([MESSAGES])

    ballast.release()

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not ballast.take_back()
    assert not ballast.held
    with pytest.raises(StorageFull, match="free 2 MiB or more"):
        ballast.refuse_messages([MESSAGES])


def test_a_start_without_room_refuses_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, total=100 * MIB, free=0)
    ballast = Ballast(tmp_path, MIB)
    assert not ballast.take()
    assert ballast.missing


def test_a_small_disk_has_a_small_ballast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, total=16 * MIB, free=4 * MIB)
    ballast = Ballast(tmp_path, 64 * MIB)
    assert ballast.take()
    assert (tmp_path / BALLAST_FILE).stat().st_size == 16 * MIB // DISK_PART


def test_none_is_wanted_and_none_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, total=16 * MIB, free=0)
    ballast = Ballast(tmp_path, 0)
    assert not ballast.take()
    ballast.refuse_messages([MESSAGES])


def test_what_was_met_is_said_until_the_blocks_are_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a refused write and the next round of housekeeping as well: nobody is told of a full disk that is not."""
    Disk(monkeypatch, total=100 * MIB, free=50 * MIB)
    ballast = Ballast(tmp_path, MIB)
    assert ballast.take()
    assert ballast.why == ""
    assert ballast.release("a file may have 7 bytes, raise that limit")
    assert "a file may have 7 bytes, raise that limit" in ballast.why
    assert "disk" not in ballast.why
    with pytest.raises(StorageFull, match=r"a file may have 7 bytes, raise that limit$"):
        ballast.refuse_messages([MESSAGES])
    assert not ballast.release(), "nothing is left to give up"
    assert "a file may have 7 bytes" in ballast.why
    assert ballast.take()
    assert ballast.why == ""


def test_a_limit_of_file_size_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, total=100 * MIB, free=50 * MIB)
    ballast = Ballast(tmp_path, MIB)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB // 2, limits[1]))
    try:
        assert not ballast.take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    ballast.refuse_messages([SETTLED])
    with pytest.raises(StorageFull, match="raise the process's limit of file size"):
        ballast.refuse_messages([MESSAGES])


def test_an_entry_of_the_folder_may_lack_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    ballast = Ballast(tmp_path, MIB)
    monkeypatch.setattr(os, "open", full)
    assert not ballast.take_back()


def test_without_one_nothing_is_taken_back(tmp_path: Path) -> None:
    assert not Ballast(tmp_path, 0).take_back()
    assert not list(tmp_path.iterdir())
