"""The state of a queue in one word. The first that fits, from the top:

full            not one more message fits, or publishers were refused since the earlier picture (those that were
                refused because the broker is short of memory or disk do not count)
no_consumer     messages are ready, and nobody consumes: no consumer, no group that reads by ranges, nobody who fetches
                (nothing is with a consumer, and nothing was handed out or settled since the earlier picture)
stuck           messages are ready, somebody consumes, and nothing was handed out nor settled for STUCK_MS
falling_behind  messages come in, and those that are ready become more by at least FALLING_PER_S a second and by
                FALLING_SHARE of what comes in
awaiting_acks   messages are with consumers, and nothing was handed out nor settled since the earlier picture; where
                others are ready, these consumers hold as many as they may
flowing         something is ready, comes in, goes out or is settled
delayed         what there is waits for its time
idle            nothing of all that
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.operations.monitoring.turns import in_slices

TOGETHER = 256
"""Queues that are looked at together, to see whether all of them are idle."""
FALLING_PER_S = 1.0
FALLING_SHARE = 0.05


class QueueState(StrEnum):
    IDLE = "idle"
    DELAYED = "delayed"
    FLOWING = "flowing"
    AWAITING_ACKS = "awaiting_acks"
    FALLING_BEHIND = "falling_behind"
    STUCK = "stuck"
    FULL = "full"
    NO_CONSUMER = "no_consumer"


BY_URGENCY = {state: rank for rank, state in enumerate(QueueState)}
"""For a list that is sorted by the state."""


def state_of(reading: QueuesReading, row: int) -> QueueState:
    columns = reading.now.columns
    ready = columns["ready"][row]
    moved = reading.moved
    if columns["filled"][row] >= 100 or (moved("refused", row) > 0 and not reading.refused_all):
        return QueueState.FULL
    if ready:
        if not (columns["consumers"][row] or reading.is_read_by_range(row) or _is_fetched(reading, row)):
            return QueueState.NO_CONSUMER
        if reading.is_still(row):
            return QueueState.STUCK
        comes_in = reading.rate("published", row) if moved("published", row) > 0 else 0.0
        if comes_in > 0 and reading.rate("ready", row) >= max(FALLING_PER_S, FALLING_SHARE * comes_in):
            return QueueState.FALLING_BEHIND
        return QueueState.AWAITING_ACKS if _is_held(reading, row) else QueueState.FLOWING
    if _is_held(reading, row):
        return QueueState.AWAITING_ACKS
    if columns["in_flight"][row] or reading.is_moving(row):
        return QueueState.FLOWING
    return QueueState.DELAYED if columns["delayed"][row] else QueueState.IDLE


def _is_fetched(reading: QueuesReading, row: int) -> bool:
    """Whoever fetches is no consumer between one fetch and the next."""
    return bool(reading.now.columns["in_flight"][row]) or _is_taken(reading, row)


def _is_held(reading: QueuesReading, row: int) -> bool:
    return bool(reading.now.columns["in_flight"][row]) and not _is_taken(reading, row)


def _is_taken(reading: QueuesReading, row: int) -> bool:
    """Whether something was handed out or settled since the earlier picture."""
    return bool(reading.moved("delivered", row) or reading.moved("settled", row))


async def states_of_all(reading: QueuesReading) -> Sequence[QueueState]:
    """By row; found out once for a picture."""
    kept: list[QueueState] | None = reading.findings.get(QueueState)
    if kept is None:
        kept = []
        reading.spent_s += await in_slices(_steps(reading, kept))
        reading.findings[QueueState] = kept
    return kept


def _steps(reading: QueuesReading, into: list[QueueState]) -> Iterator[None]:
    count = len(reading.now.names)
    for first in range(0, count, TOGETHER):
        last = min(count, first + TOGETHER)
        if reading.are_at_rest(first, last):
            into.extend([QueueState.IDLE] * (last - first))
            yield
            continue
        for row in range(first, last):
            into.append(state_of(reading, row))
            yield
