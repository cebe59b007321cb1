"""Memory of the broker with messages waiting."""

import time
from pathlib import Path
from typing import Any

from bench.common.accounting import disk_mib, memory_mib
from bench.common.lab import DATA_ROOT, Lab
from bench.common.load import Job
from bench.common.peer import Guarantee

SETTLING_S = 3.0
"""For the last checkpoint; the most memory seen in it counts."""


def waiting_memory(messages: int, size: int, data_root: Path = DATA_ROOT) -> dict[str, Any]:
    """Fill a strong queue that nobody reads; MiB, of broker and checkpointer together and of the broker alone."""
    job = Job(messages=messages, size=size)
    with Lab(data_root) as lab:
        peer = lab.peer("vibemq", Guarantee.STRONG)
        server = lab.server(peer)
        peer.set_up(job)
        before = memory_mib(server.pids)
        filled = lab.work(peer, "produce", job)
        most = 0.0
        broker: list[float] = []
        until = time.monotonic() + SETTLING_S
        while time.monotonic() < until:
            most = max(most, memory_mib(server.pids))
            broker.append(memory_mib(server.pids, children=False))
            time.sleep(0.1)
        return {
            "messages": messages,
            "size": size,
            "fill_rate": filled["messages"] / (filled["ended"] - filled["began"]),
            "rss_anon_empty_mib": before,
            "rss_anon_mib": most,
            "rss_anon_broker_mib": max(broker),
            "rss_mib": memory_mib(server.pids, "VmRSS"),
            "disk_mib": disk_mib(server.folder),
        }
