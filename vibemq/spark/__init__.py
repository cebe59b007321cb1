"""Spark reads and writes queues: `format("vibemq")`. docs/reference/spark.md has the options, columns and errors.

    from vibemq.spark import register

    register(spark)
    spark.readStream.format("vibemq").option("endpoint", …).option("queue", …).option("group", …).load()

Needs pyspark 4.2 or later and pyarrow. Of this project it imports only itself, so that executors need
nothing else of it.
"""

import sys
from typing import Any

from vibemq.spark.failures import failed_batch
from vibemq.spark.listener import LagListener
from vibemq.spark.read.reporting import Lag, lag
from vibemq.spark.source import DefaultSource
from vibemq.spark.support import check_supported

__all__ = ["DefaultSource", "Lag", "LagListener", "failed_batch", "lag", "register"]

REGISTRY_LOGGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"


def register(spark: Any, ship: bool = False) -> None:
    """Make `format("vibemq")` known to a session, and to the calling thread. Once before each query, better than
    leaving it to auto-discovery.

    Args:
        spark: the SparkSession.
        ship: send the code along with every plan, for executors (and the source's process of a driver under
            `spark-submit --py-files`) where this package cannot be imported. They still need pyarrow.

    Raises:
        SourceError: PySpark is older than 4.2.
    """
    check_supported()
    if ship:
        from pyspark import cloudpickle

        for name, module in list(sys.modules.items()):
            if name in (__name__, "vibemq.model.quantities") or name.startswith(f"{__name__}."):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    jvm, session = getattr(spark, "_jvm", None), getattr(spark, "_jsparkSession", None)
    if jvm is None or session is None:  # Spark Connect
        spark.dataSource.register(DefaultSource)
        return
    # Spark looks a source up in the session of the calling thread, and a new thread has none.
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(session)
    # It warns when a source is registered once more.
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(REGISTRY_LOGGER, log4j.Level.ERROR)
    spark.dataSource.register(DefaultSource)
