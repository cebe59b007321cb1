"""What every example needs: a command line and a session."""

import argparse
import signal
import threading
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from vibemq.spark import failed_batch

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
LOOK_S = 1
"""How long Ctrl-C may wait."""


def command_line(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", default="localhost:2925", help="the broker (localhost:2925)")
    parser.add_argument(
        "--ship", action="store_true", help="send the connector with the plan; see docs/howto/spark/run.md"
    )
    return parser


def stream_command_line(description: str) -> argparse.ArgumentParser:
    parser = command_line(description)
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps the query's position and state")
    parser.add_argument("--once", action="store_true", help="process what is there and end; else go on until stopped")
    return parser


def trigger(once: bool) -> dict[str, Any]:
    """Arguments of `writeStream.trigger()`."""
    return {"availableNow": True} if once else {"processingTime": "0 seconds"}


def finish(query: StreamingQuery, group: str) -> None:
    """Until it ends, or Ctrl-C stops it; an error names the messages of the batch that failed."""
    stopped = threading.Event()
    # Spark's own handler raises in the middle of a call to the JVM, which says so in a hundred lines.
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        while not stopped.is_set() and not query.awaitTermination(LOOK_S):
            pass
        query.stop()
    except Exception as error:
        if stopped.is_set():
            # Under spark-submit the JVM and the source's process have heard Ctrl-C too.
            raise SystemExit(128 + signal.SIGINT) from None
        if isinstance(error, StreamingQueryException):
            raise SystemExit(f"{error}\n{failed_batch(error, group)}") from None
        raise


def session(name: str) -> SparkSession:
    """The session that spark-submit has prepared, or a local one."""
    spark = SparkSession.Builder().appName(name).config("spark.sql.session.timeZone", "UTC").getOrCreate()
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none
    if context is not None and SHUFFLE_PARTITIONS not in dict(context.getConf().getAll()):
        # Spark's 200 are for terabytes: each is a task with a Python worker, in every batch.
        spark.conf.set(SHUFFLE_PARTITIONS, context.defaultParallelism)
    return spark
