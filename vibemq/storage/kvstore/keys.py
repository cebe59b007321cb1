"""Keys of a store's values; lmdb and sqlite share them. Integers big-endian, so that key order is number order.

table   key after the table byte                                        value
m       name                                                            store-wide facts
q       queue_id u32                                                    queue
g       queue_id u32 | group_id u32                                     group
r       queue_id u32 | group_id u32 | kind u8 | page u64                a page of runs: storage/state/changes.py
v       queue_id u32 | group_id u32 | kind u8 | page u64                a page of values
c       queue_id u32 | first_sequence u64                               chunk
u       queue_id u32 | sequence u64                                     dedup id
p       queue_id u32 | group_id u32 | number u64                        plan of a cursor's reader
t       application, UTF-8                                              its last committed transaction
a       name, UTF-8                                                     user of the store
k       token_id, UTF-8                                                 access token
j       job_id u64                                                      job
d       dead_id u64                                                     dead letter's facts
x       queue_id u32 | sequence u64 | dead_id u64                       empty: who points at the message
e       queue_id u32 | dead_id u64                                      dead letter in the index  (see dead/index.py)
f       queue_id u32 | reason u8 | fingerprint u64 | dead_id u64        empty: the letters of a group
h       queue_id u32 | reason u8 | fingerprint u64                      group of dead letters
i       queue_id u32 | first_sequence u64                               what the block holds, and where it stands
l       queue_id u32 | first_sequence u64                               the queue that has the block that stands here
b       queue_id u32 | first_sequence u64                               block of messages    (see blocks.py)
"""

import struct
from typing import Any

from vibemq.errors import StorageDamaged
from vibemq.model.dead.groups import GroupKey

META = b"m"
QUEUE = b"q"
GROUP = b"g"
RUN_PAGE = b"r"
VALUE_PAGE = b"v"
CHUNK = b"c"
DEDUP = b"u"
PLAN = b"p"
TRANSACTION = b"t"
USER = b"a"
TOKEN = b"k"
JOB = b"j"
DEAD = b"d"
DEAD_BY_MESSAGE = b"x"
DEAD_BY_QUEUE = b"e"
DEAD_BY_GROUP = b"f"
DEAD_GROUP = b"h"
BLOCK_INFO = b"i"
BLOCK = b"b"
LENT = b"l"

STATE_META = META + b"state"
TALLY = META + b"tally"
VERSION = META + b"version"
DEAD_ORDER = META + b"deadorder"
INDEXING = META + b"indexing"

_QUEUE = struct.Struct("!cI")
_GROUP = struct.Struct("!cII")
_PAGE = struct.Struct("!cIIBQ")
_PLAN = struct.Struct("!cIIQ")
_SEQUENCE = struct.Struct("!cIQ")
_DEAD = struct.Struct("!cQ")
_JOB = struct.Struct("!cQ")
_DEAD_BY_MESSAGE = struct.Struct("!cIQQ")
_DEAD_BY_GROUP = struct.Struct("!cIBQQ")
_DEAD_GROUP = struct.Struct("!cIBQ")


def queue_key(queue_id: int) -> bytes:
    return _QUEUE.pack(QUEUE, queue_id)


def group_key(queue_id: int, group_id: int) -> bytes:
    return _GROUP.pack(GROUP, queue_id, group_id)


def page_key(table: bytes, queue_id: int, group_id: int, kind: int, page: int) -> bytes:
    return _PAGE.pack(table, queue_id, group_id, kind, page)


def sequence_key(table: bytes, queue_id: int, sequence: int) -> bytes:
    """A key of `c`, `u`, `i`, `l` or `b`."""
    return _SEQUENCE.pack(table, queue_id, sequence)


def plan_key(queue_id: int, group_id: int, number: int) -> bytes:
    return _PLAN.pack(PLAN, queue_id, group_id, number)


def split_plan_key(key: bytes) -> tuple[int, int, int]:
    """(queue_id, group_id, number)."""
    _, queue_id, group_id, number = _PLAN.unpack(key)
    return queue_id, group_id, number


def transaction_key(app: str) -> bytes:
    return TRANSACTION + app.encode()


def user_key(name: str) -> bytes:
    return USER + name.encode()


