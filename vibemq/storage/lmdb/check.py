"""Walk everything that is stored and say what is broken; nothing is changed here."""

from collections.abc import Iterator

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.storage import keys, values
from vibemq.storage.blocks import BlockInfo, block_infos, last_of, load_block
from vibemq.storage.disk import RealDisk
from vibemq.storage.encoding import GARBAGE, unseal
from vibemq.storage.interface import Problem
from vibemq.storage.kv import KV, load_state
from vibemq.storage.lmdb.dead import SnapshotKV
from vibemq.storage.lmdb.journal import Journal, SealedSegment
from vibemq.storage.lmdb.segment import read_segment
from vibemq.storage.lmdb.tables import reading


def check_store(env: lmdb.Environment, where: str) -> Iterator[Problem]:
    """Every value's checksum, every block's inside, and that every dead letter has its message."""
    kv = SnapshotKV(env, where)
    try:
        yield from check_values(kv)
        yield from check_blocks(kv)
        yield from check_dead_letters(kv)
        with reading(env, where) as snapshot:
            load_state(snapshot)
    except StorageDamaged as error:
        yield Problem(what=str(error), path=where, repairable=True)


def check_values(kv: KV) -> Iterator[Problem]:
    """Checksums of all values but blocks."""
    for table in (keys.META, keys.QUEUE, keys.GROUP, keys.RUN_PAGE, keys.VALUE_PAGE, keys.CHUNK, keys.DEDUP):
        for key, value in kv.scan(table, keys.after(table)):
            try:
                unseal(key, value, kv.where)
            except StorageDamaged as error:
                yield Problem(what=str(error), path=kv.where, repairable=True)


def check_blocks(kv: KV) -> Iterator[Problem]:
    """Every block reads back as its info says, and no two overlap."""
    for queue_id in block_queues(kv):
        before = 0
        for info in block_infos(kv, queue_id):
            problem = _check_block(kv, queue_id, info, before)
            if problem:
                yield Problem(
                    what=problem,
                    path=kv.where,
                    queue=str(queue_id),
                    first_sequence=info.first,
                    last_sequence=info.last,
                    repairable=True,
                )
            before = info.last


def block_queues(kv: KV) -> Iterator[int]:
    """Ids of the queues that have blocks, found by leaping from queue to queue."""
    start = keys.BLOCK_INFO
    while True:
        found = next(iter(kv.scan(start, keys.after(keys.BLOCK_INFO))), None)
        if found is None:
            return
        queue_id = keys.split_sequence_key(found[0])[0]
        yield queue_id
        start = keys.after(keys.queue_prefix(keys.BLOCK_INFO, queue_id))


def _check_block(kv: KV, queue_id: int, info: BlockInfo, before: int) -> str:
    if info.first <= before:
        return f"the block of messages from {info.first} of queue {queue_id} overlaps the one before it"
    try:
        parts = load_block(kv, queue_id, info)
    except StorageDamaged as error:
        # The block may have been deleted by a checkpoint since its info was read.
        if kv.get(keys.sequence_key(keys.BLOCK_INFO, queue_id, info.first)) is None:
            return ""
        return str(error)
    rows, last = sum(part.rows.count for part in parts), last_of(parts[-1])
    if kv.get(keys.sequence_key(keys.BLOCK_INFO, queue_id, info.first)) is not None and last < info.last:
        return f"the block of messages from {info.first} of queue {queue_id} ends at {last} after {rows} rows"
    return ""


def check_dead_letters(kv: KV) -> Iterator[Problem]:
    for key, value in kv.scan(keys.DEAD, keys.after(keys.DEAD)):
        try:
            entry = values.unpack_dead(unseal(key, value, kv.where))
        except GARBAGE as error:
            yield Problem(what=f"dead letter {key.hex()} cannot be read ({error})", path=kv.where, repairable=True)
            continue
        sequence = entry.facts.sequence
        if kv.get(key) is not None and not any(
            info.first <= sequence <= info.last for info in block_infos(kv, entry.queue_id, sequence, sequence)
        ):
            yield Problem(
                what=f"dead letter {entry.facts.dead_id} has lost its message",
                path=kv.where,
                queue=str(entry.queue_id),
                first_sequence=sequence,
                last_sequence=sequence,
                repairable=True,
            )


def check_journal(journal: Journal) -> Iterator[Problem]:
    """Records of the sealed segments."""
    for segment in journal.sealed_segments():
        problem = _check_segment(segment)
        if problem is not None and segment in journal.sealed_segments():
            yield problem


def _check_segment(segment: SealedSegment) -> Problem | None:
    try:
        for _ in read_segment(RealDisk(), segment.path, above_lsn=0, last_lsn=segment.last_lsn):
            pass
    except FileNotFoundError:
        return None  # recycled since it was listed
    except StorageDamaged as error:
        return Problem(what=str(error), path=segment.path, offset=error.offset, repairable=True)
    return None
