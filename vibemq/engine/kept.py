"""What a queue keeps for anybody, a stretch at a time: for operators who search, remove, copy or move messages.

    log retention   what the log keeps
    otherwise       what waits in some group or is with a consumer; not what a cursor has acknowledged and holds

The work of one stretch is bounded by runs and by messages; a queue with many groups is looked at in several steps.
"""

from collections.abc import Generator, Iterator
from heapq import merge
from itertools import islice

from vibemq.engine.handlers.cursors.ranges import tail_of
from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.ready import NORMAL
from vibemq.engine.queue.unacked import NEVER
from vibemq.engine.views import GROUPS_PER_STEP, furthest_behind
from vibemq.model.effects import NOTHING_KNOWN, HeldMessage, Kept, MessageFacts
from vibemq.model.runs import Run, RunSet

CONSUMERS_PER_STEP = 256
ATTEMPTS_PER_STEP = 2_048
FALLEN_LOOKED_AT_MAX = 4_096
"""Messages that have fallen due already, between those that a list of delayed ones shows."""


def kept_within(queue: Queue, start: int, end: int, most: int) -> Generator[None, None, Kept]:
    """Up to `most` visible messages of [start, end); a yield is a place where the loop may have its turn."""
    last = until = min(end, tail_of(queue)) - 1
    found, held = RunSet(), RunSet()
    if start > last:
        return _kept(queue, [], held, None)
    if queue.log is not None:
        found = RunSet(queue.log.front(most, start, last))
        last = found.last if found.count == most else last
    else:
        last = yield from _reach(queue, start, last, most)
    for number, group in enumerate(list(queue.groups.values()), 1):
        for consumer in group.consumers if group.in_flight else ():
            held.add_all(consumer.unacked.overlap(start, last))
        if queue.log is None:
            found.add_all(group.waiting_within(start, last))
        if not number % GROUPS_PER_STEP:
            yield
    if queue.log is None:
        found.add_all(held.runs())
    runs = found.front(most)
    after = runs[-1][1] + 1 if found.count > most else last + 1
    return _kept(queue, runs, held, None if after > until else after)


def _kept(queue: Queue, runs: list[Run], held: RunSet, after: int | None) -> Kept:
    return Kept(queue.queue_id, runs, held, after, queue.levels is not None, queue.options.message_ttl_ms or 0)


def _reach(queue: Queue, start: int, last: int, most: int) -> Generator[None, None, int]:
    """How far of [start, last] about `most` runs reach, whichever group has them."""
    for number, group in enumerate(list(queue.groups.values()), 1):
        last, _ = group.cut_waiting(start, last, most)
        if group.in_flight:
            last, _ = group.cut_held(start, last, most)
        if not number % GROUPS_PER_STEP:
            yield
    return last


def facts_of(queue: Queue, runs: list[Run], now: int) -> Generator[None, None, dict[int, MessageFacts]]:
    """What is known of messages beside their rows; those of which nothing is known are left out. A yield is a place
    where the loop may have its turn."""
    attempts = yield from _most_attempts(queue, runs)
    levels = queue.levels_of(runs)
    if not (levels or queue.expires or queue.delayed or attempts):
        return {}
    facts: dict[int, MessageFacts] = {}
    for sequence in (sequence for first, last in runs for sequence in range(first, last + 1)):
        due = queue.delayed.get(sequence)
        known = MessageFacts(
            levels.get(sequence, NORMAL),
            queue.expires.get(sequence),
            due if due > now else 0,
            attempts.get(sequence, 0),
        )
        if known != NOTHING_KNOWN:
            facts[sequence] = known
    return facts


def _most_attempts(queue: Queue, runs: list[Run]) -> Generator[None, None, dict[int, int]]:
    """Of each message that came back the hand-outs in the group that had it most often: each has its own history."""
    wanted, most, work = RunSet(runs), dict[int, int](), 0
    for number, group in enumerate(list(queue.groups.values()), 1):
        known = group.attempts
        if len(known) < wanted.count:
            found = [sequence for sequence in known if sequence in wanted]
        else:
            found = [sequence for first, last in runs for sequence in range(first, last + 1) if sequence in known]
        for sequence in found:
            most[sequence] = max(most.get(sequence, 0), known[sequence].acquired)
        work += min(len(known), wanted.count)
        if work >= ATTEMPTS_PER_STEP or not number % GROUPS_PER_STEP:
            work = 0
            yield
    return most


def held_from(queue: Queue, start: int, most: int) -> Generator[None, None, list[HeldMessage]]:
    """Up to `most` messages from `start` on that are with a consumer, ascending. What changes while the loop has its
    turn may be among them or not."""
    found: list[HeldMessage] = []
    holders: list[Iterator[HeldMessage]] = []
    for number, group in enumerate(list(queue.groups.values()), 1):
        for consumer in list(group.consumers) if group.in_flight else ():
            if consumer.unacked.count:
                holders.append(_held_by(group, consumer, start))
            if len(holders) == CONSUMERS_PER_STEP:
                found, holders = list(islice(merge(found, *holders), most)), []
                yield
        if not number % GROUPS_PER_STEP:
            found, holders = list(islice(merge(found, *holders), most)), []
            yield
    return list(islice(merge(found, *holders), most))


def _held_by(group: Group, consumer: Consumer, start: int) -> Iterator[HeldMessage]:
    for first, last, deadline in consumer.unacked.from_(start):
        for sequence in range(first, last + 1):
            history = group.attempts.get(sequence)
            yield HeldMessage(
                sequence,
                group.name,
                consumer.session.number,
                consumer.number,
                0 if deadline == NEVER else deadline,
                1 if history is None else history.acquired,
            )


def delayed_from(queue: Queue, start: int, most: int, now: int) -> list[tuple[int, int]]:
    """(sequence, due at) of up to `most` messages from `start` on that wait for an instant, ascending, in the group
    that is furthest behind. Fewer, where very many that have fallen due are between them."""
    group = furthest_behind(queue)
    if group is None:
        return []
    delayed = group.delayed
    found = {sequence: delayed.due_at(sequence) for sequence in delayed.smallest(most, start)}
    scheduled, waiting = group.scheduled, 0
    if scheduled.levels:
        looked_at = most + min(scheduled.fallen, FALLEN_LOOKED_AT_MAX)
        for sequence in scheduled.smallest(looked_at, start):
            due = scheduled.due_at(sequence)
            if due > now and waiting < most:
                waiting += 1
                found[sequence] = max(due, found.get(sequence, 0))
    return sorted(found.items())[:most]


def is_wanted(queue: Queue, sequence: int) -> Generator[None, None, bool]:
    """Whether a group has the message to hand out, or holds it. A log keeps others, too, which are settled."""
    for number, group in enumerate(list(queue.groups.values()), 1):
        if group.waiting_within(sequence, sequence) or group.held_within([(sequence, sequence)]):
            return True
        if not number % GROUPS_PER_STEP:
            yield
    return not queue.groups


def ready_from(queue: Queue, start: int, most: int) -> list[Run]:
    """Up to `most` messages from `start` on that the group furthest behind would hand out next, in that order."""
    group = furthest_behind(queue)
    return [] if group is None else group.peek(queue.sizes, most, start)
