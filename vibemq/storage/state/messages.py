"""How messages come into a stored queue's facts and leave them: chunks, priorities, times, dedup ids.

Part of the reducer (`reducer.py`); no function here knows groups' progress except through `liveness`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain, islice, pairwise

from vibemq.model.extras.columns import ExtraColumns, columns_of
from vibemq.model.extras.dedup_table import DEDUP_SEQUENCE_BITS, DEDUP_SEQUENCE_MASK, remembered
from vibemq.model.instants import Instants
from vibemq.model.options import DEDUP_IDS_MAX, QueueOptions, Retention
from vibemq.model.records import ALL_GROUPS, MessagesAdded, StageMoved
from vibemq.model.runs import Run, RunSet, gaps, runs_of
from vibemq.model.stored import Chunk, StoredQueue
from vibemq.storage.state.changes import Dirty, RunKind, ValueKind
from vibemq.storage.state.liveness import (
    MANY_GROUPS,
    alive_runs,
    any_waiting,
    is_waiting,
    last_waiting,
    next_waiting,
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
_LONG = 1_000
"""Runs from which on it is worthwhile to ask whether they are kept before it is known what is in them."""
_PASSED_TOGETHER = 16
"""Chunks that a group waits for which are looked at one by one, before it is asked how far it waits for everything: a
group that has settled some of each does not wait for much."""
_CUTS_MAX = 8
"""Pieces that are cut out of a list one by one; each moves all behind it. More are left out of a copy."""


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
    """Somebody (a group, the log, the DLQ) let go of the runs: forget what belongs to messages that nobody keeps any
    more."""
    if not runs:
        return
    if dirty is not None:
        dirty.mark_left(queue.queue_id, runs)
    _drop_chunks(queue, runs, dirty)
    if not (queue.priorities or queue.expires or queue.delayed):
        return
    if len(queue.groups) > 1:
        runs = [run for run in runs if run[1] - run[0] < _LONG or not _is_kept_whole(queue, *run)]
    if queue.priorities:
        _forget_priorities(queue, runs, dirty)
    for kind, values in ((ValueKind.EXPIRES, queue.expires), (ValueKind.DELAYED, queue.delayed)):
        if values:
            _forget_values(queue, kind, values, runs, dirty)


def groups_let_go(queue: StoredQueue, runs: Sequence[Run], dirty: Dirty | None) -> None:
    """As `may_have_left`, where it was groups: a log keeps its messages, whatever they do."""
    if queue.options.retention is not Retention.LOG:
        may_have_left(queue, runs, dirty)
    elif runs and dirty is not None:
        dirty.mark_left(queue.queue_id, runs)


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


def _drop_chunks(queue: StoredQueue, runs: Sequence[Run], dirty: Dirty | None) -> None:
    """Drop the chunks that overlap the runs and hold no waiting message.

    After two neighbours of which the same was found, one look goes as far as everything, or nothing, is waiting. So
    most records take a few looks, however many chunks there are.
    """
    chunks = queue.chunks
    gone: list[tuple[int, int]] = []
    at, waiting_from = 0, 0
    was_kept: bool | None = None
    for first, last in runs if len(runs) == 1 else sorted(runs):
        if at < len(chunks) and chunks[at].last < first:
            at = bisect_left(chunks, first, at + 1, key=_chunk_last)
        while at < len(chunks) and chunks[at].first <= last:
            chunk, start = chunks[at], at
            at += 1
            goes_on = at < len(chunks) and chunks[at].first <= last
            if chunk.last >= waiting_from:
                before, was_kept = was_kept, is_kept(queue, chunk) or _is_in_log(queue, chunk)
                if was_kept:
                    if goes_on and before:
                        at = _pass_kept(queue, chunk, at, last)
                    continue
                if before is False:
                    waiting_from = next_waiting(queue, chunk.last + 1)
            if goes_on and chunks[at].last < waiting_from:
                end = bisect_right(chunks, last, at + 1, key=_chunk_first)
                at = bisect_left(chunks, waiting_from, at + 1, end, key=_chunk_last)
            gone.append((start, at))
    if gone:
        _delete_chunks(queue, gone, dirty)


def _is_in_log(queue: StoredQueue, chunk: Chunk) -> bool:
    return queue.options.retention is Retention.LOG and any_waiting(queue, chunk.first, chunk.last)


def _pass_kept(queue: StoredQueue, before: Chunk, at: int, last: int) -> int:
    """The index behind some chunks, none or all of those up to `last`, that are kept from this one on. So is the one
    before it."""
    chunks, keeper = queue.chunks, None
    if queue.options.retention is not Retention.LOG:
        keeper = queue.groups[before.keeper]
        for chunk in chunks[at : at + _PASSED_TOGETHER]:
            if chunk.first > last or not waits_for_some(keeper, chunk.first, chunk.last):
                return at
            at += 1
    end = min(last_waiting(queue, keeper, chunks[at - 1].last + 1), last)
    return bisect_right(chunks, end, at, key=_chunk_first)


def _delete_chunks(queue: StoredQueue, gone: Sequence[tuple[int, int]], dirty: Dirty | None) -> None:
    """`gone`: (from, to) of indexes, ascending."""
    chunks, queue_id = queue.chunks, queue.queue_id
    if dirty is not None:
        dirty.chunks.update((queue_id, chunk.first) for start, stop in gone for chunk in chunks[start:stop])
    if len(gone) <= _CUTS_MAX:
        for start, stop in reversed(gone):
            del chunks[start:stop]
        return
    low, high = gone[0][0], gone[-1][1]
    chunks[low:high] = [chunk for (_, stop), (start, _) in pairwise(gone) for chunk in chunks[stop:start]]


def is_kept(queue: StoredQueue, chunk: Chunk) -> bool:
    """Whether a group waits for messages of the chunk. Of a log, which keeps them without groups: False.

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
    """The ids of all groups, ascending; some may be of groups that are gone.

    Groups are made, and read back, with ascending ids. So none is missing while the newest is not above the last one.
    """
    order = queue.group_order
    newest = next(reversed(queue.groups))
    if not order or order[-1] < newest or len(order) > 2 * len(queue.groups) + 16:
        order = queue.group_order = sorted(queue.groups)
    return order


