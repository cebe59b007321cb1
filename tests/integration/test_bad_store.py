"""Damage: refused or moved aside, never delivered, never a crash; `check` names it, `check --repair` saves the rest."""

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
    until,
    zero,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MESSAGES = 3000
BATCH = 150
VICTIM = MESSAGES // 2 + 7
ONLY_JOURNAL = "[storage.settings]\ncheckpoint_ms = 600000\nsegment_bytes = 65536\n"
"""Segments so small that others follow the damaged one: where the journal just ends, nothing tells a cut."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def marker(number: int) -> bytes:
    return b'{"n":%d,' % number


async def publish(broker: BrokerProcess) -> Book:
    book = Book()
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        for _ in range(MESSAGES // BATCH):
            await book.publish(mq, "q", BATCH)
    assert len(book.confirmed) == MESSAGES
    return book


async def drained(broker: BrokerProcess, book: Book) -> int:
    """Take everything there is; the number of dead letters."""
    with running(broker):
        async with vibemq.connect(broker.url) as mq:
            await until(lambda: gone(mq, book), anyio.sleep)
            info = await mq.queue_info("q")
            assert info is not None
        assert broker.stop() == 0
    return info.dead


async def gone(mq: vibemq.Client, book: Book) -> bool:
    await book.drain(mq, "q", patience=0.3)
    info = await mq.queue_info("q")
    return info is not None and info.ready == info.in_flight == 0


def damage_journal(data: Path, how: str) -> None:
    path, at = place_of(data / "journal", marker(VICTIM))
    if how == "flip":
        flip(path, at)
    elif how == "zero":
        zero(path, at - at % 4096, 4096)
    else:
        with path.open("r+b") as file:
            file.truncate(at)


@pytest.mark.parametrize("how", ["flip", "zero", "truncate"])
async def test_a_damaged_journal_is_refused_and_the_rest_saved(tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    broker = broker_on(data, tmp_path, toml=ONLY_JOURNAL)
    with running(broker):
        book = await publish(broker)
        broker.kill()
    damage_journal(data, how)
    said = serve(data)
    assert said.code == 1
    assert said.error.startswith("error STORAGE_DAMAGED: ")
    for word in (str(data / "journal"), "offset", "vibemq-admin check --repair"):
        assert word in said.error

    found = check(data)
    assert found.code == 1
    assert str(data / "journal") in found.out

    repaired = check(data, "--repair", "--yes")
    assert repaired.code == 0, repaired.out + repaired.err
    assert "not saved: journal record" in repaired.out
    assert check(data).code == 0
    assert await drained(broker, book) == 0
    assert VICTIM in book.lost
    most = 2 if how != "truncate" else 4
    assert len(book.lost) <= most * BATCH, "the batches whose bytes are damaged are lost and nothing else"


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.parametrize("repair", [False, True], ids=["as-it-is", "repaired"])
async def test_a_damaged_value_is_moved_aside(tmp_path: Path, provider: str, repair: bool) -> None:
    data = tmp_path / "data"
    broker = broker_on(data, tmp_path, provider=provider)
    with running(broker):
        book = await publish(broker)
        # A proper end folds journal and log into the store.
        assert broker.stop() == 0
    folder = data / "store" if provider == "lmdb" else data
    flip(*place_of(folder, marker(VICTIM)))

    found = check(data)
    assert found.code == 1
    assert "queue q" in found.out
    assert str(folder) in found.out
    if repair:
        repaired = check(data, "--repair", "--yes")
        assert repaired.code == 0, repaired.out + repaired.err
        assert "not saved: " in repaired.out
        assert check(data).code == 0
    dead = await drained(broker, book)
    assert VICTIM in book.lost
    assert len(book.lost) < MESSAGES, "its neighbours in other blocks are sound"
    if not repair:
        assert dead == len(book.lost), "what cannot be read is a dead letter"


@pytest.mark.parametrize("how", ["zero a page", "zero the header", "truncate", "empty"])
async def test_a_damaged_lmdb_file_never_kills_the_broker(tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    broker = broker_on(data, tmp_path, toml=small_settings("lmdb"))
    with running(broker):
        book = await publish(broker)
        assert broker.stop() == 0
    file = data / "store" / "data.mdb"
    size = file.stat().st_size
    if how == "zero a page":
        _, at = place_of(data / "store", marker(VICTIM))
        zero(file, at - at % 4096, 4096)
    elif how == "zero the header":
        zero(file, 0, 8192)
    else:
        with file.open("r+b") as open_file:
            open_file.truncate(size // 2 & ~4095 if how == "truncate" else 0)

    found = check(data)
    assert found.code == 1, found
    assert "data.mdb" in found.out + found.err
    said = serve(data) if how != "zero a page" else None
    if said is not None:
        assert said.code == 1, said
        assert said.error.startswith("error STORAGE_DAMAGED: ")
        assert "data.mdb" in said.error
    repaired = check(data, "--repair", "--yes")
    assert repaired.code == 0, repaired.out + repaired.err
    with running(broker):
        async with vibemq.connect(broker.url) as mq:
            await mq.publish("q", {"n": MESSAGES})
            await until(lambda: gone(mq, book), anyio.sleep)
        assert broker.stop() == 0
    assert book.received <= book.confirmed | {MESSAGES}
    assert MESSAGES in book.received
