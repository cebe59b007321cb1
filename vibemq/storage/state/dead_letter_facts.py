"""The dead letters' own facts, beside the state: a store keeps them on disk, the state only counts them."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from vibemq.model.stored import DamagedLetter
from vibemq.storage.state.dead_groups import DeadEntry, LetterGroups

__all__ = ["DeadEntry", "DeadIndex", "DeadTable"]

WAITING_MAX = 1024
"""So many letters more than there are may wait to be placed, before all are placed anew."""


class DeadIndex(Protocol):
    """What the reducer needs to know about dead letters. `remove` of an unknown id answers None."""

    def add(self, entry: DeadEntry) -> None: ...

    def remove(self, dead_id: int) -> DeadEntry | None: ...

    def holds(self, queue_id: int, sequence: int) -> bool:
        """Whether any letter (of whatever group) still points at the message."""


class DeadTable:
    """All entries in memory: for the memory provider, transient queues and tests."""

    def __init__(self) -> None:
        self.entries: dict[int, DeadEntry] = {}
        self.by_queue: Counter[int] = Counter()
        """queue_id -> letters; of queues that have some."""
        self._holders: Counter[tuple[int, int]] = Counter()
        self._ids: list[int] = []
        """Ascending; ids that are gone stay until they are the majority."""
        self._groups: LetterGroups | None = None
        """None until somebody asks: most tables are never asked."""

    def add(self, entry: DeadEntry) -> None:
        dead_id = entry.facts.dead_id
        if not self._ids or dead_id > self._ids[-1]:
            self._ids.append(dead_id)
        elif self._ids[bisect_left(self._ids, dead_id)] != dead_id:
            insort(self._ids, dead_id)
        self.entries[dead_id] = entry
        self.by_queue[entry.queue_id] += 1
        self._holders[entry.queue_id, entry.facts.sequence] += 1
        if self._groups is not None:
            self._groups.add(entry)
            if self._groups.waiting > 2 * len(self.entries) + WAITING_MAX:
                self._groups = None

    def remove(self, dead_id: int) -> DeadEntry | None:
        entry = self.entries.pop(dead_id, None)
        if entry is not None:
            message = (entry.queue_id, entry.facts.sequence)
            self._holders[message] -= 1
            if not self._holders[message]:
                del self._holders[message]
            self.by_queue[entry.queue_id] -= 1
            if not self.by_queue[entry.queue_id]:
                del self.by_queue[entry.queue_id]
            if self._groups is not None:
                self._groups.remove(dead_id)
            if len(self._ids) > 2 * len(self.entries) + 64:
                self._ids = sorted(self.entries)
        return entry

    def holds(self, queue_id: int, sequence: int) -> bool:
        return (queue_id, sequence) in self._holders

    def get(self, dead_id: int) -> DeadEntry | None:
        return self.entries.get(dead_id)

    def after(self, dead_id: int, damaged: list[DamagedLetter] | None = None) -> Iterator[DeadEntry]:
        """Entries with a greater id, ascending. Nothing may be added or removed while it runs."""
        ids = self._ids
        for index in range(bisect_right(ids, dead_id), len(ids)):
            entry = self.entries.get(ids[index])
            if entry is not None:
                yield entry

    def before(self, dead_id: int) -> Iterator[DeadEntry]:
        """Entries with a smaller id, descending. Nothing may be added or removed while it runs."""
        ids = self._ids
        for index in range(bisect_left(ids, dead_id) - 1, -1, -1):
            entry = self.entries.get(ids[index])
            if entry is not None:
                yield entry

    # -- by queue, reason and fingerprint -----------------------------------------------------------------------------

    @property
    def groups(self) -> LetterGroups:
        """Without the letters that still wait to be placed: see `place`."""
        if self._groups is None:
            self._groups = LetterGroups()
        return self._groups

    @property
    def is_asked(self) -> bool:
        return self._groups is not None

    def place(self, most: int) -> bool:
        """Let `groups` know of up to `most` letters that came last; return whether there are more."""
        return self.groups.catch_up(self.entries, self._ids, most)
