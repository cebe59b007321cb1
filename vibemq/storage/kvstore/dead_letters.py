"""Dead letters kept in a key-value store, those of transient queues beside them in memory."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from heapq import merge
from itertools import groupby, takewhile
from operator import attrgetter, itemgetter

from vibemq.errors import StorageDamaged
from vibemq.model.dead.fingerprint import OTHER, fingerprint
from vibemq.model.dead.groups import (
    DeadGroup,
    DeadGroupPage,
    DeadGroupsWanted,
    GroupKey,
    LetterChoice,
    LetterStretch,
    joined,
)
from vibemq.model.records import DeadFacts, Reason
from vibemq.model.runs import RunSet
from vibemq.model.stored import INDEX_STEPS, DamagedLetter, DeadPageWanted
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.dead.index import IndexedLetter, indexed, update_index
from vibemq.storage.kvstore.dead.index_reading import (
    chosen_ids,
    fits,
    is_chosen,
    narrowed,
    stored_groups,
    stored_queues,
)
from vibemq.storage.kvstore.dead.pages import Step
from vibemq.storage.kvstore.encoding import GARBAGE, seal, unpacked
from vibemq.storage.kvstore.store import KV
from vibemq.storage.state.dead_groups import BY_ID, Looked
from vibemq.storage.state.dead_letter_facts import DeadEntry, DeadTable

_BY_ID = attrgetter("facts.dead_id")
BY_KEY = itemgetter(0)
SORTED_AT_ONCE = 64
"""Letters whose fingerprints are found under a lock: a millisecond or two of work."""
PASSING_STEPS = 3
"""How much work it is to compare a letter by its row in the index, see `INDEX_STEPS`."""
STEPPED_OVER = 256
"""Removed letters in a row that are not worth reading, as many as a scan reads at once."""
_MESSAGE_OF = re.compile(rb'\[(\d{1,10}),".*?",\[[^,]*,(\d{1,19}),', re.DOTALL)
"""(queue_id, sequence) in the value of a letter, as `values.pack_dead` writes it."""


class NotReady(Exception):
    """What was asked for takes more than is done at once; ask again."""


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
            return any(keys.split_dead_by_message_key(key, self.kv.where)[2] not in self._removed for key, _ in stored)
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

    def _stored_before(self, dead_id: int, damaged: list[DamagedLetter] | None) -> Iterator[DeadEntry]:
        for key, value in self.kv.scan_back(keys.DEAD, keys.dead_key(dead_id)):
            if keys.last_u64(key) not in self._removed:
                yield from self._readable(key, value, damaged)

    def _readable(self, key: bytes, value: bytes, damaged: list[DamagedLetter] | None) -> Iterable[DeadEntry]:
        """The letter, or nothing: it is among the damaged ones. Raises StorageDamaged when nobody gathers these."""
        try:
            return (_unpack(self.kv, key, value),)
        except StorageDamaged as error:
            if damaged is None:
                raise
            damaged.append(DamagedLetter(keys.last_u64(key), 0, "", str(error)))
            return ()

    def walk(self, wanted: DeadPageWanted, damaged: list[DamagedLetter]) -> Iterator[Step]:
        """The letters of a page in its order, and where the index leads past others. Nothing may be written while it
        runs; `is_sorted_in` has answered True."""
        choice, newest_first = wanted.choice, wanted.newest_first
        # Of letters that are not stored, ids may tell nothing of their age.
        low, high = narrowed(self.kv, choice, wanted.after, wanted.below)
        tables = [table for table in (self._added, self.volatile) if table.entries]
        if choice.needs_index:
            with self._one_snapshot():
                stored = chosen_ids(self.kv, choice, low, high, newest_first=newest_first)
            if stored is not None:
                unstored = (
                    table.groups.ids(choice, wanted.after, wanted.below, newest_first=newest_first) for table in tables
                )
                yield from self._chosen(merge(stored, *unstored, key=BY_ID, reverse=newest_first), choice, damaged)
                return
        walks = [_upwards(self._stored_after(low, damaged), high)]
        walks += (_upwards(table.after(wanted.after), wanted.below) for table in tables)
        if newest_first:
            walks = [_downwards(self._stored_before(high, damaged), low)]
            walks += (_downwards(table.before(wanted.below), wanted.after) for table in tables)
        last = 0
        for entry in merge(*walks, key=_BY_ID, reverse=newest_first):
            dead_id = entry.facts.dead_id
            if dead_id != last:
                is_wanted = not choice.needs_index or self._is_chosen(choice, entry)
                yield dead_id, entry if is_wanted else None, INDEX_STEPS
            last = dead_id

    def _one_snapshot(self) -> AbstractContextManager[None]:
        """For many small questions to the store, none of which goes on behind it."""
        return nullcontext()

    def _chosen(self, ids: Iterator[Looked], choice: LetterChoice, damaged: list[DamagedLetter]) -> Iterator[Step]:
        last = 0
        # Those in groups of others are compared one by one.
        passing = 1 if choice.fingerprint in (None, OTHER) else PASSING_STEPS
        for dead_id, is_wanted in ids:
            if dead_id == last:
                continue
            last = dead_id
            entry = self._added.get(dead_id) or self.volatile.get(dead_id)
            if not is_wanted or (entry is None and dead_id in self._removed):
                yield dead_id, None, passing
                continue
            try:
                yield dead_id, entry or self._stored(dead_id), INDEX_STEPS
            except StorageDamaged as error:
                damaged.append(DamagedLetter(dead_id, 0, "", str(error)))
                yield dead_id, None, INDEX_STEPS

    def _is_chosen(self, choice: LetterChoice, entry: DeadEntry) -> bool:
        """Of a letter whose facts are at hand."""
        dead_id, facts = entry.facts.dead_id, entry.facts
        for table in (self._added, self.volatile):
            if table.get(dead_id) is entry:
                if table.groups.has_placed(dead_id):
                    return table.groups.is_chosen(choice, dead_id)
                # It died a moment ago, and its turn to be placed has not come.
                known = IndexedLetter(int(facts.reason), False, fingerprint(facts.error), facts.dead_at)
                return is_chosen(choice, entry.queue_id, known)
        known = IndexedLetter(facts.reason, False, 0, facts.dead_at)
        if choice.fingerprint is not None and is_chosen(replace(choice, fingerprint=None), entry.queue_id, known):
            known = indexed(self.kv, entry.queue_id, dead_id) or known
        return is_chosen(choice, entry.queue_id, known)

    def is_sorted_in(self, most: int) -> bool:
        """Whether the index knows all letters that are not stored. If not, up to `most` of them are sorted in."""
        return not any(table.place(most) for table in (self._added, self.volatile) if table.entries)

    def sort_in(self, most: int) -> bool:
        """For housekeeping: the same where somebody has asked before; return whether there is more to do."""
        return any(table.place(most) for table in (self._added, self.volatile) if table.is_asked)

    # -- groups -------------------------------------------------------------------------------------------------------

    def queues(self, after: int) -> Iterator[int]:
        """Ids of the queues that have letters, ascending, from behind that one on; some may have lost their last."""
        tables = [sorted(n for n in table.by_queue if n > after) for table in (self._added, self.volatile)]
        last = after
        for queue_id in merge(stored_queues(self.kv, after=after), *tables):
            if queue_id != last:
                yield queue_id
            last = queue_id

    def group_page(self, wanted: DeadGroupsWanted, name_of: Callable[[int], str]) -> DeadGroupPage:
        """See `IStorageProvider.dead_groups`; `is_sorted_in` has answered True."""
        page = DeadGroupPage(last=wanted.after)
        for looked, (key, stored, unstored) in enumerate(self._group_parts(wanted)):
            if looked >= wanted.scan or len(page.groups) >= wanted.limit:
                return page
            try:
                stretch = self._joined(key, stored, unstored) if fits(key, wanted) else None
            except NotReady:
                return page
            if stretch is not None:
                page.groups.append(DeadGroup(key, name_of(key.queue_id), stretch))
            page.last = key
        page.done = True
        return page

    def _group_parts(
        self, wanted: DeadGroupsWanted
    ) -> Iterator[tuple[GroupKey, LetterStretch | None, list[LetterStretch]]]:
        """Each group with what is stored of it and what is not."""
        tables = [table.groups for table in (self._added, self.volatile)]
        unstored = (((key, None) for key in table.keys_from(wanted.after)) for table in tables)
        merged = merge(stored_groups(self.kv, wanted), *unstored, key=BY_KEY)
        for key, parts in groupby(merged, key=BY_KEY):
            stored = next((stretch for _, stretch in parts if stretch is not None), None)
            fresh = (table.stretch(key) for table in tables) if fits(key, wanted) else ()
            yield key, stored, [stretch for stretch in fresh if stretch is not None]

    def _joined(self, key: GroupKey, stored: LetterStretch | None, tables: list[LetterStretch]) -> LetterStretch | None:
        """All letters of a group; None when there are none."""
        return joined([*([] if stored is None else [stored]), *tables])

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
            number = keys.last_u64(key)
            if number in self._removed:
                [(_, last)] = self._removed_ids.touching(number, number)
                if last - number >= STEPPED_OVER:
                    return last
                continue
            yield from self._readable(key, value, damaged)
        return None

    @property
    def unwritten(self) -> int:
        """Letters that the next `flush` writes or deletes."""
        return len(self._added.entries) + len(self._removed)

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
        if self._added.entries:
            self._added = DeadTable()
        if self._removed:
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


def _upwards(entries: Iterator[DeadEntry], below: int) -> Iterator[DeadEntry]:
    return takewhile(lambda entry: entry.facts.dead_id < below, entries)


def _downwards(entries: Iterator[DeadEntry], after: int) -> Iterator[DeadEntry]:
    return takewhile(lambda entry: entry.facts.dead_id > after, entries)


def _unpack(kv: KV, key: bytes, value: bytes) -> DeadEntry:
    return unpacked(key, value, kv.where, values.unpack_dead)
