"""A Spark application whose driver is to die between the broker's commit and Spark's: one query, until its input ends.

`stream` writes each batch once, `batches` writes it twice to the same queue, in foreachBatch.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark import mutants
from vibemq.demos.spark import tidy
from vibemq.spark import register


def start(spark: Any, endpoint: str, folder: Path, kind: str) -> Any:
    def write(frame: Any, first: int) -> None:
        bodies = frame.selectExpr(f"cast(cast(cast(body AS STRING) AS INT) + {first} AS STRING) AS body")
        target = bodies.write.format("vibemq").option("endpoint", endpoint).option("queue", "target")
        target.option("exactlyOnce", "true").mode("append").save()

    def twice(frame: Any, batch_id: int) -> None:
        write(frame, 0)
        write(frame, 1_000_000)

    source = spark.readStream.format("vibemq").option("endpoint", endpoint).option("queue", "source")
    rows = source.option("group", "aimed").option("columns", "body").load()
    writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if kind == "batches":
        return writer.foreachBatch(twice).start()
    return writer.format("vibemq").options(endpoint=endpoint, queue="target", exactlyOnce="true").start()


def main() -> None:
    endpoint, folder, kind, mutant = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    spark = tidy.session("aimed", "local[2]", folder)
    register(spark)
    if mutant:
        with mutants.registered(spark, getattr(mutants, mutant)):
            run(spark, endpoint, folder, kind)
    else:
        run(spark, endpoint, folder, kind)


def run(spark: Any, endpoint: str, folder: Path, kind: str) -> None:
    query = start(spark, endpoint, folder, kind)
    sys.stdout.write(json.dumps({"event": "ready"}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    query.stop()
    if query.exception():
        raise query.exception()


if __name__ == "__main__":
    main()
