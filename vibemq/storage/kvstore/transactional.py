"""A store whose batches are transactions on an ordered key-value store: everything but the database itself.

A batch becomes the state values that it changed, its rows as small blocks, and the blocks of settled messages deleted,
in one transaction. What belongs to transient queues stays in memory. The provider brings the database: a `KV` over its
connection, and a transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from typing import cast

from vibemq.errors import StorageDamaged
from vibemq.model.jobs.job_records import JobRecord
from vibemq.model.records import (
    AccountRecord,
    DeadLettered,
    DeadRemoved,
    Dropped,
    HandedOut,
    MessagesAdded,
    Record,
    Returned,
    Settled,
    StageMoved,
    TransactionDecided,
    TransactionsForgotten,
)
from vibemq.model.stored import Slice, StoredQueue, StoredState
from vibemq.storage.kvstore.block_cache import BlockCache
from vibemq.storage.kvstore.blocks import limit, merge_blocks, pick, store_blocks
from vibemq.storage.kvstore.dead.pages import Reader
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.kvstore.integrity import TalliedKV, load_sound_state
from vibemq.storage.kvstore.letter_reader import LetterReader
from vibemq.storage.kvstore.require_alive import all_alive, need_none_of
from vibemq.storage.kvstore.store import KV, load_state, wipe_queue, write_dirty
from vibemq.storage.kvstore.transient_rows import VolatileRows
from vibemq.storage.state.arrivals import Arrivals
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import apply, is_transient, persistent, restart_transient

Transaction = Callable[[], AbstractContextManager[object]]
"""Commits on leaving, rolls back on any exception."""
Copies = dict[int, StoredQueue]
REMOVED_AT_ONCE = 50
"""Queues, some milliseconds of work."""
VolatileFact = MessagesAdded | HandedOut | Returned | Settled | Dropped | DeadLettered
"""What is not `persistent` where its queue is transient."""
NamesNoQueue = DeadRemoved | TransactionDecided | TransactionsForgotten | AccountRecord | JobRecord


def queues_of(record: Record) -> tuple[int, ...]:
    """Ids of the queues that the record names. Letters are not looked up."""
    if isinstance(record, NamesNoQueue):
        return ()
    if isinstance(record, StageMoved):
        return record.stage_id, record.queue_id
    return (record.queue_id,)


def _letters_of(records: Sequence[Record]) -> list[int]:
    """Ids of the letters that the records bring."""
    return [letter.dead_id for record in records if isinstance(record, DeadLettered) for letter in record.letters]


class TransactionalStore:
    """The state of an open store and how batches change it. One thread at a time; errors are the provider's own."""

    def __init__(self, kv: KV, transaction: Transaction) -> None:
        self._kv = TalliedKV(kv)
        self._transaction_of_provider = transaction
        self.state = StoredState()
        self.rows = VolatileRows()
        self.stored_lsn = 0
        """Of the last batch in the database; batches that touch nothing but transient queues leave no trace there."""
        self._dirty = Dirty()
        self._volatile = Dirty()
        """Of facts that are not written; only what it says of rows counts."""
        self._brought: list[MessagesAdded] = []
        """Rows of transient queues that are in the state already, and not in `rows` before the batch is committed."""
        self._letters_brought: list[int] = []
        """Ids of letters, the same."""
        self._left_behind: list[int] = []
        """Ids of transient queues that are gone since the restart, because only letters had kept them, and whose values
        are still stored."""
        self._dead = StoredDead(self._kv, lambda queue_id: is_transient(self.state, queue_id))
        self._blocks = BlockCache()
        self._unmerged: dict[int, int] = {}
        """queue_id -> the first sequence of the small blocks that are still to be joined; of queues that have some."""
        self._round: list[int] = []
        """Ids of those that are yet to have their turn in this round."""

    def load(self, now: int) -> StoredState:
        """Read the state without the backlog, and return it for somebody who only looks at it before anything is
        written. Raises StorageDamaged."""
        self.state = self._load(now)
        self.stored_lsn = self.state.lsn
        return self.state.for_a_look()

    def _load(self, now: int) -> StoredState:
        state = load_sound_state(self._kv)
        self._left_behind = [queue.queue_id for queue in state.queues.values() if queue.deleted]
        restart_transient(state, now)
        self._left_behind = [queue_id for queue_id in self._left_behind if queue_id not in state.queues]
        return state

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[Record], lsn: int) -> list[Record]:
        """Apply and commit what belongs into the database; return what is kept in memory only (`apply_volatile`).

        When the transaction fails the state is ahead of the database: `undo` it, or use it no more.
        """
        state, dirty = self.state, self._dirty
        later: dict[int, list[Record]] = {}
        arrivals = Arrivals()
        written = in_memory = False
        for record in records:
            if not persistent(state, record):
                later.setdefault(cast("VolatileFact", record).queue_id, []).append(record)
                continue
            written = True
            if later:
                for queue_id in self._queues_of(record, later):
                    # They happened before it.
                    if queue_id in later:
                        self._apply_volatile(later.pop(queue_id))
                        in_memory = True
            apply(state, record, self._dead, dirty)
            arrivals.take(record)
        state.lsn = lsn
        if written:
            with self._transaction():
                write_dirty(self._kv, state, dirty, volatile_dead=len(self._dead.volatile.entries))
                self._dead.flush()
                store_blocks(self._kv, state, arrivals, dirty.left, merge_tail=False)
            if in_memory:
                self._bring_rows()
            self.rows.forget(state, dirty.left)
            self.stored_lsn = lsn
        self._dead.forget()
        dirty.clear()
        for queue_id, first in arrivals.beginnings().items():
            self._unmerged.setdefault(queue_id, first)
        return [record for facts in later.values() for record in facts]

    def _queues_of(self, record: Record, later: Mapping[int, Sequence[Record]]) -> Iterable[int]:
        """The queues that a fact which is written is about, as far as `later` may have facts about them."""
        if isinstance(record, DeadRemoved):
            removed = set(record.dead_ids)
            bringing = (queue_id for queue_id, facts in later.items() if not removed.isdisjoint(_letters_of(facts)))
            return {*self._queues_of_letters(removed), *bringing}
        return queues_of(record)

    def _queues_of_letters(self, dead_ids: Iterable[int]) -> set[int]:
        entries = map(self._dead.volatile.get, dead_ids)
        return {entry.queue_id for entry in entries if entry is not None}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._transaction_of_provider():
                yield
                self._kv.save()
        finally:
            self._kv.forget()

    def apply_volatile(self, records: Sequence[Record]) -> None:
        if not records:
            return
        self._apply_volatile(records)
        self._bring_rows()
        self._dead.forget()

    def _apply_volatile(self, records: Sequence[Record]) -> None:
        """To the state; the rows wait, because it may be undone."""
        for record in records:
            if isinstance(record, MessagesAdded) and record.queue_id in self.state.queues:
                self._brought.append(record)
            apply(self.state, record, self._dead, self._volatile)
        self._letters_brought += _letters_of(records)

    def _bring_rows(self) -> None:
        """What was applied stays: rows in memory come and go as it says."""
        for record in self._brought:
            self.rows.add(record)
        if self._volatile.left:
            self.rows.forget(self.state, self._volatile.left)
        self._forget_volatile()

    def _forget_volatile(self) -> None:
        self._brought.clear()
        self._letters_brought.clear()
        self._volatile.clear()

    def transient_copies(self, records: Sequence[Record]) -> Copies:
        """Transient queues as they are, if the batch changes them by facts that are written."""
        named: set[int] = set()
        bringing: dict[int, int] = {}
        """dead_id -> queue_id."""
        for record in records:
            if isinstance(record, DeadRemoved):
                named |= self._queues_of_letters(record.dead_ids)
                named.update(bringing[dead_id] for dead_id in record.dead_ids if dead_id in bringing)
            elif persistent(self.state, record):
                named.update(queue_id for queue_id in queues_of(record) if is_transient(self.state, queue_id))
            elif isinstance(record, DeadLettered):
                bringing.update((letter.dead_id, record.queue_id) for letter in record.letters)
        return {queue_id: deepcopy(self.state.queues[queue_id]) for queue_id in named}

    def undo(self, kept: Copies) -> None:
        """Nothing of the batch was written: back to what the database says, and transient queues as they were."""
        self._dirty.clear()
        self._dead.revert()
        for dead_id in self._letters_brought:
            self._dead.volatile.remove(dead_id)
        self._forget_volatile()
        before = self.state
        state = load_state(self._kv)
        for queue_id in list(state.queues):
            if is_transient(state, queue_id):
                old = kept.get(queue_id, before.queues.get(queue_id))
                if old is None:
                    # It is left behind, and not removed from the database yet.
                    del state.queues[queue_id]
                else:
                    state.queues[queue_id] = old
        state.lsn = max(state.lsn, before.lsn - 1)
        state.dead_count += len(self._dead.volatile.entries)
        state.next_dead_id = max(state.next_dead_id, before.next_dead_id)
        state.instant = max(state.instant, before.instant)
        self.state = state

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        queue = self.state.queues.get(queue_id)
        if queue is None:
            return []
        if is_transient(self.state, queue_id):
            return self.rows.read(queue_id, first, last, max_bytes)
        parts = self._blocks.parts(self._kv, queue_id, first, last, queue.name)
        return list(limit(all_alive(queue, parts, first, last, self._kv.where), max_bytes))

    def pick(self, queue_id: int, sequences: Sequence[int], start: int) -> tuple[list[Slice], int]:
        """Rows of sequences[start:], which ascend, each on its own, as far as they stand in one block with the first of
        them; and the index behind those."""
        queue = self.state.queues.get(queue_id)
        if queue is None or is_transient(self.state, queue_id):
            return self.rows.read(queue_id, sequences[start], sequences[start], 1), start + 1
        found, stop = pick(self._kv, queue_id, sequences, start, queue.name)
        if len(found) < stop - start:
            there = {part.first_sequence for part in found}
            need_none_of(queue, [number for number in sequences[start:stop] if number not in there], self._kv.where)
        return found, stop

    def letter_reader(self, read: Reader) -> LetterReader:
        """`read`: the provider's."""
        return LetterReader(self._dead, lambda: self.state, read, self._kv.where)

    def sort_in_letters(self, most: int) -> bool:
        """For housekeeping: return whether there is more to do."""
        return self._dead.sort_in(most)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def remove_left_behind(self, has_room: Callable[[], bool]) -> bool:
        """Remove what is stored of some queues that did not survive the restart; return whether there are more."""
        if not self._left_behind or not has_room():
            return False
        with self._transaction():
            for queue_id in self._left_behind[-REMOVED_AT_ONCE:]:
                wipe_queue(self._kv, queue_id)
        del self._left_behind[-REMOVED_AT_ONCE:]
        return bool(self._left_behind)

    def begin_merge(self) -> None:
        """A round of `merge_some`: the queues that have small blocks now. Later ones are for the next round."""
        self._round = list(reversed(self._unmerged))

    def merge_some(self, has_room: Callable[[], bool], is_over: Callable[[], bool]) -> bool:
        """Join the small blocks that batches have left, of a queue at least, and of others until `is_over`.

        A transaction for each queue while there is room for it. Returns whether the round has more.
        """
        while self._round:
            if not has_room():
                self._round.clear()
                break
            self._merge(self._round.pop())
            if is_over():
                break
        return bool(self._round)

    def _merge(self, queue_id: int) -> None:
        start, left = self._unmerged.get(queue_id), None
        if start is not None and queue_id in self.state.queues:
            try:
                with self._transaction():
                    left = merge_blocks(self._kv, self.state, queue_id, start)
            except StorageDamaged:
                # Left alone: reads and `check` name the place.
                pass
        if left is None:
            self._unmerged.pop(queue_id, None)
        else:
            self._unmerged[queue_id] = left

    def merge_all(self, progress: Callable[[int, int], None]) -> None:
        """Join the blocks of every queue, from its beginning."""
        steps = len(self.state.queues)
        for done, queue_id in enumerate(list(self.state.queues)):
            self._unmerged[queue_id] = 0
            progress(done, steps)
        while self._unmerged:
            self.begin_merge()
            self.merge_some(lambda: True, lambda: False)
