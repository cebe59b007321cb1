"""Events that strangers cause are few lines, whatever their number."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from vibemq.server.access.limits import TokenBucket

CAUSED_BY_STRANGERS = frozenset({"conn.rejected", "conn.dropped", "conn.broken"})
"""Events that anybody can cause in any number."""
AT_ONCE_MAX = 50
AT_ONCE_PER_S = 5


class StrangersFilter(logging.Filter):
    """Lets few records through of each event that strangers cause; the next one says how many there were besides.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._buckets = {event: TokenBucket(AT_ONCE_PER_S, AT_ONCE_MAX, monotonic()) for event in CAUSED_BY_STRANGERS}
        self._left_out: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        event = getattr(record, "event", None)
        bucket = self._buckets.get(event) if isinstance(event, str) else None
        if bucket is None:
            return True
        if not bucket.take(1, self._monotonic()):
            self._left_out[str(event)] += 1
            return False
        if left_out := self._left_out.pop(str(event), 0):
            record.msg = f"{record.getMessage()} (and {left_out} more before)"
            record.args = None
            record.__dict__["left_out"] = left_out
        return True
