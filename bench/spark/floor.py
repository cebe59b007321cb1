"""The floor of a trigger: a stream without a broker, whose messages are there when they are due.

Offsets are counts of messages, and nothing is asked, stored or acknowledged. What a micro-batch takes here, it takes
with every Python data source.
"""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructType

POLL_S = 0.25


class Floor(DataSource):
    """`format("floor")`; options began (of `time.perf_counter`, which is the machine's), rate, count, size."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> StructType:
        return StructType().add("body", BinaryType())

    def streamReader(self, schema: StructType) -> "FloorReader":  # noqa: N802
        return FloorReader(dict(self.options))


class FloorReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._began, self._rate = float(options["began"]), float(options["rate"])
        self._count, self._size = int(options["count"]), int(options["size"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        if self._due() <= start["at"] < self._count:
            left_s = self._began + (start["at"] + 1) / self._rate - time.perf_counter()
            time.sleep(max(0.0, min(POLL_S, left_s)))
        elif start["at"] >= self._count:
            time.sleep(POLL_S)
        return {"at": max(start["at"], self._due())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, end = partition.value
        bodies = [number.to_bytes(8, "big") * (self._size // 8) for number in range(first + 1, end + 1)]
        yield pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], names=["body"])

    def commit(self, end: dict[str, int]) -> None:
        """Nobody keeps a position."""

    def _due(self) -> int:
        return min(self._count, max(0, int((time.perf_counter() - self._began) * self._rate)))