def _is_kept_whole(queue: StoredQueue, first: int, last: int) -> bool:
    """Whether the group that is known to wait for the chunk of the run waits for the whole run. Of many groups one that
    does is found, as to ask all of them what the run holds takes long."""
    index = bisect_left(queue.chunks, first, key=_chunk_last)
    if index == len(queue.chunks) or queue.chunks[index].first > last or queue.options.retention is Retention.LOG:
        return False
    chunk = queue.chunks[index]
    if len(queue.groups) >= MANY_GROUPS and not is_kept(queue, chunk):
        return False
    keeper = queue.groups.get(chunk.keeper)
    return keeper is not None and waits_for_all(keeper, first, last)


def _chunk_first(chunk: Chunk) -> int:
    return chunk.first


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
    if len(queue.groups) > 1 and _is_kept_whole(queue, first, last):
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
    is_shared = len(queue.groups) > 1
    for first, last in runs:
        if first == last:
            # As most that have a delay of their own: nothing is worth a closer look.
            if (
                first in values
                and not (is_shared and _is_kept_whole(queue, first, first))
                and not is_waiting(queue, first)
            ):
                del values[first]
                if dirty is not None:
                    dirty.mark_value(queue.queue_id, ALL_GROUPS, kind, first)
            continue
        if not values.meets(first, last) or (is_shared and _is_kept_whole(queue, first, last)):
            continue
        changed = values.remove_ranges(gaps(waiting_runs(queue, first, last), first, last))
        if changed and dirty is not None:
            dirty.mark_values(queue.queue_id, ALL_GROUPS, kind, sorted(changed))
