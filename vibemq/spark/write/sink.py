"""Writers. `write` runs in tasks, `commit` and `abort` elsewhere on another copy, which knows only the messages.

Exactly once: every attempt of every task writes a stage of its own (a UUID: attempt ids start anew with the driver),
the driver's commit publishes the stages of the attempts that count. The transaction's name (`identity`) is known in
tasks only, so it travels in the messages: a replayed batch is recognised whatever its tasks are. A write that is
`atomic` has a new name every time.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from vibemq.spark.collector import relieve
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.connection.pool import leased
from vibemq.spark.errors import GO_ON, DataLoss, Refused, SourceError, Unreachable, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.fetching import notice
from vibemq.spark.support import DataSourceStreamArrowWriter
from vibemq.spark.write.actions import Actions, Redriving, Rejecting
from vibemq.spark.write.bulk import pieces
from vibemq.spark.write.identity import (
    NAME_THEM,
    NO_IDENTITY,
    BatchWrite,
    Place,
    application,
    application_of,
    begin,
    claim,
    end,
)
from vibemq.spark.write.publishing import RowPublisher, Staging, Window, row_bytes_max
from vibemq.spark.write.rows import RowMaker

if TYPE_CHECKING:
    import pyarrow as pa

UNCERTAIN = (
    "The commit was not answered, and this atomic write may have been published: look for its rows before it is written"
    " again. A write with exactlyOnce, txnAppId and txnVersion can be repeated without a look"
)


@dataclass(frozen=True)
class SinkTransaction:
    app: str
    version: int
    stage: str
    run: str = ""
    """The attempt at the batch: in one, a write is committed once."""
    place: Place | None = None
    """Of a write whose number was found in the register of its query and queue."""
    given: bool = False
    """By the program: nothing but the program sees to it that one write of a run has this name."""
    former: str = ""
    """The application as it was called when it did not name the queue."""


@dataclass
class Written(WriterCommitMessage):
    """One task's outcome."""

    rows: int
    transaction: SinkTransaction | None = None
    late: dict[str, int] = field(default_factory=dict)
    """By queue, rows that were not rejected because they are below the group's position."""


