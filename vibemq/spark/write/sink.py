"""Writers. `write` runs in tasks, `commit` and `abort` elsewhere on another copy, which knows only the messages.

Exactly once: every attempt of every task writes a stage of its own (a UUID: attempt ids start anew with the driver),
the driver's commit publishes the stages of the attempts that count. The transaction's name is (app, version) = (query
id, batch id), which Spark sets in tasks, so it travels in the messages: a replayed batch is recognised whatever its
tasks are.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from vibemq.spark.collector import relieve
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.connection.pool import leased
from vibemq.spark.errors import Refused, SourceError, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.columns import arrow_schema
from vibemq.spark.read.fetching import notice
from vibemq.spark.write.actions import Actions, Redriving, Rejecting
from vibemq.spark.write.bulk import pieces
from vibemq.spark.write.publishing import RowPublisher, Staging, Window, row_bytes_max
from vibemq.spark.write.rows import RowMaker

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 gives rows to streaming writers.
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter  # type: ignore[assignment]

ROWS_PER_BATCH = 1000


@dataclass(frozen=True)
class SinkTransaction:
    app: str
    version: int
    stage: str
    run: str = ""
    """Of the query: a batch is written once in a run, and again only in the next one."""


@dataclass
class Written(WriterCommitMessage):
    """One task's outcome."""

    rows: int
    transaction: SinkTransaction | None = None


class _Sink:
    """What both writers have in common."""

    def __init__(self, settings: SourceOptions, schema: StructType, app: SinkTransaction | None) -> None:
        self._settings = settings
        self._schema = schema
        self._app = app
        """For writes that are no stream's: made in the driver, the same for all tasks."""

    def write(self, iterator: Iterator[Any]) -> Written:
        written = self._write(_record_batches(iterator, self._schema))
        relieve()
        return written

    def _write(self, batches: Iterable["pa.RecordBatch"]) -> Written:
        with leased(self._settings) as client:
            if self._settings.action == "reject":
                return _act(Rejecting(client, self._settings), batches)
            if self._settings.action == "redrive":
                return _act(Redriving(client, self._settings), batches)
            if not self._settings.exactly_once:
                return Written(self._publish(RowPublisher(client, self._settings), batches))
            return self._stage(client, batches)

    def _stage(self, client: BrokerClient, batches: Iterable["pa.RecordBatch"]) -> Written:
        name = self._transaction()
        staging = Staging(client, self._settings, app=name.app, version=name.version, stage=name.stage)
        try:
            return Written(self._publish(staging, batches), name)
        except Exception:
            _abort(client, [name])
            raise

    def _publish(self, window: Window, batches: Iterable["pa.RecordBatch"]) -> int:
        settings = self._settings
        maker = RowMaker(settings.queue, dedup=settings.dedup, row_bytes_max=row_bytes_max(settings))
        for batch in chain.from_iterable(map(pieces, batches)):
            plain = maker.plain(batch)
            if plain is not None:
                window.add_bulk(settings.queue, plain)
                continue
            for row in maker.rows(batch):
                window.add(row)
        return window.finish().accepted

    def _transaction(self) -> SinkTransaction:
        settings, stage = self._settings, uuid4().hex
        if settings.txn_app_id:
            return SinkTransaction(settings.txn_app_id, settings.txn_version or 0, stage)
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        run = (context.getLocalProperty("spark.jobGroup.id") if context else None) or ""
        if query and batch:
            # In foreachBatch this is a batch writer: one query may write to several queues there.
            return SinkTransaction(f"{query}/{settings.queue}" if self._app else query, int(batch), stage, run)
        if self._app is None:
            raise SourceError("Spark does not tell which batch this is; give txnAppId and txnVersion")
        return SinkTransaction(self._app.app, 0, stage)

    def _commit(self, messages: Sequence[Any]) -> None:
        relieve()
        done = [message.transaction for message in messages if message is not None and message.rows]
        staged = [one for one in done if one is not None]
        if not staged:
            return
        first = staged[0]
        tag = f"{first.run}/{min(one.stage for one in staged)}"
        stages = [one.stage for one in staged]
        arguments = {"app": first.app, "version": first.version, "stages": stages, "tag": tag}
        with leased(self._settings) as client:
            try:
                answer = client.call("transaction.commit", "", arguments)
            except Refused as error:
                raise explained(error, self._settings.queue) from None
        if answer["duplicate"] and answer["tag"] != tag:
            _another_write(first, int(answer["version"]), str(answer["tag"]))

    def _abort(self, messages: Sequence[Any]) -> None:
        staged = [message.transaction for message in messages if message is not None and message.transaction]
        if staged:
            with leased(self._settings) as client:
                _abort(client, staged)


class BatchWriter(_Sink, DataSourceArrowWriter):
    def __init__(self, settings: SourceOptions, schema: StructType) -> None:
        super().__init__(settings, schema, SinkTransaction(f"batch-{uuid4().hex}", 0, ""))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    def __init__(self, settings: SourceOptions, schema: StructType) -> None:
        super().__init__(settings, schema, None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abort(messages)


def _another_write(mine: SinkTransaction, version: int, tag: str) -> None:
    """This version was committed before, with other stages: by the same batch in an earlier run, or by another write of
    this very batch, whose rows must not be dropped in silence."""
    if mine.run and version == mine.version and tag.partition("/")[0] == mine.run:
        raise SourceError(
            f"batch {mine.version} has been written to this queue already in this run: several exactlyOnce writes"
            " to the same queue in one foreachBatch need a txnAppId and a txnVersion of their own."
            " Nothing of this write was published"
        )
    notice(f"version {mine.version} of {mine.app} was published before: this is a replay, nothing is published again")


def _act(actions: Actions, batches: Iterable["pa.RecordBatch"]) -> Written:
    for batch in batches:
        actions.add(batch)
    actions.finish()
    return Written(actions.done + actions.already)


def _abort(client: BrokerClient, staged: Sequence[SinkTransaction]) -> None:
    """Best effort: what nobody commits is dropped anyway, later."""
    first = staged[0]
    arguments = {"app": first.app, "version": first.version, "stages": [one.stage for one in staged]}
    try:
        client.call("transaction.abort", "", arguments, patient=False)
    except SourceError as error:
        print(f"vibemq: stages are left to expire: {error}", file=sys.stderr)  # noqa: T201


def _record_batches(iterator: Iterator[Any], schema: StructType) -> Iterator["pa.RecordBatch"]:
    """Spark 4.0 hands rows to streaming writers; gather them."""
    import pyarrow as pa

    fields: Any = None
    rows: list[dict[str, Any]] = []
    for item in iterator:
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        fields = fields or arrow_schema(schema)
        rows.append(item.asDict())
        if len(rows) >= ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema=fields)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=fields)
