"""Latency under a steady rate: how long after its publish a message is visible in `foreachBatch`."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import vibemq.sync
from bench.common.servers import Server
from bench.spark.floor import Floor
from vibemq.spark import register

SOURCE = "rate"
WARM_UP_S = 5.0
FLOOR_START_S = 5.0
SIZE = 1024


@dataclass(frozen=True)
class Steady:
    """Milliseconds from the instant at which a message was due to be published."""

    latencies_ms: list[float]
    batches: int
    stages_ms: dict[str, float]
    """Medians of what Spark says about its triggers."""

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def steady(spark: Any, server: Server, folder: Path, *, rate: float, seconds: float) -> Steady:
    """Open loop: what is late counts from when it was due."""
    endpoint = f"127.0.0.1:{server.port}"
    seen: dict[int, float] = {}
    with vibemq.sync.connect(f"vibemq://{endpoint}") as mq:
        mq.create_queue(SOURCE, mode="fan-out-with-ack")
        register(spark)
        messages = spark.readStream.format("vibemq").option("endpoint", endpoint).option("queue", SOURCE)
        query = _seeing(messages.option("group", "bench").option("columns", "body").load(), folder, seen)
        try:
            _wait_for_first(mq, seen)
            dues = _publish(mq, rate, WARM_UP_S + seconds)
            return _seen_all(query, dues, seen)
        finally:
            query.stop()


def floor(spark: Any, folder: Path, *, rate: float, seconds: float) -> Steady:
    """The same query over a source without a broker."""
    seen: dict[int, float] = {}
    # Spark's Python workers start meanwhile, and the first of the messages are not counted.
    began, count = time.perf_counter() + FLOOR_START_S, int(rate * (WARM_UP_S + seconds))
    spark.dataSource.register(Floor)
    options = {"began": began, "rate": rate, "count": count, "size": SIZE}
    query = _seeing(spark.readStream.format("floor").options(**options).load(), folder, seen)
    try:
        dues = {number: began + number / rate for number in range(1, count + 1)}
        time.sleep(max(0.0, dues[count] - time.perf_counter()))
        return _seen_all(query, dues, seen)
    finally:
        query.stop()


def _seen_all(query: Any, dues: dict[int, float], seen: dict[int, float]) -> Steady:
    deadline = time.monotonic() + 60
    while not seen.keys() >= dues.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    batches = len({seen[number] for number in dues})
    after = min(dues.values()) + WARM_UP_S
    late = [(seen[number] - due) * 1000 for number, due in dues.items() if due >= after]
    return Steady(late, batches, _stages(query))


def _seeing(messages: Any, folder: Path, seen: dict[int, float]) -> Any:
    def see(frame: Any, _: int) -> None:
        rows = frame.collect()
        at = time.perf_counter()
        seen.update((int.from_bytes(row.body[:8], "big"), at) for row in rows)

    writer = messages.writeStream.foreachBatch(see)
    return writer.option("checkpointLocation", str(folder / "rate")).start()


def _stages(query: Any) -> dict[str, float]:
    done = [progress.durationMs for progress in query.recentProgress if progress.numInputRows]
    return {name: median(each.get(name, 0) for each in done) for name in done[-1]}


def _wait_for_first(mq: vibemq.sync.Client, seen: dict[int, float]) -> None:
    """The first batch starts Spark's Python workers."""
    mq.publish(SOURCE, _body(0))
    deadline = time.monotonic() + 120
    while not seen:
        if time.monotonic() > deadline:
            raise TimeoutError("nothing has arrived for two minutes")
        time.sleep(0.05)


def _publish(mq: vibemq.sync.Client, rate: float, seconds: float) -> dict[int, float]:
    """Number of each message -> when it was due. A confirm that takes long keeps nobody but itself waiting: those that
    have become due meanwhile go out together."""
    count, began = int(rate * seconds), time.perf_counter()
    dues = {number: began + number / rate for number in range(1, count + 1)}
    sent = 0
    while sent < count:
        time.sleep(max(0.0, dues[sent + 1] - time.perf_counter()))
        due = min(count, int((time.perf_counter() - began) * rate))
        if due > sent:
            mq.publish_many(SOURCE, [_body(number) for number in range(sent + 1, due + 1)])
            sent = due
    return dues


def _body(number: int) -> bytes:
    return number.to_bytes(8, "big") * (SIZE // 8)
