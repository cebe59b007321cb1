"""The broker's view of dead letters: those in LMDB, changed by what the journal has and LMDB has not yet."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted, GroupKey, LetterStretch
from vibemq.model.steps import Steps
from vibemq.model.stored import DamagedLetter
from vibemq.storage.kvstore.dead.index import dead_at_of, group_ids, indexed, search_queue, stored_lsn
from vibemq.storage.kvstore.dead_letters import NotReady, StoredDead
from vibemq.storage.lmdb.environment.tables import LmdbKV, reading, translated
from vibemq.storage.state.dead_letter_facts import DeadEntry

PAGE_LEAST, PAGE_MOST = 16, 256
CHANGES_AT_ONCE = 500
"""Changes that are compared with the store under the lock, and queues in which one is looked for: a millisecond or two
of work."""


def _page_sizes() -> Iterator[int]:
    size = PAGE_LEAST
    while True:
        yield size
        size = min(2 * size, PAGE_MOST)


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
        return reading(self.env, self.where) if self._taken is None else self._from(self._taken)

    @contextmanager
    def _from(self, kv: LmdbKV) -> Iterator[LmdbKV]:
        with translated(self.where):
            yield kv

    def get(self, key: bytes) -> bytes | None:
        with self._reading() as kv:
            return kv.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """In pages, so that no snapshot outlives a call to `next`. The first is small: many who ask want little."""
        if self._taken is not None:
            with translated(self.where):
                yield from self._taken.scan(start, stop)
            return
        for size in _page_sizes():
            with self._reading() as kv:
                page = list(islice(kv.scan(start, stop), size))
            yield from page
            if len(page) < size:
                return
            start = page[-1][0] + b"\0"

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for size in _page_sizes():
            with self._reading() as kv:
                page = list(islice(kv.scan_back(start, stop), size))
            yield from page
            if len(page) < size:
                return
            stop = page[-1][0]

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

    For a moment after a checkpoint a letter is both here and in LMDB; whatever is here wins. The counts of groups are
    exact all the same: what LMDB has already, by the lsn in the snapshot that is read, does not count here.
    """

    kv: SnapshotKV

    def __init__(self, kv: SnapshotKV, is_volatile: Callable[[int], bool]) -> None:
        super().__init__(kv, is_volatile)
        self.lsn = 0
        self._changes: deque[tuple[int, int]] = deque()
        self._changed_at: dict[int, int] = {}
        """dead_id -> lsn of the last change in `_changes`."""
        self._gone: GoneLetters | None = None
        """None until somebody asks for groups."""

    def add(self, entry: DeadEntry) -> None:
        super().add(entry)
        self._note_change(entry.facts.dead_id)

    def remove(self, dead_id: int) -> DeadEntry | None:
        entry = super().remove(dead_id)
        # Nothing is reverted here: what the journal refuses is not applied.
        self._volatile_removed.clear()
        if entry is not None and not self._is_volatile(entry.queue_id):
            self._note_removed(dead_id, entry)
            self._note_change(dead_id)
            if self._gone is not None:
                self._gone.add(dead_id, entry.queue_id)
        return entry

    def _one_snapshot(self) -> AbstractContextManager[None]:
        return self.kv.one_snapshot()

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
                    if self._gone is not None:
                        self._gone.forget(dead_id)
        return False

    # -- groups -------------------------------------------------------------------------------------------------------

    def group_page(self, wanted: DeadGroupsWanted, name_of: Callable[[int], str]) -> DeadGroupPage:
        if self._gone is None:
            self._gone = GoneLetters({dead_id: entry.queue_id for dead_id, entry in self._removed.items()})
        with self.kv.one_snapshot():
            lsn = stored_lsn(self.kv)
            if self.applied(lsn, CHANGES_AT_ONCE) or not self._gone.stand_at(self.kv, lsn, CHANGES_AT_ONCE):
                return DeadGroupPage(last=wanted.after)
            return super().group_page(wanted, name_of)

    def _joined(
        self, key: GroupKey, stored: LetterStretch | None, unstored: list[LetterStretch]
    ) -> LetterStretch | None:
        if stored is not None and self._gone is not None:
            stored = self._gone.without(self.kv, key, stored)
        return super()._joined(key, stored, unstored)


