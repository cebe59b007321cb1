"""An LMDB transaction as the ordered key-value store that `vibemq.storage.kvstore.store` works on."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from vibemq.errors import StorageDamaged, StorageFailed, StorageFull
from vibemq.storage.kvstore.integrity import TalliedKV
from vibemq.storage.lmdb.journal.recovery import REPAIR_HINT
from vibemq.storage.local.file_limit import RESTART, why_no_growth

FULL_BELOW_BYTES = 1 << 20

_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)))
_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.BadTxnError,
    lmdb.PanicError,
)


class LmdbKV:
    """Valid as long as its transaction. Returned bytes are copies."""

    def __init__(self, transaction: lmdb.Transaction, where: str) -> None:
        self._transaction = transaction
        self.where = where

    @property
    def snapshot(self) -> int:
        """Number of the transaction that is read."""
        return int(self._transaction.id())

    def get(self, key: bytes) -> bytes | None:
        value = self._transaction.get(key)
        return None if value is None else bytes(value)

    def view(self, key: bytes) -> memoryview:
        """The value where it stands; as long as the transaction, which was begun for views. Raises KeyError."""
        value = self._transaction.get(key)
        if value is None:
            raise KeyError(key)
        return memoryview(value)

    def put(self, key: bytes, value: bytes) -> None:
        self._transaction.put(key, value)

    def delete(self, key: bytes) -> None:
        self._transaction.delete(key)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        with self._transaction.cursor() as cursor:
            found = cursor.set_range(start)
            while found and bytes(cursor.key()) < stop:
                # After a delete the cursor stands on the next key, or nowhere.
                found = cursor.delete() and bool(cursor.key())

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._transaction.cursor() as cursor:
            if not cursor.set_range(start):
                return
            for key, value in cursor.iternext():
                found = bytes(key)
                if found >= stop:
                    return
                yield found, bytes(value)

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._transaction.cursor() as cursor:
            # The cursor stands on the last key below `stop` then, or nowhere.
            if not (cursor.prev() if cursor.set_range(stop) else cursor.last()):
                return
            for key, value in cursor.iterprev():
                found = bytes(key)
                if found < start:
                    return
                yield found, bytes(value)

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        with self._transaction.cursor() as cursor:
            if cursor.set_range(key):
                if bytes(cursor.key()) != key and not cursor.prev():
                    return None
            elif not cursor.last():
                return None
            found = bytes(cursor.key())
            return (found, bytes(cursor.value())) if start <= found <= key else None


def _nobody_asks() -> None:
    pass


@contextmanager
def reading(env: lmdb.Environment, where: str, *, views: bool = False) -> Iterator[LmdbKV]:
    """A snapshot. Keep it for milliseconds: while it lives, LMDB cannot use freed pages again.

    Args:
        views: for `LmdbKV.view`.
    """
    with translated(where), env.begin(buffers=True) if views else env.begin(buffers=False) as transaction:
        yield LmdbKV(transaction, where)


@contextmanager
def writing(env: lmdb.Environment, where: str, progress: Callable[[], None] = _nobody_asks) -> Iterator[TalliedKV]:
    """One synced transaction that keeps the tally; any exception undoes it. `progress`: see `TalliedKV`.

    Raises:
        StorageFull: no room; nothing changed.
        StorageFailed: the outcome is unknown; the process must end.
    """
    with translated(where), env.begin(write=True) as transaction:
        kv = TalliedKV(LmdbKV(transaction, where), progress)
        yield kv
        kv.save()


@contextmanager
def translated(where: str, store: str = "") -> Iterator[None]:
    """LMDB's errors as ours. `store`: what is read, where `where` is a copy that is written from it."""
    try:
        yield
    except (lmdb.MapFullError, lmdb.TxnFullError, lmdb.DiskError) as error:
        raise StorageFull(f"no room in {where}: {error}; free space on its disk") from error
    except _DAMAGE as error:
        raise StorageDamaged(f"LMDB cannot read its pages ({error})", path=store or where, hint=REPAIR_HINT) from error
    except lmdb.Error as error:
        text = str(error)
        if any(word in text for word in (*_FULL, os.strerror(errno.EIO))):
            too_big = os.strerror(errno.EFBIG) in text
            limit = why_no_growth([Path(where)], Path(where).parent, too_big=too_big)
            if limit is not None:
                limit = f"{limit}, raise that limit or drain queues"
                raise StorageFull(f"no room in {where}: {limit}", limit=limit) from error
        if any(word in text for word in _FULL) or (os.strerror(errno.EIO) in text and _is_full(where)):
            raise StorageFull(f"no room in {where}: {error}; free space on its disk") from error
        raise StorageFailed(f"LMDB failed in {where}: {error}; {_remedy_of(error)}") from error


def _remedy_of(error: lmdb.Error) -> str:
    """What an operator does about an error that is no lack of space."""
    if isinstance(error, lmdb.MemoryError):
        return (
            "its map takes addresses, twice as many as its disk has bytes, and next to no memory: raise the limit of "
            f"addresses of this process (`ulimit -v`, `LimitAS=` of a systemd unit), then {RESTART}"
        )
    return RESTART


def _is_full(where: str) -> bool:
    """LMDB calls a short write an I/O error; that is what a disk does which has some room left, but not enough."""
    return shutil.disk_usage(os.path.dirname(where)).free < FULL_BELOW_BYTES
