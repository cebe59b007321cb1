"""Readings of sensors, averaged over windows of ten minutes of their own time.

    python -m vibemq.spark.examples.windows --checkpoint /tmp/windows

Reads {"sensor": "s1", "celsius": 21.5, "at": "2026-01-01T00:00:00Z"} from the queue `readings`, and publishes one
message for each sensor and window to the queue `readings.10min`, once, when the window is over.
"""

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, concat_ws, count, from_json, struct, to_json, window
from pyspark.sql.functions import max as highest
from pyspark.sql.streaming.query import StreamingQuery

from vibemq.spark import register
from vibemq.spark.examples.common import finish, session, stream_command_line, trigger


def averages(messages: DataFrame) -> DataFrame:
    """One row per sensor and window, as a write wants it."""
    reading = from_json(col("body").cast("string"), "sensor STRING, celsius DOUBLE, at TIMESTAMP")
    windows = (
        messages.select(reading.alias("reading"))
        .select("reading.*")
        .withWatermark("at", "10 minutes")  # a window closes when a reading 10 minutes past its end arrives
        .groupBy(window("at", "10 minutes"), "sensor")
        .agg(count("*").alias("readings"), avg("celsius").alias("mean"), highest("celsius").alias("most"))
    )
    begin = col("window.start")
    return windows.select(
        concat_ws("@", "sensor", begin.cast("string")).alias("message_id"),
        col("sensor").alias("key"),
        to_json(struct("sensor", begin.alias("begin"), "readings", "mean", "most")).alias("body"),
    )


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    register(spark, ship=args.ship)
    messages = (
        spark.readStream.format("vibemq")
        .option("endpoint", args.endpoint)
        .option("queue", args.source)
        .option("group", "windows")
        .option("columns", "body")
        .load()
    )
    return (
        averages(messages)
        .writeStream.format("vibemq")
        .queryName("windows")
        .option("endpoint", args.endpoint)
        .option("queue", args.sink)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(**trigger(args.once))
        .start()
    )


def options(arguments: list[str]) -> argparse.Namespace:
    parser = stream_command_line(str(__doc__))
    parser.add_argument("--source", default="readings", help="queue to read (readings)")
    parser.add_argument("--sink", default="readings.10min", help="queue to write (readings.10min)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    args = options(sys.argv[1:])
    finish(start(session("windows"), args), "windows")
