"""What a store should hold: how many values each table has, and a sum over them.

Sealed values show that they were changed; nothing in them shows that one is gone. LMDB's pages have no checksum, and a
flipped bit in one can hide keys, repeat them, or bring back what stood there before. So every transaction that writes
also keeps the tally:

    tally   (table u8 | count u64 | sum u64) ...     tables without an entry are empty

The sum goes over a hash of each key with the head of its value (layout and checksum), modulo 2^64: it depends on no
order, and a value that comes or goes changes it by one addition. Blocks are not in it, for reading one to replace it
would cost too much: the checksum of a block stands in its info, which is.

`load_sound_state` compares the state's tables when a store is opened, the audit compares all of them.
"""

import struct
from collections.abc import Callable, Iterator
from hashlib import blake2b

from vibemq.errors import StorageDamaged
from vibemq.model.stored import StoredState
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.encoding import GARBAGE, SEAL_BYTES, seal, unseal
from vibemq.storage.kvstore.store import KV, LOADERS, load_state

NAMES = {
    keys.META: "store-wide facts",
    keys.QUEUE: "queues",
    keys.GROUP: "groups",
    keys.RUN_PAGE: "pages of runs",
    keys.VALUE_PAGE: "pages of values",
    keys.CHUNK: "chunks",
    keys.DEDUP: "dedup ids",
    keys.PLAN: "plans of readers",
    keys.TRANSACTION: "transactions",
    keys.USER: "users",
    keys.TOKEN: "access tokens",
    keys.JOB: "jobs",
    keys.DEAD: "dead letters",
    keys.DEAD_BY_MESSAGE: "dead letters by message",
    keys.DEAD_BY_QUEUE: "dead letters by queue",
    keys.DEAD_BY_GROUP: "dead letters by group",
    keys.DEAD_GROUP: "groups of dead letters",
    keys.BLOCK_INFO: "block infos",
    keys.LENT: "blocks of stages that queues have",
}
"""The tables that are counted, and their names for errors."""
STATE_TABLES = tuple(table for table, _ in LOADERS)
HINT = "restore a backup, or save the rest with `vibemq-admin check --repair`"

_ENTRY = struct.Struct("!cQQ")
_U64_MASK = 2**64 - 1
_UNCOUNTED = frozenset((keys.TALLY, keys.VERSION))


