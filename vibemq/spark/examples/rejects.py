"""Orders go on, what is none goes to the dead letters with its reason.

    python -m vibemq.spark.examples.rejects --checkpoint /tmp/rejects

Reads {"order": 1, "amount": "12.50"} from the queue `orders`, publishes {"order": 1, "cents": 1250} to the queue
`orders.checked`, and rejects everything else.
"""

import argparse
import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, from_json, lit, struct, to_json, when
from pyspark.sql.streaming.query import StreamingQuery

from vibemq.spark import register
from vibemq.spark.examples.common import finish, session, stream_command_line, trigger

GROUP = "checker"


def checked(messages: DataFrame) -> DataFrame:
    """`problem` is null where the order is good."""
    order = from_json(col("body").cast("string"), "order BIGINT, amount DECIMAL(12, 2)")
    problem = (
        when(col("order.order").isNull(), "no order number")
        .when(col("order.amount").isNull(), "no amount")
        .when(col("order.amount") <= 0, "the amount is not positive")
    )
    empty = from_json(lit("{}"), "order BIGINT, amount DECIMAL(12, 2)")
    return messages.select("queue", "seq", coalesce(order, empty).alias("order")).withColumn("problem", problem)


def split(args: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    def process(batch: DataFrame, batch_id: int) -> None:
        orders = checked(batch).persist()  # two writes, one read
        try:
            publish(orders.where("problem IS NULL"), args)
            reject(orders.where("problem IS NOT NULL"), args)
        finally:
            orders.unpersist()

    return process


def publish(good: DataFrame, args: argparse.Namespace) -> None:
    cents = (col("order.amount") * 100).cast("bigint").alias("cents")
    (
        good.select(to_json(struct("order.order", cents)).alias("body"))
        .write.format("vibemq")
        .option("endpoint", args.endpoint)
        .option("queue", args.sink)
        .option("exactlyOnce", "true")
        .mode("append")
        .save()
    )


def reject(bad: DataFrame, args: argparse.Namespace) -> None:
    (
        bad.select("queue", "seq", col("problem").alias("reason"))
        .write.format("vibemq")
        .option("endpoint", args.endpoint)
        .option("action", "reject")
        .option("group", GROUP)
        .mode("append")
        .save()
    )


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    register(spark, ship=args.ship)
    messages = (
        spark.readStream.format("vibemq")
        .option("endpoint", args.endpoint)
        .option("queue", args.source)
        .option("group", GROUP)
        .option("columns", "queue, seq, body")
        .load()
    )
    return (
        messages.writeStream.queryName("rejects")
        .foreachBatch(split(args))
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger(args.once))
        .start()
    )


def options(arguments: list[str]) -> argparse.Namespace:
    parser = stream_command_line(str(__doc__))
    parser.add_argument("--source", default="orders", help="queue to read (orders)")
    parser.add_argument("--sink", default="orders.checked", help="queue for good orders (orders.checked)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    args = options(sys.argv[1:])
    finish(start(session("rejects"), args), GROUP)
