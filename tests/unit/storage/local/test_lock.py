"""Who owns a data directory, and on what file system it lies."""

import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from vibemq.errors import StorageFailed, StorageLocked
from vibemq.storage.lmdb.environment.writer_lock import WRITER_LOCK, WriterLock, wait_for_writer
from vibemq.storage.local.lock import (
    DirectoryLock,
    boot_id,
    describe_owner,
    looking_at,
)
from vibemq.storage.local.store_file import StoreInfo, write_store_info


def test_the_second_owner_is_told_who_is_the_first(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path / "data"), DirectoryLock(tmp_path / "data")
    first.acquire()
    owner = json.loads((tmp_path / "data" / "owner.json").read_text())
    assert (owner["pid"], owner["boot_id"]) == (os.getpid(), boot_id())
    with pytest.raises(StorageLocked, match=rf"process {os.getpid()} on host {owner['host']}"):
        second.acquire()
    assert not second.held
    first.release()
    first.release()
    assert not (tmp_path / "data" / "owner.json").exists()
    second.acquire()
    assert second.held
    second.release()


def test_an_owner_whose_directory_was_replaced_leaves_the_next_owner_alone(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path / "data"), DirectoryLock(tmp_path / "data")
    first.acquire()
    (tmp_path / "data").rename(tmp_path / "aside")
    second.acquire()
    first.release()
    assert (tmp_path / "data" / "owner.json").exists()
    second.release()


@pytest.mark.parametrize("what", ["moved", "replaced", "its lock replaced", "its lock deleted"])
def test_an_owner_learns_that_its_directory_is_another_one(tmp_path: Path, what: str) -> None:
    data = tmp_path / "data"
    owner = DirectoryLock(data)
    owner.acquire()
    owner.require_name()
    if what in ("moved", "replaced"):
        data.rename(tmp_path / "aside")
    else:
        (data / "lock").unlink()
    if what == "replaced":
        shutil.copytree(tmp_path / "aside", data)
    elif what == "its lock replaced":
        (data / "lock").touch()
    with pytest.raises(StorageFailed, match=rf"the data directory {data} is not the one any more that was opened"):
        owner.require_name()
    owner.release()
    owner.require_name()


def test_a_file_in_the_place_of_the_directory_is_not_it(tmp_path: Path) -> None:
    owner = DirectoryLock(tmp_path / "data")
    owner.acquire()
    (tmp_path / "data").rename(tmp_path / "aside")
    (tmp_path / "data").touch()
    with pytest.raises(StorageFailed, match="is not the one any more that was opened"):
        owner.require_name()
    owner.release()


def test_a_directory_that_nobody_may_look_into_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, *, follow_symlinks: bool = True) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    owner = DirectoryLock(tmp_path)
    owner.acquire()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refuse)
        owner.require_name()
        owner.require_name()
    assert caplog.text.count("is still ours: Permission denied") == 1
    owner.release()


def test_a_cleaner_of_what_is_old_leaves_the_lock_of_a_broker_that_runs(tmp_path: Path) -> None:
    owner = DirectoryLock(tmp_path)
    owner.acquire()
    os.utime(tmp_path / "lock", (0, 0))
    owner.require_name()
    assert (tmp_path / "lock").stat().st_mtime > 0
    owner.release()


def test_a_directory_that_was_moved_and_put_back_is_still_ours(tmp_path: Path) -> None:
    owner = DirectoryLock(tmp_path / "data")
    owner.acquire()
    (tmp_path / "data").rename(tmp_path / "aside")
    (tmp_path / "data").symlink_to(tmp_path / "aside")
    owner.require_name()
    owner.release()


