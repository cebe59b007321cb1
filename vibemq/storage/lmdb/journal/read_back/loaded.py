"""The journal records that were read last."""

from collections import OrderedDict
from typing import Final

from vibemq.errors import StorageDamaged
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import Rows
from vibemq.storage.kvstore.encoding import decode_batch
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.read_back.windows import Pieces, RowWindow, VerifiedRecord, broken

RECORD_BYTES_MAX = 1 << 20
"""Of a record that is read and kept whole; what is above is read through a window."""
STRETCHES_MAX = 2_048
"""Of a record that is read through a window: to find one, the heads of those before it are read. A record with more is
kept whole, whatever its size."""
LOADED_BYTES_MAX = 16 << 20
"""Of all records that are kept whole."""
LOADED_MAX = 128
PLACES_MAX = 32 * STRETCHES_MAX
"""Of stretches in records above `RECORD_BYTES_MAX`; those of the record that is in use may be more."""


class LoadedRecords:
    """Decoded when they are small: a backlog is read in the order in which it was written, by several consumers at a
    time, in pieces that may be much smaller than a record. Not thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal: Final = journal
        self._loaded: OrderedDict[int, tuple[int, dict[tuple[int, int], Rows]]] = OrderedDict()
        """By lsn, its size and its rows, these by queue and first sequence."""
        self._size = 0
        self._verified: dict[int, VerifiedRecord] = {}
        self._pieces: Final = Pieces()
        self._indexed: OrderedDict[int, VerifiedRecord] = OrderedDict()
        """Those of `_verified` that know where their stretches are, the one that was asked last at the end."""
        self._places = 0
        self._broken: set[int] = set()
        """Each was read once, and is damaged as a whole: it has one checksum."""

    def rows(self, position: JournalPosition, queue_id: int, first: int) -> Rows | RowWindow | None:
        """Those of the stretch that begins with this sequence. Raises StorageDamaged."""
        if position.size > RECORD_BYTES_MAX and self._verified_record(position).stretches <= STRETCHES_MAX:
            return self._window(position, queue_id, first)
        return self._stretches(position).get((queue_id, first))

    def _stretches(self, position: JournalPosition) -> dict[tuple[int, int], Rows]:
        lsn = position.lsn
        if lsn in self._loaded:
            self._loaded.move_to_end(lsn)
            return self._loaded[lsn][1]
        if lsn in self._broken:
            raise broken(position)
        # Room is made first, so that no more is held while the record is decoded.
        self._make_room(position.size)
        try:
            records = decode_batch(self._journal.read(position), f"journal record {lsn}")
        except StorageDamaged as damage:
            self._note(lsn, damage)
            raise
        stretches = {
            (record.queue_id, record.first_sequence): record.rows for record in records if type(record) is MessagesAdded
        }
        self._loaded[lsn] = position.size, stretches
        self._size += position.size
        return stretches

    def _note(self, lsn: int, damage: StorageDamaged) -> None:
        # What a disk cannot read now it may read the next time.
        if not isinstance(damage.__cause__, OSError):
            self._broken.add(lsn)

    def _make_room(self, size: int) -> None:
        while self._loaded and (self._size + size > LOADED_BYTES_MAX or len(self._loaded) >= LOADED_MAX):
            self._size -= self._loaded.popitem(last=False)[1][0]

    def _window(self, position: JournalPosition, queue_id: int, first: int) -> RowWindow | None:
        record = self._verified_record(position)
        known = record.indexed
        try:
            window = record.window(queue_id, first)
        finally:
            self._places += record.indexed - known
        self._indexed[position.lsn] = record
        self._indexed.move_to_end(position.lsn)
        while self._places > PLACES_MAX and len(self._indexed) > 1:
            oldest = self._indexed.popitem(last=False)[1]
            self._places -= oldest.indexed
            oldest.forget_places()
        return window

    def _verified_record(self, position: JournalPosition) -> VerifiedRecord:
        lsn = position.lsn
        record = self._verified.get(lsn)
        if record is None:
            if lsn in self._broken:
                raise broken(position)
            try:
                record = self._verified[lsn] = VerifiedRecord(self._journal, position, self._pieces)
            except StorageDamaged as damage:
                self._note(lsn, damage)
                raise
        return record

    def release(self, applied_lsn: int) -> None:
        """Forget those that the store has."""
        for lsn in [lsn for lsn in self._loaded if lsn <= applied_lsn]:
            self._size -= self._loaded.pop(lsn)[0]
        for lsn in [lsn for lsn in self._verified if lsn <= applied_lsn]:
            self._places -= self._verified.pop(lsn).indexed
            self._indexed.pop(lsn, None)
        self._pieces.release(applied_lsn)
        self._broken = {lsn for lsn in self._broken if lsn > applied_lsn}
