"""Connects the reports (health, metrics, broker.info) with the parts of a running broker."""

import time
from collections import Counter
from collections.abc import Callable

from vibemq.model.effects import QueueInfo
from vibemq.server.assembly import Assembly
from vibemq.server.monitoring.health import Condition, Report
from vibemq.server.monitoring.metrics import Metrics

Parts = Callable[[], Assembly | None]


def make_report(condition: Condition, metrics: Metrics, parts: Parts) -> Report:
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
        condition,
        metrics,
        queues=queues,
        retired=retired,
        connections=connections,
        now=lambda: int(time.time() * 1000),
    )
