"""The broker's own counters. `prometheus.py` declares how they are exported.

Counts about messages belong to the engine's queues; here stands what only the server sees. Everything is changed on
the event loop, per batch and never per message.
"""

import logging
from bisect import bisect_left
from dataclasses import dataclass, field, replace

from vibemq.model.effects import Departure, QueueGone

log = logging.getLogger("vibemq.queues")

WHY = {
    Departure.EXPIRED: "nobody has used it for its expires_ms",
    Departure.AUTO_DELETE: "its last consumer has left (auto_delete)",
    Departure.EXCLUSIVE: "the connection that it belonged to has ended (exclusive)",
}
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts of observed seconds by upper bound."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> "Histogram":
        copied = Histogram()
        copied.counts, copied.sum = self.counts.copy(), self.sum
        return copied


@dataclass(slots=True)
class Metrics:
    """Since the start of the process."""

    connections_accepted: int = 0
    connections_rejected: int = 0
    handshakes_failed: int = 0
    errors: int = 0
    auth_failures: int = 0
    rate_limited: int = 0
    not_authorized: int = 0
    slow_readers_dropped: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    appends: int = 0
    storage_full: int = 0
    damaged_messages: int = 0
    queues_removed: dict[Departure, int] = field(default_factory=lambda: dict.fromkeys(Departure, 0))
    """Queues that the broker has deleted by itself, by the reason."""
    delivered: int = 0
    delivery_latency_ms_sum: float = 0.0
    publish_ack_seconds: Histogram = field(default_factory=Histogram)
    fsync_seconds: Histogram = field(default_factory=Histogram)

    def copy(self) -> "Metrics":
        """As it is now, for a thread that reads it beside the loop."""
        return replace(
            self,
            queues_removed=dict(self.queues_removed),
            publish_ack_seconds=self.publish_ack_seconds.copy(),
            fsync_seconds=self.fsync_seconds.copy(),
        )

    def note_queue_gone(self, gone: QueueGone) -> None:
        """Count a queue that the broker has deleted by itself, and log why."""
        self.queues_removed[gone.why] += 1
        log.info(
            "queue %r was deleted: %s", gone.queue, WHY[gone.why], extra={"event": "queue.gone", "queue": gone.queue}
        )

    @property
    def average_delivery_latency_ms(self) -> float:
        """Mean of hand-out minus publish stamp."""
        return self.delivery_latency_ms_sum / self.delivered if self.delivered else 0.0
