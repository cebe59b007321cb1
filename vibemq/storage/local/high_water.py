"""How far the store was durable, noted beside its log or journal.

SQLite takes the first frame of its log whose checksum is wrong for the end of the log, and says nothing: a few damaged
bytes hide whatever was committed behind them. The journal of the lmdb provider tells such damage from a torn tail by
later records, and behind the last one there are none. So every flush is followed by a note of the last batch that it
covered. A store that opens behind its note has lost something it had confirmed.

    vibemq.sqlite-durable, journal-durable    two slots of 32 bytes, 512 bytes apart, written in turns:
                                              magic 8s | turn u64 BE | lsn u64 BE | 0 u32 | crc32c u32 BE of all before

The note is written after the flush, so it is never ahead of the log. It is flushed itself about once a second, so a
power cut may leave one that is a second old; after the death of the process it is exact.
"""

import struct
from pathlib import Path

import google_crc32c

from vibemq.storage.local.disk import Disk, RealDisk, write_all
from vibemq.storage.local.store_file import fsync_folder

SUFFIX = "-durable"
_SLOT = struct.Struct("!8sQQI")
_CRC = struct.Struct("!I")
_MAGIC = b"VMQ-HWM1"
_SLOTS = (0, 512)
REAL = RealDisk()
_SIZE = 1024


def note_of(database: Path) -> Path:
    """Of a database, or a journal's folder."""
    return database.with_name(database.name + SUFFIX)


class HighWater:
    """The note of one open store. `write` may be called from the sync thread; the other verbs are the owner's."""

    def __init__(self, path: Path, disk: Disk = REAL) -> None:
        """Raises OSError when there is no room for the file."""
        self._disk = disk
        self._file = disk.open(str(path), create=True)
        try:
            if disk.size(self._file) < _SIZE:
                disk.fallocate(self._file, _SIZE)
                disk.fsync(self._file)
        except BaseException:
            disk.close(self._file)
            raise
        known = _read(disk, self._file)
        self._turn = max((turn for turn, _ in known), default=0)
        self.lsn = max((lsn for _, lsn in known), default=0)
        self._flushed = self.lsn

    def write(self, lsn: int) -> None:
        """Note that the batch of this lsn is written and flushed."""
        if lsn == self.lsn:
            return
        self._turn += 1
        write_all(self._disk, self._file, [_packed(self._turn, lsn)], _SLOTS[self._turn % 2])
        self.lsn = lsn

    def flush(self) -> None:
        lsn = self.lsn
        if lsn != self._flushed:
            self._disk.fdatasync(self._file)
            self._flushed = lsn

    def close(self) -> None:
        if self._file >= 0:
            self._disk.close(self._file)
            self._file = -1


def read_note(path: Path, disk: Disk = REAL) -> tuple[int, bool]:
    """The lsn that the store must have reached, 0 when nothing is known; and whether the note itself is damaged."""
    try:
        file = disk.open(str(path), readonly=True)
    except FileNotFoundError:
        return 0, False
    try:
        known = _read(disk, file)
        content = disk.pread(file, _SIZE, 0)
    finally:
        disk.close(file)
    used = sum(any(content[at : at + _SLOT.size + _CRC.size]) for at in _SLOTS)
    return max((lsn for _, lsn in known), default=0), len(known) < used


def write_note(path: Path, lsn: int) -> None:
    """Begin a new note, for a store that was made anew."""
    path.unlink(missing_ok=True)
    note = HighWater(path)
    try:
        note.write(lsn)
        note.flush()
    finally:
        note.close()
    fsync_folder(path.parent)


def _packed(turn: int, lsn: int) -> bytes:
    body = _SLOT.pack(_MAGIC, turn, lsn, 0)
    return body + _CRC.pack(google_crc32c.value(body))


def _read(disk: Disk, file: int) -> list[tuple[int, int]]:
    """(turn, lsn) of each sound slot."""
    found: list[tuple[int, int]] = []
    for at in _SLOTS:
        data = disk.pread(file, _SLOT.size + _CRC.size, at)
        if len(data) < _SLOT.size + _CRC.size:
            continue
        magic, turn, lsn, _ = _SLOT.unpack_from(data)
        if magic == _MAGIC and _CRC.unpack_from(data, _SLOT.size)[0] == google_crc32c.value(data[: _SLOT.size]):
            found.append((turn, lsn))
    return found
