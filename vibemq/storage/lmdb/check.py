"""Checks everything that is stored and reports damage; changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore.audit import audit
from vibemq.storage.kvstore.store import KV
from vibemq.storage.lmdb.environment.pages import check_pages
from vibemq.storage.lmdb.environment.tables import reading
from vibemq.storage.lmdb.journal.journal import Journal, SealedSegment
from vibemq.storage.lmdb.journal.segment import read_segment
from vibemq.storage.local.disk import RealDisk

SNAPSHOTS_MAX = 100
"""A snapshot can be two checkpoints old before its header was read; there is none like that in a row."""


def check_store(env: lmdb.Environment, where: str) -> list[Problem]:
    """Everything in LMDB, in one snapshot; order no checkpoint meanwhile, or the file grows."""
    problems: list[Problem] = []
    try:
        with _pages_checked(env, where) as kv:
            problems.extend(audit(kv))
    except StorageDamaged as error:
        problems.append(Problem(str(error), where, error.offset, repairable=True))
    return problems


@contextmanager
def _pages_checked(env: lmdb.Environment, where: str) -> Iterator[KV]:
    """A snapshot whose pages LMDB may be trusted with."""
    for _ in range(SNAPSHOTS_MAX):
        with reading(env, where) as kv:
            if check_pages(Path(where), kv.snapshot):
                yield kv
                return
    raise StorageDamaged("its headers do not show the transaction that LMDB reads", path=where, offset=0)


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
