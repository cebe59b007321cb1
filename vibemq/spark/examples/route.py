"""From one queue into several, exactly once.

    python -m vibemq.spark.examples.route --checkpoint /tmp/route

Reads {"order": 1, "country": "FR"} from the queue `orders`, and publishes each order to the queue `orders.fr` of its
country. A batch that is run again after a crash is published once.
"""

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, concat, get_json_object, lit, lower
from pyspark.sql.streaming.query import StreamingQuery

from vibemq.spark import register
from vibemq.spark.examples.common import finish, session, stream_command_line, trigger


def routed(messages: DataFrame, prefix: str) -> DataFrame:
    """The column `queue` of a write says where each row goes."""
    country = coalesce(get_json_object(col("body").cast("string"), "$.country"), lit("nowhere"))
    return messages.select(concat(lit(prefix), lower(country)).alias("queue"), "message_id", "body", "key", "headers")


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    register(spark, ship=args.ship)
    messages = (
        spark.readStream.format("vibemq")
        .option("endpoint", args.endpoint)
        .option("queue", args.source)
        .option("group", "router")
        .load()
    )
    return (
        routed(messages, args.prefix)
        .writeStream.format("vibemq")
        .queryName("route")
        .option("endpoint", args.endpoint)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger(args.once))
        .start()
    )


def options(arguments: list[str]) -> argparse.Namespace:
    parser = stream_command_line(str(__doc__))
    parser.add_argument("--source", default="orders", help="queue to read (orders)")
    parser.add_argument("--prefix", default="orders.", help="of the queues to write, before the country (orders.)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    args = options(sys.argv[1:])
    finish(start(session("route"), args), "router")
