"""What of PySpark the source needs beside its oldest data source API, and the refusal of a PySpark that lacks it.

Before 4.2 a streaming source is asked how far a batch goes without being told where it begins: it can neither
acknowledge what is finished nor cut a repeated batch as before. The names are imported in an older PySpark too, so that
the refusal is a sentence of ours and not an ImportError: see `pyspark_vibemq`.
"""

import pyspark

from vibemq.spark.errors import SourceError

LEAST = "4.2"

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    IS_SUPPORTED = True
except ImportError:
    DataSourceStreamArrowWriter = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]
    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = None  # type: ignore[assignment,misc]
    IS_SUPPORTED = False

__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "check_supported",
]


def check_supported() -> None:
    """Raises SourceError in a PySpark that is too old to be served exactly."""
    if not IS_SUPPORTED:
        raise SourceError(
            f"VibeMQ's data source needs PySpark {LEAST} or later, and this is PySpark {pyspark.__version__}, which"
            " does not tell a streaming source where a batch begins: batches could neither be acknowledged nor"
            f" repeated exactly. Upgrade Spark and PySpark to {LEAST} or later"
        )