class _Sink:
    """What both writers have in common."""

    counts_writes = False
    """Whether a batch of a stream may be written several times: in `foreachBatch`."""

    def __init__(self, settings: SourceOptions, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._once = f"batch-{uuid4().hex}"
        """The application of a write that is atomic: made in the driver, the same for all tasks."""

    def write(self, iterator: Iterator[Any]) -> Written:
        written = self._write(map(_in_lower_case, iterator))
        relieve()
        return written

    def _write(self, batches: Iterable["pa.RecordBatch"]) -> Written:
        with leased(self._settings) as client:
            if self._settings.action == "reject":
                return _act(Rejecting(client, self._settings), batches)
            if self._settings.action == "redrive":
                return _act(Redriving(client, self._settings), batches)
            if not (self._settings.exactly_once or self._settings.atomic):
                return Written(self._publish(RowPublisher(client, self._settings), batches))
            return self._stage(client, batches)

    def _stage(self, client: BrokerClient, batches: Iterable["pa.RecordBatch"]) -> Written:
        name = self._transaction(client)
        staging = Staging(client, self._settings, app=name.app, version=name.version, stage=name.stage)
        try:
            return Written(self._publish(staging, batches), name)
        except Exception as error:
            _abort(client, [name])
            if self._is_left_out(name, error):
                raise SourceError(self._never_committed(name, str(error))) from None
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

    def _transaction(self, client: BrokerClient) -> SinkTransaction:
        """Raises SourceError when Spark does not tell which write this is."""
        settings, stage = self._settings, uuid4().hex
        if settings.atomic:
            return SinkTransaction(self._once, 0, stage)
        context = TaskContext.get()
        write = BatchWrite.of(context.getLocalProperty) if context else None
        if settings.txn_app_id:
            app, run = application(settings.txn_app_id, settings.queue), write.run if write else ""
            version = settings.txn_version or 0
            return SinkTransaction(app, version, stage, run, given=True, former=settings.txn_app_id)
        if write is None or (self.counts_writes and not write.run):
            raise SourceError(NO_IDENTITY)
        if not self.counts_writes:
            app = application(write.query, settings.queue)
            return SinkTransaction(app, write.batch, stage, write.run, former=write.query)
        place = begin(client, write, settings.queue)
        app = application_of(write.query, settings.queue, place.entry.number)
        return SinkTransaction(app, write.batch, stage, write.run, place)

    def _commit(self, messages: Sequence[Any]) -> None:
        relieve()
        self._check_late(messages)
        written = [message for message in messages if message is not None and message.transaction is not None]
        staged = [message.transaction.stage for message in written if message.rows]
        first = written[0].transaction if written else None
        if first is None or not (staged or first.place):
            return
        with leased(self._settings) as client:
            rows = sum(message.rows for message in written)
            self._decide(client, first, staged, f"{rows}-{columns_of(self._schema)}")
            if first.place is not None:
                end(client, first.place)

    def _check_late(self, messages: Sequence[Any]) -> None:
        """Raises DataLoss for rows that should be dead letters and are none. A batch that is read again and rejects the
        same has none of these: its group has not acknowledged it, or holds it, and then knows what it has rejected."""
        late: Counter[str] = Counter()
        for message in messages:
            if message is not None:
                late.update(message.late)
        if not late:
            return
        which = " and ".join(f"{rows:,} rows of queue {queue!r}" for queue, rows in sorted(late.items()))
        sentence = (
            f"{which} were not rejected, because they are below the position of group {self._settings.group!r}:"
            " acknowledged, skipped by a seek, or before its start. They are dead letters only if an earlier write has"
            " rejected them. Reject rows in the query that reads the group, within the batch that has them"
        )
        if self._settings.fail_on_data_loss:
            raise DataLoss(f"{sentence}. {GO_ON}")
        notice(sentence)

    def _decide(self, client: BrokerClient, name: SinkTransaction, stages: list[str], shape: str) -> None:
        """`shape`: what can be told of the rows without comparing them."""
        tag = f"{name.run}/{min(stages, default='')}/{shape}"
        arguments = {"app": name.app, "version": name.version, "stages": stages, "tag": tag}
        try:
            if name.former:
                self._check_former(client, name)
            answer = client.call("transaction.commit", "", arguments)
        except Refused as error:
            if self._is_left_out(name, error):
                raise SourceError(self._never_committed(name, str(error))) from None
            raise explained(error, self._settings.queue) from None
        except Unreachable as error:
            if self._settings.atomic:
                # Under its next name the broker would not know it again.
                raise Unreachable(f"{error}. {UNCERTAIN}") from None
            raise
        if not answer["duplicate"] or answer["tag"] == tag:
            return
        if name.place is not None and answer["version"] == name.version:
            self._check_same(name, name.place, str(answer["tag"]), shape)
        if name.given and name.run:
            by, _, _ = str(answer["tag"]).partition("/")
            register = application(f"{name.former}.replays", self._settings.queue)
            if by == name.run or not claim(client, register, name.version, name.run, min(stages)):
                raise SourceError(self._written_twice())
        notice(f"version {name.version} of {name.app} was published before: this is a replay, not published again")

    def _check_same(self, name: SinkTransaction, place: Place, tag: str, shape: str) -> None:
        """Raises SourceError for another write than the one that an earlier run has committed in its place."""
        before = tag.split("/")[2:]
        if before and before[0] != shape:
            rows, now = before[0].partition("-")[0], shape.partition("-")[0]
            raise SourceError(
                f"write {place.entry.number} of batch {name.version} to queue {self._settings.queue!r} is not the one"
                f" that an earlier run of the batch has committed: that one had {rows} rows, this one has {now}, or"
                " other columns. The writes of the function, or what they select, were changed between two runs of one"
                f" batch, so that it is not certain which of them are done. Let the earlier program finish this batch."
                f" {NAME_THEM}: names do not depend on the order. Nothing of this write was published"
            )

    def _is_left_out(self, name: SinkTransaction, error: Exception) -> bool:
        """Whether the broker has a later batch of the query and not this one."""
        return isinstance(error, Refused) and error.code == "VERSION_SKIPPED" and not name.given

    def _never_committed(self, name: SinkTransaction, error: str) -> str:
        return (
            f"batch {name.version} of this query had no rows for queue {self._settings.queue!r} when it was run before,"
            " and now it has some; a later batch is committed. The checkpoint was rolled back to where the same batches"
            " could not be cut again, or what the query computes was changed. Nothing of this write was published. Use"
            " the newest checkpoint, or begin with a new one (docs/howto/spark/run.md#without-a-checkpoint)"
            f" [{error}]"
        )

    def _check_former(self, client: BrokerClient, name: SinkTransaction) -> None:
        """Raises SourceError for a write that an earlier version of the sink may have committed."""
        last = client.call("transaction.last", "", {"app": name.former})["version"]
        if last is not None and last >= name.version:
            raise SourceError(
                f"an earlier version of this sink, which did not name the queue, has committed version {last} of"
                f" {name.former!r}: it is not certain whether queue {self._settings.queue!r} has the rows of version"
                f" {name.version}. Nothing of this write was published. If the queue has them, let the earlier version"
                " finish this batch, and upgrade behind it. If not, as after a change of the queue or in a copy of the"
                f" checkpoint, have the broker's operator reset application {name.former!r} with transaction.forget"
            )

    def _written_twice(self) -> str:
        settings = self._settings
        return (
            f"another write of this batch to queue {settings.queue!r} has had txnAppId {settings.txn_app_id!r} and"
            f" txnVersion {settings.txn_version} or a later one: this one would be taken for a replay of it. Give each"
            " write of a batch to the same queue a txnAppId of its own. Nothing of this write was published"
        )

    def _abort(self, messages: Sequence[Any]) -> None:
        staged = [message.transaction for message in messages if message is not None and message.transaction]
        if staged:
            with leased(self._settings) as client:
                _abort(client, staged)


class BatchWriter(_Sink, DataSourceArrowWriter):
    counts_writes = True

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abort(messages)


def columns_of(schema: StructType) -> str:
    """Short for the names and types of the columns."""
    return sha256(schema.simpleString().encode()).hexdigest()[:8]


def _act(actions: Actions, batches: Iterable["pa.RecordBatch"]) -> Written:
    for batch in batches:
        actions.add(batch)
    actions.finish()
    return Written(actions.done + actions.already, late=dict(actions.late))


def _abort(client: BrokerClient, staged: Sequence[SinkTransaction]) -> None:
    """Best effort: what nobody commits is dropped anyway, later."""
    first = staged[0]
    arguments = {"app": first.app, "version": first.version, "stages": [one.stage for one in staged]}
    try:
        client.call("transaction.abort", "", arguments, patient=False)
    except SourceError as error:
        print(f"vibemq: stages are left to expire: {error}", file=sys.stderr)  # noqa: T201


def _in_lower_case(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    return batch.rename_columns([name.lower() for name in batch.schema.names])
