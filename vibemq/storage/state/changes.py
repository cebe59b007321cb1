"""Which stored values a run of records changed, so that a store writes those and no others.

Sets of sequences and per-message values are stored in *pages*: all entries whose sequence (for a run: whose first
sequence) shares the upper bits. A page is small, so a scattered set of a million sequences never has to be written
whole because one of them left.

    runs      page = first sequence of the run >> RUN_PAGE_SHIFT
    values    page = sequence >> VALUE_PAGE_SHIFT[kind]
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from vibemq.model.runs import Run, RunSet

RUN_PAGE_SHIFT = 12


class RunKind(IntEnum):
    """What a stored page of runs belongs to; priority p is kind PRIORITY + p."""

    TAKEN = 1
    PENDING = 2
    DROPPED = 3
    DEAD = 4
    PRIORITY = 64


class ValueKind(IntEnum):
    EXPIRES = 1
    DELAYED = 2
    ATTEMPTS = 3


VALUE_PAGE_SHIFT = {ValueKind.EXPIRES: 10, ValueKind.DELAYED: 10, ValueKind.ATTEMPTS: 6}
"""Attempts carry error texts, so their pages hold fewer."""


class PageKey(NamedTuple):
    queue_id: int
    group_id: int
    """ALL_GROUPS for what belongs to the queue."""
    kind: int
    page: int


class Dirty:
    """Collects what `apply` touched. Empty it with `clear()` once everything is written."""

    __slots__ = (
        "chunks",
        "dedup",
        "groups",
        "jobs",
        "left",
        "plans",
        "queues",
        "run_pages",
        "tokens",
        "transactions",
        "users",
        "value_pages",
        "whole_groups",
        "whole_queues",
    )

    def __init__(self) -> None:
        self.queues: set[int] = set()
        """The queue's own value."""
        self.groups: set[tuple[int, int]] = set()
        """The group's own value, by (queue_id, group_id)."""
        self.chunks: set[tuple[int, int]] = set()
        """(queue_id, first)."""
        self.run_pages: set[PageKey] = set()
        self.value_pages: set[PageKey] = set()
        self.dedup: dict[int, dict[int, bool]] = {}
        """By queue: sequence -> True: it came, False: it went."""
        self.plans: set[tuple[int, int, int]] = set()
        """(queue_id, group_id, number)."""
        self.transactions: set[str] = set()
        """By application."""
        self.users: set[str] = set()
        """By name."""
        self.tokens: set[str] = set()
        """By token_id."""
        self.jobs: set[int] = set()
        self.whole_queues: set[int] = set()
        """Everything of the queue is to be removed and what is left of it written anew."""
        self.whole_groups: set[tuple[int, int]] = set()
        self.left: dict[int, RunSet] = {}
        """By queue: sequences that may have ceased to be alive; the blocks holding them are worth a look."""

    def clear(self) -> None:
        for name in Dirty.__slots__:
            getattr(self, name).clear()

    def mark_runs(self, queue_id: int, group_id: int, kind: int, runs: RunSet, first: int, last: int) -> None:
        """Call before and after `runs` is changed within [first, last]."""
        for start, _ in runs.touching(first, last):
            self.run_pages.add(PageKey(queue_id, group_id, kind, start >> RUN_PAGE_SHIFT))

    def mark_all_runs(self, queue_id: int, group_id: int, kind: int, runs: RunSet) -> None:
        """Call when `runs`, which was empty, has been filled."""
        for page in {start >> RUN_PAGE_SHIFT for start, _ in runs.runs()}:
            self.run_pages.add(PageKey(queue_id, group_id, kind, page))

    def mark_value(self, queue_id: int, group_id: int, kind: ValueKind, sequence: int) -> None:
        self.value_pages.add(PageKey(queue_id, group_id, kind, sequence >> VALUE_PAGE_SHIFT[kind]))

    def mark_values(self, queue_id: int, group_id: int, kind: ValueKind, sequences: Sequence[int]) -> None:
        """As `mark_value` of each; they ascend."""
        shift = VALUE_PAGE_SHIFT[kind]
        if sequences[-1] - sequences[0] + 1 == len(sequences):
            pages: Iterable[int] = range(sequences[0] >> shift, (sequences[-1] >> shift) + 1)
        else:
            pages = {sequence >> shift for sequence in sequences}
        self.value_pages.update([PageKey(queue_id, group_id, kind, page) for page in pages])

    def mark_left(self, queue_id: int, runs: Iterable[Run]) -> None:
        left = self.left.get(queue_id)
        if left is None:
            self.left[queue_id] = RunSet(runs)
        else:
            left.add_all(runs)
