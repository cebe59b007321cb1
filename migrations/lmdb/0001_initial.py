"""Sealed values; values of the pre-release layout get their seal.

Version 0 kept the same keys with bare values. From version 1 on every value starts with its layout number and a CRC32C
over key and body (see
vibemq/storage/kvstore/encoding.py; repeated here, because a migration must not change later).
"""

import struct

import google_crc32c
import lmdb

_SEAL = struct.Struct("!BI")
_UNSEALED_TABLE = b"x"


def upgrade(transaction: lmdb.Transaction) -> None:
    with transaction.cursor() as cursor:
        keys = [bytes(key) for key in cursor.iternext(keys=True, values=False)]
    for key in keys:
        if key[:1] != _UNSEALED_TABLE:
            transaction.put(key, _seal(key, bytes(transaction.get(key))))


def _seal(key: bytes, body: bytes) -> bytes:
    return _SEAL.pack(1, google_crc32c.extend(google_crc32c.value(key), body)) + body
