"""Dead letters kept in a key-value store, those of transient queues beside them in memory."""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from heapq import merge
from operator import attrgetter

from vibemq.errors import StorageDamaged
from vibemq.model.records import DeadFacts, Reason
from vibemq.model.runs import RunSet
from vibemq.model.stored import DamagedLetter, DeadLetter, DeadPage, DeadPageWanted, Slice, StoredState
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.dead_index import update_index
from vibemq.storage.kvstore.encoding import GARBAGE, seal, unseal
from vibemq.storage.kvstore.store import KV
from vibemq.storage.state.dead_letter_facts import DeadEntry, DeadTable

_BY_ID = attrgetter("facts.dead_id")
NEIGHBOUR_DISTANCE = 64
NEIGHBOUR_BYTES = 256 * 1024
STEPPED_OVER = 256
"""Removed letters in a row that are not worth reading, as many as a scan reads at once."""
_MESSAGE_OF = re.compile(rb'\[(\d{1,10}),".*?",\[[^,]*,(\d{1,19}),', re.DOTALL)
"""(queue_id, sequence) in the value of a letter, as `values.pack_dead` writes it."""


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
        self._removed_ids = RunSet()
        self._volatile_removed: list[DeadEntry] = []

    def add(self, entry: DeadEntry) -> None:
        (self.volatile if self._is_volatile(entry.queue_id) else self._added).add(entry)

    def remove(self, dead_id: int) -> DeadEntry | None:
        """A letter that cannot be read is removed like any other: see `_unreadable` for what is answered then.

        Removals are asked for when their record is in the journal already, so this never raises StorageDamaged.
        """
        entry = self.volatile.remove(dead_id)
        if entry is not None:
            self._volatile_removed.append(entry)
            return entry
        entry = self._added.remove(dead_id)
        if entry is None and dead_id not in self._removed:
            entry = self._stored_in_any_state(dead_id)
            if entry is not None:
                self._note_removed(dead_id, entry)
        return entry

    def _note_removed(self, dead_id: int, entry: DeadEntry) -> None:
        self._removed[dead_id] = entry
        self._removed_ids.add(dead_id, dead_id)

    def _stored_in_any_state(self, dead_id: int) -> DeadEntry | None:
        key, value = keys.dead_key(dead_id), b""
        try:
            found = self.kv.get(key)
            if found is None:
                return None
            value = found
            return _unpack(self.kv, key, value)
        except StorageDamaged:
            return self._unreadable(dead_id, value)

    def _unreadable(self, dead_id: int, value: bytes) -> DeadEntry:
        """An entry that names only the message that the letter points at.

        What the damaged value still says of it counts when the index by message has the same. Otherwise the entry names
        no queue: the letter goes, and its pointer and message stay until a repair, which drops nothing unasked.
        """
        queue_id = sequence = 0
        said = _MESSAGE_OF.search(value)
        if said is not None:
            claimed = int(said[1]), int(said[2])
            try:
                if self.kv.get(keys.dead_by_message_key(*claimed, dead_id)) is not None:
                    queue_id, sequence = claimed
            except GARBAGE:
                pass
        return DeadEntry(queue_id, "", DeadFacts(dead_id, sequence, Reason.REJECTED, "", 0, 0, 0, 0))

    def holds(self, queue_id: int, sequence: int) -> bool:
        """Also where the index cannot be read: the message is kept then."""
        if self._added.holds(queue_id, sequence) or self.volatile.holds(queue_id, sequence):
            return True
        prefix = keys.sequence_key(keys.DEAD_BY_MESSAGE, queue_id, sequence)
        try:
            stored = self.kv.scan(prefix, keys.after(prefix))
            return any(_dead_id(self.kv, key) not in self._removed for key, _ in stored)
        except StorageDamaged:
            return True

    def get(self, dead_id: int) -> DeadEntry | None:
        entry = self._added.get(dead_id) or self.volatile.get(dead_id)
        return entry or (None if dead_id in self._removed else self._stored(dead_id))

    def after(self, dead_id: int, damaged: list[DamagedLetter] | None = None) -> Iterator[DeadEntry]:
        """Entries with a greater id, ascending. Nothing may be written while it runs.

        Those that cannot be read go to `damaged`; without it they raise StorageDamaged.
        """
        stored = self._stored_after(dead_id, damaged)
        return merge(stored, self._added.after(dead_id), self.volatile.after(dead_id), key=_BY_ID)

    def _stored_after(self, dead_id: int, damaged: list[DamagedLetter] | None) -> Iterator[DeadEntry]:
        """What is written and not removed. A long run of removed letters is stepped over, not read."""
        at: int | None = dead_id
        while at is not None:
            at = yield from self._stored_stretch(at, damaged)

    def _stored_stretch(
        self, dead_id: int, damaged: list[DamagedLetter] | None
    ) -> Generator[DeadEntry, None, int | None]:
        """Up to a long run of removed letters; return its end."""
        for key, value in self.kv.scan(keys.dead_key(dead_id) + b"\0", keys.after(keys.DEAD)):
            number = keys.split_dead_key(key)
            if number in self._removed:
                [(_, last)] = self._removed_ids.touching(number, number)
                if last - number >= STEPPED_OVER:
                    return last
                continue
            try:
                yield _unpack(self.kv, key, value)
            except StorageDamaged as error:
                if damaged is None:
                    raise
                damaged.append(DamagedLetter(number, 0, "", str(error)))
        return None

    def flush(self) -> None:
        """Write what changed, in the owner's transaction; call `forget` once that is committed."""
        for dead_id, entry in self._removed.items():
            self.kv.delete(keys.dead_key(dead_id))
            self.kv.delete(keys.dead_by_message_key(entry.queue_id, entry.facts.sequence, dead_id))
        for dead_id, entry in self._added.entries.items():
            key = keys.dead_key(dead_id)
            self.kv.put(key, seal(key, values.pack_dead(entry)))
            self.kv.put(keys.dead_by_message_key(entry.queue_id, entry.facts.sequence, dead_id), b"")
        if self._removed or self._added.entries:
            update_index(self.kv, self._removed, self._added.entries.values())

    def forget(self) -> None:
        """The flushed changes are in the store now."""
        self._added = DeadTable()
        self._removed.clear()
        self._removed_ids = RunSet()
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


