"""Every storage provider in the tree against the one suite."""

import sqlite3
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.checkpointers import begin_to_fork, forked_checkpointers
from vibemq.errors import ConfigInvalid
from vibemq.plugins import find
from vibemq.storage.interface import StoreLocation
from vibemq.storage.kvstore import keys
from vibemq.storage.sqlite.connection import take_over
from vibemq.testing.letter_conformance import CHECKS as LETTER_CHECKS
from vibemq.testing.storage_conformance import CHECKS, Check, Subject


def damage_sqlite(data_dir: Path) -> None:
    connection = sqlite3.connect(data_dir / "vibemq.sqlite", isolation_level=None)
    for key, value in connection.execute(
        "SELECT key, value FROM kv WHERE key >= ? AND key < ?", (keys.BLOCK, keys.after(keys.BLOCK))
    ).fetchall():
        connection.execute("UPDATE kv SET value = ? WHERE key = ?", (flipped(value), key))
    connection.close()


def damage_lmdb(data_dir: Path) -> None:
    import lmdb

    with (
        lmdb.open(str(data_dir / "store"), map_size=1 << 30, lib_version=0) as env,
        env.begin(write=True) as transaction,
    ):
        with transaction.cursor() as cursor:
            cursor.set_range(keys.BLOCK)
            found = [(bytes(key), bytes(value)) for key, value in cursor if key[:1] == keys.BLOCK]
        for key, value in found:
            transaction.put(key, flipped(value))


def flipped(value: bytes) -> bytes:
    return value[:-10] + bytes([value[-10] ^ 1]) + value[-9:]


def take_over_sqlite(data_dir: Path) -> None:
    """As a broker on another machine, whose lock on the directory nobody here sees."""
    connection = sqlite3.connect(data_dir / "vibemq.sqlite", isolation_level=None)
    take_over(connection)
    connection.close()


TAKE_OVER = {"sqlite": take_over_sqlite}
DAMAGE = {"sqlite": damage_sqlite, "lmdb": damage_lmdb}
PROVIDERS = [name for name in ("memory", "sqlite", "lmdb") if find_spec(f"vibemq.storage.{name}.provider")]


@pytest.fixture(scope="module", autouse=True)
def checkpointers() -> Iterator[None]:
    begin_to_fork()
    with forked_checkpointers():
        yield


@pytest.fixture(params=PROVIDERS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    name = request.param
    plugin = find("storage", name)
    settings = plugin.settings()
    repair = plugin.repair
    return Subject(
        name=name,
        data_dir=tmp_path / "data",
        make=lambda data_dir: plugin.create(data_dir, settings),
        durable=plugin.durable,
        damage=DAMAGE.get(name),
        take_over=TAKE_OVER.get(name),
        connect=(lambda location: plugin.connect(location, settings)) if plugin.local else None,
        repair=None if repair is None else lambda data_dir: repair(data_dir, settings),
    )


@pytest.mark.parametrize("name", ["lmdb", "sqlite"])
def test_a_local_store_is_in_no_service(name: str) -> None:
    plugin = find("storage", name)
    with pytest.raises(ConfigInvalid, match="set data_dir") as refused:
        plugin.connect(StoreLocation.of("postgresql://me:secret@db:5432/mq"), plugin.settings())
    assert "postgresql://me@db:5432/mq" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_location_is_a_folder_or_an_address() -> None:
    assert StoreLocation.of("data") == StoreLocation(Path("data"))
    assert StoreLocation.of(Path("a://b")) == StoreLocation(Path("a://b"))
    assert StoreLocation.of("postgresql://db/mq").url == "postgresql://db/mq"
    with pytest.raises(ConfigInvalid):
        StoreLocation.of(" ")


@pytest.mark.parametrize("check", [*CHECKS, *LETTER_CHECKS], ids=lambda check: check.__name__.removeprefix("check_"))
def test_provider(subject: Subject, check: Check) -> None:
    check(subject)
