"""Connects the reports (health, metrics, connections, broker.info) with the parts of a running broker."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vibemq.config import Settings
from vibemq.model.effects import QueueInfo
from vibemq.server.assembly import Assembly, Reports
from vibemq.server.commit.storage_threads import Store
from vibemq.server.monitoring.health import BrokerStatus, Report
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.connections import Roster

Parts = Callable[[], Assembly | None]


def make_report(status: BrokerStatus, metrics: Metrics, parts: Parts) -> Report:
    """`parts` returns None until storage has been recovered; the probes must answer before that."""

    def queues() -> list[QueueInfo]:
        assembly = parts()
        return assembly.engine.queue_infos() if assembly is not None else []

    def connections() -> dict[str, int]:
        assembly = parts()
        return assembly.shell.roster.by_protocol() if assembly is not None else {}

    def retired() -> Counter[str]:
        assembly = parts()
        return assembly.engine.retired_counters if assembly is not None else Counter()

    return Report(
        status,
        metrics,
        queues=queues,
        retired=retired,
        connections=connections,
        now=lambda: int(time.time() * 1000),
    )


def operator_reports(settings: Settings, report: Report) -> Callable[[Store, Roster], Reports]:
    """The admin verbs that take no arguments."""

    def make(store: Store, roster: Roster) -> Reports:
        async def info() -> dict[str, Any]:
            stats = await store.call(store.provider.stats)
            place = {"data_dir": str(settings.data_dir.absolute()), "provider": store.provider.name}
            return report.info() | place | {"storage": asdict(stats)}

        async def metrics() -> dict[str, Any]:
            return report.json_metrics()

        async def connections() -> list[dict[str, Any]]:
            return [connection.described() for connection in roster]

        return {"broker.info": info, "broker.metrics": metrics, "connections.list": connections}

    return make
