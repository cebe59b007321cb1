"""The entry point for Spark: the source's name, its columns, its readers and writers."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from vibemq.spark.collector import relieve
from vibemq.spark.errors import OptionError
from vibemq.spark.options import BATCH, STREAM, WRITE, check_names, parse
from vibemq.spark.read.batch import BatchReader
from vibemq.spark.read.stream import StreamReader
from vibemq.spark.read.unusable import UnusableReader
from vibemq.spark.schema import check_read, check_write, read_schema
from vibemq.spark.support import check_supported
from vibemq.spark.write.sink import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """`format("vibemq")`. Checks options and columns; opens nothing: it is made in many processes, and pickled.

    Planning runs in Python workers too, several for each batch: hence `relieve`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        check_supported()
        check_names(options)
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "vibemq"

    def schema(self) -> StructType:
        return read_schema(parse(self._options))

    def reader(self, schema: StructType) -> BatchReader:
        settings = parse(self._options, BATCH)
        check_read(schema, settings)
        relieve()
        return BatchReader(settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Never raises: Spark would tell of a variable of its own instead of the error."""
        relieve()
        try:
            settings = parse(self._options, STREAM)
            check_read(schema, settings)
        except OptionError as error:
            return UnusableReader(error)
        return StreamReader(settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        _check_mode(overwrite)
        settings = parse(self._options, WRITE)
        check_write(schema, settings)
        relieve()
        return BatchWriter(settings, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        _check_mode(overwrite)
        settings = parse(self._options, WRITE)
        if settings.atomic:
            raise OptionError("atomic belongs to batch writes; a stream says exactlyOnce=true, which is atomic too")
        if settings.txn_app_id:
            raise OptionError(
                "txnAppId and txnVersion belong to batch writes, also those in foreachBatch: in a stream the version"
                " would be the same for every batch, and all but the first would be taken for replays. A stream says"
                " exactlyOnce=true alone"
            )
        check_write(schema, settings)
        relieve()
        return StreamWriter(settings, schema)


def _check_mode(overwrite: bool) -> None:
    if overwrite:
        raise OptionError(
            'a queue cannot be overwritten, or rewritten by an output mode "complete" or "update";'
            ' use mode("append"), outputMode("append")'
        )
