"""What a store should hold: a tally of its values, and each block's checksum in its info.

See vibemq/storage/kvstore/integrity.py and blocks.py; repeated here, because a migration must not change later.
"""

import struct
from collections import defaultdict
from hashlib import blake2b

import google_crc32c
import lmdb

_SEAL = struct.Struct("!BI")
_OLD_INFO = struct.Struct("!QIQ")
_INFO = struct.Struct("!QIQI")
_ENTRY = struct.Struct("!cQQ")
_COUNTED = b"mqgrvcudxi"
_UNCOUNTED = (b"mtally", b"mversion")


def upgrade(transaction: lmdb.Transaction) -> None:
    _extend_infos(transaction)
    tally: dict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    with transaction.cursor() as cursor:
        for found, value in cursor.iternext(keys=True, values=True):
            key = bytes(found)
            if key[:1] in _COUNTED and key not in _UNCOUNTED:
                digest = blake2b(key + bytes(value)[: _SEAL.size], digest_size=8).digest()
                entry = tally[key[:1]]
                entry[0] += 1
                entry[1] = (entry[1] + int.from_bytes(digest, "big")) % 2**64
    body = b"".join(_ENTRY.pack(table, *entry) for table, entry in sorted(tally.items()))
    transaction.put(b"mtally", _seal(b"mtally", body))


def _extend_infos(transaction: lmdb.Transaction) -> None:
    with transaction.cursor() as cursor:
        infos = [bytes(key) for key in cursor.iternext(keys=True, values=False) if bytes(key)[:1] == b"i"]
    for key in infos:
        value = bytes(transaction.get(key) or b"")
        block = transaction.get(b"b" + key[1:])
        # What is damaged stays damaged, for `check` to name: then the two checksums do not fit.
        if len(value) == _SEAL.size + _OLD_INFO.size and _is_sound(key, value):
            checksum = _SEAL.unpack_from(bytes(block[: _SEAL.size]))[1] if block is not None else 0
            body = _INFO.pack(*_OLD_INFO.unpack_from(value, _SEAL.size), checksum)
            transaction.put(key, _seal(key, body))


def _is_sound(key: bytes, value: bytes) -> bool:
    return value == _seal(key, value[_SEAL.size :])


def _seal(key: bytes, body: bytes) -> bytes:
    return _SEAL.pack(1, google_crc32c.extend(google_crc32c.value(key), body)) + body
