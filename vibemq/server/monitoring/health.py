"""The broker's reports about its state: health, JSON metrics, alarms.

Keys are those of the first VibeMQ, in snake_case, so that its dashboards work.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
from anyio import to_thread

from vibemq._version import __version__
from vibemq.model.commands import Pressure
from vibemq.server.clock import running_s
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.prometheus import SERIES_MAX, Scrape, SeriesChoice, exposition
from vibemq.server.monitoring.snapshot import Observed, Snapshot, Snapshots
from vibemq.server.monitoring.status import BrokerStatus

STORE_AHEAD_SHOWN_MS = 3_600_000
"""How long after the start health shows that the clock has gone back."""


class Report:
    """Answers of the health and metrics routes. Built before anything else; `attach` shows it the running broker."""

    def __init__(
        self,
        status: BrokerStatus,
        metrics: Metrics,
        *,
        series_max: int = SERIES_MAX,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        running: Callable[[], float] = running_s,
    ) -> None:
        """
        Args:
            series_max: queues that have series of their own in the Prometheus page.
            running: seconds, those included in which the machine was suspended.
        """
        self.status = status
        self.metrics = metrics
        self.snapshots = Snapshots(monotonic=monotonic)
        self._choice = SeriesChoice(series_max)
        self._wall = wall
        self._now: Callable[[], int] = lambda: int(1000 * wall())
        self._running = running
        self._started_at = running()
        self._protocols: tuple[str, ...] = ()
        self._page: tuple[Snapshot, bytes] | None = None
        self._rendering = anyio.Lock()

    def set_series_max(self, series_max: int) -> None:
        """Choose again which queues have series of their own; the counters of the others together begin anew."""
        self._choice = SeriesChoice(series_max)
        self._page = None

    def attach(self, observed: Observed, now: Callable[[], int], protocols: Sequence[str]) -> None:
        """The broker has been recovered: report about it from now on.

        Args:
            now: of the clock that its messages are dated by.
            protocols: those of its listeners.
        """
        self.snapshots.attach(observed)
        self._now = now
        self._protocols = tuple(protocols)

    @property
    def uptime_ms(self) -> int:
        return int((self._running() - self._started_at) * 1000)

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
        if self.uptime_ms < STORE_AHEAD_SHOWN_MS:
            found.append(status.store_ahead_trouble())
        found += [status.checkpoint_trouble(), status.clock_trouble(), status.audit_trouble]
        return [alarm for alarm in found if alarm]

    def is_started(self) -> bool:
        """Whether recovery is over."""
        return self.status.started

    def is_ready(self) -> bool:
        """Whether new work should be sent here: recovered, not draining, storage sound, below the 90 % watermark."""
        status = self.status
        return status.started and not status.draining and not status.failed and status.pressure < Pressure.BLOCKING

    def refuses_all(self) -> bool:
        """Whether messages of all queues are refused, because the broker is short of memory or disk."""
        return self.status.pressure >= Pressure.BLOCKING

    def health(self, snapshot: Snapshot) -> dict[str, Any]:
        totals = snapshot.totals
        return {
            "is_healthy": self.is_ready(),
            "status": self._word(),
            "active_connections": sum(snapshot.connections.values()),
            "queue_count": snapshot.queue_count,
            "in_flight_messages": totals["in_flight"],
            "total_messages_published": totals["published"],
            "total_messages_delivered": totals["delivered"],
            "memory_usage_mb": self.status.memory_bytes // 1_048_576,
            "timestamp": self._timestamp(),
            "alarms": self.alarms(),
        }

    def _word(self) -> str:
        if not self.is_ready():
            return "unhealthy"
        return "degraded" if self.alarms() else "healthy"

    async def latest_health(self) -> dict[str, Any]:
        """`health` of the snapshot that everybody shares."""
        return self.health(await self.snapshots.latest())

    async def latest_metrics(self) -> dict[str, Any]:
        """`json_metrics` of the snapshot that everybody shares."""
        return self.json_metrics(await self.snapshots.latest())

    def json_metrics(self, snapshot: Snapshot) -> dict[str, Any]:
        totals, metrics = snapshot.totals, self.metrics
        return {
            "total_messages_published": totals["published"],
            "total_messages_delivered": totals["delivered"],
            "total_messages_acknowledged": totals["settled"],
            "total_retries": totals["redelivered"],
            "total_dead_lettered": totals["dead_lettered"],
            "total_errors": metrics.errors + metrics.storage_full + metrics.damaged_messages,
            "total_connections_accepted": metrics.connections_accepted,
            "total_connections_rejected": metrics.connections_rejected,
            "active_connections": sum(snapshot.connections.values()),
            "active_queues": snapshot.queue_count,
            "in_flight_messages": totals["in_flight"],
            "memory_usage_bytes": self.status.memory_bytes,
            "average_delivery_latency_ms": round(metrics.average_delivery_latency_ms, 3),
            "timestamp": self._timestamp(),
            "uptime": timespan(self.uptime_ms),
        }

    async def queue_depth(self, name: str) -> dict[str, int | float] | None:
        """Of one queue, as it is now; None for a missing one."""
        depth = await self.snapshots.depth(name)
        if depth is None:
            return None
        figures: dict[str, int | float] = depth._asdict()
        oldest_at = figures.pop("oldest_at")
        age_s = max(0, self._now() - oldest_at) / 1000 if oldest_at else 0.0
        return {**figures, "oldest_age_seconds": round(age_s, 3)}

    async def prometheus(self) -> bytes:
        """The page of the latest snapshot, written once for all who ask, in a thread beside the loop."""
        snapshot = await self.snapshots.latest()
        async with self._rendering:
            if self._page is None or self._page[0] is not snapshot:
                scrape = Scrape(
                    snapshot,
                    replace(self.status),
                    self.metrics.copy(),
                    self._now(),
                    self.uptime_ms / 1000,
                    self._protocols,
                )
                self._page = snapshot, await to_thread.run_sync(exposition, scrape, self._choice)
            return self._page[1]

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
        return datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timespan(milliseconds: int) -> str:
    """`[d.]hh:mm:ss.fffffff`, as the first VibeMQ writes durations."""
    seconds, ms = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{minute:02}:{second:02}.{ms:03}0000"
    return f"{days}.{clock}" if days else clock
