"""The ceiling: a data source whose rows cost nothing, and a sink that drops its batches.

Same columns, types, row counts, batch sizes and number of tasks as the connector, and no I/O: each Python worker makes
one RecordBatch and yields it again and again. What is left is Spark's own price.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from vibemq.spark.read.columns import arrow_schema
from vibemq.spark.schema import QUEUE_COLUMNS

FETCH_BYTES = 1 << 20
"""A batch of the connector is one answer of the broker."""


@lru_cache(maxsize=1)
def prebuilt(names: tuple[str, ...], size: int) -> pa.RecordBatch:
    """As many rows as fit into one answer, of the messages that the benchmark publishes."""
    rows = FETCH_BYTES // (size + 40)
    body = bytes(range(256)) * (size // 256)
    values: dict[str, list[Any]] = {
        "queue": ["bench"] * rows,
        "seq": list(range(rows)),
        "message_id": [f"{number:032x}" for number in range(rows)],
        "body": [body] * rows,
        "enqueued_at": [0] * rows,
        "priority": [1] * rows,
        "attempts": [1] * rows,
        "key": [None] * rows,
        "content_type": ["application/octet-stream"] * rows,
        "headers": [[("content-type", b"application/octet-stream")]] * rows,
    }
    schema = arrow_schema(_schema(names))
    return pa.RecordBatch.from_arrays([pa.array(values[field.name], field.type) for field in schema], schema=schema)


def _schema(names: tuple[str, ...]) -> StructType:
    schema = StructType()
    for name in names:
        schema.add(name, QUEUE_COLUMNS[name])
    return schema


class Ceiling(DataSource):
    """`format("ceiling")`; options columns, size, rows, tasks, limit."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        return _schema(tuple(self.options["columns"].split(",")))

    def reader(self, schema: StructType) -> "CeilingReader":
        return CeilingReader(dict(self.options))

    def streamReader(self, schema: StructType) -> "CeilingStreamReader":  # noqa: N802
        return CeilingStreamReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> "CeilingWriter":
        return CeilingWriter()


def _partitions(rows: int, tasks: int) -> list[InputPartition]:
    return [InputPartition(rows * (task + 1) // tasks - rows * task // tasks) for task in range(tasks)]


def _read(rows: int, options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    batch = prebuilt(tuple(options["columns"].split(",")), int(options["size"]))
    while rows > 0:
        yield batch if rows >= batch.num_rows else batch.slice(0, rows)
        rows -= batch.num_rows


class CeilingReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return _partitions(int(self._options["rows"]), int(self._options["tasks"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition.value, self._options)


class CeilingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return ReadMaxRows(int(self._options["limit"])) if "limit" in self._options else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """All is there from the beginning."""

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else int(self._options["rows"])
        return {"at": min(int(self._options["rows"]), start["at"] + most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return _partitions(end["at"] - start["at"], int(self._options["tasks"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition.value, self._options)

    def commit(self, end: dict[str, int]) -> None:
        """Nobody keeps a position."""


class CeilingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
