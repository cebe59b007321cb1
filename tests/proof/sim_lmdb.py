"""LMDB's promises on a simulated disk: ordered keys, snapshots, and commits that happen wholly or not at all.

LMDB maps its file, so it cannot run on a `SimDisk`. In its place the file holds the number of a snapshot, in one
sector: a commit writes the next number and flushes the file, so a power cut in between leaves the old or the new one,
and one after it the new. The snapshots themselves stand in a `Book` beside the disk. Whoever copies the file or renames
it handles the number like the pages it stands for.
"""

import struct
from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vibemq.errors import StorageDamaged
from vibemq.testing.sim_disk import SimDisk

_STAMP = struct.Struct("!8sQ")
_MAGIC = b"snapshot"
DATA_FILE = "data.mdb"


class Snapshot:
    __slots__ = ("keys", "values")

    def __init__(self, keys: list[bytes], values: dict[bytes, bytes]) -> None:
        self.keys = keys
        self.values = values


class Book:
    """Every state a store was ever committed in; number 0 is the empty one."""

    def __init__(self) -> None:
        self.snapshots = [Snapshot([], {})]

    def add(self, snapshot: Snapshot) -> int:
        self.snapshots.append(snapshot)
        return len(self.snapshots) - 1


def pack_stamp(number: int) -> bytes:
    return _STAMP.pack(_MAGIC, number)


def snapshot_number(content: bytes, where: str) -> int:
    """Raises StorageDamaged when the file is none of ours."""
    if len(content) >= _STAMP.size:
        magic, number = _STAMP.unpack_from(content)
        if magic == _MAGIC:
            return int(number)
    raise StorageDamaged("no valid LMDB header", path=where, offset=0)


class SimEnv:
    """The methods of `lmdb.Environment` that the storage room calls."""

    def __init__(self, disk: SimDisk, folder: str, book: Book, *, create: bool) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{DATA_FILE}"
        self._book = book
        if create and not (disk.exists(self._path) and disk.content(self._path)):
            self.write(disk, self._path, 0)

    def path(self) -> str:
        return self._folder

    def close(self) -> None:
        pass

    def sync(self, force: bool) -> None:
        file = self._disk.open(self._path)
        self._disk.fdatasync(file)
        self._disk.close(file)

    def copy(self, folder: str, *, compact: bool) -> None:
        self.write(self._disk, f"{folder}/{DATA_FILE}", self.number)

    @property
    def number(self) -> int:
        return snapshot_number(self._disk.content(self._path), self._path)

    @contextmanager
    def begin(self, *, write: bool = False, buffers: bool = False) -> "Iterator[SimTransaction]":
        before = self._book.snapshots[self.number]
        if not write:
            yield SimTransaction(before)
            return
        transaction = SimTransaction(Snapshot(list(before.keys), dict(before.values)))
        yield transaction
        self.write(self._disk, self._path, self._book.add(transaction.snapshot), flush=True)

    @staticmethod
    def write(disk: SimDisk, path: str, number: int, *, flush: bool = False) -> None:
        file = disk.open(path, create=True)
        # LMDB's header is one sector and one write; a short one would be an error to LMDB.
        short, disk.short_writes = disk.short_writes, False
        disk.pwritev(file, [pack_stamp(number)], 0)
        disk.short_writes = short
        if flush:
            disk.fdatasync(file)
        disk.close(file)


class SimTransaction:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def get(self, key: bytes) -> bytes | None:
        return self.snapshot.values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.snapshot.values:
            insort(self.snapshot.keys, key)
        self.snapshot.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.snapshot.values.pop(key, None) is not None:
            del self.snapshot.keys[bisect_left(self.snapshot.keys, key)]

    def cursor(self) -> "SimCursor":
        return SimCursor(self.snapshot)


class SimCursor:
    def __init__(self, snapshot: Snapshot) -> None:
        self._keys = snapshot.keys
        self._values = snapshot.values
        self._at = 0

    def __enter__(self) -> "SimCursor":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_range(self, key: bytes) -> bool:
        self._at = bisect_left(self._keys, key)
        return self._at < len(self._keys)

    def key(self) -> bytes:
        return self._keys[self._at] if self._at < len(self._keys) else b""

    def value(self) -> bytes:
        return self._values[self.key()]

    def prev(self) -> bool:
        if self._at == 0:
            return False
        self._at -= 1
        return True

    def first(self) -> bool:
        self._at = 0
        return bool(self._keys)

    def last(self) -> bool:
        self._at = max(0, len(self._keys) - 1)
        return bool(self._keys)

    def delete(self) -> bool:
        if self._at >= len(self._keys):
            return False
        del self._values[self._keys.pop(self._at)]
        return True

    def iternext(self, *, keys: bool = True, values: bool = True) -> Iterator[Any]:
        for at in range(self._at, len(self._keys)):
            key = self._keys[at]
            yield (key, self._values[key]) if keys and values else key

    def iterprev(self) -> Iterator[Any]:
        for at in range(min(self._at, len(self._keys) - 1), -1, -1):
            yield self._keys[at], self._values[self._keys[at]]
