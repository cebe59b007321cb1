"""Save what is valid of a damaged data directory. Offline; the only place besides the checkpointer that writes LMDB.

Order matters: first the store is made readable (values that fail their checksum are removed, and with a queue's own
value everything of that queue), then the journal's readable records are applied to it. Every loss is a `Problem`.
"""

from pathlib import Path

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.model.stored import StoredState
from vibemq.storage import keys
from vibemq.storage.disk import RealDisk
from vibemq.storage.encoding import unseal
from vibemq.storage.interface import Problem
from vibemq.storage.kv import load_state, write_state
from vibemq.storage.lmdb.check import check_blocks, check_dead_letters
from vibemq.storage.lmdb.checkpoint import Checkpoint
from vibemq.storage.lmdb.env import DATA_FILE, missing_bytes, open_writer
from vibemq.storage.lmdb.journal import Journal
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.opening import create_store, own
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.lmdb.tables import LmdbKV, translated, writing

_STATE_TABLES = (keys.META, keys.QUEUE, keys.GROUP, keys.RUN_PAGE, keys.VALUE_PAGE, keys.CHUNK, keys.DEDUP)


def repair(data_dir: Path, settings: LmdbSettings) -> list[Problem]:
    """Repair and return what could not be saved.

    Raises:
        StorageDamaged: LMDB's own pages are broken; only a backup helps.
    """
    layout = Layout(data_dir)
    lock = own(layout, allow_remote=settings.allow_remote_file_system)
    try:
        create_store(layout)
        missing_bytes(layout.store)  # the gap reads as zeros from now on, and what stood there as damaged
        where = str(layout.store / DATA_FILE)
        with translated(where):
            env = open_writer(layout.store)
        try:
            return [*repair_store(env, where), *repair_journal(env, layout, settings)]
        finally:
            env.close()
    finally:
        lock.release()


def repair_store(env: lmdb.Environment, where: str) -> list[Problem]:
    """Remove every value that cannot be read."""
    problems: list[Problem] = []
    with writing(env, where) as kv:
        for table in _STATE_TABLES:
            problems += _remove_broken_values(kv, table)
        _remove_orphans(kv)
        for problem in [*check_blocks(kv), *check_dead_letters(kv)]:
            problems.append(problem)
            _remove_messages(kv, problem)
        if kv.get(keys.STATE_META) is None:
            _restore_meta(kv)
    return problems


def _remove_broken_values(kv: LmdbKV, table: bytes) -> list[Problem]:
    problems = []
    for key, value in list(kv.scan(table, keys.after(table))):
        try:
            unseal(key, value, kv.where)
        except StorageDamaged as error:
            problems.append(Problem(what=f"removed: {error}", path=kv.where))
            kv.delete(key)
    return problems


def _remove_orphans(kv: LmdbKV) -> None:
    """Values of queues and groups whose own value is gone cannot be loaded."""
    queues = {keys.split_queue_key(key) for key, _ in kv.scan(keys.QUEUE, keys.after(keys.QUEUE))}
    for table in _STATE_TABLES[2:]:
        for key, _ in list(kv.scan(table, keys.after(table))):
            if int.from_bytes(key[1:5], "big") not in queues:
                kv.delete(key)
    groups = {key[1:9] for key, _ in kv.scan(keys.GROUP, keys.after(keys.GROUP))}
    for table in (keys.RUN_PAGE, keys.VALUE_PAGE):
        for key, _ in list(kv.scan(table, keys.after(table))):
            if key[5:9] != b"\xff\xff\xff\xff" and key[1:9] not in groups:
                kv.delete(key)


def _remove_messages(kv: LmdbKV, problem: Problem) -> None:
    queue_id = int(problem.queue or 0)
    for table in (keys.BLOCK, keys.BLOCK_INFO):
        if not problem.what.startswith("dead letter"):
            kv.delete(keys.sequence_key(table, queue_id, problem.first_sequence))
    for first in range(problem.first_sequence, problem.last_sequence + 1):
        prefix = keys.sequence_key(keys.DEAD_BY_MESSAGE, queue_id, first)
        for key, _ in list(kv.scan(prefix, keys.after(prefix))):
            kv.delete(key)
            kv.delete(keys.dead_key(keys.split_dead_by_message_key(key)[2]))


def _restore_meta(kv: LmdbKV) -> None:
    """Counters that are surely high enough, from what else is there; lsn 0, so that all of the journal is applied."""
    state = load_state(kv)
    dead_ids = [int.from_bytes(key[1:9], "big") for key, _ in kv.scan(keys.DEAD, keys.after(keys.DEAD))]
    fresh = StoredState(
        next_queue_id=max(state.queues, default=0) + 1,
        next_dead_id=max(dead_ids, default=0) + 1,
        dead_count=len(dead_ids),
        instant=max((chunk.published_at for queue in state.queues.values() for chunk in queue.chunks), default=0),
    )
    write_state(kv, fresh)


def repair_journal(env: lmdb.Environment, layout: Layout, settings: LmdbSettings) -> list[Problem]:
    """Apply every readable record to the store, after which the broken ones no longer matter."""
    checkpoint = Checkpoint(env)
    journal, report = Journal.open(
        RealDisk(),
        str(layout.journal),
        segment_bytes=settings.segment_bytes,
        applied_lsn=checkpoint.applied_lsn,
        repair=True,
    )
    try:
        checkpoint.apply_records(((str(layout.journal), r) for r in report), up_to_lsn=report.last_lsn)
        journal.release(report.last_lsn)
    finally:
        journal.close()
    return [
        Problem(what=f"journal records {first} to {last} are lost", path=str(layout.journal))
        for first, last in report.lost
    ]
