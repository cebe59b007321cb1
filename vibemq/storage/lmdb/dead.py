"""The broker's view of dead letters: those in LMDB, changed by what the journal has and LMDB has not yet."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import lmdb

from vibemq.model.stored import DamagedLetter
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.lmdb.environment.tables import LmdbKV, reading
from vibemq.storage.state.dead_letter_facts import DeadEntry


class SnapshotKV:
    """A read-only KV that takes a fresh, short snapshot for every call, or one for all calls inside `one_snapshot`."""

    def __init__(self, env: lmdb.Environment, where: str) -> None:
        self.env = env
        self.where = where
        self._taken: LmdbKV | None = None

    @contextmanager
    def one_snapshot(self) -> Iterator[None]:
        with reading(self.env, self.where) as kv:
            self._taken = kv
            try:
                yield
            finally:
                self._taken = None

    def _reading(self) -> AbstractContextManager[LmdbKV]:
        return reading(self.env, self.where) if self._taken is None else nullcontext(self._taken)

    def get(self, key: bytes) -> bytes | None:
        with self._reading() as kv:
            return kv.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """In pages, so that no snapshot outlives a call to `next`."""
        while True:
            page: list[tuple[bytes, bytes]] = []
            with self._reading() as kv:
                for pair in kv.scan(start, stop):
                    page.append(pair)
                    if len(page) == 256:
                        break
            yield from page
            if len(page) < 256:
                return
            start = page[-1][0] + b"\0"

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        with self._reading() as kv:
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

    kv: SnapshotKV

    def __init__(self, kv: SnapshotKV, is_volatile: Callable[[int], bool]) -> None:
        super().__init__(kv, is_volatile)
        self.lsn = 0
        self._changes: deque[tuple[int, int]] = deque()
        self._changed_at: dict[int, int] = {}
        """dead_id -> lsn of the last change in `_changes`."""

    def add(self, entry: DeadEntry) -> None:
        super().add(entry)
        self._note_change(entry.facts.dead_id)

    def remove(self, dead_id: int) -> DeadEntry | None:
        entry = super().remove(dead_id)
        if entry is not None and not self._is_volatile(entry.queue_id):
            self._note_removed(dead_id, entry)
            self._note_change(dead_id)
        return entry

    def _note_change(self, dead_id: int) -> None:
        self._changes.append((self.lsn, dead_id))
        self._changed_at[dead_id] = self.lsn

    def after(self, dead_id: int, damaged: list[DamagedLetter] | None = None) -> Iterator[DeadEntry]:
        last = 0
        for entry in super().after(dead_id, damaged):
            if entry.facts.dead_id != last:
                yield entry
            last = entry.facts.dead_id

    def applied(self, lsn: int, most: int) -> bool:
        """The store has every change up to `lsn`: forget up to `most` of them; return whether there are more.

        Nobody notices how late that is, for what is here and in the store is the same.
        """
        changes = self._changes
        while changes and changes[0][0] <= lsn:
            if not most:
                return True
            most -= 1
            at, dead_id = changes.popleft()
            if self._changed_at.get(dead_id) == at:
                del self._changed_at[dead_id]
                self._added.remove(dead_id)
                if self._removed.pop(dead_id, None) is not None:
                    self._removed_ids.remove(dead_id, dead_id)
        return False
