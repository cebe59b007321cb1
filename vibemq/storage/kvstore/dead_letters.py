"""Dead letters kept in a key-value store, those of transient queues beside them in memory."""

from collections.abc import Callable, Iterator
from heapq import merge
from operator import attrgetter

from vibemq.errors import StorageDamaged
from vibemq.model.stored import DeadLetter, Slice, StoredState
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.encoding import GARBAGE, seal, unseal
from vibemq.storage.kvstore.store import KV
from vibemq.storage.state.dead_letter_facts import DeadEntry, DeadTable

_BY_ID = attrgetter("facts.dead_id")


class StoredDead:
    """A `DeadIndex` whose changes wait in memory until `flush` writes them.

    Args:
        kv: where flushed letters are; set `self.kv` when the owner's transaction changes.
        is_volatile: whether a queue is transient, so that its letters are never written.
    """

    def __init__(self, kv: KV, is_volatile: Callable[[int], bool]) -> None:
        self.kv = kv
        self._is_volatile = is_volatile
        self.volatile = DeadTable()
        self._added = DeadTable()
        self._removed: dict[int, DeadEntry] = {}
        self._volatile_removed: list[DeadEntry] = []

    def add(self, entry: DeadEntry) -> None:
        (self.volatile if self._is_volatile(entry.queue_id) else self._added).add(entry)

    def remove(self, dead_id: int) -> DeadEntry | None:
        entry = self.volatile.remove(dead_id)
        if entry is not None:
            self._volatile_removed.append(entry)
            return entry
        entry = self._added.remove(dead_id)
        if entry is None and dead_id not in self._removed:
            entry = self._stored(dead_id)
            if entry is not None:
                self._removed[dead_id] = entry
        return entry

    def holds(self, queue_id: int, sequence: int) -> bool:
        if self._added.holds(queue_id, sequence) or self.volatile.holds(queue_id, sequence):
            return True
        prefix = keys.sequence_key(keys.DEAD_BY_MESSAGE, queue_id, sequence)
        stored = self.kv.scan(prefix, keys.after(prefix))
        return any(_dead_id(self.kv, key) not in self._removed for key, _ in stored)

    def get(self, dead_id: int) -> DeadEntry | None:
        entry = self._added.get(dead_id) or self.volatile.get(dead_id)
        return entry or (None if dead_id in self._removed else self._stored(dead_id))

    def after(self, dead_id: int) -> Iterator[DeadEntry]:
        """Entries with a greater id, ascending. Nothing may be written while it runs."""
        stored = (
            _unpack(self.kv, key, value)
            for key, value in self.kv.scan(keys.dead_key(dead_id) + b"\0", keys.after(keys.DEAD))
        )
        kept = (entry for entry in stored if entry.facts.dead_id not in self._removed)
        return merge(kept, self._added.after(dead_id), self.volatile.after(dead_id), key=_BY_ID)

    def flush(self) -> None:
        """Write what changed, in the owner's transaction; call `forget` once that is committed."""
        for dead_id, entry in self._removed.items():
            self.kv.delete(keys.dead_key(dead_id))
            self.kv.delete(keys.dead_by_message_key(entry.queue_id, entry.facts.sequence, dead_id))
        for dead_id, entry in self._added.entries.items():
            key = keys.dead_key(dead_id)
            self.kv.put(key, seal(key, values.pack_dead(entry)))
            self.kv.put(keys.dead_by_message_key(entry.queue_id, entry.facts.sequence, dead_id), b"")

    def forget(self) -> None:
        """The flushed changes are in the store now."""
        self._added = DeadTable()
        self._removed.clear()
        self._volatile_removed.clear()

    def revert(self) -> None:
        """The changes since the last `forget` did not happen."""
        for entry in self._volatile_removed:
            self.volatile.add(entry)
        self.forget()

    def _stored(self, dead_id: int) -> DeadEntry | None:
        key = keys.dead_key(dead_id)
        value = self.kv.get(key)
        return None if value is None else _unpack(self.kv, key, value)


def _unpack(kv: KV, key: bytes, value: bytes) -> DeadEntry:
    body = unseal(key, value, kv.where)
    try:
        return values.unpack_dead(body)
    except GARBAGE as exc:
        raise StorageDamaged(f"stored value {key.hex()} cannot be read ({exc!r})", path=kv.where) from exc


def _dead_id(kv: KV, key: bytes) -> int:
    try:
        return keys.split_dead_by_message_key(key)[2]
    except GARBAGE as exc:
        raise StorageDamaged(f"the key {key.hex()} cannot be read ({exc})", path=kv.where) from exc


Reader = Callable[[int, int, int, int], list[Slice]]
"""`IStorageProvider.read`."""


def assemble(state: StoredState, entry: DeadEntry, read: Reader, where: str) -> DeadLetter:
    """The dead letter with its message. Raises StorageDamaged when the message is not there."""
    facts = entry.facts
    queue = state.queues.get(entry.queue_id)
    parts = read(entry.queue_id, facts.sequence, facts.sequence, 1) if queue is not None else []
    if queue is None or not parts:
        raise StorageDamaged(
            f"dead letter {facts.dead_id} points at the missing message {facts.sequence} of queue {entry.queue_id}",
            path=where,
        )
    priorities = (priority for priority, runs in queue.priorities.items() if facts.sequence in runs)
    return DeadLetter(
        facts=facts,
        queue_id=entry.queue_id,
        queue=queue.name,
        group=entry.group,
        published_at=parts[0].published_at,
        priority=next(priorities, 1),
        row=parts[0].rows[0],
    )


def select(state: StoredState, entries: Iterator[DeadEntry], limit: int, queue: str | None) -> list[DeadEntry]:
    """The first `limit` entries, of queues with that name if one is given."""
    found: list[DeadEntry] = []
    for entry in entries:
        if len(found) >= limit:
            break
        origin = state.queues.get(entry.queue_id)
        if queue is None or (origin is not None and origin.name == queue):
            found.append(entry)
    return found
