"""Which messages of a queue must be kept. Pure questions over a `StoredQueue`; nothing here changes it.

waiting     some group has not settled it, or the log keeps it
alive       waiting, or a dead letter points at it
"""

from collections.abc import Iterable

from vibemq.model.options import Retention
from vibemq.model.runs import END, Run, RunSet, run_count
from vibemq.model.stored import StoredGroup, StoredQueue

MANY_GROUPS = 16
"""From so many on it is worth while to keep in mind which of them is furthest behind."""


def is_alive(queue: StoredQueue, sequence: int) -> bool:
    """Whether the message must still be readable."""
    return sequence in queue.dead or is_waiting(queue, sequence)


def is_waiting(queue: StoredQueue, sequence: int) -> bool:
    """Alive for another reason than a dead letter."""
    if queue.deleted or not 0 < sequence < queue.next_sequence:
        return False
    if queue.options.retention is Retention.LOG:
        return sequence not in queue.dropped
    return any(in_group(group, sequence) for group in queue.groups.values())


def in_group(group: StoredGroup, sequence: int) -> bool:
    """Not settled by the group: pending in it, or still to be handed out."""
    return (sequence >= group.head and sequence not in group.taken) or sequence in group.pending


def waiting_floor(queue: StoredQueue) -> int:
    """No sequence below it is waiting. Costs one look per group."""
    if queue.deleted:
        return queue.next_sequence
    if queue.options.retention is Retention.LOG:
        if not queue.dropped or queue.dropped.first > 1:
            return 1
        return queue.dropped.touching(1, 1)[0][1] + 1
    floor = queue.next_sequence
    for group in queue.groups.values():
        floor = min(floor, group.head, group.pending.first if group.pending else floor)
    return floor


def floor_of_many(queue: StoredQueue) -> int:
    """`waiting_floor` of a queue with many groups; notes which of them is furthest behind."""
    if queue.deleted or queue.options.retention is Retention.LOG:
        return waiting_floor(queue)
    floor = queue.next_sequence
    for group in queue.groups.values():
        its_floor = min(group.pending.first, group.head) if group.has("pending") else group.head
        # Of those that are equally far behind the last one: the first ones settle first.
        if its_floor <= floor:
            floor, queue.floor_keeper = its_floor, group.group_id
    return floor


def is_surely_waiting(queue: StoredQueue, last: int) -> bool:
    """Whether something up to there is known to wait, without a look at every group."""
    if queue.deleted or queue.options.retention is Retention.LOG:
        return False
    keeper = queue.groups.get(queue.floor_keeper)
    return keeper is not None and (keeper.head <= last or (keeper.has("pending") and keeper.pending.first <= last))


def waiting_runs(queue: StoredQueue, first: int, last: int) -> list[Run]:
    """The waiting sequences within [first, last], ascending, merged."""
    first, last = max(first, 1), min(last, queue.next_sequence - 1)
    if queue.deleted or first > last:
        return []
    if queue.options.retention is Retention.LOG:
        return gaps(queue.dropped, first, last)
    found: list[list[Run]] = []
    for group in queue.groups.values():
        fresh = gaps(group.taken, max(first, group.head), last)
        if fresh == [(first, last)]:
            return fresh
        found += (fresh, group.pending.overlap(first, last))
    return _union(found)


def alive_runs(queue: StoredQueue, first: int, last: int) -> list[Run]:
    """The alive sequences within [first, last], ascending, merged. Sequences never stored may be among them."""
    return _union([waiting_runs(queue, first, last), queue.dead.overlap(first, last)])


def any_waiting(queue: StoredQueue, first: int, last: int) -> bool:
    """Whether [first, last] holds a waiting message; immediate when it reaches above a group's untaken head."""
    if queue.deleted or first >= queue.next_sequence:
        return False
    if queue.options.retention is not Retention.LOG:
        for group in queue.groups.values():
            if group.head <= last and not group.taken:
                return True
    return bool(waiting_runs(queue, first, last))


def first_waiting(group: StoredGroup, first: int) -> int:
    """The first sequence from there on that the group has not settled."""
    found = max(first, group.head)
    if group.has("taken"):
        for start, stop in group.taken.touching(found, found):
            if start <= found:
                found = max(found, stop + 1)
    if group.has("pending"):
        for pending, _ in group.pending.front(1, first):
            found = min(found, pending)
    return found


def next_waiting(queue: StoredQueue, first: int) -> int:
    """The first sequence from there on that may be waiting: none between them is. END: nothing is any more."""
    if queue.deleted:
        return END
    if queue.options.retention is Retention.LOG:
        if queue.has("dropped"):
            for start, stop in queue.dropped.touching(first, first):
                first = stop + 1 if start <= first <= stop else first
        return first
    return min((first_waiting(group, first) for group in queue.groups.values()), default=END)


def last_waiting(queue: StoredQueue, group: StoredGroup | None, first: int) -> int:
    """How far everything from there on is certainly waiting, for the group or in the log; `first - 1`: unknown."""
    if queue.options.retention is Retention.LOG:
        return _end_before(queue.dropped, first) if queue.has("dropped") else END
    if group is None:
        return first - 1
    if group.head <= first:
        last = _end_before(group.taken, first) if group.has("taken") else END
        if last >= first:
            return last
    if group.has("pending"):
        for start, stop in group.pending.touching(first, first):
            if start <= first <= stop:
                return stop
    return first - 1


def _end_before(runs: RunSet, first: int) -> int:
    """The last sequence from there on before the runs; `first - 1`, when it is in one."""
    following = runs.front(1, first)
    return following[0][0] - 1 if following else END


def waits_for_some(group: StoredGroup, first: int, last: int) -> bool:
    """Whether the group has not settled some of [first, last]."""
    if group.head <= last and (not group.has("taken") or not group.taken.covers(max(first, group.head), last)):
        return True
    return group.has("pending") and group.pending.meets(first, last)


def count_waiting(group: StoredGroup, first: int, last: int) -> int:
    """How many of [first, last] the group has not settled."""
    start = max(first, group.head)
    if group.has("taken"):
        fresh = run_count(gaps(group.taken, start, last))
    else:
        fresh = max(0, last - start + 1)
    return fresh + (run_count(group.pending.overlap(first, last)) if group.has("pending") else 0)


def waits_for_all(group: StoredGroup, first: int, last: int) -> bool:
    """Whether all of [first, last] is certainly waiting for the group; a mixture of its states is not looked into."""
    if group.head <= first and (not group.has("taken") or not group.taken.meets(first, last)):
        return True
    return group.has("pending") and group.pending.covers(first, last)


def gaps(runs: RunSet, first: int, last: int) -> list[Run]:
    """What [first, last] holds beside the runs."""
    if first > last:
        return []
    missing: list[Run] = []
    for start, stop in runs.overlap(first, last):
        if start > first:
            missing.append((first, start - 1))
        first = stop + 1
    if first <= last:
        missing.append((first, last))
    return missing


def _union(found: Iterable[list[Run]]) -> list[Run]:
    filled = [runs for runs in found if runs]
    if len(filled) <= 1:
        return filled[0] if filled else []
    merged: list[Run] = []
    for first, last in sorted(run for runs in filled for run in runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
