"""Everything a store has, read through its provider or taken out of a running broker."""

from functools import cache
from pathlib import Path
from typing import Any

import anyio
import orjson

import vibemq
from tests.proof.account import READ_BY_RANGE, Contents, Found, Place, body_of
from vibemq.model.rows import RowView
from vibemq.model.stored import StoredQueue, StoredState
from vibemq.operations.messages import replay_count
from vibemq.plugins import find
from vibemq.storage.interface import IStorageProvider, StoragePlugin
from vibemq.storage.state.liveness import waiting_runs

READ_BYTES = 1 << 20
DRAIN_TIMEOUT_S = 60
LETTERS = 500


@cache
def plugin_of(provider: str) -> StoragePlugin:
    """Looked for once: it takes longer than to open a small store. Call it before forking children that do that."""
    plugin: StoragePlugin = find("storage", provider)
    return plugin


def open_store(data_dir: Path, provider: str, **settings: Any) -> tuple[IStorageProvider, StoredState]:
    """The provider as a broker makes it; the caller abandons or closes it."""
    plugin = plugin_of(provider)
    store = plugin.create(data_dir, plugin.settings(**settings))
    return store, store.open()


def abandon(store: IStorageProvider) -> None:
    """Let go without another write, as a crash does, where the provider can; SQLite has nothing left to write."""
    getattr(store, "abandon", store.close)()


def stored(store: IStorageProvider, state: StoredState) -> Contents:
    """What the open store has. Raises StorageDamaged."""
    contents = Contents()
    for queue in state.queues.values():
        if queue.deleted:
            continue
        contents.queues.add(queue.name)
        if queue.name != READ_BY_RANGE:
            _read_queue(store, queue, contents)
    contents.committed = _committed(state)
    after = 0
    while letters := store.dead_letters(after=after, limit=LETTERS):
        for letter in letters:
            why = f"{letter.facts.reason}: {letter.facts.error}"
            _add(contents, letter.queue, "dead", letter.facts.sequence, letter.row, why)
        after = letters[-1].facts.dead_id
    return contents


def _committed(state: StoredState) -> int:
    """Of the one reader by range; 0 when it is not there."""
    queues = [queue for queue in state.queues.values() if queue.name == READ_BY_RANGE and not queue.deleted]
    cursors = [group.cursor for queue in queues for group in queue.groups.values()]
    return max((cursor.committed for cursor in cursors if cursor is not None), default=0)


def _read_queue(store: IStorageProvider, queue: StoredQueue, contents: Contents) -> None:
    for first, last in waiting_runs(queue, 1, queue.next_sequence - 1):
        while first <= last:
            parts = store.read(queue.queue_id, first, last, READ_BYTES)
            if not parts:
                # The state promises them; the verdict says whether anybody was told so.
                break
            for part in parts:
                for index, row in enumerate(part.rows):
                    _add(contents, queue.name, "queue", part.first_sequence + index, row)
            first = parts[-1].first_sequence + parts[-1].rows.count


def _add(contents: Contents, queue: str, where: Any, sequence: int, row: bytes, why: str = "") -> None:
    view = RowView(row)
    intact = _is_intact(view.message_id, view.payload)
    place = Place(where, replay_count(view.headers))
    contents.add(view.message_id, Found(queue, place, sequence, intact, why))


def _is_intact(message_id: str, payload: bytes) -> bool:
    try:
        return bool(orjson.loads(payload) == body_of(message_id))
    except ValueError:
        return False


async def drained(url: str) -> Contents:
    """Everything a running broker hands out, taken from it, and its dead letters, left there."""
    contents = Contents()
    async with vibemq.connect(url) as mq:
        await _list_dead(mq, contents)
        with anyio.fail_after(DRAIN_TIMEOUT_S):
            for info in await mq.list_queues():
                contents.queues.add(info.name)
                if info.name != READ_BY_RANGE:
                    await _drain_queue(mq, info.name, contents)
    return contents


async def _drain_queue(mq: vibemq.Client, name: str, contents: Contents) -> None:
    while True:
        info = await mq.queue_info(name)
        assert info is not None
        if info.ready == info.in_flight == info.delayed == 0:
            return
        for message in await mq.fetch(name, max=1000, timeout=0.2):
            intact = _is_intact(message.id, message.payload)
            place = Place("queue", replay_count(message.headers))
            contents.add(message.id, Found(name, place, message.sequence, intact))
            message.ack()
        await mq.ping()


async def _list_dead(mq: vibemq.Client, contents: Contents) -> None:
    after: int | None = 0
    while after is not None:
        answer = await mq.admin("dlq.list", after=after, limit=LETTERS)
        for letter in answer["letters"]:
            shown = await mq.admin("dlq.show", dead_id=letter["dead_id"])
            place = Place("dead", letter["replay_count"])
            intact = _is_intact(letter["id"], shown["payload"].encode())
            contents.add(letter["id"], Found(letter["queue"], place, letter["sequence"], intact))
        after = answer["next"]
