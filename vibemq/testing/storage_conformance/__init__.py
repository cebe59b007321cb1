"""Every promise of `IStorageProvider`, as small checks that any provider must pass.

    for check in CHECKS:
        check(subject)

A `Subject` is one data directory and how to open it. Checks about surviving a restart pass over providers that keep
nothing (`durable=False`), and those about damage over subjects without a `damage` hook.
"""

from vibemq.testing.storage_conformance import (
    batches,
    dead_letters,
    moved_stages,
    ownership,
    reads,
    restarts,
    threads,
    upkeep,
)
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, assert_rows, letter, queue, sequences
from vibemq.testing.storage_conformance.subject import Check, Subject

__all__ = [
    "ALL",
    "CHECKS",
    "NO_LIMIT",
    "Check",
    "Subject",
    "added",
    "assert_rows",
    "letter",
    "queue",
    "sequences",
]

CHECKS: list[Check] = [
    *reads.CHECKS,
    *restarts.CHECKS,
    *batches.CHECKS,
    *moved_stages.CHECKS,
    *dead_letters.CHECKS,
    *threads.CHECKS,
    *ownership.CHECKS,
    *upkeep.CHECKS,
]
