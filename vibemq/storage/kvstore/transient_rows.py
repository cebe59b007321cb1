"""Rows kept in memory only: the memory provider's, and those of transient queues in every provider."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from operator import attrgetter

from vibemq.model.options import Retention
from vibemq.model.records import MessagesAdded, StageMoved
from vibemq.model.runs import Run, RunSet, run_count
from vibemq.model.stored import Chunk, Slice, StoredGroup, StoredQueue, StoredState
from vibemq.storage.kvstore.blocks import REWRITE_BELOW, clip, limit
from vibemq.storage.state.liveness import MANY_GROUPS, alive_runs, count_waiting, first_waiting, waits_for_some
from vibemq.storage.state.messages import group_order, is_kept

_LAST = attrgetter("last_sequence")
COUNTED_GROUPS_MAX = 256
"""To count how many rows of a slice any of the groups waits for takes a look at every group, about 7 µs each. Of more
groups than this it is only found out whether any of them waits for some."""


@dataclass(slots=True)
class _Hint:
    """Of a slice for which many groups wait, so that most of what they settle takes no look at all of them."""

    chunk: Chunk
    """With a group that waits for some of it."""
    holder: int = 0
    """The first group that may wait for so much of it that it stays as it is."""
    spread: int = 0
    """How often some of it was let go of since there is no such group."""


@dataclass(slots=True)
class _Seen:
    """What looks at all groups have found for one slice, for those behind it that are looked at together with it."""

    much: StoredGroup | None = None
    """A group that has kept a slice as it is."""
    some: StoredGroup | None = None
    """A group that waits for some of a slice."""
    nexts: list[tuple[int, int]] = field(default_factory=list)
    """A heap, once a slice was found that no group waits for: (what it waits for next, the group's id), or what it
    waited for before, in an earlier slice."""

    def look_at_all(self, queue: StoredQueue, first: int) -> None:
        self.nexts = [(first_waiting(group, first), group.group_id) for group in queue.groups.values()]
        heapify(self.nexts)

    def is_settled(self, queue: StoredQueue, first: int, last: int) -> bool:
        """Whether no group waits for any of it. Only those are looked at that have waited for something since
        `look_at_all`."""
        nexts = self.nexts
        while nexts[0][0] < first:
            group_id = nexts[0][1]
            heapreplace(nexts, (first_waiting(queue.groups[group_id], first), group_id))
        return nexts[0][0] > last


class VolatileRows:
    """Slices by queue, ascending. Rows share the bytes they came with."""

    def __init__(self) -> None:
        self._queues: dict[int, list[Slice]] = {}
        self._hints: dict[tuple[int, int], _Hint] = {}
        """By queue and first sequence."""
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
        for index in range(bisect_left(parts, first, key=_LAST), len(parts)):
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
                for part in parts:
                    self._hints.pop((queue_id, part.first_sequence), None)
                continue
            seen = _Seen()
            for first, last in runs.runs():
                self._forget(state.queues[queue_id], parts, first, last, seen)

    def _forget(self, queue: StoredQueue, parts: list[Slice], first: int, last: int, seen: _Seen) -> None:
        low = high = bisect_left(parts, first, key=_LAST)
        kept: list[Slice] = []
        while high < len(parts) and parts[high].first_sequence <= last:
            part = parts[high]
            runs = self._alive(queue, part, seen)
            # A few live rows must not hold on to the bytes of many dead ones.
            if run_count(runs) * REWRITE_BELOW < part.rows.count:
                self._hints.pop((queue.queue_id, part.first_sequence), None)
                pieces = clip([part], runs)
                self.size -= part.rows.size - sum(piece.rows.size for piece in pieces)
                kept += pieces
            else:
                kept.append(part)
            high += 1
        parts[low:high] = kept

    def _alive(self, queue: StoredQueue, part: Slice, seen: _Seen) -> list[Run]:
        """What of the slice is alive; all of it, while that is known to be much, or was not counted."""
        first, last, groups = part.first_sequence, part.last_sequence, len(queue.groups)
        if groups < MANY_GROUPS or queue.deleted or queue.options.retention is Retention.LOG:
            return alive_runs(queue, first, last)
        if seen.nexts and seen.is_settled(queue, first, last):
            return queue.dead.overlap(first, last)
        hint = self._hints.get((queue.queue_id, first))
        if hint is None:
            hint = self._hints[queue.queue_id, first] = _Hint(Chunk(first, last, 0, 0))
        if _holds_much(queue, hint, part, seen):
            return [(first, last)]
        if not _is_kept(queue, hint.chunk, seen):
            # To look at all groups once is enough, however many slices they have settled.
            seen.look_at_all(queue, first)
            return queue.dead.overlap(first, last)
        hint.spread += 1
        if groups > COUNTED_GROUPS_MAX or hint.spread % groups != 1:
            return [(first, last)]
        return alive_runs(queue, first, last)


def _holds_much(queue: StoredQueue, hint: _Hint, part: Slice, seen: _Seen) -> bool:
    """Whether there is a group that alone waits for so much of the slice that it stays as it is. Each is asked until it
    does not any more, and then never again; before them the one that has kept an earlier slice."""
    first, last, order = part.first_sequence, part.last_sequence, group_order(queue)
    enough = part.rows.count / REWRITE_BELOW
    if hint.holder > order[-1]:
        return False
    if seen.much is not None and count_waiting(seen.much, first, last) >= enough:
        return True
    for at in range(bisect_left(order, hint.holder), len(order)):
        hint.holder = order[at]
        group = queue.groups.get(hint.holder)
        if group is not None and count_waiting(group, first, last) >= enough:
            seen.much = group
            return True
    hint.holder = order[-1] + 1
    return False


def _is_kept(queue: StoredQueue, chunk: Chunk, seen: _Seen) -> bool:
    """`is_kept`, of a slice that is not settled as far as `seen` can tell: it may know the answer."""
    if seen.nexts or (seen.some is not None and waits_for_some(seen.some, chunk.first, chunk.last)):
        return True
    if not is_kept(queue, chunk):
        return False
    seen.some = queue.groups[chunk.keeper]
    return True
