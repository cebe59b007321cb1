"""What a reader by range may know: how far it may read, what of that it may be given, how to divide it.

The rows themselves come from storage.
"""

from dataclasses import replace

from vibemq.engine.handlers.fan_out import head_at
from vibemq.engine.pacing import is_crowded
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.views import group_oldest
from vibemq.model.effects import CursorInfo, Reach
from vibemq.model.options import Durability
from vibemq.model.runs import END, Run, RunSet, end_before

LEAP = 1 << 24
"""How many sequences a weak or async queue with a cursor skips after a restart: more than a crash can have taken."""
RUNS_AT_ONCE = 1_000
"""Runs of messages at which one question looks, in about 2 ms. Scattered ones are as many runs as messages."""


def tail_of(queue: Queue) -> int:
    """The first sequence that cannot be read yet and may yet be given to another message."""
    if not queue.unseen:
        return queue.open_end()
    waiting = queue.unseen[0]
    # They are recorded together with the messages behind them.
    return end_before(waiting.first, waiting.holes)


def known_end(queue: Queue) -> int:
    """The first sequence that may yet be given to another message. Unlike the tail it lies behind numbers that a
    restart has skipped: a range that was planned before the restart can be finished."""
    if not _leaps(queue):
        return tail_of(queue)
    return queue.unseen[0].first if queue.unseen else queue.next_sequence


def leap(queue: Queue) -> None:
    """Skip more sequences than a crash can have taken from a queue that is not flushed with every publish.

    A reader may have seen messages that are gone; its position must not come to lie behind new ones that it has not
    seen. The skipped numbers are a hole like any other: recorded with the next messages, otherwise forgotten.
    """
    if _leaps(queue):
        queue.holes = [(queue.next_sequence, queue.next_sequence + LEAP - 1)]
        queue.next_sequence += LEAP


def _leaps(queue: Queue) -> bool:
    return queue.options.durability in (Durability.WEAK, Durability.ASYNC) and any(
        group.cursor is not None for group in queue.groups.values()
    )


def readable(
    queue: Queue, group: Group | None, now: int, start: int, end: int = END, max_messages: int = END
) -> tuple[RunSet, int]:
    """(the sequences of [start, stop) that a reader may be given, of one cursor or anybody, perhaps with others; stop).
    It stops before `end` where there are too many to look at once, or more than `max_messages` may need."""
    most = min(max_messages, RUNS_AT_ONCE)
    if group is None or group.cursor is None:
        if is_crowded(queue):
            # Of very many groups that have much in common all at once costs less than a piece of each.
            return queue.alive(1, now), end
        last = queue.cut_runs(start, end - 1, most)
        return queue.alive_within(start, last, now), last + 1
    last, _ = group.ready.cut(start, end - 1, most)
    last, _ = group.cursor.held.cut_runs(start, last, most)
    return group.unsettled_within(start, last), last + 1


def gone_from_log(queue: Queue, first: int, last: int) -> list[Run]:
    """What of [first, last] a log has let go of at its beginning: dropped by its limits, or purged."""
    if queue.log is None:
        return []
    kept_from = queue.log.first if queue.log else tail_of(queue)
    first, last = max(first, 1), min(last, kept_from - 1)
    return [(first, last)] if first <= last else []


def describe(queue: Queue, group: Group, cursor: Cursor) -> CursorInfo:
    oldest = group_oldest(group)
    return CursorInfo(
        group=group.name,
        queue_id=queue.queue_id,
        incarnation=queue.incarnation,
        epoch=group.epoch,
        committed=cursor.committed,
        head=cursor.head,
        tail=tail_of(queue),
        backlog_messages=group.waiting,
        backlog_bytes=queue.group_size(group),
        oldest_at=queue.sizes.published_at(oldest) if oldest < END else 0,
        hold_ms=cursor.hold_ms,
        max_lag_ms=cursor.max_lag_ms,
        max_lag_bytes=cursor.max_lag_bytes,
        expired=cursor.expired,
        moved=cursor.moved,
        expired_messages=group.counters.expired + group.counters.expired_dead,
        plans=len(cursor.plans),
        joins=cursor.joins,
        owner=cursor.owner,
        user=group.owner,
        lost=cursor.lost.runs(),
        quarantined=cursor.quarantined.runs(),
    )


def described_anew(queue: Queue, info: CursorInfo, begin: int, wanted: RunSet) -> CursorInfo:
    """How the cursor is described when it is moved there, and has what is wanted; see `Cursor.start_over`."""
    head = head_at(queue, begin, wanted)
    return replace(
        info,
        committed=head,
        head=head,
        backlog_messages=wanted.count,
        backlog_bytes=queue.size_of(wanted),
        oldest_at=queue.sizes.published_at(wanted.first) if wanted else 0,
        expired=False,
        moved=False,
        plans=0,
        joins=0,
        lost=[],
        quarantined=[],
    )


def reach(
    queue: Queue, members: RunSet, start: int, stop: int, max_messages: int, max_bytes: int, before: Reach | None = None
) -> Reach:
    """How far a reader of `members` at `start` may go, up to `stop`: both limits hold, but for the first message.

    Args:
        before: what was found up to `start`, and counts.
    """
    tail = tail_of(queue)
    end, count, size = start, before.messages if before else 0, before.size if before else 0
    left = (max_messages or END) - count
    room = (max_bytes or END) - size
    for first, last in members.overlap(start, min(stop, tail) - 1):
        last = min(last, first + left - 1)
        if queue.sizes.between(first, last) > room:
            last = queue.sizes.reach(first, last, room)
            if count and queue.sizes.between(first, last) > room:
                return Reach(end, count, size, tail)
            left = last - first + 1
        taken = queue.sizes.between(first, last)
        end, count, size = last + 1, count + last - first + 1, size + taken
        left -= last - first + 1
        room -= taken
        if left <= 0 or room <= 0:
            return Reach(end, count, size, tail)
    return Reach(max(start, min(stop, tail)), count, size, tail, more=stop < tail)


def cuts(queue: Queue, members: RunSet, start: int, stop: int, end: int, parts: int) -> list[int]:
    """Points that divide [start, end) into up to `parts` stretches of about the same number of bytes: of the members,
    or of all that was published where these are known up to `stop` only."""
    runs = members.overlap(start, end - 1) if stop == end else [(start, end - 1)]
    total = queue.sizes.of_runs(runs)
    points = [start]
    done = 0
    for first, last in runs:
        while len(points) < parts:
            wanted = total * len(points) // parts - done
            if queue.sizes.between(first, last) <= wanted or first > last:
                break
            stop = queue.sizes.reach(first, last, wanted)
            if stop >= end - 1:
                break
            done += queue.sizes.between(first, stop)
            first = stop + 1
            if first > points[-1]:
                points.append(first)
        if first <= last:
            done += queue.sizes.between(first, last)
    return [*points, end]
