"""A large journal record, of which only the rows that are asked for are read and decoded.

A record has one checksum. It is verified once, over the whole record, and each piece of 64 KiB leaves a checksum of its
own in memory. Whatever is read of the record later must match the pieces that were verified.
"""

import struct
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final

import google_crc32c

from vibemq.errors import StorageDamaged
from vibemq.model.rows import Rows
from vibemq.storage.kvstore.encoding import AddedPlace, AddedPlaces, row_sizes
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.recovery import REPAIR_HINT
from vibemq.storage.lmdb.journal.segment import HEADER, record_header

PIECE_BYTES = 64 << 10
PIECES_MAX = 256
"""Of all records, kept in memory."""
WINDOW_BYTES = 256 << 10
"""Of rows that are returned at a time; a single one may have more."""
MARK_ROWS = 1_024
"""Between two rows of a stretch whose places are kept."""
WINDOW_ROWS = 4 * MARK_ROWS
_UNREADABLE = (struct.error, ValueError)


class Pieces:
    """The pieces that were read last, of all records: several readers stand in one record. Not thread-safe."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def get(self, lsn: int, index: int, read: Callable[[int], bytes]) -> bytes:
        key = lsn, index
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = read(index)
            if len(self._pieces) > PIECES_MAX:
                self._pieces.popitem(last=False)
        else:
            self._pieces.move_to_end(key)
        return piece

    def release(self, applied_lsn: int) -> None:
        """Forget those of records that the store has."""
        for key in [key for key in self._pieces if key[0] <= applied_lsn]:
            del self._pieces[key]


def broken(position: JournalPosition) -> StorageDamaged:
    return StorageDamaged(
        f"journal record {position.lsn} is broken",
        path=f"journal segment {position.segment:x}",
        offset=position.offset,
        hint=REPAIR_HINT,
    )


class VerifiedRecord:
    """Raises StorageDamaged, when it is made and with every read."""

    def __init__(self, journal: Journal, position: JournalPosition, pieces: Pieces) -> None:
        self._journal: Final = journal
        self._position: Final = position
        self._pieces: Final = pieces
        self._sums: Final = array("I")
        self._broken = False
        """It was sound once, and is damaged as a whole since a piece of it is: it has one checksum."""
        self._places: AddedPlaces | None = None
        self._marks: dict[int, array[int]] = {}
        self._verify()

    @property
    def indexed(self) -> int:
        """How many stretches are known by their place."""
        return len(self._places.found) if self._places is not None else 0

    @property
    def stretches(self) -> int:
        """How many facts it holds: as many stretches of rows at most. Raises StorageDamaged."""
        return self._known_places().count

    def forget_places(self) -> None:
        self._places = None
        self._marks.clear()

    def window(self, queue_id: int, first: int) -> "RowWindow | None":
        """The rows of the stretch that begins with this sequence."""
        places = self._known_places()
        try:
            place = places.find(queue_id, first)
        except _UNREADABLE as damage:
            raise self._told(damage) from damage
        return None if place is None else RowWindow(self, place)

    def _known_places(self) -> AddedPlaces:
        if self._places is None:
            try:
                self._places = AddedPlaces(self.read, self._position.size)
            except _UNREADABLE as damage:
                raise self._told(damage) from damage
        return self._places

    def rows(self, place: AddedPlace, start: int, stop: int) -> Rows:
        """Rows of these indexes in a stretch, at least one, as far as a window reaches."""
        try:
            return self._rows(place, start, min(stop, place.row_count, start + WINDOW_ROWS))
        except _UNREADABLE as damage:
            raise self._told(damage) from damage

    def _rows(self, place: AddedPlace, start: int, stop: int) -> Rows:
        if start >= stop:
            raise ValueError(f"no row {start} in a stretch of {place.row_count}")
        at, lengths = self._at(place, start), self._lengths(place, start, stop)
        ends = list(accumulate(row_sizes(lengths)))
        count = 1
        while count < len(ends) and ends[count] <= WINDOW_BYTES:
            count += 1
        data = self.read(place.data_at + at, place.data_at + at + ends[count - 1])
        return Rows(count, lengths[: 4 * count], data)

    def singles(self, place: AddedPlace, indexes: Sequence[int]) -> list[Rows]:
        """Each of these rows of a stretch, which ascend, on its own."""
        try:
            return [row for block in self._by_mark(indexes) for row in self._singles(place, block)]
        except _UNREADABLE as damage:
            raise self._told(damage) from damage

    @staticmethod
    def _by_mark(indexes: Sequence[int]) -> Iterator[list[int]]:
        for _, block in groupby(indexes, lambda index: index // MARK_ROWS):
            yield list(block)

    def _singles(self, place: AddedPlace, indexes: list[int]) -> Iterator[Rows]:
        first = indexes[0] // MARK_ROWS * MARK_ROWS
        lengths = self._lengths(place, first, indexes[-1] + 1)
        ends = list(accumulate(row_sizes(lengths), initial=self._at(place, first)))
        for index in (index - first for index in indexes):
            data = self.read(place.data_at + ends[index], place.data_at + ends[index + 1])
            yield Rows(1, lengths[4 * index : 4 * index + 4], data)

    def _at(self, place: AddedPlace, row: int) -> int:
        """Where in the data of a stretch a row begins."""
        mark = row // MARK_ROWS
        begin = self._marks_of(place)[mark] if mark else 0
        return begin + sum(row_sizes(self._lengths(place, mark * MARK_ROWS, row)))

    def _lengths(self, place: AddedPlace, start: int, stop: int) -> bytes:
        return self.read(place.lengths_at + 4 * start, place.lengths_at + 4 * stop)

    def _marks_of(self, place: AddedPlace) -> "array[int]":
        """Where in the data of a stretch every so many rows begin."""
        marks = self._marks.get(place.lengths_at)
        if marks is None:
            marks, at = array("Q"), 0
            for start in range(0, place.row_count, MARK_ROWS):
                marks.append(at)
                at += sum(row_sizes(self._lengths(place, start, min(place.row_count, start + MARK_ROWS))))
            if at != place.data_size:
                raise ValueError("row lengths do not add up")
            self._marks[place.lengths_at] = marks
        return marks

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the record's body. Raises ValueError when it does not have them."""
        if self._broken:
            raise broken(self._position)
        if not 0 <= start <= stop <= self._position.size:
            raise ValueError(f"bytes {start} to {stop} of a record of {self._position.size}")
        begin, last = start // PIECE_BYTES, (stop - 1) // PIECE_BYTES
        if last == begin:
            piece = self._pieces.get(self._position.lsn, begin, self._piece)
            return piece[start - begin * PIECE_BYTES : stop - begin * PIECE_BYTES]
        parts = [self._pieces.get(self._position.lsn, index, self._piece) for index in range(begin, last + 1)]
        if parts:
            parts[-1] = parts[-1][: stop - last * PIECE_BYTES]
            parts[0] = parts[0][start - begin * PIECE_BYTES :]
        return b"".join(parts)

    def _piece(self, index: int) -> bytes:
        piece = self._raw(index * PIECE_BYTES)
        if google_crc32c.value(piece) != self._sums[index]:
            self._broken = True
            raise broken(self._position)
        return piece

    def _raw(self, at: int) -> bytes:
        size = min(PIECE_BYTES, self._position.size - at)
        return self._journal.read_part(self._position, HEADER.size + at, size)

    def _verify(self) -> None:
        position = self._position
        header = self._journal.read_part(position, 0, HEADER.size)
        fields = HEADER.unpack(header) if len(header) == HEADER.size else (0,) * 6
        expected = record_header(
            position.size,
            self._summed,
            epoch=position.segment,
            lsn=position.lsn,
            durable_lsn=fields[4],
            kind=fields[5],
        )
        if header != expected:
            raise broken(position)

    def _summed(self, crc: int) -> int:
        # Piece by piece: each read lets the interpreter lock go.
        for at in range(0, self._position.size, PIECE_BYTES):
            piece = self._raw(at)
            self._sums.append(google_crc32c.value(piece))
            crc = google_crc32c.extend(crc, piece)
        return crc

    def _told(self, damage: Exception) -> StorageDamaged:
        return StorageDamaged(
            f"a batch of records cannot be read ({damage})", path=f"journal record {self._position.lsn}"
        )


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The rows of one stretch, read as they are asked for."""

    record: VerifiedRecord
    place: AddedPlace

    def part(self, start: int, stop: int) -> Rows:
        """Rows [start, stop), or the leading ones of them, at least one. Raises StorageDamaged."""
        return self.record.rows(self.place, start, stop)

    def singles(self, indexes: Sequence[int]) -> list[Rows]:
        """Each of these rows, which ascend, on its own. Raises StorageDamaged."""
        return self.record.singles(self.place, indexes)
