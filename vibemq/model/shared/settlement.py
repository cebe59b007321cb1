"""What becomes of a delivery."""

from enum import IntEnum


class Settlement(IntEnum):
    ACK = 0
    RETRY = 1
    """A failed delivery: counted, handed out again after a delay, dead-lettered after `max_attempts`."""
    RELEASE = 2
    """Given back unharmed: no attempt counted, back at its place at the head at once."""
    REJECT = 3
    """Straight to the DLQ (dropped and counted when the queue has none)."""
