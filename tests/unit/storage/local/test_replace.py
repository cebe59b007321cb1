"""Folders change places where two names cannot be exchanged in one step."""

import errno
import fcntl
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vibemq.errors import RestoreUnfinished
from vibemq.storage.local import replace
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.replace import UNFINISHED, Replacement, copy_of


class Killed(BaseException):
    pass


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Missing, beside what an earlier restore has completed and not put in its place."""
    monkeypatch.setattr(replace, "_exchange", lambda *_: False)
    copy = copy_of(tmp_path / "data")
    copy.mkdir()
    (copy / "earlier").write_text("")
    return tmp_path / "data"


def kill_at(step: int, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the rename of that number."""
    numbers = itertools.count(1)
    rename = os.rename

    def counted(source: Path, target: Path) -> None:
        if next(numbers) == step:
            raise Killed
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", counted)
        with pytest.raises(Killed):
            work()


def assert_refused_and_kept(data_dir: Path) -> None:
    with pytest.raises(RestoreUnfinished):
        DirectoryLock(data_dir).acquire()
    assert len(list(data_dir.parent.glob("*/earlier"))) == 1
    assert not data_dir.with_name("data.replacing").exists()


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_kill_while_an_earlier_copy_is_moved_aside_leaves_starts_refused(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    kill_at(step, Replacement(data_dir, data_dir.with_name("aside")).begin, monkeypatch)
    assert_refused_and_kept(data_dir)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_kill_while_an_earlier_copy_is_put_back_leaves_starts_refused(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    replacement = Replacement(data_dir, data_dir.with_name("aside"))
    replacement.begin()
    kill_at(step, replacement.discard, monkeypatch)
    assert_refused_and_kept(data_dir)


def test_a_copy_takes_its_place_although_a_broker_has_taken_the_note_away(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir.mkdir()
    (data_dir / "old").write_text("")
    (copy_of(data_dir) / UNFINISHED).write_text("")
    replacement = Replacement(data_dir, data_dir.with_name("aside"))
    (replacement.begin() / "new").write_text("")
    rename = os.rename

    def interrupted(source: Path, target: Path) -> None:
        replace.finish_replacing(data_dir)
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    replacement.finish()
    assert [path.name for path in data_dir.iterdir()] == ["new"]
    assert [path.name for path in data_dir.with_name("aside").iterdir()] == ["old"]


def another(data_dir: Path) -> Replacement:
    return Replacement(data_dir, data_dir.with_name("of another"))


def test_a_second_restore_leaves_the_copy_of_the_first_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    first, second = Replacement(data_dir, tmp_path / "aside"), another(data_dir)
    (first.begin() / "new").write_text("")
    with pytest.raises(RestoreUnfinished, match="another restore"):
        second.begin()
    second.discard()
    first.finish()
    assert [path.name for path in data_dir.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("before", ["old", "nothing"])
def test_a_second_restore_begins_at_no_step_of_the_first_one_s_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, exchange: bool
) -> None:
    """What is complete, or was in the directory, has the name of a copy that was left, for a moment."""
    data_dir = tmp_path / "data"
    if before == "old":
        data_dir.mkdir()
        (data_dir / "old").write_text("")
    first, refused = Replacement(data_dir, tmp_path / "aside"), list[bool]()
    (first.begin() / "new").write_text("")
    fsync = replace.fsync_folder

    def meanwhile(folder: Path) -> None:
        fsync(folder)
        if copy_of(data_dir).exists():
            with pytest.raises(RestoreUnfinished, match="another restore"):
                another(data_dir).begin()
            refused.append(True)

    monkeypatch.setattr(replace, "fsync_folder", meanwhile)
    if not exchange:
        monkeypatch.setattr(replace, "_exchange", lambda *_: False)
    first.finish()
    assert refused
    assert [path.name for path in data_dir.iterdir()] == ["new"]
    assert {path.name for path in tmp_path.iterdir()} == {"data"} | ({"aside"} if before == "old" else set())
    assert not first.moved_aside or [path.name for path in first.moved_aside.iterdir()] == ["old"]


def test_a_restore_whose_copy_has_its_place_removes_no_copy_of_the_next(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    first, second = Replacement(data_dir, tmp_path / "aside"), another(data_dir)
    first.begin()
    first.finish()
    copy = second.begin()
    first.discard()
    assert copy.exists()
    second.discard()
    assert not copy.exists()


@pytest.mark.parametrize("fails", ["pathlib.Path.mkdir", "vibemq.storage.local.replace.private_file"])
def test_a_restore_that_could_not_begin_keeps_none_from_beginning(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(fails, refuse)
        with pytest.raises(PermissionError):
            Replacement(data_dir, data_dir.with_name("aside")).begin()
    second = another(data_dir)
    second.begin()
    second.discard()


def test_whoever_holds_the_old_directory_keeps_no_copy_from_its_place(tmp_path: Path) -> None:
    """As `flock DIRECTORY vibemq-admin restore` does."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "old").write_text("")
    holder = os.open(data_dir, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    restore = Replacement(data_dir, tmp_path / "aside")
    (restore.begin() / "new").write_text("")
    restore.finish()
    os.close(holder)
    assert [path.name for path in data_dir.iterdir()] == ["new"]


def test_a_file_system_that_locks_no_folders_is_restored_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(replace, "open_locked", refuse)
    data_dir = tmp_path / "data"
    given_up, restore = Replacement(data_dir, tmp_path / "aside"), another(data_dir)
    given_up.begin()
    given_up.discard()
    assert list(tmp_path.iterdir()) == []
    (restore.begin() / "new").write_text("")
    restore.finish()
    assert [path.name for path in data_dir.iterdir()] == ["new"]


def test_a_folder_that_cannot_be_held_leaves_nothing_that_keeps_brokers_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(replace, "open_locked", refuse)
    with pytest.raises(OSError, match="error"):
        another(tmp_path / "data").begin()
    assert list(tmp_path.iterdir()) == []
