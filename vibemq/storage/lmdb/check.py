"""Walk everything that is stored and say what is broken; nothing is changed here."""

from collections.abc import Iterator

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.storage.audit import audit
from vibemq.storage.disk import RealDisk
from vibemq.storage.interface import Problem
from vibemq.storage.lmdb.journal import Journal, SealedSegment
from vibemq.storage.lmdb.segment import read_segment
from vibemq.storage.lmdb.tables import reading


def check_store(env: lmdb.Environment, where: str) -> list[Problem]:
    """Everything in LMDB, in one snapshot; order no checkpoint meanwhile, or the file grows."""
    problems: list[Problem] = []
    try:
        with reading(env, where) as kv:
            problems.extend(audit(kv))
    except StorageDamaged as error:
        problems.append(Problem(str(error), where, repairable=True))
    return problems


def check_journal(journal: Journal) -> Iterator[Problem]:
    """Records of the sealed segments."""
    for segment in journal.sealed_segments():
        problem = _check_segment(segment)
        # Released and written anew since it was listed: what was read means nothing.
        if problem is not None and segment in journal.sealed_segments():
            yield problem


def _check_segment(segment: SealedSegment) -> Problem | None:
    try:
        for _ in read_segment(RealDisk(), segment.path, above_lsn=0, last_lsn=segment.last_lsn):
            pass
    except FileNotFoundError as error:
        return Problem(f"a journal segment is missing: {error}", segment.path)
    except StorageDamaged as error:
        return Problem(str(error), segment.path, error.offset, repairable=True)
    return None
