"""The state of a queue in one word. The first that fits, from the top:

full            not one more message fits, or publishers were refused since the earlier picture
no_consumer     messages are ready, and nobody consumes: no consumer, and no group that reads by ranges
stuck           messages are ready, a consumer or a group that reads by ranges is there, and nothing was handed out nor
                settled for STUCK_MS
falling_behind  messages come in, and those that are ready become more by at least FALLING_PER_S a second and by
                FALLING_SHARE of what comes in
flowing         something is ready, is with a consumer, comes in, goes out or is settled
delayed         what there is waits for its time
idle            nothing of all that
"""

from enum import StrEnum

from vibemq.operations.monitoring.readings import QueuesReading

FALLING_PER_S = 1.0
FALLING_SHARE = 0.05


class QueueState(StrEnum):
    IDLE = "idle"
    DELAYED = "delayed"
    FLOWING = "flowing"
    FALLING_BEHIND = "falling_behind"
    STUCK = "stuck"
    FULL = "full"
    NO_CONSUMER = "no_consumer"


BY_URGENCY = {state: rank for rank, state in enumerate(QueueState)}
"""For a list that is sorted by the state."""


def state_of(reading: QueuesReading, row: int) -> QueueState:
    columns = reading.now.columns
    ready = columns["ready"][row]
    if columns["full"][row] or reading.rate("refused", row) > 0:
        return QueueState.FULL
    if ready:
        if not columns["consumers"][row] and not reading.is_read_by_range(row):
            return QueueState.NO_CONSUMER
        if reading.is_still(row):
            return QueueState.STUCK
        comes_in = reading.rate("published", row)
        if comes_in > 0 and reading.rate("ready", row) >= max(FALLING_PER_S, FALLING_SHARE * comes_in):
            return QueueState.FALLING_BEHIND
        return QueueState.FLOWING
    moves = any(reading.rate(counter, row) > 0 for counter in ("published", "delivered", "settled"))
    if columns["in_flight"][row] or moves:
        return QueueState.FLOWING
    return QueueState.DELAYED if columns["delayed"][row] else QueueState.IDLE
