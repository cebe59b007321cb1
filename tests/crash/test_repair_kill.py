"""A repair is killed at each of its steps: the damaged store or the repaired one is there, never an empty one."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.killed_step import killed_at
from vibemq import plugins
from vibemq.errors import StorageDamaged
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.kvstore import keys
from vibemq.storage.lmdb.environment.env import open_writer
from vibemq.storage.lmdb.environment.tables import writing
from vibemq.storage.lmdb.layout import Layout

STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "shutil.rmtree")


def opened(folder: Path, provider: str) -> IStorageProvider:
    plugin = plugins.find("storage", provider)
    store: IStorageProvider = plugin.create(folder, plugin.settings())
    return store


def make(folder: Path, provider: str) -> None:
    """A store with three messages and a group that cannot be read."""
    store = opened(folder, provider)
    store.open()
    rows = Rows.of([pack_row(f"m{number}", b"1") for number in range(3)])
    queue = QueueCreated(1, "q", QueueOptions(), 1, "ab" * 16)
    store.append([queue, GroupCreated(1, 0, "", True, 1), MessagesAdded(1, 1, 1, rows)])
    store.sync()
    store.close()
    key = keys.group_key(1, 0)
    if provider == "sqlite":
        with closing(sqlite3.connect(folder / "vibemq.sqlite")) as connection, connection:
            connection.execute("UPDATE kv SET value = ? WHERE key = ?", (b"garbage", key))
        return
    layout = Layout(folder)
    with closing(open_writer(layout.store)) as env, writing(env, str(layout.data_file)) as kv:
        kv.put(key, b"garbage")


def content(folder: Path, provider: str) -> tuple[list[str], int]:
    """Names of the queues, and how many messages can be read."""
    store = opened(folder, provider)
    state = store.open()
    try:
        assert list(store.check()) == []
        found = sum(part.rows.count for part in store.read(1, 1, 3, 1 << 20))
        return [queue.name for queue in state.queues.values()], found
    finally:
        store.close()


def repair(folder: Path, provider: str) -> None:
    plugin = plugins.find("storage", provider)
    assert plugin.repair is not None
    plugin.repair(folder, plugin.settings())


def killed(step: int, folder: Path, provider: str) -> bool:
    """Whether there was such a step."""

    def work() -> int:
        repair(folder, provider)
        return 0

    return killed_at(step, STEPS, work)


@pytest.mark.parametrize(
    ("provider", "starts_between"),
    [
        ("lmdb", True),
        ("sqlite", False),
        pytest.param("lmdb", False, marks=pytest.mark.long),
        pytest.param("sqlite", True, marks=pytest.mark.long),
    ],
)
def test_a_kill_at_any_step_leaves_one_of_the_two(tmp_path: Path, provider: str, starts_between: bool) -> None:
    make(tmp_path / "damaged", provider)
    whole = (["q"], 3)
    step, outcomes = 1, set[str]()
    while True:
        data = tmp_path / str(step)
        shutil.copytree(tmp_path / "damaged", data)
        if not killed(step, data, provider):
            break
        if starts_between:
            try:
                assert content(data, provider) == whole, f"step {step}"
                outcomes.add("new")
            except StorageDamaged:
                outcomes.add("old")
        repair(data, provider)
        assert content(data, provider) == whole, f"step {step}"
        names = {path.name for path in data.iterdir()}
        assert any(".damaged-" in name for name in names), f"step {step}: the damaged store is gone"
        assert not [name for name in names if ".repair" in name], f"step {step}"
        shutil.rmtree(data)
        step += 1
    assert step > 4
    assert content(data, provider) == whole
    assert outcomes == ({"old", "new"} if starts_between else set())
