"""The Spark application of the demo, in a process that can be killed: two queries over the queue `flights`.

flights ──group delays──> per carrier and hour, state in the checkpoint ──exactly once──> queue `delays`
        └─group rejects─> those without a departure ──> dead letters of `flights`

The first publishes, after each batch, the new totals of every carrier and hour that the batch has touched, with the
batch's number as their version. Ends when its standard input does.
"""

import sys
import threading
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, count, from_json, lit, struct, to_json
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.query import StreamingQuery

from vibemq.demos.spark import tidy
from vibemq.demos.spark.names import DELAYS, DELAYS_GROUP, FLIGHTS, NO_DEPARTURE, REJECTS_GROUP
from vibemq.spark import register

FLIGHT = "carrier STRING, time_hour STRING, dep_time DOUBLE, dep_delay DOUBLE, arr_delay DOUBLE"


class Application:
    def __init__(self, spark: SparkSession, endpoint: str, folder: Path, batch_rows: int) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._folder = folder
        self._batch_rows = batch_rows

    def delays(self) -> StreamingQuery:
        flights = self._flights(DELAYS_GROUP).where("dep_time IS NOT NULL")
        hours = flights.groupBy("carrier", col("time_hour").alias("hour")).agg(
            count("*").alias("departed"),
            total("dep_delay").cast("bigint").alias("departure_minutes"),
            count("arr_delay").alias("arrived"),
            total("arr_delay").cast("bigint").alias("arrival_minutes"),
        )
        writer = hours.writeStream.queryName(DELAYS).outputMode("update").foreachBatch(self._publish)
        return writer.option("checkpointLocation", str(self._folder / DELAYS)).start()

    def rejects(self) -> StreamingQuery:
        cancelled = self._flights(REJECTS_GROUP).where("dep_time IS NULL")
        writer = cancelled.select("queue", "seq", lit(NO_DEPARTURE).alias("reason")).writeStream.format("vibemq")
        writer = writer.option("endpoint", self._endpoint).option("action", "reject").option("group", REJECTS_GROUP)
        return writer.option("checkpointLocation", str(self._folder / REJECTS_GROUP)).start()

    def _flights(self, group: str) -> DataFrame:
        register(self._spark)  # before each query: see the reference
        messages = self._spark.readStream.format("vibemq").option("endpoint", self._endpoint)
        messages = messages.option("queue", FLIGHTS).option("group", group).option("columns", "queue, seq, body")
        rows = messages.option("maxMessagesPerTrigger", self._batch_rows).load()
        flight = from_json(col("body").cast("string"), FLIGHT).alias("flight")
        return rows.select("queue", "seq", flight).select("queue", "seq", "flight.*")

    def _publish(self, hours: DataFrame, batch_id: int) -> None:
        totals = ("carrier", "hour", "departed", "departure_minutes", "arrived")
        minutes = "coalesce(arrival_minutes, 0) AS arrival_minutes"  # null when nobody has arrived
        rows = hours.selectExpr(*totals, minutes, f"{batch_id} AS version")
        body = to_json(struct(*totals, "arrival_minutes", "version")).alias("body")
        writer = rows.select(concat_ws(" ", "carrier", "hour").alias("key"), body).write.format("vibemq")
        writer.option("endpoint", self._endpoint).option("queue", DELAYS).option("exactlyOnce", "true").mode(
            "append"
        ).save()


def say(event: str, **fields: Any) -> None:
    sys.stdout.write(orjson.dumps({"event": event, **fields}).decode() + "\n")
    sys.stdout.flush()


def main() -> None:
    endpoint, folder, master, batch_rows = sys.argv[1:]
    spark = tidy.session("demo", master, Path(folder), spark__executor__memory="512m", spark__task__maxFailures="8")
    application = Application(spark, endpoint, Path(folder), int(batch_rows))
    queries = [application.delays()]
    tidy.wait_until_planned(queries[0])
    queries.append(application.rejects())
    say("ready")
    threading.Thread(target=_stop_at_end_of_input, args=(queries,), daemon=True).start()
    for query in queries:
        try:
            query.awaitTermination()
        except Exception as error:
            say("failed", query=query.name, error=str(error)[:2000])
            raise SystemExit(1) from None
    spark.stop()


def _stop_at_end_of_input(queries: list[StreamingQuery]) -> None:
    sys.stdin.read()
    for query in queries:
        query.stop()


if __name__ == "__main__":
    main()
