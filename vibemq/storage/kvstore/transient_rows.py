"""Rows kept in memory only: the memory provider's, and those of transient queues in every provider."""

from bisect import bisect_left
from collections.abc import Iterator

from vibemq.model.records import MessagesAdded, StageMoved
from vibemq.model.runs import RunSet, run_count
from vibemq.model.stored import Slice, StoredState
from vibemq.storage.kvstore.blocks import REWRITE_BELOW, clip, last_of, limit
from vibemq.storage.state.liveness import alive_runs


class VolatileRows:
    """Slices by queue, ascending. Rows share the bytes they came with."""

    def __init__(self) -> None:
        self._queues: dict[int, list[Slice]] = {}
        self.size = 0
        """Bytes of all rows."""

    def add(self, record: MessagesAdded) -> None:
        """Sequences ascend from call to call."""
        part = Slice(record.first_sequence, record.published_at, record.rows)
        self._queues.setdefault(record.queue_id, []).append(part)
        self.size += record.rows.size

    def move(self, record: StageMoved) -> None:
        """All rows of a stage have other sequences from here on."""
        parts = self._queues.pop(record.stage_id, [])
        shift, published_at = record.shift, record.published_at
        moved = [Slice(part.first_sequence + shift, published_at, part.rows) for part in parts]
        self._queues.setdefault(record.queue_id, []).extend(moved)

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """As `IStorageProvider.read`."""
        return list(limit(self._reaching(queue_id, first, last), max_bytes))

    def _reaching(self, queue_id: int, first: int, last: int) -> Iterator[Slice]:
        parts = self._queues.get(queue_id, [])
        for index in range(bisect_left(parts, first, key=last_of), len(parts)):
            if parts[index].first_sequence > last:
                return
            yield from clip([parts[index]], [(first, last)])

    def forget(self, state: StoredState, left: dict[int, RunSet]) -> None:
        """Let go of rows that are no longer alive, looking only where `left` (`Dirty.left`) says."""
        for queue_id, runs in left.items():
            parts = self._queues.get(queue_id)
            if parts is None:
                continue
            if queue_id not in state.queues:
                del self._queues[queue_id]
                self.size -= sum(part.rows.size for part in parts)
                continue
            for first, last in runs.runs():
                self._forget(state, queue_id, parts, first, last)

    def _forget(self, state: StoredState, queue_id: int, parts: list[Slice], first: int, last: int) -> None:
        low = high = bisect_left(parts, first, key=last_of)
        kept: list[Slice] = []
        while high < len(parts) and parts[high].first_sequence <= last:
            part = parts[high]
            runs = alive_runs(state.queues[queue_id], part.first_sequence, last_of(part))
            # A few live rows must not hold on to the bytes of many dead ones.
            if run_count(runs) * REWRITE_BELOW < part.rows.count:
                pieces = clip([part], runs)
                self.size -= part.rows.size - sum(piece.rows.size for piece in pieces)
                kept += pieces
            else:
                kept.append(part)
            high += 1
        parts[low:high] = kept
