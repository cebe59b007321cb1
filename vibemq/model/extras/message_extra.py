"""What one message has beside its body and headers."""

from collections.abc import Mapping
from typing import NamedTuple


class MessageExtra(NamedTuple):
    """What sets one message of a batch apart; plain messages have none."""

    priority: int = 1
    expires_at: int = 0
    """Instant; 0 = the queue's TTL alone decides."""
    deliver_at: int = 0
    """Instant; 0 = at once."""
    dedup_id: bytes = b""


Extras = Mapping[int, MessageExtra]
"""By the index in a batch."""
