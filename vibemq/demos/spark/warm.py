"""A small job that loads what most jobs load; see `tidy.prepare`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        return {"at": 10}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter([(partition.value,)])


class Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Warm(DataSource):
    @classmethod
    def name(cls) -> str:
        return "warm"

    def schema(self) -> str:
        return "n INT"

    def streamReader(self, schema: StructType) -> Reader:  # noqa: N802
        return Reader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: N802
        return Writer()


def main() -> None:
    place = Path(sys.argv[1])
    spark = SparkSession.Builder().getOrCreate()
    spark.dataSource.register(Warm)
    spark.range(1000).selectExpr("id % 7 AS key", "id").groupBy("key").sum("id").collect()
    rows = spark.readStream.format("warm").load().selectExpr("concat(n, '') AS body")
    for sink in ("warm", "parquet"):
        writer = rows.writeStream.format(sink).option("checkpointLocation", str(place / sink))
        query = writer.option("path", str(place / "rows")).start()
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
