"""Why did messages die, and which of them deserve another try?

    python -m vibemq.spark.examples.dead_letters --queue orders
    python -m vibemq.spark.examples.dead_letters --queue orders --redrive 'no amount' --to orders.repair

Prints the dead letters of a queue by reason; with --redrive puts those whose error text is like that back into a queue,
and prints what is left.
"""

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, min_by
from pyspark.sql.functions import max as last
from pyspark.sql.functions import min as first

from vibemq.spark import register
from vibemq.spark.examples.common import command_line, session


def load(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """A snapshot: all dead letters of this moment."""
    register(spark, ship=args.ship)
    return (
        spark.read.format("vibemq")
        .option("endpoint", args.endpoint)
        .option("queue", args.queue)
        .option("deadLetters", "true")
        .load()
    )


def by_reason(letters: DataFrame) -> DataFrame:
    return (
        letters.groupBy("origin_group", "reason", "detail")
        .agg(
            count("*").alias("letters"),
            first("dead_at").alias("first"),
            last("dead_at").alias("last"),
            min_by(col("body").cast("string"), "dead_id").alias("for_example"),
        )
        .orderBy(col("letters").desc(), "detail")
    )


def redrive(letters: DataFrame, pattern: str, args: argparse.Namespace) -> None:
    """Those whose error text is LIKE `pattern` leave the dead letters and enter a queue, in one step."""
    chosen = letters.where(col("detail").like(pattern)).select("queue", "dead_id")
    target = {"to": args.to} if args.to else {}
    writer = chosen.write.format("vibemq").option("endpoint", args.endpoint).option("action", "redrive")
    writer.options(**target).mode("append").save()


def options(arguments: list[str]) -> argparse.Namespace:
    parser = command_line(str(__doc__))
    parser.add_argument("--queue", default="orders", help="whose dead letters (orders)")
    parser.add_argument(
        "--redrive", metavar="LIKE", help="put those back whose error text is LIKE this; %% is any text"
    )
    parser.add_argument("--to", help="queue to put them into (where they died)")
    return parser.parse_args(arguments)


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    letters = load(spark, args)
    if args.redrive:
        redrive(letters, args.redrive, args)
        letters = load(spark, args)
    by_reason(letters).show(truncate=60)


if __name__ == "__main__":
    args = options(sys.argv[1:])
    run(session("dead letters"), args)