def job_key(job_id: int) -> bytes:
    return _JOB.pack(JOB, job_id)


def split_job_key(key: bytes) -> int:
    return int(_JOB.unpack(key)[1])


def token_key(token_id: str) -> bytes:
    return TOKEN + token_id.encode()


def dead_key(dead_id: int) -> bytes:
    return _DEAD.pack(DEAD, dead_id)


def dead_by_message_key(queue_id: int, sequence: int, dead_id: int) -> bytes:
    return _DEAD_BY_MESSAGE.pack(DEAD_BY_MESSAGE, queue_id, sequence, dead_id)


def dead_by_queue_key(queue_id: int, dead_id: int) -> bytes:
    return _SEQUENCE.pack(DEAD_BY_QUEUE, queue_id, dead_id)


def dead_by_group_key(group: GroupKey, dead_id: int) -> bytes:
    return _DEAD_BY_GROUP.pack(DEAD_BY_GROUP, *group, dead_id)


def split_dead_by_group_key(key: bytes, where: str) -> tuple[GroupKey, int]:
    """(group, dead_id). Raises StorageDamaged for a key that is none of its table."""
    _, *group, dead_id = _split(_DEAD_BY_GROUP, key, where)
    return GroupKey(*group), dead_id


def dead_by_group_prefix(group: GroupKey) -> bytes:
    """What the keys of all letters of one group start with."""
    return _DEAD_GROUP.pack(DEAD_BY_GROUP, *group)


def dead_group_key(group: GroupKey) -> bytes:
    return _DEAD_GROUP.pack(DEAD_GROUP, *group)


def split_dead_group_key(key: bytes, where: str) -> GroupKey:
    """Raises StorageDamaged for a key that is none of its table."""
    return GroupKey(*_split(_DEAD_GROUP, key, where)[1:])


def _split(layout: struct.Struct, key: bytes, where: str) -> tuple[Any, ...]:
    if len(key) != layout.size:
        table = key[:1].decode(errors="replace")
        raise StorageDamaged(
            f"a key of {len(key)} bytes stands in table {table}, whose keys have {layout.size}: {key.hex()}", path=where
        )
    return layout.unpack(key)


def last_u64(key: bytes) -> int:
    """The dead_id of a key of `e` or `f`, in less time than the whole key takes."""
    return int.from_bytes(key[-8:], "big")


def reason_prefix(table: bytes, queue_id: int, reason: int) -> bytes:
    """What all keys of one queue and reason in `f` or `h` start with."""
    return _QUEUE.pack(table, queue_id) + reason.to_bytes()


def split_queue_key(key: bytes) -> int:
    return int(_QUEUE.unpack(key)[1])


def split_group_key(key: bytes) -> tuple[int, int]:
    _, queue_id, group_id = _GROUP.unpack(key)
    return queue_id, group_id


def split_page_key(key: bytes, where: str) -> tuple[int, int, int, int]:
    """(queue_id, group_id, kind, page). Raises StorageDamaged for a key that is none of its table."""
    _, queue_id, group_id, kind, page = _split(_PAGE, key, where)
    return queue_id, group_id, kind, page


def split_sequence_key(key: bytes, where: str) -> tuple[int, int]:
    """(queue_id, sequence). Raises StorageDamaged for a key that is none of its table."""
    _, queue_id, sequence = _split(_SEQUENCE, key, where)
    return queue_id, sequence


def split_dead_by_message_key(key: bytes, where: str) -> tuple[int, int, int]:
    """(queue_id, sequence, dead_id). Raises StorageDamaged for a key that is none of its table."""
    _, queue_id, sequence, dead_id = _split(_DEAD_BY_MESSAGE, key, where)
    return queue_id, sequence, dead_id


def after(prefix: bytes) -> bytes:
    """The first key that does not start with `prefix`, for use as the end of a scan."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix) + (number >> (8 * len(prefix))), "big")


def queue_prefix(table: bytes, queue_id: int) -> bytes:
    """What all keys of one queue in one table start with."""
    return _QUEUE.pack(table, queue_id)


def group_prefix(table: bytes, queue_id: int, group_id: int) -> bytes:
    return _GROUP.pack(table, queue_id, group_id)
