"""What the journal holds and the store does not: rows appended since the last checkpoint, durable ones and transient.

Durable rows stand in the write buffer and, when it is over its bound, only in their journal record. Transient rows
exist nowhere else.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from vibemq.errors import StorageDamaged
from vibemq.model.records import MessagesAdded, StageMoved
from vibemq.model.rows import LARGE_ROW_BYTES, Rows
from vibemq.model.runs import RunSet
from vibemq.model.stored import Slice, StoredQueue, StoredState
from vibemq.storage.kvstore.transient_rows import VolatileRows
from vibemq.storage.lmdb.journal.buffer import WriteBuffer
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.moved import MovedStages
from vibemq.storage.lmdb.journal.read_back.loaded import LoadedRecords
from vibemq.storage.lmdb.journal.read_back.windows import RowWindow
from vibemq.storage.state.changes import Dirty, ValueKind
from vibemq.storage.state.liveness import MANY_GROUPS, floor_of_many, is_surely_waiting, waiting_floor
from vibemq.storage.state.reducer import is_transient


class _Unkept(set[Any]):
    def add(self, element: Any) -> None:
        pass

    def update(self, *elements: Any) -> None:
        pass


class _UnkeptByQueue(dict[int, dict[int, bool]]):
    def setdefault(self, queue_id: int, marks: dict[int, bool]) -> dict[int, bool]:
        return marks


class LeftOnly(Dirty):
    """Notes which messages may have left, and nothing else: the broker writes no state values, and would never empty
    what it notes of them."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        for name in Dirty.__slots__:
            if isinstance(getattr(self, name), set):
                setattr(self, name, _Unkept())
        self.dedup = _UnkeptByQueue()

    def mark_runs(self, queue_id: int, group_id: int, kind: int, runs: RunSet, first: int, last: int) -> None:
        pass

    def mark_all_runs(self, queue_id: int, group_id: int, kind: int, runs: RunSet) -> None:
        pass

    def mark_value(self, queue_id: int, group_id: int, kind: ValueKind, sequence: int) -> None:
        pass

    def mark_values(self, queue_id: int, group_id: int, kind: ValueKind, sequences: Sequence[int]) -> None:
        pass


class RecentRows:
    """Not thread-safe; the provider's lock guards it."""

    def __init__(self, journal: Journal, *, buffer_bytes: int) -> None:
        self._buffer: WriteBuffer[JournalPosition] = WriteBuffer(self._load, bytes_max=buffer_bytes)
        self._transient = VolatileRows()
        self.moved: Final = MovedStages()
        self._loaded: Final = LoadedRecords(journal)

    @property
    def bytes_held(self) -> int:
        return self._buffer.bytes_held + self._transient.size

    def add(self, state: StoredState, record: MessagesAdded, position: JournalPosition | None) -> None:
        """Keep the rows of a record that was just applied to `state`; `position` None: it was not journaled."""
        queue = state.queues.get(record.queue_id)
        if queue is None or queue.deleted or not record.rows.count:
            return
        if position is None or is_transient(state, record.queue_id):
            self._transient.add(record)
            return
        self._buffer.add(
            record.queue_id,
            record.first_sequence,
            record.published_at,
            record.rows,
            lsn=position.lsn,
            place=position,
        )

    def move(self, record: StageMoved, lsn: int) -> None:
        """The rows of a stage are asked for under other sequences from here on."""
        self.moved.add(record, lsn)

    def forget(self, state: StoredState, left: dict[int, RunSet]) -> None:
        """Let go of rows that nobody will ask for; `left` says where to look."""
        for queue_id in [queue_id for queue_id in left if queue_id not in self.moved] if self.moved else left:
            queue = state.queues.get(queue_id)
            if queue is None:
                self._buffer.forget_queue(queue_id)
            elif len(queue.groups) < MANY_GROUPS:
                self._buffer.forget(queue_id, _floor(queue))
            else:
                self._forget_of_many(queue_id, queue)
        self._transient.forget(state, left)

    def _forget_of_many(self, queue_id: int, queue: StoredQueue) -> None:
        """Groups settle one after the other, and all of them are looked at only when the last one may have."""
        end = self._buffer.first_end(queue_id)
        if end is not None and not is_surely_waiting(queue, end):
            floor = floor_of_many(queue)
            self._buffer.forget(queue_id, min(floor, queue.dead.first) if queue.dead else floor)

    def release(self, applied_lsn: int, most: int) -> bool:
        """The store has everything up to here: forget about `most` stretches of it. Return whether there are more."""
        reached = self._buffer.release(applied_lsn, most)
        self._loaded.release(reached)
        if self.moved:
            for stage_id in self.moved.release(reached):
                self._buffer.forget_queue(stage_id)
        return reached < applied_lsn

    def first_buffered(self, queue_id: int) -> int | None:
        return self._buffer.first_buffered(queue_id)

    def read(self, queue_id: int, first: int, last: int) -> Iterator[Slice]:
        """Durable rows within [first, last], ascending."""
        return self._buffer.read(queue_id, first, last)

    def pick(self, queue_id: int, sequences: Sequence[int], start: int) -> tuple[list[Slice], int]:
        """See `WriteBuffer.pick`."""
        return self._buffer.pick(queue_id, sequences, start)

    def read_transient(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        return self._transient.read(queue_id, first, last, max_bytes)

    def place_of(self, queue_id: int, sequence: int) -> tuple[JournalPosition, int] | None:
        """Where the journal has a durable row that stands alone in its stretch, and when it was published."""
        entry = self._buffer.entry_of(queue_id, sequence)
        return (entry.place, entry.published_at) if entry is not None and entry.first == entry.last else None

    def first_large(self, queue_id: int, first: int, last: int) -> int | None:
        """The first durable row in [first, last] that stands alone in a large record."""
        for entry in self._buffer.entries(queue_id, first, last):
            if entry.first == entry.last and entry.rows is None and entry.place.size > LARGE_ROW_BYTES:
                return entry.first
        return None

    def _load(self, position: JournalPosition, queue_id: int, first: int) -> Rows | RowWindow:
        """Find an evicted stretch."""
        rows = self._loaded.rows(position, queue_id, first)
        if rows is not None:
            return rows
        raise StorageDamaged(
            f"messages from {first} of queue {queue_id} are not in journal record {position.lsn}",
            path=f"journal segment {position.segment:x}",
            offset=position.offset,
        )


def _floor(queue: StoredQueue) -> int:
    """No row below it will be read again."""
    floor = waiting_floor(queue)
    return min(floor, queue.dead.first) if queue.dead else floor
