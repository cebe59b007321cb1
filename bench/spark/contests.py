"""Contests: several ways to do the same, over and over in turn, in one Spark application."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.common.accounting import cpu_seconds, machine_busy_s
from bench.spark.ceiling import Ceiling
from bench.spark.jdbc import Postgres
from vibemq.spark import register
from vibemq.spark.schema import QUEUE_COLUMNS

SIZE = 1024
TASK_BYTES = 16 << 20
STREAM_BATCH_ROWS = 250_000
ALL_COLUMNS = tuple(QUEUE_COLUMNS)
BODIES = ("seq", "body")
SOURCE, SINK = "bench", "bench.sink"
BATCH, NARROW, STREAM, WRITE, EXACT = "batch read", "seq and body", "stream", "write", "exactlyOnce"
CEILING, JDBC = "ceiling", "JDBC"


class Figures(NamedTuple):
    """What one way did once; microseconds of processor are per row."""

    rate: float
    """Rows per second."""
    machine_us: float
    """Whatever else ran on the machine is in it."""
    broker_us: float
    jvm_us: float
    python_us: float
    postgres_us: float


class Goal(NamedTuple):
    """The median rate of `way` is to be at least `times` that of `beside`."""

    way: str
    beside: str
    times: float


class Processes(NamedTuple):
    """Whose processor time is told apart."""

    broker: list[int]
    jvm: int
    postgres: list[int]

    def cpu_s(self) -> tuple[float, ...]:
        below = cpu_seconds([self.jvm])
        jvm = _own_cpu_s(self.jvm)
        return machine_busy_s()[0], cpu_seconds(self.broker), jvm, below - jvm, cpu_seconds(self.postgres)


@dataclass
class Contest:
    """Ways over the same rows; each takes the round's number and does the work once."""

    name: str
    rows: int
    ways: dict[str, Callable[[int], None]]
    goals: list[Goal]
    found: dict[str, list[Figures]] = field(default_factory=dict)

    def run(self, number: int, processes: Processes) -> Iterator[tuple[str, Figures]]:
        """All of them once; who is first changes from round to round."""
        names = list(self.ways)
        first = number % len(names)
        for name in names[first:] + names[:first]:
            before, began = processes.cpu_s(), time.perf_counter()
            self.ways[name](number)
            seconds = time.perf_counter() - began
            used = [(now - then) / self.rows * 1e6 for now, then in zip(processes.cpu_s(), before, strict=True)]
            yield name, Figures(self.rows / seconds, *used)

    def keep(self, name: str, figures: Figures) -> None:
        self.found.setdefault(name, []).append(figures)

    def median(self, name: str) -> Figures:
        """Of each figure for itself."""
        return Figures(*(float(median(column)) for column in zip(*self.found[name], strict=True)))

    def ratio(self, goal: Goal) -> float:
        return self.median(goal.way).rate / self.median(goal.beside).rate


class Contests:
    """Makes the contests for one session and one broker, whose queue `bench` holds `rows` messages."""

    def __init__(
        self,
        spark: Any,
        endpoint: str,
        folder: Path,
        postgres: Postgres | None,
        *,
        rows: int,
        shared_workers: bool = False,
    ) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._folder = folder
        self._postgres = postgres
        self._rows = rows
        self._shared_workers = shared_workers
        self._numbers = count()

    def reads(self) -> Contest:
        ways = {
            BATCH: self._batch(ALL_COLUMNS),
            f"{BATCH}, {CEILING}": self._batch_ceiling(ALL_COLUMNS),
            NARROW: self._batch(BODIES),
            f"{NARROW}, {CEILING}": self._batch_ceiling(BODIES),
            STREAM: self._stream(ALL_COLUMNS),
            f"{STREAM}, {CEILING}": self._stream_ceiling(ALL_COLUMNS),
        }
        goals = [
            Goal(BATCH, f"{BATCH}, {CEILING}", 0.85),
            Goal(NARROW, f"{NARROW}, {CEILING}", 0.85),
            Goal(STREAM, BATCH, 0.75),
        ]
        if self._postgres is not None:
            ways |= {f"{BATCH}, {JDBC}": self._jdbc_read(), f"{NARROW}, {JDBC}": self._jdbc_read(*BODIES)}
            goals[:0] = [Goal(BATCH, f"{BATCH}, {JDBC}", 0.9), Goal(NARROW, f"{NARROW}, {JDBC}", 0.9)]
        return Contest("reads", self._rows, ways, goals)

    def writes(self) -> Contest:
        ways = {WRITE: self._write, EXACT: self._write_once, f"{WRITE}, {CEILING}": self._write_ceiling}
        goals = [Goal(EXACT, WRITE, 0.85)]
        if self._postgres is not None:
            ways[f"{WRITE}, {JDBC}"] = self._jdbc_write
            goals.insert(0, Goal(WRITE, f"{WRITE}, {JDBC}", 2.0))
        return Contest("writes", self._rows, ways, goals)

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
            # Bytes would end a batch earlier.
            reader = reader.option("maxMessagesPerTrigger", STREAM_BATCH_ROWS).option("maxBytesPerTrigger", "1g")
            self._flow(reader.option("columns", ",".join(columns)).load())

        return work

    def _write(self, number: int) -> None:
        register(self._spark)
        writer = self._input().write.format("vibemq").option("endpoint", self._endpoint)
        writer.option("queue", f"{SINK}.{number}").mode("append").save()

    def _write_once(self, number: int) -> None:
        register(self._spark)
        writer = self._input().write.format("vibemq").option("endpoint", self._endpoint).option("exactlyOnce", True)
        writer = writer.option("txnAppId", "bench").option("txnVersion", number + 1)
        writer.option("queue", f"{SINK}.once.{number}").mode("append").save()

    # -- the others' --------------------------------------------------------------------------------------------------

    def _jdbc_read(self, *columns: str) -> Callable[[int], None]:
        def work(_: int) -> None:
            assert self._postgres is not None
            _drop(self._postgres.read(columns))

        return work

    def _jdbc_write(self, _: int) -> None:
        assert self._postgres is not None
        self._postgres.write(self._input())

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

    # -- all ----------------------------------------------------------------------------------------------------------

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
        return self._spark.range(0, self._rows, 1, 2).selectExpr(f"cast(repeat('x', {SIZE}) AS BINARY) AS body")


def _drop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _own_cpu_s(pid: int) -> float:
    """Of one process alone, threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100
