"""A query that waits: what it costs the broker, and how soon it sees a message."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import vibemq.sync
from bench.common.accounting import cpu_seconds
from bench.common.servers import Server
from vibemq.spark import register

SOURCE, SINK = "latency", "latency.sink"
PAUSE_S = 0.35
"""Between two messages: each finds the query waiting."""
WARM_UP = 5


@dataclass(frozen=True)
class Waited:
    """The broker's share of a core, and milliseconds."""

    query_cpu: float
    latencies_ms: list[float]

    @property
    def p50_ms(self) -> float:
        return median(self.latencies_ms)

    @property
    def p90_ms(self) -> float:
        return sorted(self.latencies_ms)[int(len(self.latencies_ms) * 0.9)]


def waited(spark: Any, server: Server, folder: Path, *, messages: int, idle_s: float) -> Waited:
    """From publish to delivery in the sink queue, one message at a time; before that, `idle_s` of nothing at all.

    Args:
        server: a broker of its own: one that has just had work goes on tidying up.
    """
    endpoint = f"127.0.0.1:{server.port}"
    with vibemq.sync.connect(f"vibemq://{endpoint}") as mq:
        mq.create_queue(SOURCE, mode="fan-out-with-ack")
        mq.create_queue(SINK)
        arrivals = _Arrivals(mq)
        register(spark)
        query = _copy(spark, endpoint, folder)
        try:
            arrivals.one()  # the first batch starts Spark's Python workers
            with_query = _share(server.pids, idle_s)
            latencies = [arrivals.one() for _ in range(WARM_UP + messages)][WARM_UP:]
        finally:
            query.stop()
            arrivals.close()
    return Waited(with_query, latencies)


def _copy(spark: Any, endpoint: str, folder: Path) -> Any:
    messages = spark.readStream.format("vibemq").option("endpoint", endpoint).option("queue", SOURCE)
    messages = messages.option("group", "bench").option("columns", "body").load()
    writer = messages.writeStream.format("vibemq").option("endpoint", endpoint).option("queue", SINK)
    return writer.option("checkpointLocation", str(folder / "latency")).start()


class _Arrivals:
    """A subscriber of the sink in a thread."""

    def __init__(self, mq: vibemq.sync.Client) -> None:
        self._mq = mq
        self._messages = mq.subscribe(SINK)
        self._arrived = threading.Event()
        self._at = 0.0
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def one(self) -> float:
        """Publish, wait for it, pause; milliseconds it took."""
        self._arrived.clear()
        sent = time.perf_counter()
        self._mq.publish(SOURCE, os.urandom(1024))
        if not self._arrived.wait(120):
            raise TimeoutError("nothing has arrived for two minutes")
        time.sleep(PAUSE_S)
        return (self._at - sent) * 1000

    def close(self) -> None:
        self._messages.stop()
        self._thread.join()

    def _receive(self) -> None:
        with self._messages as messages:
            for message in messages:
                self._at = time.perf_counter()
                self._arrived.set()
                message.ack()


def _share(pids: list[int], seconds: float) -> float:
    before, began = cpu_seconds(pids), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(pids) - before) / (time.perf_counter() - began)
