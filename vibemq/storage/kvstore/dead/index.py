"""The index of dead letters: how it is written, and made anew.

Two rows stand for each letter, by its queue and by its group, and one row for each group. All of it follows from the
letters (table `d`), so what is damaged is counted again when a letter comes or goes there, and a repair or a migration
makes the whole anew. A letter keeps the group that it was given, also when the group of its own error gets room later.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from vibemq.errors import StorageDamaged
from vibemq.model.dead.fingerprint import OTHER, fingerprint, sample_of
from vibemq.model.dead.groups import GROUPS_MAX, GroupKey, LetterStretch
from vibemq.model.steps import Steps, at_once
from vibemq.model.stored import StoredState
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.encoding import GARBAGE, U64_MAX, seal, unpacked, unseal
from vibemq.storage.kvstore.store import KV
from vibemq.storage.state.dead_letter_facts import DeadEntry

BUILD_LETTERS = 20_000
"""Letters that one step of a build takes: half a second, and some 10 MiB of changed pages."""
WIPE_KEYS = 20_000
INDEX_TABLES = (keys.DEAD_BY_QUEUE, keys.DEAD_BY_GROUP, keys.DEAD_GROUP)


class IndexedLetter(NamedTuple):
    """What the index knows of one letter."""

    reason: int
    is_other: bool
    """Its group is the one of all that no other group has room for."""
    fingerprint: int
    dead_at: int

    def group(self, queue_id: int) -> GroupKey:
        return GroupKey(queue_id, self.reason, OTHER if self.is_other else self.fingerprint)


class LetterOrder(NamedTuple):
    """How far ids tell how old letters are: those above `unordered_id` died in the order of their ids."""

    newest_id: int = 0
    newest_at: int = 0
    unordered_id: int = 0

    def with_letter(self, dead_id: int, dead_at: int) -> "LetterOrder":
        if dead_id > self.newest_id and dead_at >= self.newest_at:
            return LetterOrder(dead_id, dead_at, self.unordered_id)
        newest_id = max(dead_id, self.newest_id)
        return LetterOrder(newest_id, max(dead_at, self.newest_at), newest_id)


# -- reading single rows ----------------------------------------------------------------------------------------------


def indexed(kv: KV, queue_id: int, dead_id: int) -> IndexedLetter | None:
    """Raises StorageDamaged."""
    key = keys.dead_by_queue_key(queue_id, dead_id)
    value = kv.get(key)
    return None if value is None else unpack_indexed(kv, key, value)


def unpack_indexed(kv: KV, key: bytes, value: bytes) -> IndexedLetter:
    return unpacked(key, value, kv.where, lambda body: IndexedLetter(*values.unpack_indexed(body)))


def unpack_group(kv: KV, key: bytes, value: bytes) -> LetterStretch:
    return unpacked(key, value, kv.where, lambda body: LetterStretch(*values.unpack_dead_group(body)))


def group_ids(kv: KV, group: GroupKey, start: int | None = None, *, back: bool = False) -> Iterator[int]:
    """Of its letters, ascending; from `start` on, or from there back."""
    prefix = keys.dead_by_group_prefix(group)
    first = prefix if start is None or back else keys.dead_by_group_key(group, start)
    stop = keys.dead_by_group_key(group, start) + b"\0" if back and start is not None else keys.after(prefix)
    return (keys.last_u64(key) for key, _ in (kv.scan_back if back else kv.scan)(first, stop))


def dead_at_of(kv: KV, queue_id: int, dead_id: int) -> int:
    """0 when the index does not tell."""
    try:
        found = indexed(kv, queue_id, dead_id)
    except StorageDamaged:
        return 0
    return 0 if found is None else found.dead_at


def stored_lsn(kv: KV) -> int:
    """Up to which the store has every change. Raises StorageDamaged."""
    value, state = kv.get(keys.STATE_META), StoredState()
    if value is not None:
        try:
            values.unpack_meta(state, unseal(keys.STATE_META, value, kv.where))
        except GARBAGE as exc:
            raise StorageDamaged(f"the store-wide facts cannot be read ({exc})", path=kv.where) from exc
    return state.lsn


def load_order(kv: KV) -> LetterOrder | None:
    """None when it cannot be read: then ids tell nothing."""
    value = kv.get(keys.DEAD_ORDER)
    if value is None:
        return LetterOrder()
    try:
        return LetterOrder(*values.unpack_order(unseal(keys.DEAD_ORDER, value, kv.where)))
    except GARBAGE:
        return None


def queue_of(kv: KV, dead_id: int) -> int | None:
    """The queue in whose index the letter stands: for letters that do not say so themselves any more."""
    return at_once(search_queue(kv, dead_id))


def search_queue(kv: KV, dead_id: int) -> Steps[int | None]:
    """The same with a step for each queue, between which the store may change."""
    queue_id = 0
    while True:
        found = next(kv.scan(keys.dead_by_queue_key(queue_id, 0), keys.after(keys.DEAD_BY_QUEUE)), None)
        if found is None:
            return None
        queue_id = keys.split_sequence_key(found[0], kv.where)[0]
        if kv.get(keys.dead_by_queue_key(queue_id, dead_id)) is not None:
            return queue_id
        queue_id += 1
        yield


# -- writing ----------------------------------------------------------------------------------------------------------


def update_index(kv: KV, removed: Mapping[int, DeadEntry], added: Iterable[DeadEntry]) -> None:
    """Letters went and came, in the owner's transaction. `removed` may name letters that the index does not know."""
    change = _Change(kv)
    for dead_id, entry in removed.items():
        change.remove(dead_id, entry)
    for entry in added:
        change.add(entry)
    change.write()