Lock = AbstractContextManager[object]
_NO_LOCK: Lock = nullcontext()


def assemble(state: StoredState, entry: DeadEntry, read: Reader, where: str, lock: Lock = _NO_LOCK) -> DeadLetter:
    """The dead letter with its message. Raises StorageDamaged when the message is not there.

    Args:
        lock: guards the state; `read` is called without it.
    """
    facts = entry.facts
    with lock:
        queue = state.queues.get(entry.queue_id)
    parts = read(entry.queue_id, facts.sequence, facts.sequence, 1) if queue is not None else []
    if queue is None or not parts:
        raise StorageDamaged(
            f"dead letter {facts.dead_id} points at the missing message {facts.sequence} of queue {entry.queue_id}",
            path=where,
        )
    with lock:
        priorities = [priority for priority, runs in queue.priorities.items() if facts.sequence in runs]
    return DeadLetter(
        facts=facts,
        queue_id=entry.queue_id,
        queue=queue.name,
        group=entry.group,
        published_at=parts[0].published_at,
        priority=priorities[0] if priorities else 1,
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


def page(
    state: StoredState,
    entries: Callable[[list[DamagedLetter]], Iterator[DeadEntry]],
    read: Reader,
    where: str,
    wanted: DeadPageWanted,
    *,
    lock: Lock = _NO_LOCK,
    get: Callable[[int], DeadEntry | None] | None = None,
) -> DeadPage:
    """One stretch of the DLQ, of bounded work: see `IStorageProvider.dead_page`.

    `entries(damaged)`: the entries behind `wanted.after`, ascending; those whose facts cannot be read go to `damaged`.

    Args:
        lock: guards the state; `read` is called without it, and with `get` it is found whether a letter was removed
            meanwhile.
    """
    damaged: list[DamagedLetter] = []
    chosen: list[DeadEntry] = []
    looked, last, done = 0, wanted.after, True
    with lock:
        for entry in entries(damaged):
            dead_id = entry.facts.dead_id
            if looked >= wanted.scan or len(chosen) >= wanted.limit or dead_id >= wanted.below:
                done = dead_id >= wanted.below
                break
            looked, last = looked + 1, dead_id
            origin = state.queues.get(entry.queue_id)
            if wanted.fits(entry.facts, "" if origin is None else origin.name):
                chosen.append(entry)
    if done:
        last = max([last, *(letter.dead_id for letter in damaged if letter.dead_id < wanted.below)])
    letters: list[DeadLetter] = []
    size = 0
    for group in _neighbours(chosen):
        rows = _rows(read, group, wanted.max_bytes - size)
        for entry in group:
            try:
                letter = assemble(state, entry, rows or read, where, lock)
            except StorageDamaged as error:
                with lock:
                    if get is not None and get(entry.facts.dead_id) is None:
                        continue
                origin = state.queues.get(entry.queue_id)
                name = "" if origin is None else origin.name
                damaged.append(DamagedLetter(entry.facts.dead_id, entry.queue_id, name, str(error)))
                continue
            size += len(letter.row)
            if letters and size > wanted.max_bytes:
                last = letters[-1].facts.dead_id
                return DeadPage(letters, _up_to(last, damaged), last, done=False)
            letters.append(letter)
    return DeadPage(letters, _up_to(last, damaged), last, done)


def _up_to(last: int, damaged: list[DamagedLetter]) -> list[DamagedLetter]:
    """Those behind `last` are told with the next page."""
    return sorted(letter for letter in damaged if letter.dead_id <= last)


def _neighbours(entries: list[DeadEntry]) -> Iterator[list[DeadEntry]]:
    """Letters whose messages stand close enough together to be read in one go."""
    group: list[DeadEntry] = []
    for entry in entries:
        if group:
            ahead = entry.facts.sequence - group[-1].facts.sequence
            if entry.queue_id != group[0].queue_id or not 0 <= ahead <= NEIGHBOUR_DISTANCE:
                yield group
                group = []
        group.append(entry)
    if group:
        yield group


def _rows(read: Reader, group: list[DeadEntry], max_bytes: int) -> Reader | None:
    """Reads the group's rows at once, as far as a page has room for them, and answers for each; those behind that are
    read by themselves. None when that does not work and each is read by itself."""
    if len(group) < 2:
        return None
    queue_id, first, last = group[0].queue_id, group[0].facts.sequence, group[-1].facts.sequence
    found: dict[int, Slice] = {}
    wanted = {entry.facts.sequence for entry in group}
    try:
        while first <= last and max_bytes > 0:
            slices = read(queue_id, first, last, NEIGHBOUR_BYTES)
            if not slices:
                first = last + 1
                break
            max_bytes -= sum(part.rows.size for part in slices)
            for part in slices:
                start = part.first_sequence
                for sequence in range(start, start + part.rows.count):
                    if sequence in wanted:
                        index = sequence - start
                        found[sequence] = Slice(sequence, part.published_at, part.rows.slice(index, index + 1))
            first = slices[-1].first_sequence + slices[-1].rows.count
    except StorageDamaged:
        return None

    def one(queue_id: int, sequence: int, last: int, max_bytes: int) -> list[Slice]:
        if sequence >= first:
            return read(queue_id, sequence, last, max_bytes)
        return [found[sequence]] if sequence in found else []

    return one
