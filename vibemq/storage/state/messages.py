"""How messages come into a stored queue's facts and leave them: chunks, priorities, times, dedup ids.

Part of the reducer (`reducer.py`); no function here knows groups' progress except through `liveness`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain, islice

from vibemq.model.extras.columns import ExtraColumns, columns_of
from vibemq.model.extras.dedup_table import DEDUP_SEQUENCE_BITS, DEDUP_SEQUENCE_MASK, remembered
from vibemq.model.instants import Instants
from vibemq.model.options import DEDUP_IDS_MAX, QueueOptions, Retention
from vibemq.model.records import ALL_GROUPS, MessagesAdded, StageMoved
from vibemq.model.runs import Run, RunSet, runs_of
from vibemq.model.stored import Chunk, StoredQueue
from vibemq.storage.state.changes import Dirty, RunKind, ValueKind
from vibemq.storage.state.liveness import (
    alive_runs,
    any_waiting,
    floor_of,
    is_waiting,
    waiting_runs,
    waits_for_all,
    waits_for_some,
)

CHUNK_BYTES_MAX = 256 * 1024
CHUNK_SPAN_MS_MAX = 60_000
AGED_CHUNK_SPAN_MS_MAX = 1_000
"""For queues where age decides (TTL or retention): how coarse the age of a message may be known."""
_PRUNED_TOGETHER = 2_000
_DATED_MAX = 4_000
"""Where that many chunks are younger than 100 minutes, they span less than two seconds each."""


def add(queue: StoredQueue, record: MessagesAdded, dirty: Dirty | None) -> None:
    first, count = record.first_sequence, record.rows.count
    queue.next_sequence = max(queue.next_sequence, first + count)
    if dirty is not None:
        dirty.queues.add(queue.queue_id)
    # Where nobody waits for the messages, only their dedup ids are worth remembering.
    kept = _is_wanted(queue, first + count - 1)
    if kept:
        _extend_chunks(queue, record, dirty)
    if queue.has("dedup"):
        # More than this record may add, so that they do not grow.
        _prune_dedup(queue, record.published_at, _PRUNED_TOGETHER + len(record.extras or ()), dirty)
    if record.extras:
        extras = columns_of(record.extras)
        if kept:
            _add_extras(queue, record, extras, dirty)
            if not _is_wanted(queue, first):
                may_have_left(queue, [(first, first + count - 1)], dirty)
        if extras.dedup_ids and queue.options.dedup_window_ms:
            _remember_ids(queue, record, extras, dirty)


def _is_wanted(queue: StoredQueue, sequence: int) -> bool:
    """Whether a log keeps what is added there, or a group has not been sought to behind it."""
    if queue.options.retention is Retention.LOG:
        return True
    return any(group.head <= sequence for group in queue.groups.values())


def _extend_chunks(queue: StoredQueue, record: MessagesAdded, dirty: Dirty | None) -> None:
    first, rows, chunks = record.first_sequence, record.rows, queue.chunks
    span = _span_of(queue)
    tail = chunks[-1] if chunks else None
    if (
        tail is not None
        # A chunk between them may be gone, and a delay have ended before it.
        and tail.last + 1 == first
        and tail.size + rows.size <= CHUNK_BYTES_MAX
        # Earlier than its tail: that one was written under a clock that was ahead.
        and 0 <= record.published_at - tail.published_at <= span
        and not record.apart
    ):
        tail.last = first + rows.count - 1
        tail.size += rows.size
    else:
        tail = Chunk(first, first + rows.count - 1, rows.size, record.published_at)
        chunks.append(tail)
    if dirty is not None:
        dirty.chunks.add((queue.queue_id, tail.first))


def move(queue: StoredQueue, chunks: Sequence[Chunk], record: StageMoved, dirty: Dirty | None) -> None:
    """`chunks`: those of the stage, which keeps its own until the messages leave it."""
    queue.next_sequence = max(queue.next_sequence, record.first_sequence + record.count)
    if dirty is not None:
        dirty.queues.add(queue.queue_id)
    if not _is_wanted(queue, record.last_sequence):
        return
    shift, apart, span = record.shift, record.apart, _span_of(queue)
    for chunk in chunks:
        if record.has(chunk.first, chunk.last):
            moved = Chunk(chunk.first + shift, chunk.last + shift, chunk.size, record.published_at)
            first = _put_chunk(queue.chunks, moved, span, apart=apart)
            apart = False
            if dirty is not None:
                dirty.chunks.add((queue.queue_id, first))


def decides_age(options: QueueOptions) -> bool:
    return options.message_ttl_ms is not None or bool(options.retain_ms)


def _span_of(queue: StoredQueue) -> int:
    return AGED_CHUNK_SPAN_MS_MAX if decides_age(queue.options) else CHUNK_SPAN_MS_MAX


def date_by_youngest(queue: StoredQueue, options: QueueOptions, now: int, dirty: Dirty | None) -> None:
    """Age begins to decide: chunks that are longer than such a queue's get the date of their youngest message, as far
    as that is known. So after a restart no message goes before its time; older ones stay up to a minute longer.

    Args:
        options: the new ones. What is older than they allow goes at once, and keeps its date.
    """
    limits = [limit for limit in (options.message_ttl_ms, options.retain_ms or None) if limit is not None]
    # Of what is older, a minute is less than a hundredth of its age.
    oldest, youngest_at = now - min(*limits, 100 * CHUNK_SPAN_MS_MAX) - CHUNK_SPAN_MS_MAX, now
    for chunk in islice(reversed(queue.chunks), _DATED_MAX):
        began_at = chunk.published_at
        if began_at < oldest:
            return
        date = min(youngest_at, began_at + CHUNK_SPAN_MS_MAX) - AGED_CHUNK_SPAN_MS_MAX
        if date > began_at:
            chunk.published_at = date
            if dirty is not None:
                dirty.chunks.add((queue.queue_id, chunk.first))
        youngest_at = began_at


def _put_chunk(chunks: list[Chunk], new: Chunk, span: int, *, apart: bool) -> int:
    """By the rules of `_extend_chunks`: many small stages share a chunk. Returns where the chunk begins."""
    tail = chunks[-1] if chunks else None
    if (
        tail is not None
        and tail.last + 1 == new.first
        and tail.size + new.size <= CHUNK_BYTES_MAX
        and 0 <= new.published_at - tail.published_at <= span
        and not apart
    ):
        tail.last, tail.size = new.last, tail.size + new.size
        return tail.first
    chunks.append(new)
    return new.first


def _add_extras(queue: StoredQueue, record: MessagesAdded, extras: ExtraColumns, dirty: Dirty | None) -> None:
    queue_id, base = queue.queue_id, record.first_sequence
    for priority, sequences in extras.by_priority(base).items():
        _add_priority(queue, priority, runs_of(sequences), dirty)
    expiring, expires_at = extras.expiries(base)
    if expiring:
        queue.expires.put_columns(expiring, expires_at)
        if dirty is not None:
            dirty.mark_values(queue_id, ALL_GROUPS, ValueKind.EXPIRES, expiring)
    delayed, due = extras.deliveries_after(record.published_at, base)
    if delayed:
        queue.delayed.put_columns(delayed, due)
        if dirty is not None:
            dirty.mark_values(queue_id, ALL_GROUPS, ValueKind.DELAYED, delayed)


def _add_priority(queue: StoredQueue, priority: int, added: list[Run], dirty: Dirty | None) -> None:
    runs = queue.priorities.setdefault(priority, RunSet())
    kind, first, last = RunKind.PRIORITY + priority, added[0][0], added[-1][1]
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, ALL_GROUPS, kind, runs, first, last)
    runs.add_all(added)
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, ALL_GROUPS, kind, runs, first, last)


def _remember_ids(queue: StoredQueue, record: MessagesAdded, extras: ExtraColumns, dirty: Dirty | None) -> None:
    table, first = queue.dedup, record.first_sequence
    # As `remembered` of each.
    base = remembered(first, record.published_at)
    marks = None if dirty is None else dirty.dedup.setdefault(queue.queue_id, {})
    ids, indexes = extras.dedup_ids, extras.indexes
    if isinstance(indexes, range) and b"" not in ids and table.isdisjoint(ids) and len(set(ids)) == len(ids):
        # All of them are new, as in most bulk.
        table.add(ids, range(base + indexes.start, base + indexes.stop))
        if marks is not None:
            marks.update(dict.fromkeys(range(first + indexes.start, first + indexes.stop), True))
        return
    for index, dedup_id in extras.with_dedup_ids():
        # Taken out first, so that the table stays in order of age and pruning can stop at the first young one.
        known = table.get(dedup_id)
        if known is not None:
            del table[dedup_id]
        table[dedup_id] = base + index
        if marks is not None:
            if known is not None:
                marks[known & DEDUP_SEQUENCE_MASK] = False
            marks[first + index] = True


def _prune_dedup(queue: StoredQueue, now: int, most: int, dirty: Dirty | None) -> None:
    """Forget ids whose window is over, and the oldest of too many: up to `most` of them."""
    window = queue.options.dedup_window_ms

    def is_over(known: int) -> bool:
        # What is so far in the future was written under a clock that was ahead.
        return abs((known >> DEDUP_SEQUENCE_BITS) - now) > window

    gone = queue.dedup.forget_first(most, len(queue.dedup) - DEDUP_IDS_MAX, is_over)
    if gone and dirty is not None:
        marks = dirty.dedup.setdefault(queue.queue_id, {})
        marks.update((known & DEDUP_SEQUENCE_MASK, False) for known in gone)


# -- leaving ------------------------------------------------------------------------------------------------------


def may_have_left(queue: StoredQueue, runs: Sequence[Run], dirty: Dirty | None) -> None:
    """Some group (or the DLQ) let go of the runs: forget what belongs to messages that nobody keeps any more."""
    if not runs:
        return
    if dirty is not None:
        dirty.mark_left(queue.queue_id, runs)
    _drop_chunks(queue, min(first for first, _ in runs), max(last for _, last in runs), dirty)
    if queue.priorities:
        _forget_priorities(queue, runs, dirty)
    for kind, values in ((ValueKind.EXPIRES, queue.expires), (ValueKind.DELAYED, queue.delayed)):
        if values:
            _forget_values(queue, kind, values, runs, dirty)


def everything_may_have_left(queue: StoredQueue, dirty: Dirty | None) -> None:
    may_have_left(queue, [(1, max(queue.next_sequence - 1, 1))], dirty)


def keys_within(values: Mapping[int, object], run: Run) -> list[int]:
    """The keys inside the run, found by walking whichever is shorter."""
    first, last = run
    if isinstance(values, Instants):
        return values.within(first, last)
    if last - first < len(values):
        return [sequence for sequence in range(first, last + 1) if sequence in values]
    return [sequence for sequence in values if first <= sequence <= last]


def _drop_chunks(queue: StoredQueue, first: int, last: int, dirty: Dirty | None) -> None:
    """Drop the chunks that overlap [first, last] and hold no waiting message."""
    chunks = queue.chunks
    low = bisect_left(chunks, first, key=_chunk_last)
    high = low
    gone: list[int] = []
    floor = 0
    while high < len(chunks) and chunks[high].first <= last:
        chunk = chunks[high]
        # To look at all groups once is enough, however many chunks they have settled.
        if chunk.last < floor:
            gone.append(high)
        elif not is_kept(queue, chunk):
            floor = floor or floor_of(queue)
            if chunk.last < floor or not any_waiting(queue, chunk.first, chunk.last):
                gone.append(high)
        high += 1
    if not gone:
        return
    if dirty is not None:
        dirty.chunks.update((queue.queue_id, chunks[index].first) for index in gone)
    dropped = set(gone)
    chunks[low:high] = [chunks[index] for index in range(low, high) if index not in dropped]


def is_kept(queue: StoredQueue, chunk: Chunk) -> bool:
    """Whether a group is found that waits for messages of the chunk. False: it must be looked at more closely.

    The group that was found last is asked first, and then those behind it: a group that has settled the chunk once is
    not asked again, however many settle it one after the other.
    """
    if queue.deleted or queue.options.retention is Retention.LOG or not queue.groups:
        return False
    keeper = queue.groups.get(chunk.keeper)
    if keeper is not None:
        if waits_for_some(keeper, chunk.first, chunk.last):
            return True
        if len(queue.groups) == 1:
            return False
    order = group_order(queue)
    start = bisect_right(order, chunk.keeper)
    for at in chain(range(start, len(order)), range(start)):
        group_id = order[at]
        group = queue.groups.get(group_id)
        if group is not None and waits_for_some(group, chunk.first, chunk.last):
            chunk.keeper = group_id
            return True
    return False


def group_order(queue: StoredQueue) -> list[int]:
    """The ids of the groups, ascending; some may be of groups that are gone."""
    order = queue.group_order
    newest = next(reversed(queue.groups))
    if not order or order[-1] < newest or len(order) > 2 * len(queue.groups) + 16:
        order = queue.group_order = sorted(queue.groups)
    return order


def _is_kept_whole(queue: StoredQueue, first: int, last: int) -> bool:
    """Whether one group, that is known to wait for the chunk of the run, waits for the whole run."""
    index = bisect_left(queue.chunks, first, key=_chunk_last)
    if index == len(queue.chunks) or queue.deleted:
        return False
    keeper = queue.groups.get(queue.chunks[index].keeper)
    return keeper is not None and waits_for_all(keeper, first, last)


def _chunk_last(chunk: Chunk) -> int:
    return chunk.last


def _forget_priorities(queue: StoredQueue, runs: Sequence[Run], dirty: Dirty | None) -> None:
    for priority, members in list(queue.priorities.items()):
        for first, last in runs:
            for start, stop in members.overlap(first, last):
                _forget_priority(queue, priority, members, start, stop, dirty)
        if not members:
            del queue.priorities[priority]


def _forget_priority(
    queue: StoredQueue, priority: int, members: RunSet, first: int, last: int, dirty: Dirty | None
) -> None:
    if _is_kept_whole(queue, first, last):
        return
    # A dead letter shows its priority, so the DLQ keeps it as well.
    kept = alive_runs(queue, first, last)
    if kept == [(first, last)]:
        return
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, ALL_GROUPS, RunKind.PRIORITY + priority, members, first, last)
    members.remove(first, last)
    for run in kept:
        members.add(*run)
    if dirty is not None:
        dirty.mark_runs(queue.queue_id, ALL_GROUPS, RunKind.PRIORITY + priority, members, first, last)


def _forget_values(
    queue: StoredQueue, kind: ValueKind, values: Instants, runs: Sequence[Run], dirty: Dirty | None
) -> None:
    for run in runs:
        if run[0] == run[1] and len(queue.groups) <= 1:
            # As most that have a delay of their own: nothing is worth a closer look.
            found = [run[0]] if run[0] in values and not is_waiting(queue, run[0]) else []
            for sequence in found:
                del values[sequence]
                if dirty is not None:
                    dirty.mark_value(queue.queue_id, ALL_GROUPS, kind, sequence)
            continue
        found = values.within(*run)
        if not found or _is_kept_whole(queue, *run):
            continue
        kept = RunSet(waiting_runs(queue, *run))
        gone = [sequence for sequence in found if sequence not in kept] if kept else found
        if gone:
            values.remove_all(gone)
            if dirty is not None:
                dirty.mark_values(queue.queue_id, ALL_GROUPS, kind, gone)
