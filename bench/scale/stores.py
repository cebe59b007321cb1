"""Stores with very many of one thing, filled through a provider's own appends, checkpointed and closed."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vibemq.engine.queue.queue import WAITING_NAME
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import QueueOptions
from vibemq.model.records import (
    DeadFacts,
    DeadLettered,
    GroupCreated,
    HandedOut,
    MessagesAdded,
    QueueCreated,
    Reason,
    Record,
    Settled,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.settings import SqliteSettings

AT_ONCE = 5_000
CHECKPOINT_BYTES = 128 << 20
HOUR_MS = 3_600_000

Batches = Iterator[Sequence[Record]]
Fill = Callable[[int], Batches]


def build(folder: Path, provider: str, fill: Fill, count: int) -> None:
    """A store in an empty folder; everything is in the database, as after a clean stop."""
    storage: IStorageProvider = (
        LmdbProvider(folder, LmdbSettings()) if provider == "lmdb" else SqliteStorage(folder, SqliteSettings())
    )
    storage.open()
    waiting = 0
    for records in fill(count):
        storage.append(records)
        waiting += sum(record.rows.size for record in records if isinstance(record, MessagesAdded))
        if waiting > CHECKPOINT_BYTES:
            _settle(storage)
            waiting = 0
    _settle(storage)
    storage.close()


def _settle(storage: IStorageProvider) -> None:
    storage.sync()
    if isinstance(storage, LmdbProvider):
        storage.checkpoint()
    storage.maintain()


def messages(count: int) -> Batches:
    """Waiting in one queue, 100 bytes each."""
    now = time.time_ns() // 1_000_000
    yield _queue(1, "q", now)
    rows = Rows.of([pack_row("m", b"x" * 100)] * AT_ONCE)
    for first in range(1, count + 1, AT_ONCE):
        yield [MessagesAdded(1, first, now - HOUR_MS + first // 100_000, rows)]


def delayed(count: int) -> Batches:
    """Waiting for instants within an hour, beginning an hour from now, in no order."""
    now = time.time_ns() // 1_000_000
    yield _queue(1, "q", now)
    rows = Rows.of([pack_row("m", b"x" * 100)] * AT_ONCE)
    for first in range(1, count + 1, AT_ONCE):
        extras = {
            index: MessageExtra(deliver_at=now + HOUR_MS + (first + index) * 7_919 % HOUR_MS)
            for index in range(AT_ONCE)
        }
        yield [MessagesAdded(1, first, now - HOUR_MS + first // 100_000, rows, extras)]


def dead_letters(count: int) -> Batches:
    """Of one queue, all rejected."""
    now = time.time_ns() // 1_000_000
    yield _queue(1, "q", now)
    for first in range(1, count + 1, AT_ONCE):
        at = now - HOUR_MS + first // 1_000
        ids = range(first, first + AT_ONCE)
        rows = Rows.of([pack_row(f"m{number}", b'{"n": 1}', [("tenant", "t1")]) for number in ids])
        letters = [DeadFacts(number, number, Reason.REJECTED, "no such article", 1, 1, at, at) for number in ids]
        yield [
            MessagesAdded(1, first, at, rows),
            HandedOut(1, 1, [(first, ids[-1])]),
            DeadLettered(1, 1, letters),
        ]


def used_queues(count: int) -> Batches:
    """Empty again: one message of each was published, handed out and settled."""
    now = time.time_ns() // 1_000_000
    rows = Rows.of([pack_row("m", b"x" * 100)])
    for records in queues(count):
        yield records
        created = [record for record in records if isinstance(record, QueueCreated)]
        yield [
            record
            for queue in created
            for record in (
                MessagesAdded(queue.queue_id, 1, now - HOUR_MS, rows),
                HandedOut(queue.queue_id, 1, [(1, 1)]),
                Settled(queue.queue_id, 1, [(1, 1)]),
            )
        ]


def queues(count: int) -> Batches:
    """Empty ones."""
    now = time.time_ns() // 1_000_000
    for first in range(1, count + 1, 1_000):
        yield [record for number in range(first, first + 1_000) for record in _queue(number, f"q{number}", now)]


def _queue(queue_id: int, name: str, now: int) -> list[Record]:
    created = QueueCreated(queue_id, name, QueueOptions(), now - 2 * HOUR_MS, f"{queue_id:032x}")
    # A group by another name would have the broker give each queue a second one as it starts.
    return [created, GroupCreated(queue_id, 1, WAITING_NAME, True, 1)]
