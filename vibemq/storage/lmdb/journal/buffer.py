"""Recent rows, by queue and sequence: what the journal holds and LMDB does not have yet.

One entry per appended stretch of messages (never one per message). An entry keeps its rows in memory until the
buffer is over its bound; then the oldest entries forget their rows and remember only where the journal has them.
After a checkpoint, entries at or below `applied_lsn` go altogether: LMDB answers for them.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from vibemq.errors import StorageDamaged
from vibemq.model.rows import LARGE_ROW_BYTES, Rows, single_rows
from vibemq.model.stored import Slice
from vibemq.storage.lmdb.journal.read_back.windows import RowWindow

PlaceT = TypeVar("PlaceT")

ENTRY_BYTES = 400
"""What an entry costs beside its rows."""
_FREED_AT_ONCE = 512
"""Rows of so many stretches are freed as soon as nobody needs them; those of the rest with the next release."""


@dataclass(slots=True)
class JournalEntry(Generic[PlaceT]):
    """One stretch: sequences first … last, consecutive."""

    queue_id: int
    first: int
    last: int
    published_at: int
    lsn: int
    rows: Rows | None
    place: PlaceT
    """Where the journal has the rows."""


class WriteBuffer(Generic[PlaceT]):
    """Not thread-safe: the caller serialises `add`, `read` and `release`.

    Args:
        load: finds an evicted entry's rows in the journal.
        bytes_max: bound of the rows held in memory.
    """

    def __init__(self, load: Callable[[PlaceT, int, int], Rows | RowWindow], *, bytes_max: int) -> None:
        self._load = load
        self._bytes_max = bytes_max
        self._queues: dict[int, list[JournalEntry[PlaceT]]] = {}
        self._by_age: deque[JournalEntry[PlaceT]] = deque()
        self._evictable: deque[JournalEntry[PlaceT]] = deque()
        self.bytes_held = 0

    def add(self, queue_id: int, first: int, published_at: int, rows: Rows, *, lsn: int, place: PlaceT) -> None:
        """Remember a stretch. Sequences of one queue come in ascending order."""
        entry = JournalEntry(queue_id, first, first + rows.count - 1, published_at, lsn, rows, place)
        self._queues.setdefault(queue_id, []).append(entry)
        self._by_age.append(entry)
        if rows.size > LARGE_ROW_BYTES and rows.count == 1:
            # It would drive out all others, and is read back as quickly as it is sent.
            entry.rows = None
            return
        self.bytes_held += rows.size + ENTRY_BYTES
        self._evictable.append(entry)
        self._evict()

    def _evict(self) -> None:
        while self.bytes_held > self._bytes_max and self._evictable:
            self._let_go(self._evictable.popleft())

    def _let_go(self, entry: JournalEntry[PlaceT]) -> None:
        if entry.rows is not None:
            self.bytes_held -= entry.rows.size + ENTRY_BYTES
            entry.rows = None

    def read(self, queue_id: int, first: int, last: int) -> Iterator[Slice]:
        """Slices of the buffered sequences in [first, last], ascending, none of two stretches. Raises StorageDamaged
        with the run of one stretch: its record is damaged as a whole."""
        for entry in self.entries(queue_id, first, last):
            start, stop = max(first, entry.first), min(last, entry.last)
            while start <= stop:
                try:
                    rows = self._part(entry, start - entry.first, stop - entry.first + 1)
                except StorageDamaged as damage:
                    damage.run = start, stop
                    raise
                yield Slice(start, entry.published_at, rows)
                start += rows.count

    def entries(self, queue_id: int, first: int, last: int) -> Iterator[JournalEntry[PlaceT]]:
        """The stretches that reach into [first, last]."""
        entries = self._queues.get(queue_id, [])
        index = bisect_right(entries, first, key=lambda entry: entry.first) - 1
        for entry in islice(entries, max(index, 0), None):
            if entry.first > last:
                return
            if entry.last >= first:
                yield entry

    def pick(self, queue_id: int, sequences: Sequence[int], start: int) -> tuple[list[Slice], int]:
        """Rows of sequences[start:], which ascend, as far as they stand in one stretch with the first of them, each on
        its own, and the index behind those."""
        entry = self.entry_of(queue_id, sequences[start])
        if entry is None:
            return [], start + 1
        stop = bisect_right(sequences, entry.last, start)
        wanted, rows = sequences[start:stop], self._rows(entry)
        indexes = [sequence - entry.first for sequence in wanted]
        singles: Iterable[Rows] = (
            rows.singles(indexes) if isinstance(rows, RowWindow) else single_rows(rows.lengths, rows.data, indexes)
        )
        return [Slice(n, entry.published_at, row) for n, row in zip(wanted, singles, strict=True)], stop

    def entry_of(self, queue_id: int, sequence: int) -> JournalEntry[PlaceT] | None:
        """The stretch that holds the sequence."""
        entries = self._queues.get(queue_id, [])
        index = bisect_right(entries, sequence, key=lambda entry: entry.first) - 1
        return entries[index] if index >= 0 and entries[index].last >= sequence else None

    def _part(self, entry: JournalEntry[PlaceT], start: int, stop: int) -> Rows:
        rows = self._rows(entry)
        return rows.part(start, stop) if isinstance(rows, RowWindow) else rows.slice(start, stop)

    def _rows(self, entry: JournalEntry[PlaceT]) -> Rows | RowWindow:
        if entry.rows is not None:
            return entry.rows
        return self._load(entry.place, entry.queue_id, entry.first)

    def first_buffered(self, queue_id: int) -> int | None:
        """The lowest buffered sequence of the queue; from there on the buffer has all that is stored."""
        entries = self._queues.get(queue_id)
        return entries[0].first if entries else None

    def first_end(self, queue_id: int) -> int | None:
        """Where the queue's first stretch ends."""
        entries = self._queues.get(queue_id)
        return entries[0].last if entries else None

    def release(self, applied_lsn: int, most: int) -> int:
        """Forget entries that the store has by now, about `most` of them; return up to which lsn none is left."""
        by_age = self._by_age
        if len(by_age) > most:
            # Those of one batch go together.
            applied_lsn = min(applied_lsn, max(by_age[0].lsn, by_age[most].lsn - 1))
        touched: set[int] = set()
        while by_age and by_age[0].lsn <= applied_lsn:
            entry = by_age.popleft()
            self._let_go(entry)
            touched.add(entry.queue_id)
        while self._evictable and self._evictable[0].lsn <= applied_lsn:
            self._evictable.popleft()
        for queue_id in touched:
            entries = self._queues.get(queue_id, [])
            self._cut(queue_id, bisect_right(entries, applied_lsn, key=lambda entry: entry.lsn))
        return applied_lsn

    def forget(self, queue_id: int, below: int) -> None:
        """Drop stretches wholly below a sequence: nobody will ask for them again."""
        entries = self._queues.get(queue_id)
        if entries and entries[0].last < below:
            self._drop(queue_id, bisect_right(entries, below - 1, key=lambda entry: entry.last))

    def forget_queue(self, queue_id: int) -> None:
        self._drop(queue_id, len(self._queues.get(queue_id, ())))

    def _drop(self, queue_id: int, count: int) -> None:
        """Drop the queue's first `count` stretches. `_by_age` keeps their shells until their lsn is released."""
        for entry in islice(self._queues.get(queue_id, ()), min(count, _FREED_AT_ONCE)):
            self._let_go(entry)
        self._cut(queue_id, count)

    def _cut(self, queue_id: int, count: int) -> None:
        entries = self._queues.get(queue_id)
        if entries is None:
            return
        del entries[:count]
        if not entries:
            del self._queues[queue_id]
