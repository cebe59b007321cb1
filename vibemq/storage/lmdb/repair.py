"""Save what is valid of a damaged data directory. Offline.

First the store: what can be read of it goes into a new one (`vibemq.storage.kvstore.salvage` decides), and the old file
stays beside it as `store.damaged-<time>`. Then the journal's readable records are applied to the new store. Every loss
is a `Problem`.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.model.jobs.job_records import JobAdvanced, JobStarted
from vibemq.model.records import DeadLettered, MessagesAdded, QueueCreated, Record, StageMoved
from vibemq.model.stored import StoredState
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore.encoding import decode_batch
from vibemq.storage.kvstore.salvage import drop_missing, salvage
from vibemq.storage.lmdb.checkpoint.checkpoint import Checkpoint
from vibemq.storage.lmdb.compaction import remove_leftover
from vibemq.storage.lmdb.environment.env import heal_header, missing_bytes, open_writer
from vibemq.storage.lmdb.environment.pairs import read_pairs
from vibemq.storage.lmdb.environment.tables import translated, writing
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.recovery import RecoveryReport
from vibemq.storage.lmdb.layout import PROVIDER, VERSION, Layout
from vibemq.storage.lmdb.prepare import whole_file
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.local.disk import RealDisk
from vibemq.storage.local.high_water import read_note
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.repaired import begin_repair, finish_repair, take_place
from vibemq.storage.local.store_file import StoreInfo, check_store, read_store_info, write_store_info


def repair(data_dir: Path, settings: LmdbSettings) -> list[Problem]:
    """Repair and return what could not be saved.

    Raises:
        StorageLocked: the store is in use.
        StoreVersionError: it is not for this code.
    """
    layout = Layout(data_dir)
    check_store(data_dir, PROVIDER, VERSION)
    lock = DirectoryLock(data_dir)
    lock.acquire()
    try:
        check_store(data_dir, PROVIDER, VERSION)
        info = read_store_info(data_dir)
        write_store_info(data_dir, info or StoreInfo(PROVIDER, VERSION, 0))
        problems = _repair_store(layout)
        with translated(str(layout.data_file)), closing(open_writer(layout.store)) as env:
            problems += _repair_journal(env, layout, settings)
            with writing(env, str(layout.data_file)) as kv:
                problems += drop_missing(kv)
        return problems
    finally:
        lock.release()


def _repair_store(layout: Layout) -> list[Problem]:
    if finish_repair(layout.store):
        text = "an interrupted repair was completed; what it did not save is in the damaged folder beside it"
        return [Problem(text, str(layout.data_file))]
    # Nothing would remove it from beside the damaged file.
    remove_leftover(layout)
    fresh = begin_repair(layout.store)
    problems: list[Problem] = []
    with translated(str(fresh)), closing(open_writer(fresh)) as target, writing(target, str(layout.data_file)) as kv:
        problems += salvage(_pairs(layout, problems), kv)
    take_place(layout.store)
    return problems


def _pairs(layout: Layout, problems: list[Problem]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair that LMDB still finds: from the front up to the first broken page, then from the back down to it."""
    where = str(layout.data_file)
    try:
        whole_file(layout)
        if heal_header(layout.store):
            problems.append(Problem("one of the two header pages was broken; the other was used", where, offset=0))
        missing_bytes(layout.store)  # stretches a file that was cut short: the gap reads as zeros, and so as damaged
    except StorageDamaged as damage:
        problems.append(Problem(f"nothing of the store can be read: {damage}", where))
        return
    seen: bytes | None = None
    for backward in (False, True):
        try:
            for key, value in read_pairs(layout.store, backward=backward):
                if backward and seen is not None and key <= seen:
                    return
                seen = seen if backward else key
                yield key, value
            return
        except StorageDamaged as error:
            problems.append(Problem(f"LMDB stopped reading: {error}", where))


def _repair_journal(env: lmdb.Environment, layout: Layout, settings: LmdbSettings) -> list[Problem]:
    """Apply every readable record that the store lacks, after which the broken ones no longer matter."""
    checkpoint = Checkpoint(env)
    state = checkpoint.state
    journal, report = Journal.open(
        RealDisk(),
        str(layout.journal),
        segment_bytes=settings.segment_bytes,
        applied_lsn=checkpoint.applied_lsn,
        noted_lsn=read_note(layout.note, RealDisk())[0],
        repair=True,
    )
    problems: list[Problem] = []
    try:
        if not state.lsn and state.queues:
            state.lsn = _lsn_by_its_content(state, report)
            text = f"how far the journal was applied is lost; by what the store holds, up to record {state.lsn}"
            problems.append(Problem(text, str(layout.data_file)))
        applied_lsn = state.lsn
        wanted = ((str(layout.journal), record) for record in report if record.lsn > applied_lsn)
        checkpoint.apply_records(wanted, up_to_lsn=report.last_lsn)
    finally:
        journal.close()
    lost = [(max(first, applied_lsn + 1), last) for first, last in report.lost if last > applied_lsn]
    problems += [Problem(f"journal records {first} to {last} are lost", str(layout.journal)) for first, last in lost]
    return problems


def _lsn_by_its_content(state: StoredState, report: RecoveryReport) -> int:
    """The last record whose queues, messages, dead letters or jobs the store has.

    A transaction applies records in order, so it has all before. Those behind may be applied a second time: what became
    of messages and letters then becomes of them again, which changes nothing. Only jobs count: of each, the steps
    since the last whole page of letters, or a change of its state, may be counted and listed twice. To go less far back
    on weaker signs would be worse: what is taken for applied and is not, is lost.
    """
    last, others = 0, set[int]()
    for record in report:
        for fact in decode_batch(record.body):
            if isinstance(fact, JobStarted) and not _is_there(state, fact):
                # A number is given again when the latest job was forgotten before a start.
                others.add(fact.job.job_id)
            elif not (isinstance(fact, JobAdvanced) and fact.job_id in others) and _is_there(state, fact):
                last = record.lsn
    return last


def _is_there(state: StoredState, fact: Record) -> bool:
    match fact:
        case MessagesAdded():
            queue = state.queues.get(fact.queue_id)
            return queue is not None and fact.first_sequence + fact.rows.count <= queue.next_sequence
        case StageMoved():
            queue = state.queues.get(fact.queue_id)
            return queue is not None and fact.last_sequence < queue.next_sequence
        case DeadLettered():
            # The store may know of ids ahead of their letters.
            queue = state.queues.get(fact.queue_id)
            return queue is not None and any(
                letter.dead_id < state.next_dead_id and letter.sequence in queue.dead for letter in fact.letters
            )
        case QueueCreated():
            return fact.queue_id in state.queues
        case JobStarted():
            job = state.jobs.get(fact.job.job_id)
            return job is not None and (job.created_at, job.plan) == (fact.job.created_at, fact.job.plan)
        case JobAdvanced():
            # It moves with the last step of a page, and never back.
            job = state.jobs.get(fact.job_id)
            return job is not None and 0 < fact.cursor <= job.cursor
        case _:
            return False
