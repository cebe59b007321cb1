"""Dead letters whose stored facts are damaged: they are named, stop nobody, and go when they are purged by id."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import vibemq
from tests.waiting import until
from vibemq.server.broker import Broker
from vibemq.storage.kvstore import keys
from vibemq.storage.lmdb.environment.env import open_writer
from vibemq.storage.lmdb.environment.tables import writing
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.sqlite.connection import DATABASE

pytestmark = pytest.mark.anyio

BAD = 3
Damage = Callable[[bytes], bytes]


def _in_its_error(value: bytes) -> bytes:
    assert b"broken" in value
    return value.replace(b"broken", b"br0ken")


def _in_its_sequence(value: bytes) -> bytes:
    """What is left of it does not say which message it points at."""
    assert b"[3,3," in value
    return value.replace(b"[3,3,", b"[3,\xcc,")


def _another_message(value: bytes) -> bytes:
    """It names a message that another letter points at."""
    assert b"[3,3," in value
    return value.replace(b"[3,3,", b"[3,4,")


DAMAGES: list[Damage] = [_in_its_error, _in_its_sequence, _another_message, lambda value: b"", lambda value: value[:2]]


def damage(data: Path, provider: str, how: Damage) -> None:
    """Of a store that nobody has open."""
    key = keys.dead_key(BAD)
    if provider == "sqlite":
        with closing(sqlite3.connect(data / DATABASE)) as connection, connection:
            (value,) = connection.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
            connection.execute("UPDATE kv SET value = ? WHERE key = ?", (how(value), key))
        return
    layout = Layout(data)
    with closing(open_writer(layout.store)) as env, writing(env, str(layout.data_file)) as kv:
        value = kv.get(key)
        assert value is not None
        kv.put(key, how(value))


async def bury(mq: vibemq.Client, broker: Broker, queue: str, count: int) -> None:
    await mq.create_queue(queue)
    await mq.publish_many(queue, [{"n": n} for n in range(count)])
    left = count
    while left:
        for message in await mq.fetch(queue, max=left, timeout=30):
            await message.reject("broken")
            left -= 1
    await until(lambda: (info := broker.queue_info(queue)) is not None and info.dead >= count)


async def listed(mq: vibemq.Client) -> tuple[list[int], list[int]]:
    page = await mq.admin("dlq.list", limit=100)
    return [letter["dead_id"] for letter in page["letters"]], [letter["dead_id"] for letter in page["damaged"]]


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.parametrize("how", DAMAGES)
async def test_a_letter_that_cannot_be_read_is_purged_by_its_id(tmp_path: Path, provider: str, how: Damage) -> None:
    data = tmp_path / "data"
    async with Broker(data, storage=provider) as broker, vibemq.connect(broker.url) as mq:
        await bury(mq, broker, "q", 5)
        await bury(mq, broker, "other", 2)
    damage(data, provider, how)
    async with Broker(data, storage=provider) as broker, vibemq.connect(broker.url) as mq:
        assert await listed(mq) == ([1, 2, 4, 5, 6, 7], [BAD])
        assert (await mq.admin("dlq.purge", ids=[BAD]))["count"] == 1
        assert (await mq.admin("dlq.purge", ids=[BAD]))["count"] == 0
        assert await listed(mq) == ([1, 2, 4, 5, 6, 7], [])
        await mq.publish("q", {"n": 9})
    for _ in range(2):
        async with Broker(data, storage=provider) as broker, vibemq.connect(broker.url) as mq:
            assert await listed(mq) == ([1, 2, 4, 5, 6, 7], [])
            assert (await mq.admin("dlq.show", dead_id=4))["error"] == "broken"
            assert len(await mq.admin("queue.peek", queue="q")) == 1


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
async def test_filters_never_take_a_letter_whose_facts_cannot_be_read(tmp_path: Path, provider: str) -> None:
    data = tmp_path / "data"
    async with Broker(data, storage=provider) as broker, vibemq.connect(broker.url) as mq:
        await bury(mq, broker, "q", 4)
        await bury(mq, broker, "other", 2)
    damage(data, provider, _in_its_error)
    async with Broker(data, storage=provider) as broker, vibemq.connect(broker.url) as mq:
        # The index knows in which queue and why it died, so these are not about it.
        for filters, count, named in (
            ({"queue": "other", "dry_run": True}, 2, []),
            ({"queue": "q", "dry_run": True}, 3, [BAD]),
            ({"reason": "expired"}, 0, []),
            ({"reason": "rejected", "dry_run": True}, 5, [BAD]),
            ({"newer_than_ms": 0}, 0, [BAD]),
            ({"queue": "other", "ids": [BAD]}, 0, []),
            ({"header": {"a": "b"}}, 0, [BAD]),
        ):
            answer = await mq.admin("dlq.purge", **filters)
            assert (answer["count"], [letter["dead_id"] for letter in answer["damaged"]]) == (count, named), filters
        assert (await mq.admin("dlq.purge", queue="q"))["count"] == 3
        assert await listed(mq) == ([5, 6], [BAD])
        assert (await mq.admin("dlq.purge"))["count"] == 3
        assert await listed(mq) == ([], [])
