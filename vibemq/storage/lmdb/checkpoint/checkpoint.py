"""Journal records into LMDB: the one writer of the store, in whatever process it runs.

Records run through the same reducer as everywhere; what it touched is written together with the rows that are still
alive, and with the lsn reached, in one synced transaction. A message that was settled before its checkpoint is never
written. After an exception the object is ahead of the store and must be thrown away.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import lmdb

from vibemq.model.records import (
    APPLICATION_BYTES_MAX,
    MessagesAdded,
    Record,
    TransactionDecided,
    TransactionsForgotten,
)
from vibemq.storage.kvstore.blocks import BLOCK_BYTES, store_blocks
from vibemq.storage.kvstore.collecting import uncollected
from vibemq.storage.kvstore.dead.index import BUILD_LETTERS
from vibemq.storage.kvstore.dead_letters import StoredDead
from vibemq.storage.kvstore.encoding import decode_batch
from vibemq.storage.kvstore.integrity import load_sound_state
from vibemq.storage.kvstore.store import KV, write_dirty, write_meta
from vibemq.storage.lmdb.environment.env import DATA_FILE, open_writer
from vibemq.storage.lmdb.environment.tables import reading, translated, writing
from vibemq.storage.lmdb.environment.writer_lock import WriterLock
from vibemq.storage.lmdb.journal.room import VALUE_BYTES
from vibemq.storage.lmdb.journal.segment import JournalRecord, read_segment
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.local.disk import Disk, RealDisk
from vibemq.storage.state.arrivals import Arrivals
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.liveness import any_waiting
from vibemq.storage.state.reducer import apply

TRANSACTION_BYTES = 4 << 20
"""Rows per transaction that are still alive: they take several times that much memory, for blocks and dirty pages."""
TRANSACTION_LETTERS = BUILD_LETTERS
"""Dead letters that come or go in one transaction: those that stand for no rows that are still alive count as well."""
SHORT_BLOCK_BYTES = VALUE_BYTES // 9 * 8
"""Rows of a block on a short disk; what a block has beside them is less than an eighth of it."""


def _nobody_asks() -> None:
    pass


class SegmentToApply(NamedTuple):
    path: str
    first_lsn: int
    last_lsn: int


class Checkpoint:
    """Owns the state that the store holds, and moves both forward together."""

    def __init__(self, env: lmdb.Environment, progress: Callable[[], None] = _nobody_asks) -> None:
        """`progress` is called for each fact, each key that is written and each transaction: whoever waits can tell
        work from a standstill."""
        self._env = env
        self._progress = progress
        self._where = str(Path(env.path()) / DATA_FILE)
        self._transaction_bytes = TRANSACTION_BYTES
        self._transaction_letters = TRANSACTION_LETTERS
        self._block_bytes = BLOCK_BYTES
        self._segment_end = 0
        """The last lsn of the segment that is being read."""
        self._dirty = Dirty()
        with uncollected(), reading(env, self._where) as kv:
            self.state = load_sound_state(kv)

    @property
    def applied_lsn(self) -> int:
        return self.state.lsn

    def apply_segments(
        self,
        disk: Disk,
        segments: Sequence[SegmentToApply],
        *,
        up_to_lsn: int,
        at_once: bool = False,
        short: bool = False,
    ) -> None:
        """Apply sealed segments, oldest first. Raises what `writing` and `read_segment` raise.

        Args:
            at_once: in one transaction of any size, for a full disk: what is settled in a later segment is then not
                written, not even for a moment. Takes memory for all of it.
            short: every unused page of the file counts: all are used, and blocks are small, so that they fit into runs
                of few pages.
        """
        self._transaction_bytes = sys.maxsize if at_once else TRANSACTION_BYTES
        self._transaction_letters = sys.maxsize if at_once else TRANSACTION_LETTERS
        self._block_bytes = SHORT_BLOCK_BYTES if short else BLOCK_BYTES
        if short:
            self._free_pages()
        self.apply_records(self._read(disk, segments), up_to_lsn=up_to_lsn)

    def _free_pages(self) -> None:
        """Have the next transaction use the pages that the one before has freed: LMDB keeps them for one more."""
        with writing(self._env, self._where) as kv:
            write_meta(kv, self.state)

    def _read(self, disk: Disk, segments: Sequence[SegmentToApply]) -> Iterator[tuple[str, JournalRecord]]:
        for segment in segments:
            self._segment_end = segment.last_lsn
            for record in read_segment(disk, segment.path, above_lsn=self.state.lsn, last_lsn=segment.last_lsn):
                yield segment.path, record
                del record

    def apply_records(self, records: Iterable[tuple[str, JournalRecord]], *, up_to_lsn: int = 0) -> None:
        """Apply (where from, record) pairs in transactions of bounded size; then the store stands at `up_to_lsn`."""
        left = iter(records)
        more = True
        while more:
            with writing(self._env, self._where, self._progress) as kv:
                more = self._one_transaction(kv, left, up_to_lsn)
            self._dirty.clear()
            self._progress()

    def _one_transaction(self, kv: KV, records: Iterator[tuple[str, JournalRecord]], up_to_lsn: int) -> bool:
        """Return whether the transaction was filled before the records ran out."""
        dead = StoredDead(kv, _nothing_is_volatile)
        arrivals = Arrivals()
        taken = 0
        has_large = more = False
        for where, record in records:
            self._apply_one(where, record, dead, arrivals)
            if len(record.body) >= self._transaction_bytes and not has_large:
                # What settles it mostly stands behind it in its segment; the next segment may have another of its size.
                has_large = True
            else:
                taken += len(record.body)
            is_last = record.lsn >= self._segment_end
            del record
            if dead.unwritten >= self._transaction_letters:
                more = True
                break
            if taken >= self._transaction_bytes or (has_large and is_last):
                has_large, taken = False, arrivals.keep(self._is_alive)
                if taken >= self._transaction_bytes // 2:
                    more = True
                    break
        if not more:
            self.state.lsn = max(self.state.lsn, up_to_lsn)
        store_blocks(kv, self.state, arrivals, self._dirty.left, block_bytes=self._block_bytes)
        dead.flush()
        write_dirty(kv, self.state, self._dirty)
        return more

    def _is_alive(self, fact: MessagesAdded) -> bool:
        """Whether any of its messages must be written. Most are settled before their checkpoint, and cost nothing."""
        queue = self.state.queues.get(fact.queue_id)
        if queue is None:
            return False
        last = fact.first_sequence + fact.rows.count - 1
        return any_waiting(queue, fact.first_sequence, last) or bool(queue.dead.overlap(fact.first_sequence, last))

    def _apply_one(self, where: str, record: JournalRecord, dead: StoredDead, arrivals: Arrivals) -> None:
        for fact in filter(_has_a_key, decode_batch(record.body, where)):
            self._progress()
            apply(self.state, fact, dead, self._dirty)
            arrivals.take(fact)
        self.state.lsn = record.lsn


def apply_offline(layout: Layout, segments: Sequence[SegmentToApply]) -> None:
    """Apply segments in this process, which must not have the store open."""
    lock = WriterLock(layout.store)
    lock.acquire(wait_s=0.0)
    try:
        with translated(str(layout.data_file)), closing(open_writer(layout.store)) as env:
            Checkpoint(env).apply_segments(RealDisk(), segments, up_to_lsn=segments[-1].last_lsn)
    finally:
        lock.release()


def _has_a_key(fact: Record) -> bool:
    """Not of an application whose name is longer than LMDB's keys, as earlier versions let it be: it had no stages, and
    is known until the next start."""
    match fact:
        case TransactionDecided():
            return len(fact.app.encode()) <= APPLICATION_BYTES_MAX
        case TransactionsForgotten():
            fact.apps = [app for app in fact.apps if len(app.encode()) <= APPLICATION_BYTES_MAX]
    return True


def _nothing_is_volatile(queue_id: int) -> bool:
    """Facts about transient messages are not journaled."""
    return False