def test_names_that_cannot_be_removed_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a file system that is full and needs room for that."""

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    owner = DirectoryLock(tmp_path)
    owner.acquire()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        owner.release()
    assert not owner.held
    assert "No space left on device" in caplog.text
    owner.acquire()
    owner.release()


def test_the_lock_of_a_writer_is_of_the_file_that_has_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = fcntl.flock

    def replaced_first(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", locked)
        (tmp_path / WRITER_LOCK).unlink()
        locked(file, operation)

    monkeypatch.setattr(fcntl, "flock", replaced_first)
    first, second = WriterLock(tmp_path), WriterLock(tmp_path)
    first.acquire(wait_s=1)
    with pytest.raises(StorageLocked):
        second.acquire(wait_s=0)
    first.release()


@pytest.fixture
def nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """flock(2) as on NFS: an exclusive lock is of a file that is open for writing, a shared one of one for reading."""
    locked = fcntl.flock

    def as_of_fcntl(file: int, operation: int) -> None:
        access = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        unfit = os.O_RDONLY if operation & fcntl.LOCK_EX else os.O_WRONLY
        if access == unfit:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        locked(file, operation)

    monkeypatch.setattr(fcntl, "flock", as_of_fcntl)


@pytest.mark.usefixtures("nfs")
def test_a_checkpointer_can_be_kept_out_and_waited_for_on_nfs(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    lock.acquire(wait_s=0)
    with pytest.raises(StorageLocked, match=WRITER_LOCK):
        wait_for_writer(tmp_path, wait_s=0)
    lock.release()
    wait_for_writer(tmp_path, wait_s=0)


def test_another_process_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom vibemq.storage.local.lock import DirectoryLock\n"
        f"DirectoryLock(Path({str(tmp_path)!r})).acquire()\nprint('held', flush=True)\ntime.sleep(60)\n"
    )
    # The lock object would be collected, and its file with it, only at exit: acquire() keeps the descriptor open.
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        lock = DirectoryLock(tmp_path)
        with pytest.raises(StorageLocked, match=f"process {child.pid} "):
            lock.acquire()
        child.kill()
    lock.acquire()
    lock.release()


def test_an_owner_file_that_makes_no_sense_is_no_obstacle(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", "7"):
        (tmp_path / "owner.json").write_text(text)
        assert describe_owner(tmp_path).startswith("another process")


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    return child.pid


def named(folder: Path, **changed: object) -> str:
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "boot_id": boot_id(), "since": "then"}
    (folder / "owner.json").write_text(json.dumps({**owner, **changed}))
    return describe_owner(folder)


def test_an_owner_file_is_believed_of_a_process_that_runs(tmp_path: Path, dead: int) -> None:
    assert named(tmp_path).startswith(f"process {os.getpid()} on host ")
    assert named(tmp_path, pid=1).startswith("process 1 "), "it may belong to another user"
    assert named(tmp_path, pid=dead, host="elsewhere") == f"process {dead} on host elsewhere (since then)"
    for left in ({"pid": dead}, {"pid": 0}, {"pid": 1 << 80}, {"pid": "1"}, {"boot_id": "an earlier one"}):
        assert named(tmp_path, **left).startswith("another process")


def test_an_owner_is_not_told_to_stop_a_dead_process_while_something_looks(tmp_path: Path, dead: int) -> None:
    for owner in (dead, os.getpid()):
        (tmp_path / "lock").touch()
        named(tmp_path, pid=owner)
        with looking_at(tmp_path), pytest.raises(StorageLocked, match="only reads it") as refused:
            DirectoryLock(tmp_path).acquire()
        assert f"process {owner}" not in str(refused.value)


@pytest.mark.parametrize("there", [True, False])
def test_looks_do_not_exclude_each_other_but_every_one_keeps_owners_out(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "lock").touch()
    first, second, owner = (DirectoryLock(tmp_path) for _ in range(3))
    first.acquire_to_look()
    second.acquire_to_look()
    for look in (first, second):
        with pytest.raises(StorageLocked):
            owner.acquire()
        look.release()
    owner.acquire()
    for look in (first, second):
        with pytest.raises(StorageLocked, match=f"process {os.getpid()} "):
            look.acquire_to_look()
    owner.release()


@pytest.mark.usefixtures("nfs")
@pytest.mark.parametrize("there", [True, False])
def test_a_directory_on_nfs_can_be_owned_and_looked_at(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "lock").touch()
    with looking_at(tmp_path), pytest.raises(StorageLocked):
        DirectoryLock(tmp_path).acquire()
    assert (tmp_path / "lock").exists() == there
    owner = DirectoryLock(tmp_path)
    owner.acquire()
    owner.release()


def test_the_names_of_new_folders_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is flushed inside a folder whose own name was not is out of reach after a power cut."""
    flushed: list[str] = []
    flush = os.fsync

    def note(file: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{file}"))
        flush(file)

    monkeypatch.setattr(os, "fsync", note)
    lock = DirectoryLock(tmp_path / "a" / "data")
    lock.acquire()
    assert flushed == [str(tmp_path), str(tmp_path / "a")]
    flushed.clear()
    write_store_info(tmp_path / "a" / "data", StoreInfo("lmdb", 1, 0))
    # Again: the folder may be somebody else's work, or that of a process that was killed in between.
    assert flushed[-2:] == [str(tmp_path / "a" / "data"), str(tmp_path / "a")]
    lock.release()
