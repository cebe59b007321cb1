"""Stand-ins for the engine and a storage provider; the parts of their contracts that the server's parts lean on."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from vibemq.errors import StorageDamaged, StorageFailed, StorageFull
from vibemq.model.commands import Command
from vibemq.model.effects import Effect, Outcome, Payment, Reply
from vibemq.model.records import MessagesAdded, Record
from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.model.stored import DeadLetter, Slice, StoredState
from vibemq.storage.interface import Problem, StorageStats


class FakeEngine:
    """Answers `committed`, `failed` and `pay` with what the test put there, and notes what it was told."""

    def __init__(self) -> None:
        self.committed_tickets: list[int] = []
        self.failed_tickets: list[tuple[int, str]] = []
        self.after: dict[int, Outcome] = {}
        self.waiting: dict[int, list[Effect]] = {}
        """What waits for an outcome, by its ticket: refused with it."""
        self.paying: list[Payment] = []
        self.handled: list[Command] = []
        self.shows_in_steps = False

    def restore(self, state: StoredState, now: int) -> Outcome:
        return Outcome()

    def handle(self, commands: Sequence[Command], now: int) -> Outcome:
        self.handled += commands
        return Outcome()

    def committed(self, ticket: int, now: int) -> Outcome:
        self.committed_tickets.append(ticket)
        return self.after.get(ticket, Outcome())

    def shows_at_once(self, ticket: int) -> bool:
        return not self.shows_in_steps

    def failed(self, ticket: int, now: int, error: StorageFull) -> Outcome:
        self.failed_tickets.append((ticket, str(error.code)))
        self.failed_answers(self.waiting.get(ticket, []), error)
        return self.after.get(ticket, Outcome())

    def failed_answers(self, waiting: Sequence[Effect], error: StorageFull) -> None:
        for effect in waiting:
            if isinstance(effect, Reply):
                effect.result = error

    def pay(self, now: int) -> Payment | None:
        return self.paying.pop(0) if self.paying else None

    def tick(self, now: int) -> Outcome:
        return Outcome()

    def next_deadline(self) -> int | None:
        return None

    def queue_info(self, name: str) -> QueueInfo | None:
        return None

    def queue_infos(self) -> list[QueueInfo]:
        return []

    def waiting_runs(self, queue: str, limit: int, start: int = 0) -> list[Run]:
        return []


class FakeStorage:
    """Rows in a dict by sequence (one queue). Flushes wait for `gate` when it is closed."""

    name = "fake"
    in_flight_max = 1
    concurrent_reads = False
    epoch = 0

    def __init__(self, *, blocking_append: bool = False) -> None:
        self.blocking_append = blocking_append
        self.appends: list[list[Record]] = []
        self.syncs = 0
        self.full_above: int | None = None
        """Batches with more rows than this are refused."""
        self.broken = False
        self.gate = threading.Event()
        self.gate.set()
        self.rows: dict[int, bytes] = {}
        self.damaged: set[int] = set()
        self.reads = 0

    def open(self) -> StoredState:
        return StoredState()

    def append(self, records: Sequence[Record]) -> int:
        if self.broken:
            raise StorageFailed("the disk is gone")
        rows = sum(record.rows.count for record in records if isinstance(record, MessagesAdded))
        if self.full_above is not None and rows > self.full_above:
            raise StorageFull("no space left")
        self.appends.append(list(records))
        return len(self.appends)

    def sync(self) -> int:
        self.syncs += 1
        covered = len(self.appends)
        assert self.gate.wait(60)
        if self.broken:
            raise StorageFailed("the flush failed")
        return covered

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        self.reads += 1
        found: list[Slice] = []
        for sequence in range(first, last + 1):
            if sequence in self.damaged:
                raise StorageDamaged("bad checksum", path="journal")
            if sequence not in self.rows or (found and max_bytes <= 0):
                if sequence in self.rows:
                    break
                continue
            row = self.rows[sequence]
            max_bytes -= len(row)
            found.append(Slice(sequence, 1000, Rows.of([row])))
        return found

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        return []

    def dead_letter(self, dead_id: int) -> DeadLetter | None:
        return None

    def maintain(self) -> None: ...

    def stats(self) -> StorageStats:
        return StorageStats("fake", 0, 0, 0, 0, 0, 0, 0, 0, 0)

    def check(self) -> Iterator[Problem]:
        return iter(())

    def backup(self, target: Path, progress: object = None) -> None: ...

    def compact(self, progress: object = None) -> int:
        return 0

    def close(self) -> None: ...
