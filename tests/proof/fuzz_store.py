"""Fuzz targets: what a damaged disk may hold. Batches of records, blocks and stored values."""

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from tests.proof.fuzz_engine import Broken, Target
from vibemq.errors import StorageDamaged
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import QueueOptions
from vibemq.model.records import (
    ALL_GROUPS,
    Attempts,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupMoved,
    HandedOut,
    MessagesAdded,
    QueueChanged,
    QueueCreated,
    Reason,
    Record,
    Returned,
    Settled,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice, StoredState
from vibemq.storage.kvstore import keys, values
from vibemq.storage.kvstore.block_cache import BlockCache
from vibemq.storage.kvstore.blocks import clip, decode_block, encode_block, limit, put_block
from vibemq.storage.kvstore.encoding import GARBAGE, decode_batch, encode_batch, seal, unseal
from vibemq.storage.kvstore.store import LOADERS, load_state
from vibemq.storage.state.changes import ValueKind
from vibemq.testing.memory_kv import MemoryKV

NOW = 1_700_000_000_000
U64_MAX = 2**64 - 1
BYTE_WORDS = (bytes(8), b"\xff" * 8, b"\0\0\0\x01", b"\xff\xff\xff\xff", b"[]", b'[1,2,"x"]', b'[[1],[[1,0,0,0,0,""]]]')
_ROWS = Rows.of([pack_row("a", b"1"), pack_row("bb", b'{"x":2}', [("k", "v")]), pack_row("c", b"")])


# -- batches ------------------------------------------------------------------------------------------------------


def batch(data: bytes) -> Hashable:
    """Decoded, encoded and decoded again it is the same."""
    records = decode_batch(data)
    if decode_batch(b"".join(encode_batch(records))) != records:
        raise Broken("a batch changes when it is written and read again")
    return tuple(sorted({type(record).__name__ for record in records}))


def _records() -> list[Record]:
    runs = [(1, 3), (7, 2**40)]
    facts = DeadFacts(1, 2, Reason.REJECTED, "why", 3, 3, NOW, NOW)
    return [
        QueueCreated(1, "orders", QueueOptions(), NOW, "ab"),
        QueueChanged(1, QueueOptions(max_messages=5, message_ttl_ms=9)),
        GroupCreated(1, 0, "", True, 1),
        GroupMoved(1, 0, 5, 1),
        MessagesAdded(1, 1, NOW, _ROWS),
        MessagesAdded(1, 4, NOW, _ROWS, {0: MessageExtra(2, NOW, 0, b"d"), 2: MessageExtra()}),
        HandedOut(1, 0, runs),
        Returned(1, 0, {5: Attempts(1, 1, NOW, NOW, NOW + 5, "boom")}),
        Settled(1, 0, runs),
        Dropped(1, runs, Reason.EXPIRED),
        DeadLettered(1, ALL_GROUPS, [facts]),
        DeadRemoved([1, 2], True),
    ]


def _batch_seeds() -> Iterable[bytes]:
    yield b"".join(encode_batch(_records()))
    for record in _records():
        yield b"".join(encode_batch([record]))


# -- blocks -------------------------------------------------------------------------------------------------------


def block(data: bytes) -> Hashable:
    """Decoded, encoded and decoded again it holds the same; read from a store it is damaged or the same."""
    try:
        parts = decode_block(data)
    except GARBAGE:
        parts = None
    if parts is None or not parts:
        _read_damaged(data)
        return parts is None
    if decode_block(_encoded(parts)) != _joined(parts):
        raise Broken("a block changes when it is written and read again")
    first, last = parts[0].first_sequence, parts[-1].first_sequence + parts[-1].rows.count - 1
    if last <= U64_MAX:
        _read_back(parts, first, last)
    return len(parts) > 1, last > U64_MAX


def _encoded(parts: list[Slice]) -> bytes:
    return b"".join(encode_block(parts))


def _joined(parts: list[Slice]) -> list[Slice]:
    """Neighbours of one instant as one, as the encoder writes them."""
    joined: list[Slice] = []
    for part in parts:
        tail = joined[-1] if joined else None
        if (
            tail is not None
            and tail.first_sequence + tail.rows.count == part.first_sequence
            and tail.published_at == part.published_at
        ):
            joined[-1] = Slice(tail.first_sequence, tail.published_at, Rows.of([*tail.rows, *part.rows]))
        else:
            joined.append(Slice(part.first_sequence, part.published_at, Rows.of(list(part.rows))))
    return joined


def _read_back(parts: list[Slice], first: int, last: int) -> None:
    kv = MemoryKV()
    put_block(kv, 1, parts)
    middle = (first + last) // 2
    got = list(limit(BlockCache().parts(kv, 1, middle, last, ""), 1 << 20))
    wanted = clip(_joined(parts), [(middle, last)])
    if [(p.first_sequence, list(p.rows)) for p in got] != [(p.first_sequence, list(p.rows)) for p in wanted]:
        raise Broken("a stored block gives other messages than were put into it")


def _read_damaged(data: bytes) -> None:
    """A block whose seal is right and whose body is not."""
    kv = MemoryKV()
    put_block(kv, 1, [Slice(5, NOW, _ROWS)])
    key = keys.sequence_key(keys.BLOCK, 1, 5)
    kv.put(key, seal(key, data))
    try:
        got = list(BlockCache().parts(kv, 1, 0, U64_MAX, ""))
    except StorageDamaged:
        return
    if got:
        raise Broken("rows came out of a damaged block")


def _block_seeds() -> Iterable[bytes]:
    yield _encoded([Slice(1, NOW, _ROWS)])
    yield _encoded([Slice(1, NOW, _ROWS), Slice(4, NOW + 1, _ROWS), Slice(90, NOW, _ROWS)])
    yield _encoded([Slice(2**64 - 4, NOW, _ROWS)])
    yield _encoded([])


# -- stored values ------------------------------------------------------------------------------------------------

_UNPACK: list[Callable[[bytes], Any]] = [
    lambda body: values.unpack_meta(StoredState(), body),
    lambda body: values.unpack_queue(1, body),
    lambda body: values.unpack_group(0, body),
    values.unpack_run_page,
    lambda body: values.unpack_page(ValueKind.EXPIRES, 3, body),
    lambda body: values.unpack_page(ValueKind.ATTEMPTS, 3, body),
    lambda body: values.unpack_chunk(1, body),
    values.unpack_dedup,
    values.unpack_dead,
]


def value(data: bytes) -> Hashable:
    """The first byte picks the kind: 0 to 8 a bare body, 9 a sealed value of a store that is loaded whole."""
    if not data:
        return None
    kind, body = data[0] % (len(_UNPACK) + 2), data[1:]
    if kind < len(_UNPACK):
        try:
            read = _UNPACK[kind](body)
        except GARBAGE as error:
            return kind, type(error).__name__
        _same_again(kind, read)
        return kind, True
    if kind == len(_UNPACK):
        unseal(b"key", body, "memory")
        return kind
    return kind, _load(body)


def _same_again(kind: int, read: Any) -> None:
    if kind == 1 and values.unpack_queue(1, values.pack_queue(read)) != read:
        raise Broken("a queue changes when it is stored and read again")
    if kind == 2 and values.unpack_group(0, values.pack_group(read)) != read:
        raise Broken("a group changes when it is stored and read again")
    if kind == 5 and values.unpack_page(ValueKind.ATTEMPTS, 3, values.pack_page(ValueKind.ATTEMPTS, read)) != read:
        raise Broken("attempts change when they are stored and read again")
    if kind == 8 and values.unpack_dead(values.pack_dead(read)) != read:
        raise Broken("a dead letter changes when it is stored and read again")


def _load(body: bytes) -> Hashable:
    """Pairs of (table u8, key size u8, key, value size u8, value), each with a right seal."""
    kv = MemoryKV()
    for key, stored in _pairs(body):
        kv.put(key, seal(key, stored))
    state = load_state(kv)
    return len(state.queues)


def _pairs(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 3 <= len(body):
        table = LOADERS[body[at] % len(LOADERS)][0]
        key_end = at + 2 + body[at + 1] % 24
        stored_at = key_end + 1
        stored_end = stored_at + (body[key_end] if key_end < len(body) else 0)
        yield table + body[at + 2 : key_end], body[stored_at:stored_end]
        at = stored_end


def _value_seeds() -> Iterable[bytes]:
    from vibemq.model.stored import StoredGroup, StoredQueue

    queue = StoredQueue(1, "orders", QueueOptions(), NOW, "ab", 9, 2)
    attempts = {200: Attempts(2, 1, NOW, NOW, NOW, "boom")}
    bodies = [
        values.pack_meta(StoredState(), 0),
        values.pack_queue(queue),
        values.pack_group(StoredGroup(0, "g", True, 4, 1)),
        values.pack_runs([(1, 4), (9, 9)]),
        values.pack_page(ValueKind.EXPIRES, {3073: NOW, 3074: NOW}),
        values.pack_page(ValueKind.ATTEMPTS, attempts),
        struct.pack("!QQQ", 4, 100, NOW),
        values.pack_dedup(b"d1", NOW),
        b'[1,"g",[1,2,3,"why",1,1,5,6]]',
    ]
    yield from (bytes((kind,)) + body for kind, body in enumerate(bodies))
    yield bytes((len(_UNPACK),)) + seal(b"key", b"body")
    pairs = [
        (1, struct.pack("!I", 1), bodies[1]),
        (2, struct.pack("!II", 1, 0), bodies[2]),
        (3, struct.pack("!IIBQ", 1, 0, 1, 0), bodies[3]),
        (4, struct.pack("!IIBQ", 1, 0xFFFFFFFF, 1, 3), bodies[4]),
        (5, struct.pack("!IQ", 1, 1), bodies[6]),
        (6, struct.pack("!IQ", 1, 1), bodies[7]),
    ]
    packed = [bytes((t, len(k))) + k + bytes((min(len(v), 255),)) + v[:255] for t, k, v in pairs if len(v) < 256]
    yield bytes((len(_UNPACK) + 1,)) + b"".join(packed)


DAMAGED = (StorageDamaged,)
TARGETS = [
    Target("batch", "batches of records", batch, DAMAGED, _batch_seeds, BYTE_WORDS),
    Target("block", "stored blocks of messages", block, DAMAGED, _block_seeds, BYTE_WORDS, 1024),
    Target(
        "value",
        "stored values, and a store loaded from them",
        value,
        DAMAGED,
        _value_seeds,
        BYTE_WORDS,
        1024,
    ),
]