class _Group:
    """One group while letters come and go."""

    __slots__ = ("born", "count", "first", "last", "lost_end", "sample")

    def __init__(self, stretch: LetterStretch | None) -> None:
        self.born = stretch is None
        self.count = 0 if stretch is None else stretch.count
        self.first = (0, 0) if stretch is None else (stretch.first_id, stretch.first_at)
        self.last = (0, 0) if stretch is None else (stretch.last_id, stretch.last_at)
        self.sample = b"" if stretch is None else stretch.sample
        self.lost_end = False
        """The first or the last letter is gone."""

    def add(self, dead_id: int, dead_at: int, error: str) -> None:
        if not self.sample:
            self.sample = sample_of(error)
        self.first = min(self.first, (dead_id, dead_at)) if self.count else (dead_id, dead_at)
        self.last = max(self.last, (dead_id, dead_at)) if self.count else (dead_id, dead_at)
        self.count += 1

    def remove(self, dead_id: int) -> None:
        self.count -= 1
        self.lost_end |= dead_id in (self.first[0], self.last[0])


class _Change:
    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self._groups: dict[tuple[int, int], dict[GroupKey, _Group]] = {}
        """By queue_id and reason."""
        self._room: dict[tuple[int, int], int] = {}
        """(queue_id, reason) -> groups that it may still get."""
        self._order: LetterOrder | None = None

    def remove(self, dead_id: int, entry: DeadEntry) -> None:
        queue_id = entry.queue_id or queue_of(self._kv, dead_id)
        if queue_id is None:
            return
        group = self._group_of(queue_id, dead_id, entry)
        self._kv.delete(keys.dead_by_queue_key(queue_id, dead_id))
        if group is None:
            return
        # A group that is counted now must not count the letter twice.
        counted = self._group(group)
        self._kv.delete(keys.dead_by_group_key(group, dead_id))
        counted.remove(dead_id)
        if not counted.count and group.fingerprint != OTHER and group[:2] in self._room:
            self._room[group[:2]] += 1

    def _group_of(self, queue_id: int, dead_id: int, entry: DeadEntry) -> GroupKey | None:
        try:
            found = indexed(self._kv, queue_id, dead_id)
        except StorageDamaged:
            found = None
        own = fingerprint(entry.facts.error)
        tried = [found.group(queue_id)] if found is not None else []
        tried += [GroupKey(queue_id, entry.facts.reason, number) for number in (own, OTHER)]
        for group in tried:
            if self._kv.get(keys.dead_by_group_key(group, dead_id)) is not None:
                return group
        return None

    def add(self, entry: DeadEntry) -> None:
        queue_id, facts = entry.queue_id, entry.facts
        key = keys.dead_by_queue_key(queue_id, facts.dead_id)
        if self._kv.get(key) is not None:
            self.remove(facts.dead_id, entry)
        number = fingerprint(facts.error)
        group = GroupKey(queue_id, facts.reason, number)
        if not self._group(group).count:
            if self._has_room(queue_id, facts.reason):
                self._room[queue_id, facts.reason] -= 1
            else:
                group = GroupKey(queue_id, facts.reason, OTHER)
        self._group(group).add(facts.dead_id, facts.dead_at, facts.error)
        self._kv.put(
            key, seal(key, values.pack_indexed(facts.reason, group.fingerprint == OTHER, number, facts.dead_at))
        )
        self._kv.put(keys.dead_by_group_key(group, facts.dead_id), b"")
        self._order = (self._order or load_order(self._kv) or LetterOrder(unordered_id=facts.dead_id)).with_letter(
            facts.dead_id, facts.dead_at
        )

    def _has_room(self, queue_id: int, reason: int) -> bool:
        room = self._room.get((queue_id, reason))
        if room is None:
            # Of what is stored; groups that this change has emptied or begun are told apart.
            prefix = keys.reason_prefix(keys.DEAD_GROUP, queue_id, reason)
            stored = {
                keys.split_dead_group_key(key, self._kv.where) for key, _ in self._kv.scan(prefix, keys.after(prefix))
            }
            known = self._groups.get((queue_id, reason), {})
            full = {key for key, group in known.items() if group.count} | (stored - known.keys())
            room = GROUPS_MAX - sum(key.fingerprint != OTHER for key in full)
            self._room[queue_id, reason] = room
        return room > 0

    def _group(self, key: GroupKey) -> _Group:
        of_reason = self._groups.setdefault(key[:2], {})
        found = of_reason.get(key)
        if found is None:
            found = of_reason[key] = _Group(self._stored(key))
        return found

    def _stored(self, key: GroupKey) -> LetterStretch | None:
        """As it is stored; one whose row is damaged or missing is counted."""
        row = keys.dead_group_key(key)
        value = self._kv.get(row)
        if value is not None:
            try:
                return unpack_group(self._kv, row, value)
            except StorageDamaged:
                pass  # Counted below, and written anew at the end.
        ids = list(group_ids(self._kv, key))
        if not ids:
            return None
        return LetterStretch(
            len(ids),
            ids[0],
            dead_at_of(self._kv, key.queue_id, ids[0]),
            ids[-1],
            dead_at_of(self._kv, key.queue_id, ids[-1]),
            b"",
        )

    def write(self) -> None:
        for key, group in chain.from_iterable(of_reason.items() for of_reason in self._groups.values()):
            row = keys.dead_group_key(key)
            if not group.count:
                if not group.born:
                    self._kv.delete(row)
                continue
            if group.lost_end:
                self._find_ends(key, group)
            body = values.pack_dead_group(group.count, *group.first, *group.last, group.sample)
            self._kv.put(row, seal(row, body))
        if self._order is not None:
            self._kv.put(keys.DEAD_ORDER, seal(keys.DEAD_ORDER, values.pack_order(*self._order)))

    def _find_ends(self, key: GroupKey, group: _Group) -> None:
        prefix = keys.dead_by_group_prefix(key)
        first = next(group_ids(self._kv, key), None)
        last = self._kv.floor(prefix, keys.dead_by_group_key(key, U64_MAX))
        if first is not None and last is not None:
            last_id = keys.last_u64(last[0])
            group.first = first, dead_at_of(self._kv, key.queue_id, first)
            group.last = last_id, dead_at_of(self._kv, key.queue_id, last_id)


