"""Spark's part, played by hand: who calls what when, with copies where Spark makes copies."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from tests.crash.ledger import BrokerProcess
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused
from vibemq.spark.options import parse
from vibemq.spark.read.numbering import enter_batch
from vibemq.spark.source import DefaultSource


def copied(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def options_of(broker: BrokerProcess, **more: object) -> dict[str, str]:
    base = {"endpoint": f"127.0.0.1:{broker.port}", "retryTimeout": "30s"}
    return base | {key: str(value) for key, value in more.items()}


def new_checkpoint(error: BaseException | str, how: str) -> str:
    """The value of `newCheckpoint` that a refused query has printed."""
    found = re.search(r"set newCheckpoint=(?:replay|continue):([0-9a-f]{16}),", str(error))
    assert found, error
    return f"{how}:{found[1]}"


class Query:
    """One run of a streaming query: a planner's reader for tasks, a long-lived one for offsets."""

    def __init__(self, broker: BrokerProcess, **more: object) -> None:
        defaults: dict[str, object] = {"group": "etl", "pollTimeout": "0", "columns": "seq,body"}
        source = copied(DefaultSource(options_of(broker, **{**defaults, **more})))
        self._schema: StructType = source.schema()
        self.live = source.streamReader(self._schema)
        self._task_reader = copied(source.streamReader(self._schema))

    def latest(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:
        """With the limit that the reader asks for, unless Spark has another."""
        found: dict[str, Any] = self.live.latestOffset(start, limit or self.live.getDefaultReadLimit())
        return found

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        return [row for task in self.live.partitions(start, end) for row in self.task(task)]

    def task(self, partition: Any) -> list[dict[str, Any]]:
        """In an executor: other copies of everything."""
        reader = copied(self._task_reader)
        return [row for batch in reader.read(copied(partition)) for row in batch.to_pylist()]

    def numbers(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        return [int(row["body"]) for row in self.rows(start, end)]

    def batch(self, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """One micro-batch that succeeds: (its end, the numbers in its bodies)."""
        end = self.latest(start)
        return end, self.numbers(start, end)


def read(broker: BrokerProcess, **more: object) -> list[dict[str, Any]]:
    """A batch read, planned in one process, read in others."""
    source = copied(DefaultSource(options_of(broker, **more)))
    reader = source.reader(source.schema())
    tasks = copied(reader)
    return [row for task in reader.partitions() for batch in tasks.read(copied(task)) for row in batch.to_pylist()]


def publish_at_three_instants(broker: BrokerProcess, publish: Callable[..., None], queue: str) -> list[list[int]]:
    """Numbers from 0 on, one by one, until the broker has given three instants: those of each."""
    found: dict[int, list[int]] = {}
    while len(found) < 3:
        number = sum(map(len, found.values()))
        publish(queue, number, number + 1)
        last = read(broker, queue=queue, startingOffsets=f'{{"{queue}": {number + 1}}}')[-1]
        found.setdefault(instant_of(last), []).append(number)
    return [[at, *numbers] for at, numbers in found.items()]


def instant_of(row: dict[str, Any]) -> int:
    """Milliseconds, as the options want them."""
    return round(row["enqueued_at"].timestamp() * 1000)


def facts(broker: BrokerProcess, queue: str, group: str = "etl") -> dict[str, Any]:
    return BrokerClient(parse(options_of(broker))).call("group.offsets", queue, {"group": group})


def restored(broker: BrokerProcess, folder: Path) -> None:
    """In the place of the broker's data, the backup."""
    broker.stop()
    command = [
        Path(sys.executable).with_name("vibemq-admin"),
        "restore",
        folder / "backup",
        "--data-dir",
        folder / "data",
    ]
    subprocess.run([*command, "--yes"], check=True, capture_output=True)
    broker.start()


def at(offset: dict[str, Any], queue: str) -> int:
    return int(offset["q"][queue]["s"])


def refused(broker: BrokerProcess, queue: str, how: str, **more: object) -> str:
    """A query without its checkpoint; the value of `newCheckpoint` that it prints."""
    query = Query(broker, queue=queue, **{"newCheckpoint": how, **more})
    with pytest.raises(Refused, match="this query has no checkpoint") as error:
        query.live.initialOffset()
    return new_checkpoint(error.value, how.partition(":")[0])


def entered(
    broker: BrokerProcess, query: Query, offsets: tuple[dict[str, Any], dict[str, Any]], name: str, batch: int = 0
) -> None:
    """The tasks of that batch of the query with that id begin. The broker counts batches by the id, whatever the queue,
    so that each test takes ids of its own."""
    client = BrokerClient(parse(options_of(broker)))
    for task in query.live.partitions(*offsets):
        enter_batch(client, "etl", task.value["batch"], name, batch)


def batches(query: Query, start: dict[str, Any], count: int) -> list[tuple[dict[str, Any], dict[str, Any], list[int]]]:
    """(start, end, numbers) of each; everything before the last end is acknowledged."""
    found = []
    for _ in range(count):
        end, numbers = query.batch(start)
        found.append((start, end, numbers))
        start = end
    query.latest(start)
    return found
