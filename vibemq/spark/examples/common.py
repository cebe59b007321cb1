"""What every example needs: a command line and a session."""

import argparse
from typing import Any

from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


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


def session(name: str) -> SparkSession:
    """The session that spark-submit has prepared, or a local one."""
    spark = SparkSession.Builder().appName(name).config("spark.sql.session.timeZone", "UTC").getOrCreate()
    if SHUFFLE_PARTITIONS not in dict(spark.sparkContext.getConf().getAll()):
        # Spark's 200 are for terabytes: each is a task with a Python worker, in every batch.
        spark.conf.set(SHUFFLE_PARTITIONS, spark.sparkContext.defaultParallelism)
    return spark
