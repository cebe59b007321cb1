"""The dead letters' own facts, beside the state: a store keeps them on disk, the state only counts them."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from vibemq.model.records import DeadFacts
from vibemq.model.stored import DamagedLetter


class DeadEntry(NamedTuple):
    """A dead letter without its message, which stays where it is: row `facts.sequence` of the queue."""

    queue_id: int
    group: str
    """Name of the group it died in; "" when it left every group at once."""
    facts: DeadFacts


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
        self._holders: Counter[tuple[int, int]] = Counter()
        self._ids: list[int] = []
        """Ascending; ids that are gone stay until they are the majority."""

    def add(self, entry: DeadEntry) -> None:
        dead_id = entry.facts.dead_id
        if not self._ids or dead_id > self._ids[-1]:
            self._ids.append(dead_id)
        elif self._ids[bisect_left(self._ids, dead_id)] != dead_id:
            insort(self._ids, dead_id)
        self.entries[dead_id] = entry
        self._holders[entry.queue_id, entry.facts.sequence] += 1

    def remove(self, dead_id: int) -> DeadEntry | None:
        entry = self.entries.pop(dead_id, None)
        if entry is not None:
            message = (entry.queue_id, entry.facts.sequence)
            self._holders[message] -= 1
            if not self._holders[message]:
                del self._holders[message]
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
