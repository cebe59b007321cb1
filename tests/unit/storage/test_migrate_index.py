"""The migration to version 9: old stores get their index of dead letters, in parts, whatever comes between them."""

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from vibemq.errors import StoreVersionError
from vibemq.model.records import DeadRemoved, Reason
from vibemq.plugins import find
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.dead import index as dead_index
from vibemq.storage.kvstore.dead.index import unpack_group
from vibemq.storage.kvstore.dead.index_audit import audit_index
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.kvstore.integrity import TalliedKV
from vibemq.storage.kvstore.store import load_state, write_dirty
from vibemq.storage.migrate import find_steps, migrate
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import apply

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(params=["sqlite", "lmdb"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def assert_indexed(data_dir: Path, provider: str, expected: dict[int, list[tuple[Any, ...]]]) -> None:
    """In two openings: what waits in the journal stands in the store at the second."""
    for _ in range(2):
        plugin = find("storage", provider)
        storage = plugin.create(data_dir, plugin.settings())
        storage.open()
        try:
            assert list(storage.check()) == []
        finally:
            storage.close()
    assert index_of(data_dir, provider) == expected


def index_of(data_dir: Path, provider: str) -> dict[int, list[tuple[Any, ...]]]:
    """Queue id -> what is stored of its groups: reason, count, first and last letter, sample."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    module = import_module(f"vibemq.storage.{provider}.migration")
    with module.open_store(data_dir) as store, store.transaction() as transaction:
        kv = store.kv(transaction)
        assert list(audit_index(kv)) == []
        for key, value in kv.scan(keys.DEAD_GROUP, keys.after(keys.DEAD_GROUP)):
            group, letters = keys.split_dead_group_key(key, kv.where), unpack_group(kv, key, value)
            about = (letters.count, letters.first_id, letters.last_id, letters.sample)
            found.setdefault(group.queue_id, []).append((Reason(group.reason).name, *about))
    return {queue_id: sorted(groups) for queue_id, groups in found.items()}


INDEXED = {
    2: [("REJECTED", 1, 1, 1, b"rejected")],
    9: [("EXPIRED", 1, 13, 13, b"too old"), ("REJECTED", 3, 11, 16, b"order 17 is unknown")],
    10: [("MAX_ATTEMPTS", 1, 15, 15, b"connection lost")],
}

BEFORE_JOURNAL = [("EXPIRED", 1, 13, 13, b"too old"), ("REJECTED", 3, 11, 14, b"order 17 is unknown")]


def test_a_kept_store_of_version_8_gets_its_index(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v8-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match=r"store version 8, .*`vibemq-admin migrate"):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)] == [9, 10]
    assert_indexed(data_dir, provider, INDEXED)


@pytest.mark.parametrize("letters", [1, 3])
def test_an_index_is_built_in_parts_and_goes_on_after_a_crash(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    monkeypatch.setattr(dead_index, "BUILD_LETTERS", letters)
    monkeypatch.setattr(dead_index, "WIPE_KEYS", 2)
    crash, finished = 1, False
    while not finished:
        data_dir = Path(shutil.copytree(FIXTURES / f"store-v8-{provider}", tmp_path / str(crash)))
        finished = build(data_dir, provider, crash)
        build(data_dir, provider, crash)
        assert [step.number for step in migrate(data_dir)] == [9, 10]
        assert index_of(data_dir, provider) == INDEXED | ({9: BEFORE_JOURNAL} if provider == "lmdb" else {})
        crash += 1
    assert crash > 5 / letters


def build(data_dir: Path, provider: str, parts: int) -> bool:
    """Build the index up to a crash after so many parts; return whether it came to its end."""
    [step] = find_steps(provider)[8:9]
    assert step.build is not None
    with import_module(f"vibemq.storage.{provider}.migration").open_store(data_dir) as store:
        for _ in range(parts):
            with store.transaction() as transaction:
                kv = TalliedKV(store.kv(transaction))
                more = step.build(kv)
                kv.save()
            if not more:
                return True
    return False


def test_an_older_broker_that_ran_between_two_parts_is_noticed(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_index, "BUILD_LETTERS", 3)
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v8-{provider}", tmp_path / "data"))
    assert not build(data_dir, provider, 2)
    # What version 8 does when letter 11 is purged: it knows no index.
    module = import_module(f"vibemq.storage.{provider}.migration")
    with module.open_store(data_dir) as store, store.transaction() as transaction:
        kv = TalliedKV(store.kv(transaction))
        state, dirty, dead = load_state(kv), Dirty(), StoredDead(kv, lambda _: False)
        apply(state, DeadRemoved([11]), dead, dirty)
        state.lsn += 1
        monkeypatch.setattr("vibemq.storage.kvstore.dead_letters.update_index", lambda *_: None)
        dead.flush()
        monkeypatch.undo()
        write_dirty(kv, state, dirty)
        kv.save()
    if provider == "lmdb":
        shutil.rmtree(data_dir / "journal")
        (data_dir / "journal-durable").unlink()
    migrate(data_dir)
    rest = [("EXPIRED", 1, 13, 13, b"too old"), ("REJECTED", 2, 12, 14, b"order 4711 is unknown")]
    if provider == "sqlite":
        rest = [("EXPIRED", 1, 13, 13, b"too old"), ("REJECTED", 2, 12, 16, b"order 4711 is unknown")]
    assert_indexed(data_dir, provider, {**INDEXED, 9: rest})
