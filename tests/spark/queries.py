"""Words for tests with real queries."""

import shutil
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.crash.ledger import BrokerProcess
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused
from vibemq.spark.options import parse

CEILING_S = 60.0
_numbers = count(1)


class World:
    """Words for the tests: queues with numbers in their bodies, and Spark's readers and writers of them."""

    def __init__(self, broker: BrokerProcess, spark: SparkSession, mq: Any, folder: Path) -> None:
        self.broker = broker
        self.spark = spark
        self.mq = mq
        self.folder = folder

    def queue(self, *numbers: int, **options: Any) -> str:
        name = f"spark-{next(_numbers)}"
        self.mq.create_queue(name, **{"retention": "log", **options})
        self.publish(name, *numbers)
        return name

    def publish(self, queue: str, *numbers: int) -> None:
        if numbers:
            self.mq.publish_many(queue, [f"{number}".encode() for number in numbers])

    def options(self, **more: object) -> dict[str, str]:
        base = {"endpoint": f"127.0.0.1:{self.broker.port}"}
        return base | {key: str(value) for key, value in more.items()}

    def read(self, **more: object) -> Any:
        return self.spark.read.format("vibemq").options(**self.options(**more)).load()

    def stream(self, **more: object) -> Any:
        return self.spark.readStream.format("vibemq").options(**self.options(**{"group": "etl", **more})).load()

    def write(self, frame: Any, **more: object) -> None:
        frame.write.format("vibemq").options(**self.options(**more)).mode("append").save()

    def into(self, frame: Any, queue: str, checkpoint: str, **more: object) -> Any:
        """A stream into another queue, not yet started."""
        target = self.options(queue=queue, checkpointLocation=self.folder / checkpoint, **more)
        return frame.writeStream.format("vibemq").options(**target)

    def drain(self, frame: Any, queue: str, checkpoint: str, **more: object) -> list[int]:
        """Run with AvailableNow; the rows of each batch."""
        query = self.into(frame, queue, checkpoint, **more).trigger(availableNow=True).start()
        assert query.awaitTermination(CEILING_S)
        return [report.numInputRows for report in query.recentProgress if report.numInputRows]

    def numbers(self, queue: str, **more: object) -> list[int]:
        return [int(row.body) for row in self.read(queue=queue, columns="body", **more).collect()]

    def committed(self, queue: str, group: str = "etl") -> int:
        """The cursor of the group; 0 while there is none."""
        try:
            return int(BrokerClient(parse(self.options())).call("group.offsets", queue, {"group": group})["committed"])
        except Refused:
            return 0

    def roll_back(self, checkpoint: str, *batches: int) -> None:
        """As somebody does by hand: files of both logs are deleted."""
        for number in batches:
            for log in ("commits", "offsets"):
                self.forget_batch(checkpoint, number, log)

    def put_aside(self, checkpoint: str) -> Path:
        """A copy of the checkpoint as it is now, for `put_back`."""
        copy = self.folder / f"{checkpoint}-{next(_numbers)}"
        shutil.copytree(self.folder / checkpoint, copy)
        return copy

    def put_back(self, copy: Path, checkpoint: str) -> None:
        shutil.rmtree(self.folder / checkpoint)
        shutil.copytree(copy, self.folder / checkpoint)

    def files(self, frame: Any, checkpoint: str, output: str) -> Any:
        """A query into Parquet files that has read all there is, or failed."""
        writer = frame.writeStream.format("parquet").option("path", str(self.folder / output))
        options = writer.option("checkpointLocation", str(self.folder / checkpoint))
        return options.trigger(availableNow=True).start()

    def forget_batch(self, checkpoint: str, number: int, log: str = "commits") -> None:
        """As if the driver had died between the sink's commit and its own note of it (with a cursor that stays)."""
        folder = self.folder / checkpoint / log
        for file in (folder / f"{number}", folder / f".{number}.crc"):
            file.unlink()


def until(holds: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + CEILING_S
    while not holds():
        failed = query.exception()
        assert failed is None, str(failed)
        assert time.monotonic() < deadline, (query.status, query.lastProgress)
        time.sleep(0.05)


def failure_of(query: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(CEILING_S)
    return str(caught.value)