class GoneLetters:
    """Which letters that the store has are gone, by group: what is to be taken from the store's counts."""

    def __init__(self, gone: dict[int, int]) -> None:
        """`gone`: dead_id -> queue_id, 0 where it is not known: of stored letters that cannot be read."""
        self._waiting = gone
        self._absent: dict[int, int] = {}
        """Not in the store as it was read last."""
        self._group_of: dict[int, GroupKey] = {}
        self._groups: dict[GroupKey, set[int]] = {}
        self._firsts: dict[GroupKey, int] = {}
        self._lasts: dict[GroupKey, int] = {}
        """What is stored of a group below the one id, and above the other, is gone."""
        self._search: tuple[int, Steps[int | None]] | None = None
        """The letter whose queue is being looked for."""
        self._lsn = -1
        self._steps = 0

    def add(self, dead_id: int, queue_id: int) -> None:
        self._waiting[dead_id] = queue_id

    def forget(self, dead_id: int) -> None:
        """The store does not have it any more."""
        self._waiting.pop(dead_id, None)
        self._absent.pop(dead_id, None)
        if self._search is not None and self._search[0] == dead_id:
            self._search = None
        group = self._group_of.pop(dead_id, None)
        if group is not None:
            self._groups[group].discard(dead_id)
            if not self._groups[group]:
                del self._groups[group]

    def stand_at(self, kv: SnapshotKV, lsn: int, most: int) -> bool:
        """Know what is gone of the store as it is in this snapshot; False: there is more to find out."""
        if lsn != self._lsn:
            self._lsn = lsn
            self._waiting |= self._absent
            self._absent = {}
            self._firsts.clear()
            self._lasts.clear()
        self._steps = most
        while self._steps > 0 and (self._waiting or self._search is not None):
            self._steps -= 1
            if self._search is not None:
                self._search_on(kv, *self._search)
                continue
            dead_id, queue_id = self._waiting.popitem()
            if queue_id:
                self._place(kv, dead_id, queue_id)
            else:
                self._search = dead_id, search_queue(kv, dead_id)
        return not self._waiting and self._search is None

    def _search_on(self, kv: SnapshotKV, dead_id: int, search: Steps[int | None]) -> None:
        """In one queue more. A letter that stands in none does not come to stand in one later: it was stored."""
        try:
            next(search)
        except StopIteration as found:
            self._search = None
            if found.value is not None:
                self._place(kv, dead_id, found.value)
        except StorageDamaged:
            self._search = None
            self._absent[dead_id] = 0

    def _place(self, kv: SnapshotKV, dead_id: int, queue_id: int) -> None:
        group = _group_of(kv, dead_id, queue_id)
        if group is None:
            self._absent[dead_id] = queue_id
        else:
            self._group_of[dead_id] = group
            self._groups.setdefault(group, set()).add(dead_id)

    def without(self, kv: SnapshotKV, key: GroupKey, stored: LetterStretch) -> LetterStretch | None:
        """What is left of a group's stored letters. Raises NotReady when that takes more than is done at once."""
        gone = self._groups.get(key)
        if not gone:
            return stored
        if len(gone) >= stored.count:
            return None
        first = self._left_from(kv, key, self._firsts.get(key, stored.first_id), gone, back=False)
        last = self._left_from(kv, key, self._lasts.get(key, stored.last_id), gone, back=True)
        ends = dead_at_of(kv, key.queue_id, first), dead_at_of(kv, key.queue_id, last)
        return LetterStretch(stored.count - len(gone), first, ends[0], last, ends[1], stored.sample)

    def _left_from(self, kv: SnapshotKV, key: GroupKey, end: int, gone: set[int], *, back: bool) -> int:
        """The first id from there on, or the last one back from there, that is not gone."""
        if end not in gone:
            return end
        ends = self._lasts if back else self._firsts
        for dead_id in group_ids(kv, key, end, back=back):
            ends[key] = dead_id
            if dead_id not in gone:
                break
            self._steps -= 1
            if self._steps <= 0:
                raise NotReady
        return ends[key]


def _group_of(kv: SnapshotKV, dead_id: int, queue_id: int) -> GroupKey | None:
    """In which the store has the letter; None when it does not, or its index cannot be read."""
    try:
        letter = indexed(kv, queue_id, dead_id)
    except StorageDamaged:
        return None
    return None if letter is None else letter.group(queue_id)
