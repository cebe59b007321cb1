"""Rows of messages: from the journal and what is at hand of it, and from LMDB.

What appends wait for, the store's lock, is held for short: a large row is read without it, and scattered ones let it go
in between.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from vibemq.errors import StorageDamaged
from vibemq.model.records import StageMoved
from vibemq.model.rows import LARGE_ROW_BYTES, Rows
from vibemq.model.runs import Run
from vibemq.model.stored import Slice, StoredQueue
from vibemq.storage.kvstore.blocks import block_infos, clip, limit, load_block, load_large_block
from vibemq.storage.kvstore.encoding import LONE_ROW_PREFIX_BYTES, lone_row_bytes
from vibemq.storage.kvstore.keys import BLOCK, sequence_key
from vibemq.storage.kvstore.require_alive import all_alive, need_none_of
from vibemq.storage.lmdb.environment.tables import reading
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.recent import RecentRows
from vibemq.storage.lmdb.open_store import OpenStore
from vibemq.storage.lmdb.reading.stored import StoredRows, shifted_damage
from vibemq.storage.state.large import first_large, queues_with_large
from vibemq.storage.state.picking import pick_in_turns
from vibemq.storage.state.reducer import is_transient


class RowReader:
    """The verbs of the provider that read rows, see there for the threads that may call them."""

    def __init__(self, store: OpenStore, journal: Journal, recent: RecentRows) -> None:
        self._store = store
        self._journal = journal
        self._recent = recent
        self._stored = StoredRows(store)
        self.large_queues = queues_with_large(store.state)
        """Queues that have, or had, rows above `LARGE_ROW_BYTES`."""

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        if queue_id in self.large_queues:
            return self._read_around_large(queue_id, first, last, max_bytes)
        with self._store.lock:
            return self.read_locked(queue_id, first, last, max_bytes)

    def read_locked(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """As `read`, with the lock held: the store may be closed while somebody waits for it."""
        self._store.require_open()
        if is_transient(self._store.state, queue_id):
            return self._recent.read_transient(queue_id, first, last, max_bytes)
        queue = self._store.state.queues.get(queue_id)
        parts = self._parts(queue_id, first, last)
        if queue is not None:
            parts = all_alive(queue, parts, first, last, self._store.where)
        return list(limit(parts, max_bytes))

    def _read_around_large(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """A row above `max_bytes` is not read only to be found too much, and alone it is read without the lock."""
        with self._store.lock:
            queue = self._store.state.queues.get(queue_id)
            found = None if queue is None else first_large(queue.chunks, [(first, last)])
            if found is None or found[1] <= max_bytes:
                return self.read_locked(queue_id, first, last, max_bytes)
            sequence = found[0]
            before = self.read_locked(queue_id, first, sequence - 1, max_bytes) if sequence > first else []
        return before or self.read_large(queue_id, sequence)

    def picks(self, queue_id: int) -> bool:
        """Whether `pick` serves: its rows are many to a block."""
        return queue_id not in self.large_queues

    def pick(self, queue_id: int, sequences: Sequence[int], max_bytes: int) -> tuple[list[Slice], int]:
        """See `PicksRows`."""
        return pick_in_turns(self._held, partial(self._pick, queue_id, sequences), sequences, max_bytes)

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._store.lock:
            self._store.require_open()
            yield

    def _pick(self, queue_id: int, sequences: Sequence[int], start: int) -> tuple[list[Slice], int]:
        queue = self._store.state.queues.get(queue_id)
        if queue is None or is_transient(self._store.state, queue_id):
            return self._recent.read_transient(queue_id, sequences[start], sequences[start], 1), start + 1
        buffered = self._recent.first_buffered(queue_id)
        if self._recent.moved and self._recent.moved.of(queue_id, sequences[start]) is not None:
            found, stop = list(self._parts(queue_id, sequences[start], sequences[start])), start + 1
        elif buffered is None or sequences[start] < buffered:
            found, stop = self._stored.pick(queue_id, sequences, start, name=queue.name)
        else:
            found, stop = self._recent.pick(queue_id, sequences, start)
        if len(found) < stop - start:
            there = {part.first_sequence for part in found}
            need_none_of(queue, [number for number in sequences[start:stop] if number not in there], self._store.where)
        return found, stop

    def first_large(self, queue_id: int, runs: Sequence[Run]) -> tuple[int, int] | None:
        """(sequence, size) of the first row in the runs that is above `LARGE_ROW_BYTES`."""
        if queue_id not in self.large_queues:
            return None
        with self._store.lock:
            queue = self._store.state.queues.get(queue_id)
            return None if queue is None else first_large(queue.chunks, runs)

    def read_large(self, queue_id: int, sequence: int) -> list[Slice]:
        """As `read` of one row, without the lock that appends take. May run beside all other verbs."""
        self._store.require_open()
        with self._store.lock:
            place = self._recent.place_of(queue_id, sequence)
        if place is not None:
            position, published_at = place
            wanted = partial(lone_row_bytes, queue_id=queue_id, sequence=sequence)
            try:
                row = self._journal.read_row(position, LONE_ROW_PREFIX_BYTES, wanted)
                if row is not None:
                    return [Slice(sequence, published_at, Rows.of([row]))]
            except (StorageDamaged, LookupError):
                pass  # A checkpoint may have it by now; if not, the read below says what is wrong.
        with self._store.large_lock:
            found = self._stored_large(queue_id, sequence)
        if found:
            return found
        with self._store.lock:
            return self.read_locked(queue_id, sequence, sequence, 1)

    def _stored_large(self, queue_id: int, sequence: int) -> list[Slice]:
        self._store.require_open()
        with reading(self._store.env, self._store.where, views=True) as kv:
            info = next(block_infos(kv, queue_id, sequence, sequence), None)
            if info is None:
                return []
            if info.rows == 1 and info.size > LARGE_ROW_BYTES:
                try:
                    view = kv.view(sequence_key(BLOCK, queue_id, info.first))
                except KeyError:
                    pass  # As below, which says so.
                else:
                    return list(load_large_block(kv, queue_id, info, view))
            return clip(load_block(kv, queue_id, info), [(sequence, sequence)])

    def _parts(self, queue_id: int, first: int, last: int) -> Iterator[Slice]:
        queue = self._store.state.queues.get(queue_id)
        if not self._recent.moved or queue is None:
            yield from self._own_parts(queue_id, queue, first, last)
            return
        for moved, begin, end in self._recent.moved.pieces(queue_id, first, last):
            if moved is None:
                yield from self._own_parts(queue_id, queue, begin, end)
            else:
                yield from self._moved_parts(moved, begin, end, queue.name)

    def _moved_parts(self, moved: StageMoved, first: int, last: int, name: str) -> Iterator[Slice]:
        """Of a stage that came into the queue since the last checkpoint."""
        shift = moved.shift
        start = self._recent.first_buffered(moved.stage_id)
        stop = last if start is None else min(last, start + shift - 1)
        if first <= stop:
            yield from self._stored.read_moved(moved, first, stop, name=name)
        if start is not None:
            with shifted_damage(shift):
                for part in self._recent.read(moved.stage_id, max(first - shift, start), last - shift):
                    yield Slice(part.first_sequence + shift, moved.published_at, part.rows)

    def _own_parts(self, queue_id: int, queue: StoredQueue | None, first: int, last: int) -> Iterator[Slice]:
        """From the store below the first recent row, from the recent rows from there on."""
        start = self._recent.first_buffered(queue_id)
        if queue is not None and (start is None or first < start):
            stop = last if start is None else min(last, start - 1)
            yield from self._stored.read(queue_id, first, stop, name=queue.name)
        if start is not None:
            yield from self._recent.read(queue_id, max(first, start), last)

    def first_large_block(self, queue_id: int, first: int, last: int, max_bytes: int) -> int | None:
        """The first large row in [first, last], as far as a read of so many bytes reaches."""
        if is_transient(self._store.state, queue_id):
            return None
        start = self._recent.first_buffered(queue_id)
        with reading(self._store.env, self._store.where) as kv:
            for info in block_infos(kv, queue_id, first, last if start is None else min(last, start - 1)):
                if info.size > LARGE_ROW_BYTES:
                    return info.first
                max_bytes -= info.size
                if max_bytes <= 0:
                    return None
        return None if start is None else self._recent.first_large(queue_id, max(first, start), last)
