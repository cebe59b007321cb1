"""Damage: refused or moved aside, never delivered, never a crash; `check` names it, `check --repair` saves the rest."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import (
    Book,
    broker_on,
    check,
    flip,
    place_of,
    running,
    serve,
    small_settings,
    zero,
)
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import VibeMQError
from vibemq.storage.sqlite.connection import take_over

pytestmark = pytest.mark.slow

MESSAGES = 3000
BATCH = 150
VICTIM = MESSAGES // 2 + 7
ONLY_JOURNAL = "[storage.settings]\ncheckpoint_ms = 600000\nsegment_bytes = 65536\n"
"""Segments so small that others follow the damaged one: where the journal just ends, nothing tells a cut."""


def marker(number: int) -> bytes:
    return b'{"n":%d,' % number


async def publish(broker: BrokerProcess) -> None:
    book = Book()
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        for _ in range(MESSAGES // BATCH):
            await book.publish(mq, "q", BATCH)
    assert len(book.confirmed) == MESSAGES


def drained(broker: BrokerProcess) -> tuple[Book, int]:
    """Run the broker and take everything there is; what was received, and the number of dead letters."""
    book = Book(confirmed=set(range(MESSAGES)))

    async def drain() -> int:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            await book.drain(mq, "q")
            info = await mq.queue_info("q")
            assert info is not None
            return info.dead

    with running(broker):
        dead = anyio.run(drain)
        assert broker.stop() == 0
    return book, dead


def damage_journal(data: Path, how: str) -> None:
    path, at = place_of(data / "journal", marker(VICTIM))
    if how == "flip":
        flip(path, at)
    elif how == "zero":
        zero(path, at - at % 4096, 4096)
    else:
        os.truncate(path, at)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], BrokerProcess]:
    """(kind, folder) -> a broker, not running, on a copy of a store of MESSAGES messages; each kind is made once.

    Kinds: lmdb and sqlite, ended properly, so that journal and log are folded into the store; journal, killed, with
    everything in it.
    """
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        with running(broker_of(kind, folder)) as broker:
            anyio.run(publish, broker)
            broker.kill() if kind == "journal" else broker.stop()
        return folder / "data"

    def copy(kind: str, folder: Path) -> BrokerProcess:
        if kind not in made:
            made[kind] = make(kind)
        shutil.copytree(made[kind], folder / "data")
        return broker_of(kind, folder)

    return copy


def broker_of(kind: str, folder: Path) -> BrokerProcess:
    if kind == "journal":
        return broker_on(folder / "data", folder, toml=ONLY_JOURNAL)
    return broker_on(folder / "data", folder, provider=kind, toml=small_settings(kind))


Template = Callable[[str, Path], BrokerProcess]


@pytest.mark.parametrize("how", ["flip", "zero", "truncate"])
def test_a_damaged_journal_is_refused_and_the_rest_saved(template: Template, tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    broker = template("journal", tmp_path)
    damage_journal(data, how)
    said = serve(data)
    assert said.code == 1
    assert said.error.startswith("error STORAGE_DAMAGED: ")
    for word in (str(data / "journal"), "offset", "vibemq-admin check --repair"):
        assert word in said.error
    if how == "flip":
        found = check(data)
        assert found.code == 1
        assert str(data / "journal") in found.out

    repaired = check(data, "--repair", "--yes")
    assert repaired.code == 0, repaired.out + repaired.err
    assert "not saved: journal record" in repaired.out
    assert "of queue q are lost" in repaired.out
    book, dead = drained(broker)
    assert dead == 0
    assert VICTIM in book.lost
    most = 2 if how != "truncate" else 4
    assert len(book.lost) <= most * BATCH, "the batches whose bytes are damaged are lost and nothing else"


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.parametrize("repair", [False, True], ids=["as-it-is", "repaired"])
@pytest.mark.long_where(provider="lmdb", repair=False)
@pytest.mark.long_where(provider="sqlite", repair=True)
def test_a_damaged_value_is_moved_aside(template: Template, tmp_path: Path, provider: str, repair: bool) -> None:
    data = tmp_path / "data"
    broker = template(provider, tmp_path)
    folder = data / "store" if provider == "lmdb" else data
    flip(*place_of(folder, marker(VICTIM)))
    if repair:
        repaired = check(data, "--repair", "--yes")
        assert repaired.code == 0, repaired.out + repaired.err
        assert "of queue q are lost" in repaired.out
    else:
        found = check(data)
        assert found.code == 1
        assert "queue q" in found.out
        assert str(folder) in found.out
    book, dead = drained(broker)
    assert VICTIM in book.lost
    assert len(book.lost) < MESSAGES, "its neighbours in other blocks are sound"
    assert dead == (0 if repair else len(book.lost)), "what cannot be read is a dead letter, until it is repaired away"


@pytest.mark.parametrize("how", ["zero a page", "zero the header", "truncate", "empty"])
def test_a_damaged_lmdb_file_never_kills_the_broker(template: Template, tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    broker = template("lmdb", tmp_path)
    file = data / "store" / "data.mdb"
    if how == "zero a page":
        _, at = place_of(data / "store", marker(VICTIM))
        zero(file, at - at % 4096, 4096)
        found = check(data)
        assert found.code == 1, found
        assert "data.mdb" in found.out
    else:
        if how == "zero the header":
            zero(file, 0, 8192)
        else:
            os.truncate(file, file.stat().st_size // 2 & ~4095 if how == "truncate" else 0)
        said = serve(data)
        assert said.code == 1, said
        assert said.error.startswith("error STORAGE_DAMAGED: ")
        assert "data.mdb" in said.error
    repaired = check(data, "--repair", "--yes")
    assert repaired.code == 0, repaired.out + repaired.err
    assert "not saved: " in repaired.out
    book, dead = drained(broker)
    assert book.received <= set(range(MESSAGES))
    assert dead == 0


def test_a_damaged_sqlite_log_is_refused_named_and_repaired(tmp_path: Path) -> None:
    """SQLite takes the damage for the end of its log and says nothing."""
    data_dir, book = tmp_path / "data", Book()
    broker = broker_on(data_dir, tmp_path, provider="sqlite")

    async def publish_and_kill() -> None:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            for _ in range(40):
                await book.publish(mq, "q", 40)
            broker.kill()

    async def drain() -> None:
        async with vibemq.connect(broker.url) as mq:
            await book.drain(mq, "q")

    with running(broker):
        anyio.run(publish_and_kill)
    log = data_dir / "vibemq.sqlite-wal"
    for at in range(log.stat().st_size // 3, log.stat().st_size // 3 + 16):
        flip(log, at)
    refused = serve(data_dir, "--storage", "sqlite")
    assert refused.code == 1
    assert "STORAGE_DAMAGED" in refused.error
    assert f"{log} at offset" in refused.error
    found = check(data_dir)
    assert found.code != 0
    assert "batches cannot be read" in found.out + found.err
    repaired = check(data_dir, "--repair", "--yes")
    assert "log" in repaired.out + repaired.err
    with running(broker):
        anyio.run(drain)
    assert len(book.lost) <= 80, f"{len(book.lost)} of {len(book.confirmed)} lost"


def test_a_fenced_broker_stops_and_confirms_nothing_more(tmp_path: Path) -> None:
    """The store was opened by another broker, on a machine whose locks this one does not see."""
    data_dir, book = tmp_path / "data", Book()
    broker = broker_on(data_dir, tmp_path, provider="sqlite")

    async def publish_around_a_takeover() -> None:
        async with vibemq.connect(broker.url, reconnect=ReconnectPolicy(max_attempts=0)) as mq:
            await mq.create_queue("q")
            await book.publish(mq, "q", 10)
            connection = sqlite3.connect(data_dir / "vibemq.sqlite", isolation_level=None)
            take_over(connection)
            connection.close()
            with pytest.raises(VibeMQError):
                await mq.publish("q", {"n": 10})

    async def drain() -> None:
        async with vibemq.connect(broker.url) as mq:
            await book.drain(mq, "q")

    with running(broker):
        anyio.run(publish_around_a_takeover)
        assert broker.wait() == 71
        assert "the store has another owner, the broker stops" in broker.log_text()
    with running(broker):
        anyio.run(drain)
    assert book.received == set(range(10))
