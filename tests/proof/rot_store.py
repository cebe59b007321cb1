"""A small store with everything in it, and what it must answer: the ground that rot is sown on.

Part of it is in the checkpoint, part only in the journal, the last batches flushed one by one as strong ones are.
"""

import shutil
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random

from tests.proof.contents import abandon
from vibemq.errors import StorageDamaged
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
from vibemq.model.stored import StoredState
from vibemq.plugins import find
from vibemq.storage.interface import IStorageProvider, Problem
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.testing.storage_workload import STRONG, Model, Workload, rows

READ_BYTES = 1 << 30
BATCHES = 30
LMDB = LmdbSettings(segment_bytes=64 << 10, ballast_bytes=0, buffer_bytes=0)
SQLITE = SqliteSettings(ballast_bytes=0)


@dataclass(slots=True)
class Sown:
    """A data directory as a crash left it, and its model."""

    data_dir: Path
    model: Model

    def copy(self, target: Path) -> Path:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.data_dir, target, ignore=shutil.ignore_patterns("lock*", "owner.json", "*.lock", "*-shm"))
        return target


def sow(folder: Path, provider: str, seed: int, *, idle: bool = False, live: bool = False) -> Sown:
    """Make a store in the folder, which is new.

    Args:
        idle: the crash comes when nothing has happened for a while.
        live: what `kill -9` leaves; SQLite's log is part of it.
    """
    folder.mkdir(parents=True)
    store = new_store(folder, provider)
    store.open()
    model, work = Model(), Workload(Random(seed), transient=False)
    for batch in [_queue_with_letters(), *(None for _ in range(BATCHES))]:
        _append(store, model, batch if batch is not None else work.batch(model))
    if isinstance(store, LmdbProvider):
        store.checkpoint()
    for _ in range(BATCHES // 2):
        _append(store, model, work.batch(model))
        store.sync()
    if idle:
        store.maintain()
    sown = Sown(folder, model)
    if live:
        sown = Sown(sown.copy(folder.with_name(f"{folder.name}-live")), model)
    abandon(store)
    return sown


find_storage = cache(partial(find, "storage"))
"""Looking through all installed packages takes longer than opening a store."""


def new_store(folder: Path, provider: str) -> IStorageProvider:
    store: IStorageProvider = find_storage(provider).create(folder, LMDB if provider == "lmdb" else SQLITE)
    return store


def _queue_with_letters() -> list[Record]:
    letters = [DeadFacts(number, number + 3, Reason.REJECTED, "bad", 1, 1, 5, 6) for number in (1, 2)]
    return [
        QueueCreated(1, "letters", STRONG, 5, "00000001"),
        GroupCreated(1, 0, "", True, 1),
        MessagesAdded(1, 1, 5, rows(1, 12, 60)),
        HandedOut(1, 0, [(1, 9)]),
        Settled(1, 0, [(1, 2)]),
        DeadLettered(1, 0, letters),
    ]


def _append(store: IStorageProvider, model: Model, batch: list[Record]) -> None:
    model.apply(batch)
    store.append(batch)


# -- what it answers ----------------------------------------------------------------------------------------------

Rows = dict[tuple[int, int], bytes]


@dataclass(slots=True)
class Served:
    """What a store with some rot in it answered. Everything that raised is in `errors`."""

    rows: Rows
    dead: dict[int, bytes]
    state: StoredState | None
    errors: list[str]
    problems: list[Problem]


def serve(store: IStorageProvider) -> Served:
    """Open the store and ask it for everything; `StorageDamaged` is an answer, anything else is raised."""
    served = Served({}, {}, None, [], [])
    try:
        served.state = store.open()
    except StorageDamaged as error:
        served.errors.append(str(error))
        return served
    try:
        for queue in served.state.queues.values():
            _serve_queue(store, queue.queue_id, queue.next_sequence, served)
        _serve_dead(store, served)
        served.problems = list(store.check())
    finally:
        abandon(store)
    return served


def _serve_queue(store: IStorageProvider, queue_id: int, end: int, served: Served) -> None:
    """Read as dispatch does, a few at a time, so that one damaged block hides no other."""
    for first in range(1, end, 16):
        try:
            for part in store.read(queue_id, first, min(first + 15, end - 1), READ_BYTES):
                for offset, row in enumerate(part.rows):
                    served.rows[queue_id, part.first_sequence + offset] = row
        except StorageDamaged as error:
            served.errors.append(str(error))


def _serve_dead(store: IStorageProvider, served: Served) -> None:
    try:
        for letter in store.dead_letters(limit=1 << 20):
            served.dead[letter.facts.dead_id] = letter.row
    except StorageDamaged as error:
        served.errors.append(str(error))


def wanted(model: Model) -> Rows:
    """Every row that must be readable."""
    return {(q, s): row for q in model.state.queues for s, (row, _) in model.alive(q).items()}


def wrong_rows(served: Served, model: Model) -> list[tuple[int, int]]:
    """Messages that were served with bytes that nobody published under that number."""
    return [message for message, row in served.rows.items() if model.rows.get(message, (None,))[0] != row]
