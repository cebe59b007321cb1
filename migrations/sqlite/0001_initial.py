"""The table of sealed values; values of the pre-release layout get their seal.

Version 0 kept the same table with bare values. From version 1 on every value starts with its layout number and a
CRC32C over key and body (see
vibemq/storage/kvstore/encoding.py; repeated here, because a migration must not change later).
"""

import sqlite3
import struct

import google_crc32c

_SEAL = struct.Struct("!BI")
_UNSEALED_TABLE = b"x"


def upgrade(transaction: sqlite3.Connection) -> None:
    transaction.execute("CREATE TABLE IF NOT EXISTS kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
    keys = [key for (key,) in transaction.execute("SELECT key FROM kv")]
    for key in keys:
        if key[:1] != _UNSEALED_TABLE:
            (body,) = transaction.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
            transaction.execute("UPDATE kv SET value = ? WHERE key = ?", (_seal(key, body), key))


def _seal(key: bytes, body: bytes) -> bytes:
    return _SEAL.pack(1, google_crc32c.extend(google_crc32c.value(key), body)) + body