# -- making it anew ---------------------------------------------------------------------------------------------------


def build_some(kv: KV) -> bool:
    """A step of the way to a whole index, in a transaction of its own; return whether there is more to do.

    Whatever stood there before goes. Letters that cannot be read stand in no index. A build that was interrupted goes
    on, unless something was written since.
    """
    lsn = stored_lsn(kv)
    done = _progress(kv, lsn)
    if done is None:
        more = _wipe_some(kv)
        if not more:
            _note_progress(kv, lsn, 0)
        return True
    found: list[DeadEntry] = []
    last = done
    for count, (key, value) in enumerate(kv.scan(keys.dead_key(done + 1), keys.after(keys.DEAD))):
        if count == BUILD_LETTERS:
            break
        last = keys.last_u64(key)
        try:
            found.append(values.unpack_dead(unseal(key, value, kv.where)))
        except GARBAGE:
            continue  # `check` names it.
    if last == done:
        kv.delete(keys.INDEXING)
        return False
    update_index(kv, {}, found)
    _note_progress(kv, lsn, last)
    return True


def _progress(kv: KV, lsn: int) -> int | None:
    """Up to which letter the index is built; None when it is to be begun."""
    value = kv.get(keys.INDEXING)
    try:
        at, last = (0, 0) if value is None else values.unpack_progress(unseal(keys.INDEXING, value, kv.where))
    except GARBAGE:
        return None
    return last if value is not None and at == lsn else None


def _note_progress(kv: KV, lsn: int, last: int) -> None:
    kv.put(keys.INDEXING, seal(keys.INDEXING, values.pack_progress(lsn, last)))


def _wipe_some(kv: KV) -> bool:
    """Return whether there may be more."""
    for table in INDEX_TABLES:
        stop = keys.after(table)
        found = [key for key, _ in islice(kv.scan(table, stop), WIPE_KEYS)]
        if found:
            kv.delete_range(table, found[-1] + b"\0")
            return True
    kv.delete(keys.DEAD_ORDER)
    return False
