"""The turns of consumers: each takes what it has room for, and is told."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from vibemq.engine.queue.consumer import Consumer, Rotation
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.sizes import Sizes
from vibemq.engine.queue.unacked import NEVER
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.effects import Deliver
from vibemq.model.runs import Run, run_count

SLICE = 128
"""Most messages one consumer of weight 1 is given before it is the next one's turn, while several take part."""

KNOWN_PER_UNIT = 4
"""Messages with a history that are handed out for the cost of one run."""

_PROBE = 16
"""Messages looked at together first when a consumer's bytes are limited; then twice as many each time, so that not many
more are looked at than are taken."""

Given = dict[Consumer, list[Run]]


class Source(Protocol):
    """Where messages are handed out from."""

    turn: int
    """The place from which on the next hand-out looks for a consumer with room."""

    @property
    def ready_count(self) -> int: ...

    def pop(self, sizes: Sizes, count: int) -> list[Run]:
        """Remove and return up to `count` messages, in the order of hand-out."""

    def peek(self, sizes: Sizes, count: int) -> list[Run]:
        """The same; they stay."""


def share_of(waiting: int, takers: int, least: int) -> int:
    """An even share for everyone who took some in the last round, so that a backlog is split and single messages
    alternate strictly, and nobody waits for those who are full. `takers`: the sum of their weights."""
    return max(1, min(SLICE, waiting // takers)) if takers > 1 else waiting - least


def take_turns(step: Step, queue: Queue, source: Source, top: Rotation, share: int, given: Given, least: int) -> int:
    """The turn of each top consumer that may have room, once, while more than `least` is ready; returns the weights of
    those that had it."""
    places = top.open
    index = bisect_left(places, source.turn)
    takers = 0
    for _ in range(len(places)):
        if index >= len(places):
            index = 0
        place = places[index]
        consumer = top.members[place]
        room = consumer.room()
        if room <= 0:
            consumer.stand_aside()
            del places[index]
            continue
        weight = consumer.weight
        count = min(room, share if weight == 1 else _share(consumer, share), source.ready_count - least)
        runs = _take(step, queue, source, consumer, count)
        given.setdefault(consumer, []).extend(runs)
        source.turn = place + 1
        if weight > 1 and _goes_on(consumer, share, run_count(runs)):
            source.turn = place
        takers += weight
        index += 1
        if source.ready_count <= least:
            break
    return takers


def _share(consumer: Consumer, share: int) -> int:
    """Of a consumer of some weight: what is left of its turn comes first."""
    return consumer.turn_left or share * consumer.weight


def _goes_on(consumer: Consumer, share: int, taken: int) -> bool:
    """Whether it is still its turn, since fewer messages have come than these are."""
    consumer.turn_left = max(0, (consumer.turn_left or consumer.weight) - taken) if share == 1 else 0
    return consumer.turn_left > 0


def _take(step: Step, queue: Queue, source: Source, consumer: Consumer, count: int) -> list[Run]:
    """Move up to `count` messages into the consumer's hold, fewer when its bytes run out."""
    limited = consumer.weighed
    if limited:
        runs = _take_bytes(queue, source, consumer, count)
    else:
        runs = source.pop(queue.sizes, count)
    timeout = _time_to_settle(queue, consumer)
    deadline = step.now + timeout if timeout else NEVER
    for first, last in runs:
        size = queue.sizes.between(first, last) if limited else 0
        consumer.unacked.add(first, last, deadline, size)
    if consumer.credit is not None:
        consumer.credit -= run_count(runs)
    if consumer.share is not None:
        consumer.share.took(consumer, run_count(runs))
    return runs


def _time_to_settle(queue: Queue, consumer: Consumer) -> int:
    """0: without a limit."""
    return consumer.ack_timeout_ms if queue.options.consumers_settle else 0


def _take_bytes(queue: Queue, source: Source, consumer: Consumer, count: int) -> list[Run]:
    """Like `pop`, until the consumer's bytes are used up; the last message may go beyond them."""
    room = consumer.room_bytes()
    taken: list[Run] = []
    probe = _PROBE
    while count and room > 0:
        begun = 0
        for first, last in source.peek(queue.sizes, min(count, probe)):
            if room <= 0:
                break
            stop = last_begun(queue.sizes, first, last, room)
            begun += stop - first + 1
            room -= queue.sizes.between(first, stop)
        if not begun:
            break
        taken += source.pop(queue.sizes, begun)
        count -= begun
        probe *= 2
    return taken


def last_begun(sizes: Sizes, first: int, last: int, room: int) -> int:
    """The last of these messages that may be taken when each may be taken that begins within the room."""
    if sizes.between(first, last) < room:
        return last
    if sizes.between(first, first) >= room:
        return first
    return min(last, sizes.reach(first, last, room - 1) + 1)


def tell(state: EngineState, step: Step, queue: Queue, group: Group, given: Given, *, in_order: bool = False) -> int:
    """Returns what it has cost. `in_order`: of the queue, for each session, whichever of its consumers is given it."""
    handed_out: list[Run] = []
    cost = 0
    for consumer, runs in _pieces_in_order(given) if in_order else given.items():
        runs = _joined(runs)
        handed_out += runs
        acquired, failed = _count_acquired(group, runs) if group.attempts else (None, None)
        group.counters.redelivered += len(acquired) if acquired else 0
        cost += 1 + len(runs) + (len(acquired) // KNOWN_PER_UNIT if acquired else 0)
        step.effects.append(
            Deliver(
                consumer.session.number,
                consumer.number,
                queue.name,
                queue.queue_id,
                group.group_id,
                runs,
                acquired,
                settled=not queue.options.consumers_settle,
                failed=failed,
                ack_timeout_ms=_time_to_settle(queue, consumer),
            )
        )
        if consumer.unacked.earliest < consumer.armed_at:
            state.arm_part(queue, consumer, consumer.unacked.earliest)
    count = run_count(handed_out)
    group.counters.delivered += count
    handed_out = _joined(sorted(handed_out)) if len(handed_out) > 1 else handed_out
    group.in_flight += count
    if queue.options.consumers_settle:
        step.note_handed_out(queue, group, handed_out)
    step.free(queue)
    return cost


def _pieces_in_order(given: Given) -> Iterable[tuple[Consumer, list[Run]]]:
    """What consumers of one session are given is cut where another of them has the next message."""
    of_sessions: dict[int, list[Consumer]] = {}
    for consumer in given:
        of_sessions.setdefault(consumer.session.number, []).append(consumer)
    for consumers in of_sessions.values():
        if len(consumers) == 1:
            yield consumers[0], given[consumers[0]]
            continue
        runs = sorted(((run, place) for place, consumer in enumerate(consumers) for run in given[consumer]))
        for place, piece in groupby(runs, key=itemgetter(1)):
            yield consumers[place], [run for run, _ in piece]


def _joined(runs: list[Run]) -> list[Run]:
    """Neighbouring runs that continue each other become one; the order stays."""
    joined = runs[:1]
    for first, last in runs[1:]:
        if joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _count_acquired(group: Group, runs: list[Run]) -> tuple[dict[int, int] | None, dict[int, int] | None]:
    """One more hand-out for those that have a history: their hand-outs, and the failed ones of those that failed."""
    attempts = group.attempts
    acquired: dict[int, int] = {}
    failed: dict[int, int] = {}
    for first, last in runs:
        known = range(first, last + 1) if last - first < len(attempts) else list(attempts)
        for sequence in known:
            history = attempts.get(sequence)
            if history is not None and first <= sequence <= last:
                acquired[sequence] = history.acquired + 1
                attempts[sequence] = history._replace(acquired=history.acquired + 1, due_at=0)
                if history.failed:
                    failed[sequence] = history.failed
    return acquired or None, failed or None
