"""The broker as a whole, for the overview: what is wrong and how to mend it, latencies, memory, disk and journal."""

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

from vibemq.config import Limits
from vibemq.model.commands import Pressure
from vibemq.operations.monitoring.overview import sentence
from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.housekeeping import WATERMARKS
from vibemq.server.monitoring.trail import Trail

MEMORY_REMEDY = "consume or purge what waits, or raise limits.memory_limit_bytes"
DISK_REMEDY = "free some space, or let consumers drain their queues"
JOURNAL_REMEDY = "see the log for the checkpointer's errors, and check the disk"


class BrokerFigures:
    def __init__(
        self,
        report: Report,
        trail: Trail,
        *,
        limits: Callable[[], Limits],
        jobs_running: Callable[[], int],
        now: Callable[[], int],
    ) -> None:
        """`limits`: those that count at the moment."""
        self.jobs_running = jobs_running
        self._report = report
        self._trail = trail
        self._limits = limits
        self._now = now

    def sentences(self) -> list[dict[str, Any]]:
        """The alarms of the report, each with a remedy."""
        return [self._told(alarm) for alarm in self._report.alarms()]

    def _told(self, alarm: str) -> dict[str, Any]:
        status = self._report.status
        if status.failed and "storage has failed" in alarm:
            return sentence("alarm", alarm, "see the log; start the broker again when the disk is well", "broker")
        if alarm == status.pressure_why:
            level = "alarm" if status.pressure >= Pressure.BLOCKING else "warning"
            remedy = next(
                (remedy for word, remedy in (("memory", MEMORY_REMEDY), ("journal", JOURNAL_REMEDY)) if word in alarm),
                DISK_REMEDY,
            )
            return sentence(level, alarm, remedy, "broker")
        text, _, remedy = alarm.rpartition("; ")
        return sentence("warning", text or alarm, remedy if text else "see the log", "broker")

    def resources(self) -> dict[str, Any]:
        """`watermark`: used bytes from which publishers are told to be slower."""
        status, limits = self._report.status, self._limits()
        share = WATERMARKS[-1][0]
        limit = limits.memory_limit_bytes
        stats = status.storage
        memory = {
            "used": status.memory_bytes,
            "limit": limit or None,
            "watermark": int(share * limit) if limit else None,
        }
        if stats is None:
            return {"memory": memory, "disk": None, "journal": None}
        total = stats.disk_total_bytes
        return {
            "memory": memory,
            "disk": {
                "used": total - stats.disk_free_bytes,
                "free": stats.disk_free_bytes,
                "total": total,
                # A big disk may be fuller than that, as long as the reserve is left.
                "watermark": max(int(share * total), total - limits.disk_reserve_bytes),
            },
            "journal": {"bytes": stats.unapplied_bytes, "limit": stats.journal_bytes_max or None},
        }

    def latency(self) -> dict[str, float | None]:
        """Of the last minute; None when nothing was confirmed or flushed."""
        return {
            f"{name}_p{percent}_ms": window.quantile_ms(percent / 100)
            for name, window in (("confirm", self._trail.confirms), ("fsync", self._trail.flushes))
            for percent in (50, 99)
        }

    def started_at_ms(self) -> int:
        return self._now() - self._report.uptime_ms

    def whole(self, reading: QueuesReading) -> tuple[float, ...]:
        """For the history: those of BROKER_SERIES; nan where there is none."""
        totals, status = reading.now.totals, self._report.status
        latencies = (self._trail.confirms.quantile_ms(0.99), self._trail.flushes.quantile_ms(0.99))
        return (
            *(totals[name] for name in ("ready", "in_flight", "delayed", "dead", "consumers")),
            sum(reading.now.connections.values()),
            len(reading.now.names),
            *(
                reading.total_rate(name)
                for name in ("published", "delivered", "settled", "redelivered", "dead_lettered")
            ),
            *(nan if latency is None else latency for latency in latencies),
            status.memory_bytes or nan,
            nan if status.storage is None else status.storage.disk_free_bytes,
        )

    def deaths(self) -> Mapping[str, int]:
        return self._trail.deaths.by_queue()
