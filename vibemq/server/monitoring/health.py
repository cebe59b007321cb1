"""What the broker says about its own state: health, JSON metrics, alarms.

Keys are those of the first VibeMQ, in snake_case, so that its dashboards work.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vibemq._version import __version__
from vibemq.model.commands import Pressure
from vibemq.model.effects import QueueInfo
from vibemq.server.monitoring.metrics import Metrics
from vibemq.storage.interface import StorageStats

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


@dataclass(slots=True)
class BrokerStatus:
    """What housekeeping found out last, about every second."""

    started: bool = False
    draining: bool = False
    failed: bool = False
    pressure: Pressure = Pressure.NONE
    pressure_why: str = ""
    memory_bytes: int = 0
    storage: StorageStats | None = None
    loop_lag_s: float = 0.0


class Report:
    """Answers of the health and metrics routes, taken from counters that exist anyway."""

    def __init__(
        self,
        status: BrokerStatus,
        metrics: Metrics,
        *,
        queues: Callable[[], list[QueueInfo]],
        retired: Callable[[], Counter[str]],
        connections: Callable[[], dict[str, int]],
        now: Callable[[], int],
    ) -> None:
        self.status = status
        self.metrics = metrics
        self.queues = queues
        self.retired = retired
        """Counters of queues that are gone."""
        self.connections = connections
        """Open connections by protocol."""
        self.now = now
        self._started_at = now()

    @property
    def uptime_ms(self) -> int:
        return self.now() - self._started_at

    def alarms(self) -> list[str]:
        """Sentences about what an operator should look at; empty when all is well."""
        status, found = self.status, []
        if status.pressure is not Pressure.NONE:
            found.append(status.pressure_why)
        if self.metrics.damaged_messages:
            found.append(
                f"{self.metrics.damaged_messages} stored messages were damaged and moved aside; check the disk"
            )
        if status.failed:
            found.append("storage has failed; the broker stops")
        return found

    def is_ready(self) -> bool:
        """Whether new work should be sent here: recovered, not draining, storage sound, below the 90 % watermark."""
        status = self.status
        return status.started and not status.draining and not status.failed and status.pressure < Pressure.BLOCKING

    def _totals(self, queues: Iterable[QueueInfo]) -> Counter[str]:
        """Sums since the start; they do not fall when a queue is deleted."""
        totals = Counter(self.retired())
        for queue in queues:
            totals.update(queue.counters)
        return totals

    def health(self) -> dict[str, Any]:
        queues = self.queues()
        totals = self._totals(queues)
        return {
            "is_healthy": self.is_ready(),
            "status": "healthy" if self.is_ready() else "unhealthy",
            "active_connections": sum(self.connections().values()),
            "queue_count": len(queues),
            "in_flight_messages": sum(queue.in_flight for queue in queues),
            "total_messages_published": totals["published"],
            "total_messages_delivered": totals["delivered"],
            "memory_usage_mb": self.status.memory_bytes // 1_048_576,
            "timestamp": self._timestamp(),
            "alarms": self.alarms(),
        }

    def json_metrics(self) -> dict[str, Any]:
        queues, metrics = self.queues(), self.metrics
        totals = self._totals(queues)
        return {
            "total_messages_published": totals["published"],
            "total_messages_delivered": totals["delivered"],
            "total_messages_acknowledged": totals["settled"],
            "total_retries": totals["redelivered"],
            "total_dead_lettered": totals["dead_lettered"],
            "total_errors": metrics.errors + metrics.storage_full + metrics.damaged_messages,
            "total_connections_accepted": metrics.connections_accepted,
            "total_connections_rejected": metrics.connections_rejected,
            "active_connections": sum(self.connections().values()),
            "active_queues": len(queues),
            "in_flight_messages": sum(queue.in_flight for queue in queues),
            "memory_usage_bytes": self.status.memory_bytes,
            "average_delivery_latency_ms": round(metrics.average_delivery_latency_ms, 3),
            "timestamp": self._timestamp(),
            "uptime": timespan(self.uptime_ms),
        }

    def info(self) -> dict[str, Any]:
        """The broker.info verb, apart from what only the broker's owner knows."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_ms": self.uptime_ms,
            "pressure": self.status.pressure.name.lower(),
            "alarms": self.alarms(),
        }

    def _timestamp(self) -> str:
        return datetime.fromtimestamp(self.now() / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timespan(milliseconds: int) -> str:
    """`[d.]hh:mm:ss.fffffff`, as the first VibeMQ writes durations."""
    seconds, ms = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{minute:02}:{second:02}.{ms:03}0000"
    return f"{days}.{clock}" if days else clock
