"""The checked fake: the same reducer and liveness rules as the durable providers, without a byte on disk."""

import threading
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path

from vibemq.errors import InvalidOptions, StorageFailed
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.records import MessagesAdded, Record, StageMoved
from vibemq.model.stored import DeadLetter, DeadPage, DeadPageWanted, Slice, StoredState
from vibemq.storage.interface import Problem, Progress, StorageStats
from vibemq.storage.kvstore.dead_letters import SORTED_AT_ONCE, StoredDead
from vibemq.storage.kvstore.letter_reader import LetterReader
from vibemq.storage.kvstore.transient_rows import VolatileRows
from vibemq.storage.memory.nothing import Nothing
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import alive_runs, apply
from vibemq.storage.state.shedding import Shedder
from vibemq.storage.state.turns import in_turns

_WHERE = "memory"


class MemoryStorage:
    """See `IStorageProvider`. Touches no file, so `sync` has nothing to flush and `backup` nothing to write."""

    name = "memory"
    blocking_append = False
    in_flight_max = 1
    concurrent_reads = False
    epoch = 0

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open = False
        self._reset()
        self._shedder = Shedder(self._lock, lambda: self._state)

    def _reset(self) -> None:
        self._state = StoredState()
        self._dead = StoredDead(Nothing(), lambda queue_id: True)
        self._dirty = Dirty()
        self._rows = VolatileRows()
        self._letters = LetterReader(self._dead, lambda: self._state, self.read, _WHERE)

    def open(self) -> StoredState:
        with self._lock:
            self._open = True
            return deepcopy(self._state)

    def append(self, records: Sequence[Record]) -> int:
        with self._lock:
            self._check_open()
            for record in records:
                apply(self._state, record, self._dead, self._dirty)
                if isinstance(record, MessagesAdded) and record.queue_id in self._state.queues:
                    self._rows.add(record)
                elif isinstance(record, StageMoved):
                    self._rows.move(record)
            self._rows.forget(self._state, self._dirty.left)
            self._dead.forget()
            self._dirty.clear()
            self._state.lsn += 1
            return self._state.lsn

    def sync(self) -> int:
        with self._lock:
            self._check_open()
            return self._state.lsn

    def try_sync(self) -> int | None:
        """See `FlushesAtOnce`."""
        return self.sync()

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        with self._lock:
            self._check_open()
            return self._rows.read(queue_id, first, last, max_bytes)

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        with self._lock:
            self._check_open()
            return self._letters.letters(after, limit, queue)

    def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        with self._lock:
            self._check_open()
            return self._letters.page(wanted)

    def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        with self._lock:
            self._check_open()
            return self._letters.groups(wanted)

    def dead_queues(self, after: int = 0, limit: int = 100, name: str | None = None) -> list[tuple[int, str]]:
        with self._lock:
            self._check_open()
            return self._letters.queues(after, limit, name)

    def dead_letter(self, dead_id: int) -> DeadLetter | None:
        with self._lock:
            self._check_open()
            return self._letters.letter(dead_id)

    def maintain(self) -> None:
        """Beside the event loop."""
        in_turns(self._sort_in_some_letters)
        self._shedder.shed()

    def _sort_in_some_letters(self) -> bool:
        with self._lock:
            self._check_open()
            return self._dead.sort_in(SORTED_AT_ONCE)

    def stats(self) -> StorageStats:
        with self._lock:
            lsn = self._state.lsn
            return StorageStats(
                provider=self.name,
                last_lsn=lsn,
                durable_lsn=lsn,
                applied_lsn=lsn,
                journal_bytes=0,
                store_bytes=0,
                reclaimable_bytes=0,
                buffered_bytes=self._rows.size,
                disk_free_bytes=0,
                disk_total_bytes=0,
                details={"dead_letters": self._state.dead_count},
            )

    def check(self) -> Iterator[Problem]:
        """Every message with a dead letter must have its row."""
        with self._lock:
            self._check_open()
            for queue in self._state.queues.values():
                for first, last in queue.dead.runs():
                    held = sum(part.rows.count for part in self.read(queue.queue_id, first, last, 1 << 62))
                    if held != last - first + 1 or alive_runs(queue, first, last) != [(first, last)]:
                        yield Problem("dead letters without their messages", _WHERE, None, queue.name, first, last)

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        self.refuse_backup()

    def refuse_backup(self) -> None:
        raise InvalidOptions("the memory provider keeps nothing on disk, so there is nothing to back up")

    def compact(self, progress: Progress | None = None) -> int:
        self._check_open()
        return 0

    def close(self) -> None:
        """Forget everything. Idempotent."""
        with self._lock:
            self._open = False
            self._reset()

    def _check_open(self) -> None:
        if not self._open:
            raise StorageFailed("the memory store is not open")