class TableSums:
    """Counts and sums by table; also differences of them, which wrap around."""

    def __init__(self) -> None:
        self._tables: dict[bytes, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return any(entry != (0, 0) for entry in self._tables.values())

    def of(self, table: bytes) -> tuple[int, int]:
        return self._tables.get(table, (0, 0))

    def add(self, key: bytes, value: bytes) -> None:
        self._change(key[:1], 1, _hash(key, value))

    def remove(self, key: bytes, value: bytes) -> None:
        self._change(key[:1], -1, -_hash(key, value))

    def merge(self, other: "TableSums") -> None:
        for table, entry in other._tables.items():
            self._change(table, *entry)

    def _change(self, table: bytes, count: int, total: int) -> None:
        known = self.of(table)
        self._tables[table] = ((known[0] + count) & _U64_MASK, (known[1] + total) & _U64_MASK)

    def pack(self) -> bytes:
        return b"".join(_ENTRY.pack(table, *entry) for table, entry in sorted(self._tables.items()) if entry != (0, 0))

    @classmethod
    def unpack(cls, body: bytes) -> "TableSums":
        """Raises one of `encoding.GARBAGE`."""
        sums = cls()
        for table, count, total in _ENTRY.iter_unpack(body):
            sums._tables[table] = (count, total)
        return sums


def _hash(key: bytes, value: bytes) -> int:
    return int.from_bytes(blake2b(key + value[:SEAL_BYTES], digest_size=8).digest(), "big")


def is_counted(key: bytes) -> bool:
    return key[:1] in NAMES and key not in _UNCOUNTED


def load_tally(kv: KV) -> TableSums:
    """Raises StorageDamaged: the tally is missing, which no store since version 2 is without, or cannot be read."""
    value = kv.get(keys.TALLY)
    try:
        if value is None:
            raise ValueError("it is missing")
        return TableSums.unpack(unseal(keys.TALLY, value, kv.where))
    except GARBAGE as exc:
        raise StorageDamaged(f"the tally of what is stored cannot be read ({exc})", path=kv.where, hint=HINT) from exc


def _nobody_asks() -> None:
    pass


class TalliedKV:
    """Writes through to another KV, and keeps the store's tally.

    Call `save` at the end of each transaction, inside it; `forget` when it was undone.
    """

    def __init__(self, kv: KV, progress: Callable[[], None] = _nobody_asks) -> None:
        """`progress` is called for each key that is written or deleted."""
        self._kv = kv
        self._progress = progress
        self.where = kv.where
        self._changes = TableSums()
        self.get, self.scan, self.scan_back, self.floor = kv.get, kv.scan, kv.scan_back, kv.floor

    def put(self, key: bytes, value: bytes) -> None:
        self._progress()
        if is_counted(key):
            self._leave(key, self._kv.get(key))
            self._changes.add(key, value)
        self._kv.put(key, value)

    def delete(self, key: bytes) -> None:
        self._progress()
        if is_counted(key):
            self._leave(key, self._kv.get(key))
        self._kv.delete(key)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self._progress()
        if is_counted(start):
            for key, value in self._kv.scan(start, stop):
                self._progress()
                self._leave(key, value)
        self._kv.delete_range(start, stop)

    def _leave(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            self._changes.remove(key, value)

    def save(self) -> None:
        """Raises StorageDamaged, see `load_tally`; the transaction must be undone then."""
        if self._changes:
            sums = load_tally(self._kv)
            sums.merge(self._changes)
            write_tally(self._kv, sums)
        self.forget()

    def forget(self) -> None:
        self._changes = TableSums()


def write_tally(kv: KV, sums: TableSums) -> None:
    kv.put(keys.TALLY, seal(keys.TALLY, sums.pack()))


class CountedKV:
    """A KV to read from, that counts what its scans yield and insists on ascending keys."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self.where = kv.where
        self.seen = TableSums()
        self.get, self.scan_back, self.floor = kv.get, kv.scan_back, kv.floor
        self.put, self.delete, self.delete_range = kv.put, kv.delete, kv.delete_range

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Raises StorageDamaged: a key stands where it cannot be."""
        before = b""
        for key, value in self._kv.scan(start, stop):
            if not max(start, before) <= key < stop or key == before:
                raise StorageDamaged(f"the key {key.hex()} is out of its order", path=self.where, hint=HINT)
            before = key
            if is_counted(key):
                self.seen.add(key, value)
            yield key, value

    def differences(self, tables: tuple[bytes, ...]) -> list[str]:
        """A sentence for each of the tables, scanned whole once, that is not as it was written.

        Raises StorageDamaged, see `load_tally`.
        """
        sums = load_tally(self._kv)
        return [difference(table, self.seen, sums) for table in tables if self.seen.of(table) != sums.of(table)]


def difference(table: bytes, seen: TableSums, written: TableSums) -> str:
    """In words, how a table that differs does."""
    found, wanted = seen.of(table)[0], written.of(table)[0]
    if found == wanted:
        return f"the {found} {NAMES[table]} are not all as they were written last"
    return f"{found} {NAMES[table]} are found, {wanted} were written"


def load_sound_state(kv: KV) -> StoredState:
    """`load_state`, and certainty that nothing of it is missing, out of date or there twice.

    Raises:
        StorageDamaged: it is not so, or a value fails its checksum or makes no sense.
    """
    counted = CountedKV(kv)
    state = load_state(counted)
    differences = counted.differences(STATE_TABLES)
    if differences:
        raise StorageDamaged("; ".join(differences), path=kv.where, hint=HINT)
    return state
