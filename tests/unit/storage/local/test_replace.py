"""Folders change places where two names cannot be exchanged in one step."""

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
