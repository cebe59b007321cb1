"""What a queue keeps for anybody, a stretch at a time: for operators who search, remove, copy or move messages.

    log retention   what the log keeps
    otherwise       what waits in some group or is with a consumer; not what a cursor has acknowledged and holds

The work of one stretch is bounded by runs and by messages; a queue with many groups is looked at in several steps.
"""

from collections.abc import Generator

from vibemq.engine.handlers.cursors.ranges import tail_of
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.ready import NORMAL
from vibemq.engine.views import GROUPS_PER_STEP
from vibemq.model.effects import NOTHING_KNOWN, Kept, MessageFacts
from vibemq.model.runs import Run, RunSet


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


def facts_of(queue: Queue, runs: list[Run], now: int) -> dict[int, MessageFacts]:
    """What is known of messages beside their rows; those of which nothing is known are left out."""
    levels = queue.levels_of(runs)
    # Each group has a history of its own: told is that of the only one.
    histories = next(iter(queue.groups.values())).attempts if len(queue.groups) == 1 else {}
    if not (levels or queue.expires or queue.delayed or histories):
        return {}
    facts: dict[int, MessageFacts] = {}
    for sequence in (sequence for first, last in runs for sequence in range(first, last + 1)):
        due, history = queue.delayed.get(sequence), histories.get(sequence)
        known = MessageFacts(
            levels.get(sequence, NORMAL),
            queue.expires.get(sequence),
            due if due > now else 0,
            0 if history is None else history.acquired,
        )
        if known != NOTHING_KNOWN:
            facts[sequence] = known
    return facts
