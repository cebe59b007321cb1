"""The dead letters' own facts, beside the state: a store keeps them on disk, the state only counts them."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from vibemq.model.records import DeadFacts


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

    def add(self, entry: DeadEntry) -> None:
        self.entries[entry.facts.dead_id] = entry
        self._holders[entry.queue_id, entry.facts.sequence] += 1

    def remove(self, dead_id: int) -> DeadEntry | None:
        entry = self.entries.pop(dead_id, None)
        if entry is not None:
            message = (entry.queue_id, entry.facts.sequence)
            self._holders[message] -= 1
            if not self._holders[message]:
                del self._holders[message]
        return entry

    def holds(self, queue_id: int, sequence: int) -> bool:
        return (queue_id, sequence) in self._holders

    def get(self, dead_id: int) -> DeadEntry | None:
        return self.entries.get(dead_id)

    def after(self, dead_id: int) -> Iterator[DeadEntry]:
        """Entries with a greater id, ascending."""
        for key in sorted(key for key in self.entries if key > dead_id):
            yield self.entries[key]
