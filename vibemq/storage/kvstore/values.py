"""Bodies of stored state values (inside their seal). Pure; integers big-endian.

    store       next_queue_id u64 | next_dead_id u64 | dead_count u64 | lsn u64 | instant u64
    queue       JSON [name, options, created_at, incarnation, next_sequence, next_group_id, deleted]
    group       JSON [name, durable, head, epoch]; of a cursor also its facts, [the fields of CursorFacts]; of a group
                that belongs to a user also the user's name, last
    plan        JSON [the fields of Plan]; older versions wrote the first two
    transaction JSON [version, decided_at, [queue_id of each stage], tag, owner, [run of committed versions]]; the last
                two are missing in what older versions wrote
    user        JSON [password_hash, superuser, [[kind, pattern, [action ...]] ...], created_at, changed_at]
    job         JSON object: see state/job_values.py
    token       JSON [user, key in hex, digest in hex, label, created_at, expires_at, used_at]; of a token with narrower
                rights also [[kind, pattern, [action ...]] ...]
    runs page   (first u64, last u64) ...
    expires, delayed page   (sequence within the page u16, instant u64) ...
    attempts page           JSON [[sequences], [[acquired, failed, first_failed_at, last_failed_at, due_at, error] ...]]
    chunk       last u64 | bytes u64 | published_at u64
    dedup       published_at u64 | dedup id
    dead        JSON [queue_id, group name, [the fields of DeadFacts]]
    indexed     reason u8 | whether its group is the one of all others u8 | fingerprint u64 | dead_at u64
    dead group  count u64 | first dead_id u64, dead_at u64 | last dead_id u64, dead_at u64 | sample, UTF-8
    dead order  newest dead_id u64 | newest dead_at u64 | the dead_id above which dead_at ascends u64

Unpackers raise one of `encoding.GARBAGE`; their callers turn that into StorageDamaged.
"""

import struct
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.jobs.job import StoredJob
from vibemq.model.options import QueueOptions, options_from_dict, options_to_dict
from vibemq.model.records import Plan
from vibemq.model.runs import Run
from vibemq.model.stored import Chunk, StoredGroup, StoredQueue, StoredState, StoredTransaction
from vibemq.storage.kvstore.encoding import (
    PLAN_GREW,
    checked,
    dump_cursor,
    dump_json,
    dump_token,
    dump_user,
    load_attempts,
    load_cursor,
    load_facts,
    load_fields,
    load_grown,
    load_token,
    load_user,
    pack_runs,
    unpack_runs,
)
from vibemq.storage.state.changes import VALUE_PAGE_SHIFT, ValueKind
from vibemq.storage.state.dead_letter_facts import DeadEntry
from vibemq.storage.state.job_values import dump_job, load_job

__all__ = ["pack_runs"]

_META = struct.Struct("!5Q")
_CHUNK = struct.Struct("!QQQ")
_INDEXED = struct.Struct("!BBQQ")
_DEAD_GROUP = struct.Struct("!QQQQQ")
_ORDER = struct.Struct("!QQQ")
_PROGRESS = struct.Struct("!QQ")
_INSTANT = struct.Struct("!HQ")
_U64 = struct.Struct("!Q")


def pack_meta(state: StoredState, dead_count: int) -> bytes:
    return _META.pack(state.next_queue_id, state.next_dead_id, dead_count, state.lsn, state.instant)


def unpack_meta(state: StoredState, body: bytes) -> None:
    state.next_queue_id, state.next_dead_id, state.dead_count, state.lsn, state.instant = _META.unpack(body)


def pack_queue(queue: StoredQueue) -> bytes:
    return dump_json(
        [
            queue.name,
            options_to_dict(queue.options),
            queue.created_at,
            queue.incarnation,
            queue.next_sequence,
            queue.next_group_id,
            queue.deleted,
            *([True] if queue.attended else []),
        ]
    )


def unpack_queue(queue_id: int, body: bytes) -> StoredQueue:
    name, options, *rest = load_grown(body, (str, dict, int, str, int, int, bool), [(bool,)])
    queue = StoredQueue(queue_id, name, _options(orjson.dumps(options)), *rest[:5])
    queue.attended = len(rest) > 5 and rest[5]
    return queue


@lru_cache(maxsize=1024)
def _options(text: bytes) -> QueueOptions:
    """Most queues have the options of many others: reading a set takes longer than all else of a queue."""
    return options_from_dict(orjson.loads(text))


def pack_group(group: StoredGroup) -> bytes:
    facts = [] if group.cursor is None else [dump_cursor(group.cursor)]
    texts = [group.owner, group.where] if group.where else [group.owner] if group.owner else []
    return dump_json([group.name, group.durable, group.head, group.epoch, *facts, *texts])


def unpack_group(group_id: int, body: bytes) -> StoredGroup:
    fields = orjson.loads(body)
    texts: list[str] = []
    cursor = None
    while isinstance(fields, list) and len(fields) > 4 and isinstance(fields[-1], str):
        texts.insert(0, fields.pop())
    owner, where = checked([*texts, "", ""][: max(2, len(texts))], str, str)
    if isinstance(fields, list) and len(fields) == 5:
        cursor = load_cursor(fields.pop())
    group = StoredGroup(group_id, *checked(fields, str, bool, int, int))
    group.cursor, group.owner, group.where = cursor, owner, where
    return group


def pack_plan(plan: Plan) -> bytes:
    return dump_json(list(plan))


