"""Pairs: the connector's way and the ceiling's, over and over in turn, in one Spark application."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.common.accounting import machine_busy_s
from bench.spark.ceiling import Ceiling
from vibemq.spark import register
from vibemq.spark.schema import QUEUE_COLUMNS

SIZE = 1024
TASK_BYTES = 16 << 20
STREAM_BATCH_ROWS = 100_000
ALL_COLUMNS = tuple(QUEUE_COLUMNS)
BODIES = ("seq", "body")
SOURCE, SINK = "bench", "bench.sink"


class Side(NamedTuple):
    """What one side of a pair did once."""

    rate: float
    """Rows per second."""
    cpu_us: float
    """Of the whole machine, per row: whatever else ran is in it."""


@dataclass
class Pair:
    """One comparison; `ours` and `ceiling` take the round's number and do the work once."""

    name: str
    rows: int
    goal: float
    ours: Callable[[int], None]
    ceiling: Callable[[int], None]
    rates: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "ceiling": []})

    def run(self, number: int) -> dict[str, Side]:
        """Both once, the other one first every other time."""
        found = {}
        sides = [("ours", self.ours), ("ceiling", self.ceiling)]
        for side, work in sides if number % 2 else reversed(sides):
            began, busy = time.perf_counter(), machine_busy_s()[0]
            work(number)
            seconds, cpu = time.perf_counter() - began, machine_busy_s()[0] - busy
            found[side] = Side(self.rows / seconds, cpu / self.rows * 1e6)
        return found

    def keep(self, found: dict[str, Side]) -> None:
        for side, figures in found.items():
            self.rates[side].append(figures.rate)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: what disturbs the machine disturbs both sides of one."""
        return float(median(ours / ceiling for ours, ceiling in zip(*self.rates.values(), strict=True)))

    @property
    def verdict(self) -> str:
        return "pass" if self.ratio >= self.goal else "fall short"


class Pairs:
    """Makes the pairs for one session and one broker, whose queue `bench` holds `rows` messages."""

    def __init__(
        self, spark: Any, endpoint: str, folder: Path, *, rows: int, written: int, shared_workers: bool = False
    ) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._folder = folder
        self._rows = rows
        self._written = written
        self._shared_workers = shared_workers
        self._numbers = count()

    def all(self) -> list[Pair]:
        rows = self._rows
        return [
            Pair("batch read, all columns", rows, 0.6, self._batch(ALL_COLUMNS), self._batch_ceiling(ALL_COLUMNS)),
            Pair("batch read, seq and body", rows, 0.6, self._batch(BODIES), self._batch_ceiling(BODIES)),
            Pair("stream, 100k a batch", rows, 0.6, self._stream(ALL_COLUMNS), self._stream_ceiling(ALL_COLUMNS)),
            Pair("write", self._written, 0.5, self._write, self._write_ceiling),
        ]

    # -- ours ---------------------------------------------------------------------------------------------------------

    def _batch(self, columns: tuple[str, ...]) -> Callable[[int], None]:
        def work(_: int) -> None:
            register(self._spark)
            reader = self._spark.read.format("vibemq").option("endpoint", self._endpoint).option("queue", SOURCE)
            _drop(reader.option("columns", ",".join(columns)).load())

        return work

    def _stream(self, columns: tuple[str, ...]) -> Callable[[int], None]:
        def work(_: int) -> None:
            register(self._spark)
            reader = self._spark.readStream.format("vibemq").option("endpoint", self._endpoint)
            reader = reader.option("queue", SOURCE).option("group", f"bench-{next(self._numbers)}")
            reader = reader.option("maxMessagesPerTrigger", STREAM_BATCH_ROWS)
            self._flow(reader.option("columns", ",".join(columns)).load())

        return work

    def _write(self, number: int) -> None:
        register(self._spark)
        writer = self._input().write.format("vibemq").option("endpoint", self._endpoint)
        writer.option("queue", f"{SINK}.{number}").mode("append").save()

    # -- the ceiling's ------------------------------------------------------------------------------------------------

    def _batch_ceiling(self, columns: tuple[str, ...]) -> Callable[[int], None]:
        def work(_: int) -> None:
            with self._own_workers():
                _drop(self._ceiling(self._spark.read, columns, self._rows).load())

        return work

    def _stream_ceiling(self, columns: tuple[str, ...]) -> Callable[[int], None]:
        def work(_: int) -> None:
            with self._own_workers():
                reader = self._ceiling(self._spark.readStream, columns, STREAM_BATCH_ROWS)
                self._flow(reader.option("rows", self._rows).option("limit", STREAM_BATCH_ROWS).load())

        return work

    def _write_ceiling(self, _: int) -> None:
        with self._own_workers():
            self._spark.dataSource.register(Ceiling)
            self._input().write.format("ceiling").mode("append").save()

    @contextmanager
    def _own_workers(self) -> Iterator[None]:
        """Python workers with an environment of their own are workers of their own: what the connector does to the
        ones that it runs in is no part of the ceiling, unless that is asked for."""
        environment = self._spark.sparkContext.environment
        if not self._shared_workers:
            environment["VIBEMQ_BENCH_SIDE"] = "ceiling"
        try:
            yield
        finally:
            environment.pop("VIBEMQ_BENCH_SIDE", None)

    def _ceiling(self, reader: Any, columns: tuple[str, ...], rows_at_once: int) -> Any:
        self._spark.dataSource.register(Ceiling)
        tasks = max(1, round(rows_at_once * SIZE / TASK_BYTES))
        options = {"columns": ",".join(columns), "size": SIZE, "rows": self._rows, "tasks": tasks}
        return reader.format("ceiling").options(**options)

    # -- both ---------------------------------------------------------------------------------------------------------

    def _flow(self, frame: Any) -> None:
        checkpoint = str(self._folder / f"checkpoint-{next(self._numbers)}")
        query = (
            frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        done = sum(progress.numInputRows for progress in query.recentProgress)
        if done != self._rows:
            raise AssertionError(f"the query has seen {done} of {self._rows} rows")

    def _input(self) -> Any:
        return self._spark.range(0, self._written, 1, 2).selectExpr(f"cast(repeat('x', {SIZE}) AS BINARY) AS body")


def _drop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()
