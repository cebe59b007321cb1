"""What a store should hold: a tally of its values, and each block's checksum in its info.

See vibemq/storage/kvstore/integrity.py and blocks.py; repeated here, because a migration must not change later.
"""

import sqlite3
import struct
from collections import defaultdict
from hashlib import blake2b

import google_crc32c

_SEAL = struct.Struct("!BI")
_OLD_INFO = struct.Struct("!QIQ")
_INFO = struct.Struct("!QIQI")
_ENTRY = struct.Struct("!cQQ")
_COUNTED = b"mqgrvcudxi"
_UNCOUNTED = (b"mtally", b"mversion")


def upgrade(transaction: sqlite3.Connection) -> None:
    _extend_infos(transaction)
    tally: dict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    # Of an empty value SQLite's substr makes NULL.
    for key, head in transaction.execute("SELECT key, coalesce(substr(value, 1, ?), x'') FROM kv", (_SEAL.size,)):
        if key[:1] in _COUNTED and key not in _UNCOUNTED:
            digest = blake2b(key + head, digest_size=8).digest()
            entry = tally[key[:1]]
            entry[0] += 1
            entry[1] = (entry[1] + int.from_bytes(digest, "big")) % 2**64
    body = b"".join(_ENTRY.pack(table, *entry) for table, entry in sorted(tally.items()))
    transaction.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (b"mtally", _seal(b"mtally", body)))


def _extend_infos(transaction: sqlite3.Connection) -> None:
    infos = transaction.execute("SELECT key, value FROM kv WHERE key >= ? AND key < ?", (b"i", b"j")).fetchall()
    for key, value in infos:
        block = transaction.execute("SELECT substr(value, 1, ?) FROM kv WHERE key = ?", (_SEAL.size, b"b" + key[1:]))
        head = block.fetchone()
        # What is damaged stays damaged, for `check` to name: then the two checksums do not fit.
        if len(value) == _SEAL.size + _OLD_INFO.size and _is_sound(key, value):
            checksum = _SEAL.unpack(head[0])[1] if head is not None else 0
            body = _INFO.pack(*_OLD_INFO.unpack_from(value, _SEAL.size), checksum)
            transaction.execute("UPDATE kv SET value = ? WHERE key = ?", (_seal(key, body), key))


def _is_sound(key: bytes, value: bytes) -> bool:
    return value == _seal(key, value[_SEAL.size :])


def _seal(key: bytes, body: bytes) -> bytes:
    return _SEAL.pack(1, google_crc32c.extend(google_crc32c.value(key), body)) + body