def unpack_plan(body: bytes) -> Plan:
    return Plan(*load_grown(body, (str, str), PLAN_GREW))


def pack_transaction(transaction: StoredTransaction) -> bytes:
    done = transaction
    return dump_json([done.version, done.decided_at, done.stages, done.tag, done.owner, done.committed])


def unpack_transaction(body: bytes) -> StoredTransaction:
    fields = load_grown(body, (int, int, list, str), [(str, list)])
    fields[2] = checked(fields[2], *[int] * len(fields[2]))
    if len(fields) == 4:
        # Before the runs were kept, every version up to the last one counted as committed.
        fields += ["", [(0, fields[0])]]
        return StoredTransaction(*fields)
    fields[5] = [(first, last) for first, last in (checked(run, int, int) for run in fields[5])]
    return StoredTransaction(*fields)


def pack_user(user: StoredUser) -> bytes:
    return dump_json(dump_user(user))


def unpack_user(name: str, body: bytes) -> StoredUser:
    return load_user(name, orjson.loads(body))


def pack_token(token: StoredToken) -> bytes:
    return dump_json(dump_token(token))


def unpack_token(token_id: str, body: bytes) -> StoredToken:
    return load_token(token_id, orjson.loads(body))


def pack_job(job: StoredJob) -> bytes:
    return dump_json(dump_job(job))


def unpack_job(body: bytes) -> StoredJob:
    return load_job(orjson.loads(body))


def unpack_run_page(body: bytes) -> list[Run]:
    return unpack_runs(body, 0, len(body) // 16)


def pack_page(kind: ValueKind, entries: Mapping[int, Any]) -> bytes:
    """One page of values; every sequence belongs to it."""
    if kind is ValueKind.ATTEMPTS:
        return dump_json([list(entries), list(map(list, entries.values()))])
    mask = (1 << VALUE_PAGE_SHIFT[kind]) - 1
    flat = chain.from_iterable((sequence & mask, instant) for sequence, instant in entries.items())
    return struct.pack("!" + "HQ" * len(entries), *flat)


def unpack_page(kind: ValueKind, page: int, body: bytes) -> dict[int, Any]:
    if kind is ValueKind.ATTEMPTS:
        sequences, histories = load_fields(body, list, list)
        checked(sequences, *[int] * len(sequences))
        return {s: load_attempts(history) for s, history in zip(sequences, histories, strict=True)}
    base = page << VALUE_PAGE_SHIFT[kind]
    return {base + offset: instant for offset, instant in _INSTANT.iter_unpack(body)}


def pack_chunk(chunk: Chunk) -> bytes:
    return _CHUNK.pack(chunk.last, chunk.size, chunk.published_at)


def unpack_chunk(first: int, body: bytes) -> Chunk:
    return Chunk(first, *_CHUNK.unpack(body))


def find_chunk(queue: StoredQueue, first: int) -> Chunk | None:
    """The queue's chunk that starts at `first`."""
    index = bisect_left(queue.chunks, first, key=_chunk_first)
    found = queue.chunks[index : index + 1]
    return found[0] if found and found[0].first == first else None


def _chunk_first(chunk: Chunk) -> int:
    return chunk.first


def pack_dedup(dedup_id: bytes, published_at: int) -> bytes:
    return _U64.pack(published_at) + dedup_id


def unpack_dedup(body: bytes) -> tuple[bytes, int]:
    return body[_U64.size :], _U64.unpack_from(body)[0]


def pack_dead(entry: DeadEntry) -> bytes:
    return dump_json([entry.queue_id, entry.group, list(entry.facts)])


def unpack_dead(body: bytes) -> DeadEntry:
    queue_id, group, facts = load_fields(body, int, str, list)
    return DeadEntry(queue_id, group, load_facts(facts))


# -- the index of dead letters ----------------------------------------------------------------------------------------


def pack_indexed(reason: int, is_other: bool, fingerprint: int, dead_at: int) -> bytes:
    return _INDEXED.pack(reason, is_other, fingerprint, dead_at)


def unpack_indexed(body: bytes) -> tuple[int, bool, int, int]:
    reason, is_other, fingerprint, dead_at = _INDEXED.unpack(body)
    return reason, bool(is_other), fingerprint, dead_at


def pack_dead_group(count: int, first_id: int, first_at: int, last_id: int, last_at: int, sample: bytes) -> bytes:
    return _DEAD_GROUP.pack(count, first_id, first_at, last_id, last_at) + sample


def unpack_dead_group(body: bytes) -> tuple[int, int, int, int, int, bytes]:
    count, first_id, first_at, last_id, last_at = _DEAD_GROUP.unpack_from(body)
    return count, first_id, first_at, last_id, last_at, body[_DEAD_GROUP.size :]


def pack_order(newest_id: int, newest_at: int, unordered_id: int) -> bytes:
    return _ORDER.pack(newest_id, newest_at, unordered_id)


def unpack_order(body: bytes) -> tuple[int, int, int]:
    newest_id, newest_at, unordered_id = _ORDER.unpack(body)
    return newest_id, newest_at, unordered_id


def pack_progress(lsn: int, dead_id: int) -> bytes:
    """How far a build of the index has come."""
    return _PROGRESS.pack(lsn, dead_id)


def unpack_progress(body: bytes) -> tuple[int, int]:
    lsn, dead_id = _PROGRESS.unpack(body)
    return lsn, dead_id
