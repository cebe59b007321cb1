"""What the journal holds and the store does not: rows appended since the last checkpoint, durable ones and transient.

Durable rows stand in the write buffer and, when it is over its bound, only in their journal record. Transient rows
exist nowhere else.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from vibemq.errors import StorageDamaged
from vibemq.model.records import MessagesAdded, Record, StageMoved
from vibemq.model.rows import LARGE_ROW_BYTES, Rows
from vibemq.model.runs import RunSet
from vibemq.model.stored import Slice, StoredQueue, StoredState
from vibemq.storage.kvstore.encoding import decode_batch
from vibemq.storage.kvstore.transient_rows import VolatileRows
from vibemq.storage.lmdb.journal.buffer import WriteBuffer
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.moved import MovedStages
from vibemq.storage.lmdb.journal.recovery import REPAIR_HINT
from vibemq.storage.state.changes import Dirty, ValueKind
from vibemq.storage.state.liveness import MANY_GROUPS, floor_of_many, is_surely_waiting, waiting_floor
from vibemq.storage.state.reducer import is_transient

RECORD_BYTES_MAX = 16 << 20
"""Of a record that is kept while its rows are read; what is above is read anew for each piece."""
LOADED_BYTES_MAX = 32 << 20
"""Of all records that are kept."""
LOADED_MAX = 128


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


class LoadedRecords:
    """The journal records that were read last, decoded: a backlog is read in the order in which it was written, by
    several consumers at a time, in pieces that may be much smaller than a record. Not thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal: Final = journal
        self._loaded: OrderedDict[int, tuple[int, list[Record]]] = OrderedDict()
        """Size and contents, by lsn."""
        self._size = 0
        self._broken: set[int] = set()
        """Each was read once, and is damaged as a whole: it has one checksum."""

    def records(self, position: JournalPosition) -> list[Record]:
        """Raises StorageDamaged."""
        lsn = position.lsn
        if lsn in self._loaded:
            self._loaded.move_to_end(lsn)
            return self._loaded[lsn][1]
        if lsn in self._broken:
            raise StorageDamaged(
                f"journal record {lsn} is broken",
                path=f"journal segment {position.segment:x}",
                offset=position.offset,
                hint=REPAIR_HINT,
            )
        kept = position.size <= RECORD_BYTES_MAX
        # Room is made first, so that no more is held while the record is decoded.
        self._make_room(position.size if kept else 0)
        records = self._read(position)
        if kept and not _is_large_row(records):
            self._loaded[lsn] = position.size, records
            self._size += position.size
        return records

    def _read(self, position: JournalPosition) -> list[Record]:
        try:
            return decode_batch(self._journal.read(position), f"journal record {position.lsn}")
        except StorageDamaged as damage:
            # What a disk cannot read now it may read the next time.
            if not isinstance(damage.__cause__, OSError):
                self._broken.add(position.lsn)
            raise

    def _make_room(self, size: int) -> None:
        while self._loaded and (self._size + size > LOADED_BYTES_MAX or len(self._loaded) >= LOADED_MAX):
            self._size -= self._loaded.popitem(last=False)[1][0]

    def release(self, applied_lsn: int) -> None:
        """Forget those that the store has."""
        for lsn in [lsn for lsn in self._loaded if lsn <= applied_lsn]:
            self._size -= self._loaded.pop(lsn)[0]
        self._broken = {lsn for lsn in self._broken if lsn > applied_lsn}


def _is_large_row(records: Sequence[Record]) -> bool:
    """Then it is read once, and as quickly as it is sent."""
    rows = [record.rows for record in records if type(record) is MessagesAdded]
    return len(rows) == 1 and rows[0].count == 1 and rows[0].size > LARGE_ROW_BYTES


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

    def release(self, applied_lsn: int) -> None:
        """The store has everything up to here."""
        self._buffer.release(applied_lsn)
        self._loaded.release(applied_lsn)
        if self.moved:
            for stage_id in self.moved.release(applied_lsn):
                self._buffer.forget_queue(stage_id)

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

    def _load(self, position: JournalPosition, queue_id: int, first: int) -> Rows:
        """Read an evicted stretch back."""
        for record in self._loaded.records(position):
            if type(record) is MessagesAdded and (record.queue_id, record.first_sequence) == (queue_id, first):
                return record.rows
        raise StorageDamaged(
            f"messages from {first} of queue {queue_id} are not in journal record {position.lsn}",
            path=f"journal segment {position.segment:x}",
            offset=position.offset,
        )


def _floor(queue: StoredQueue) -> int:
    """No row below it will be read again."""
    floor = waiting_floor(queue)
    return min(floor, queue.dead.first) if queue.dead else floor
