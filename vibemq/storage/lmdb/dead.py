"""The broker's view of dead letters: those in LMDB, changed by what the journal has and LMDB has not yet."""

from collections import deque
from collections.abc import Callable, Iterator

import lmdb

from vibemq.model.stored import DamagedLetter
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.lmdb.environment.tables import reading
from vibemq.storage.state.dead_letter_facts import DeadEntry


class SnapshotKV:
    """A read-only KV that takes a fresh, short snapshot for every call."""

    def __init__(self, env: lmdb.Environment, where: str) -> None:
        self.env = env
        self.where = where

    def get(self, key: bytes) -> bytes | None:
        with reading(self.env, self.where) as kv:
            return kv.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """In pages, so that no snapshot outlives a call to `next`."""
        while True:
            page: list[tuple[bytes, bytes]] = []
            with reading(self.env, self.where) as kv:
                for pair in kv.scan(start, stop):
                    page.append(pair)
                    if len(page) == 256:
                        break
            yield from page
            if len(page) < 256:
                return
            start = page[-1][0] + b"\0"

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        with reading(self.env, self.where) as kv:
            return kv.floor(start, key)

    def put(self, key: bytes, value: bytes) -> None:
        raise NotImplementedError("the checkpointer alone writes the store")

    def delete(self, key: bytes) -> None:
        raise NotImplementedError("the checkpointer alone writes the store")

    def delete_range(self, start: bytes, stop: bytes) -> None:
        raise NotImplementedError("the checkpointer alone writes the store")


class JournaledDead(StoredDead):
    """Changes wait in memory until the checkpointer has applied their lsn. Set `lsn` before each batch.

    For a moment after a checkpoint a letter is both here and in LMDB; whatever is here wins.
    """

    def __init__(self, kv: SnapshotKV, is_volatile: Callable[[int], bool]) -> None:
        super().__init__(kv, is_volatile)
        self.lsn = 0
        self._changes: deque[tuple[int, int]] = deque()

    def add(self, entry: DeadEntry) -> None:
        super().add(entry)
        self._changes.append((self.lsn, entry.facts.dead_id))

    def remove(self, dead_id: int) -> DeadEntry | None:
        entry = super().remove(dead_id)
        if entry is not None and not self._is_volatile(entry.queue_id):
            self._removed[dead_id] = entry
            self._changes.append((self.lsn, dead_id))
        return entry

    def after(self, dead_id: int, damaged: list[DamagedLetter] | None = None) -> Iterator[DeadEntry]:
        last = 0
        for entry in super().after(dead_id, damaged):
            if entry.facts.dead_id != last:
                yield entry
            last = entry.facts.dead_id

    def applied(self, lsn: int) -> None:
        """The store has every change up to `lsn`."""
        later = {dead_id for at, dead_id in self._changes if at > lsn} if self._changes else set()
        while self._changes and self._changes[0][0] <= lsn:
            dead_id = self._changes.popleft()[1]
            if dead_id not in later:
                self._added.remove(dead_id)
                self._removed.pop(dead_id, None)
