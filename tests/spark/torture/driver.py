"""The Spark application under torture: three queries, each with a queue, a group, a checkpoint and a sink of its own.

work.plain ──> queue out.plain, at least once
work.once  ──> queue out.once, exactlyOnce
work.files ──> Parquet files, exactly once by Spark's own log

Two tasks of a hundred, or more, fail on purpose, somewhere between their first row and their last. What goes out is
"seq n": the row's place in its queue, and what its publisher called it.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.torture.hands import checkpoint_of, handled
from vibemq.demos.spark import tidy
from vibemq.spark import register

SINKS = ("plain", "once", "files")
BATCH_ROWS = 1_000
FAILING_ROWS = 0.02 / 100
"""Tasks have a hundred rows or more, so two of a hundred tasks or more have such a row."""
ON_PURPOSE = "failed on purpose"


def output_of(name: str, number: int) -> str:
    """A queue, or a folder of files."""
    first = "files" if name == "files" else f"out.{name}"
    return f"{first}.{number}" if number else first


def source(spark: SparkSession, endpoint: str, name: str, hold: str, decision: str) -> DataFrame:
    register(spark)
    messages = spark.readStream.format("vibemq").option("endpoint", endpoint)
    messages = messages.option("queue", f"work.{name}").option("group", name).option("columns", "seq, body")
    # What is acknowledged and not held is deleted at once, and whatever is missing ends the query.
    messages = messages.option("hold", hold).option("failOnDataLoss", "true")
    messages = messages.option("newCheckpoint", decision or "refuse")
    rows = messages.option("maxMessagesPerTrigger", BATCH_ROWS).option("minPartitions", 2).load()
    # Drawn anew in each attempt, which Spark's own rand() is not.
    chance = "cast(reflect('java.lang.Math', 'random') AS DOUBLE)"
    body = "concat(seq, ' ', cast(body AS STRING))"
    return rows.selectExpr(
        f"CASE WHEN {chance} < {FAILING_ROWS} THEN raise_error('{ON_PURPOSE}') ELSE {body} END AS body"
    )


def queries(spark: SparkSession, endpoint: str, folder: Path) -> Iterator[StreamingQuery]:
    hold, by_name = handled(folder)
    for name in SINKS:
        query = by_name[name]
        writer = (
            source(spark, endpoint, name, hold, query.decision)
            .writeStream.queryName(name)
            .option("checkpointLocation", str(checkpoint_of(folder, name, query.output)))
        )
        target = output_of(name, query.output)
        if name == "files":
            yield writer.format("parquet").option("path", str(folder / target)).start()
            continue
        writer = writer.format("vibemq").option("endpoint", endpoint).option("queue", target)
        yield writer.option("exactlyOnce", str(name == "once").lower()).start()


def say(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def main() -> None:
    endpoint, folder, master = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    spark = tidy.session(
        "torture",
        master,
        folder,
        spark__executor__memory="512m",
        spark__task__maxFailures="12",
        spark__sql__codegen__wholeStage="false",
        spark__sql__codegen__factoryMode="NO_CODEGEN",
        spark__sql__adaptive__enabled="false",
        spark__excludeOnFailure__enabled="false",
        spark__log__level="WARN",  # failed tasks are counted in the log
    )
    say("ready")
    running: list[StreamingQuery] = []
    threading.Thread(target=_stop_at_end_of_input, args=(running,), daemon=True).start()
    running.extend(queries(spark, endpoint, folder))
    while any(query.isActive for query in running):
        with suppress(Exception):
            spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
        _end_with_the_first_that_failed(running)
    _end_with_the_first_that_failed(running)
    _tell_files(spark, folder)
    spark.stop()


def _end_with_the_first_that_failed(running: list[StreamingQuery]) -> None:
    """At once, whichever it is: the others would run on without it."""
    for query in running:
        if (error := query.exception()) is not None:
            say("failed", query=query.name, error=str(error)[:4000])
            os._exit(1)


def _tell_files(spark: SparkSession, folder: Path) -> None:
    """What is in the Parquet files as Spark reads them, which leaves out what no batch has committed; after the number
    of its output."""
    lines, read = [], spark.read.schema("body STRING")  # an output may have no batch yet, and so no schema
    for number in range(handled(folder)[1]["files"].output + 1):
        path = folder / output_of("files", number)
        if (path / "_spark_metadata").exists():
            lines += [f"{number} {row['body']}" for row in read.parquet(str(path)).collect()]
    (folder / "files.txt").write_text("\n".join(lines))


def _stop_at_end_of_input(running: list[StreamingQuery]) -> None:
    sys.stdin.read()
    for query in running:
        query.stop()


if __name__ == "__main__":
    main()
