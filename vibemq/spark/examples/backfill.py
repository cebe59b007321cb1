"""Everything that waits in a queue, into Parquet files by day; then end. Run it again for what has come since.

python -m vibemq.spark.examples.backfill --checkpoint /tmp/backfill --into /tmp/orders.parquet
"""

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, to_date
from pyspark.sql.streaming.query import StreamingQuery

from vibemq.spark import register
from vibemq.spark.examples.common import command_line, finish, session


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    register(spark, ship=args.ship)
    messages = (
        spark.readStream.format("vibemq")
        .option("endpoint", args.endpoint)
        .option("queue", args.source)
        .option("group", "backfill")
        .option("columns", "seq, message_id, enqueued_at, body")
        .option("maxMessagesPerTrigger", args.batch)  # use large batches: each costs about 0.2 s
        .load()
    )
    return (
        messages.withColumn("day", to_date("enqueued_at"))
        .withColumn("body", col("body").cast("string"))
        .writeStream.format("parquet")
        .queryName("backfill")
        .partitionBy("day")
        .option("path", args.into)
        .option("checkpointLocation", args.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def options(arguments: list[str]) -> argparse.Namespace:
    parser = command_line(str(__doc__))
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps the query's position")
    parser.add_argument("--source", default="orders", help="queue to read (orders)")
    parser.add_argument("--into", required=True, help="folder of the Parquet files")
    parser.add_argument("--batch", type=int, default=500_000, help="most messages of a batch (500000)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    args = options(sys.argv[1:])
    finish(start(session("backfill"), args), "backfill")
