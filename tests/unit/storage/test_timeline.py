"""When a store begins a new timeline, and restores that come between the steps of a start."""

from pathlib import Path

import pytest

from vibemq import Broker
from vibemq.errors import RestoreUnfinished
from vibemq.model.options import QueueOptions
from vibemq.model.records import QueueCreated
from vibemq.server import assembly
from vibemq.storage.local.replace import copy_of
from vibemq.storage.sqlite import PLUGIN
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.storage.timeline import begin_timeline, is_restored, mark_restored

SETTINGS = SqliteSettings()


def make_store(data_dir: Path) -> None:
    store = PLUGIN.create(data_dir, SETTINGS)
    store.open()
    store.append([QueueCreated(1, "orders", QueueOptions(), 0, "first")])
    store.close()


def incarnation(data_dir: Path) -> str:
    store = PLUGIN.create(data_dir, SETTINGS)
    try:
        return store.open().queues[1].incarnation
    finally:
        store.close()


def begin(data_dir: Path) -> None:
    begin_timeline(PLUGIN, data_dir, SETTINGS, lambda: "second")


def test_a_restored_store_has_new_incarnations_and_another_keeps_its_own(tmp_path: Path) -> None:
    make_store(tmp_path)
    begin(tmp_path)
    assert incarnation(tmp_path) == "first"
    mark_restored(tmp_path)
    begin(tmp_path)
    assert (incarnation(tmp_path), is_restored(tmp_path)) == ("second", False)


def test_nothing_begins_where_nothing_is(tmp_path: Path) -> None:
    begin(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_restore_that_was_cut_between_its_renames_is_completed_before_the_look(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    make_store(data_dir)
    mark_restored(data_dir)
    data_dir.rename(copy_of(data_dir))
    note = tmp_path / "data.replacing"
    note.write_bytes(copy_of(data_dir).name.encode())
    begin(data_dir)
    assert (incarnation(data_dir), note.exists()) == ("second", False)


@pytest.mark.anyio
async def test_a_restore_in_the_moment_of_a_start_is_no_silent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path)
    monkeypatch.setattr(assembly, "begin_timeline", lambda plugin, data_dir, *rest: mark_restored(data_dir))
    with pytest.raises(RestoreUnfinished, match="was restored from a backup while the broker started"):
        async with Broker(tmp_path, port=0, storage="sqlite"):
            raise AssertionError("it started")
    monkeypatch.undo()
    async with Broker(tmp_path, port=0, storage="sqlite"):
        assert not is_restored(tmp_path)
