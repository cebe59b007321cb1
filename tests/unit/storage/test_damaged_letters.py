"""Removals of dead letters whose facts cannot be read: no append, replay or checkpoint fails over one."""

from contextlib import closing
from pathlib import Path

import pytest

from vibemq.errors import StorageFailed
from vibemq.model.records import ALL_GROUPS, DeadLettered, DeadRemoved
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.kvstore import keys
from vibemq.storage.lmdb.environment.env import open_writer
from vibemq.storage.lmdb.environment.tables import writing
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.sqlite.connection import HINT, SqliteKV, connect, transaction
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.testing.storage_conformance import added, letter, queue


def opened(data: Path, provider: str) -> IStorageProvider:
    if provider == "sqlite":
        return SqliteStorage(data, SqliteSettings())
    return LmdbProvider(data, LmdbSettings(checkpoint_ms=600_000))


def filled(data: Path, provider: str) -> None:
    storage = opened(data, provider)
    storage.open()
    storage.append([*queue(), added(1, 3), DeadLettered(1, ALL_GROUPS, [letter(i, i) for i in (1, 2, 3)])])
    storage.close()


def damage(data: Path, provider: str, dead_id: int) -> None:
    key = keys.dead_key(dead_id)
    if provider == "sqlite":
        path = data / "vibemq.sqlite"
        with closing(connect(path, cache_bytes=1 << 20)) as connection, transaction(connection):
            table = SqliteKV(connection, str(path))
            table.put(key, (table.get(key) or b"")[:-1] + b"\xcc")
        return
    layout = Layout(data)
    with closing(open_writer(layout.store)) as env, writing(env, str(layout.data_file)) as kv:
        kv.put(key, (kv.get(key) or b"")[:-1] + b"\xcc")


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
def test_a_removal_of_a_damaged_letter_is_replayed_and_checkpointed(tmp_path: Path, provider: str) -> None:
    filled(tmp_path, provider)
    damage(tmp_path, provider, 2)
    storage = opened(tmp_path, provider)
    storage.open()
    storage.append([DeadRemoved([2])])
    storage.append([DeadRemoved([2, 3])])
    storage.sync()
    if isinstance(storage, LmdbProvider):
        storage.abandon()
        storage = opened(tmp_path, provider)
        # The journal is read again, over a store that still has the letter.
        state = storage.open()
        assert (state.dead_count, state.queues[1].dead.runs()) == (1, [(1, 1)])
    storage.close()
    storage = opened(tmp_path, provider)
    state = storage.open()
    assert (state.dead_count, state.queues[1].dead.runs()) == (1, [(1, 1)])
    assert [found.facts.dead_id for found in storage.dead_letters()] == [1]
    assert not any("kept for" in problem.what for problem in storage.check())
    storage.close()


def test_a_damaged_page_of_letters_is_to_be_repaired_and_a_restart_is_not_advised(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path, SqliteSettings())
    storage.open()
    letters = [letter(i, i) for i in range(1, 3_001)]
    storage.append([*queue(), added(1, 3_000), DeadLettered(1, ALL_GROUPS, letters)])
    storage.close()
    path = tmp_path / "vibemq.sqlite"
    content = bytearray(path.read_bytes())
    page_bytes = int.from_bytes(content[16:18], "big")
    place = content.index(keys.dead_key(1_500)) // page_bytes * page_bytes
    content[place] = 0xEE
    path.write_bytes(content)
    storage = SqliteStorage(tmp_path, SqliteSettings())
    storage.open()
    with pytest.raises(StorageFailed) as refusal:
        storage.append([DeadRemoved([1_500])])
    storage.close()
    assert str(refusal.value).endswith(f"; {HINT}")
    assert str(refusal.value).count(HINT) == 1
    assert "restart" not in str(refusal.value)
