"""Streaming reads. Spark keeps the plan, the broker the cursor.

    latestOffset(start, limit) → end     start is in the checkpoint: acknowledge it; then how far does the next batch
                                         go? As far as it did when it began there before, or as far as it may now
    commit(end)                          one batch later; acknowledges too
    partitions(start, end), read         any number of times, also after a crash

All but `read` run in one process that lives as long as the query; `read` runs in tasks, on another copy of the reader.
Spark calls `commit(end)` only when it plans the *next* batch, so that the last batch of a query that idles or ends
would never be acknowledged: hence the acknowledgement of `start`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused, SourceError, Unreachable, deleted_queues, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.admission import Admission, AdmissionLimits
from vibemq.spark.read.cursors import QueryCursor, QueryCursors
from vibemq.spark.read.empty import EmptyBatches
from vibemq.spark.read.fetching import notice, read_task
from vibemq.spark.read.numbering import enter_batch, entry_of
from vibemq.spark.read.offsets import OffsetRange, Positions, QueuePosition, check_queues, dump, load, spans
from vibemq.spark.read.planning import SplitsAhead, partitions, queues_of, task_without_rows
from vibemq.spark.read.plans import QueryPlans, tag_of
from vibemq.spark.read.reporting import report
from vibemq.spark.support import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

DISCOVERY_S = 5.0
"""How often a pattern is looked up."""
POLLS_ANEW_MAX = 5
"""How often one poll begins anew because queues were deleted while it asked."""
_Found = TypeVar("_Found")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Opens nothing before Spark asks for an offset: an instance is made in the planner too, and in every task."""

    def __init__(self, settings: SourceOptions, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._live: _Live | None = None

    @property
    def _query(self) -> "_Live":
        if self._live is None:
            self._live = _Live(self._settings)
        return self._live

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The cursors. Asked again after a crash in the first batch, and the same then: they move with acks only.

        Raises:
            Refused: they have been moved, so that there was a checkpoint, and `newCheckpoint` does not name its loss.
        """
        return dump(self._query.begin())

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Spark knows no limit of both kinds; `latestOffset` applies the other."""
        if self._settings.max_messages_per_trigger:
            return ReadMaxRows(self._settings.max_messages_per_trigger)
        if self._settings.max_bytes_per_trigger:
            return ReadMaxBytes(self._settings.max_bytes_per_trigger)
        if self._settings.min_messages_per_trigger > 1:
            return ReadMinRows(self._settings.min_messages_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._query.stop_at_tails()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        return dump(self._query.advance(load(start), AdmissionLimits.of(limit, self._settings)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._query.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._query.partitions(load(start), load(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        task = partition.value
        return read_task(task, self._settings, self._schema, entry=entry_of(task, self._settings))

    def commit(self, end: dict[str, Any]) -> None:
        """Never raises: that would end the query. The next `latestOffset` acknowledges the same, or says why not."""
        try:
            self._query.commit(load(end))
        except Exception as error:
            notice(f"an acknowledgement waits for the next batch: {error}")

    def stop(self) -> None:
        if self._live is not None:
            self._live.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}


class _Live:
    """What the long-lived process knows beside the options."""

    def __init__(self, settings: SourceOptions) -> None:
        self._settings = settings
        self._client = BrokerClient(settings)
        self._cursors = QueryCursors(self._client, settings)
        self._plans = QueryPlans(self._client, self._cursors, settings)
        self._empty = EmptyBatches(self._plans, settings.group)
        self._admission = Admission(self._client, self._plans, settings)
        self._splits = SplitsAhead(self._client, settings)
        self._checked = False
        """Whether the checkpoint's position is one that the group knows."""
        self._first: Positions | None = None
        """Where batch 0 begins, until the first batch is planned or repeated."""
        self._first_is_past = False
        self._acknowledged: Positions | None = None
        """By the last `advance`, which Spark follows with a `commit` of the same."""
        self._targets: dict[str, QueuePosition] | None = None
        self._queues: tuple[str, ...] = ()
        self._looked_at: float | None = None

    def queues(self, known: Positions) -> tuple[str, ...]:
        """Raises OptionError when the checkpoint knows others."""
        now = time.monotonic()
        if self._looked_at is None or (self._settings.queue_pattern and now - self._looked_at > DISCOVERY_S):
            self._queues = queues_of(self._client, self._settings)
            self._looked_at = now
        pattern = self._settings.queue_pattern
        # A queue of the pattern that is gone stays in the offset.
        check_queues(known, (queue for queue in known if fnmatchcase(queue, pattern)) if pattern else self._queues)
        return self._queues

    def _despite_deletions(self, known: Positions, poll: Callable[[], _Found]) -> _Found:
        """What the poll finds. When a queue is deleted while it asks, it begins anew with those that are there.

        Raises:
            DataLoss: the queue is one of `known`, matched the pattern, and `failOnDataLoss` is true.
        """
        for _ in range(POLLS_ANEW_MAX):
            try:
                return poll()
            except SourceError as error:
                if not error.says_queue_is_gone:
                    raise
                self._look_again(known, error)
        return poll()

    def _look_again(self, known: Positions, error: SourceError) -> None:
        """Raise, or forget the queues that are gone."""
        settings = self._settings
        self._looked_at = None
        if settings.queue_pattern and error.code == "QUEUE_NOT_FOUND":
            there = queues_of(self._client, settings)
            gone = sorted(queue for queue in known if queue not in there)
            if gone and settings.fail_on_data_loss:
                raise deleted_queues(gone) from None
        elif settings.fail_on_data_loss or error.code == "QUEUE_NOT_FOUND":
            raise error
        self._cursors.leave_those_gone()

    def begin(self) -> Positions:
        return self._despite_deletions({}, self._begin)

    def _begin(self) -> Positions:
        start = self.entered({})
        if not self._first_is_past:
            self._first = start
        return start

    def repeats_nothing(self) -> None:
        """The next batch is planned here: it is not one of the checkpoint. Spark asks for the start of batch 0 again
        when it has planned it."""
        self._first = None
        self._first_is_past = True

    def entered(self, known: Positions) -> Positions:
        """`known` with every queue that is not in it yet, or was made anew, at its cursor."""
        found = dict(known)
        waiting = self._waits_to_enter(known)
        self._cursors.decide(queue for queue in waiting if queue not in known)
        for queue in self._cursors.in_order(waiting):
            cursor = self._joined(queue, known)
            if cursor is not None and cursor.position != known.get(queue):
                self._check_same(queue, known)
                found[queue] = cursor.position
        return found

    def _waits_to_enter(self, known: Positions) -> list[str]:
        """Queues that are not in the offset, or were made anew since."""
        waiting = []
        for queue in self.queues(known):
            if queue not in known:
                if self._targets is None or queue in self._targets:
                    waiting.append(queue)
            elif (cursor := self._cursors.get(queue)) is not None and cursor.incarnation != known[queue].incarnation:
                waiting.append(queue)
        return sorted(waiting)

    def _joined(self, queue: str, known: Positions) -> QueryCursor | None:
        """None when the queue is gone, and that is no reason to fail."""
        try:
            return self._cursors.of(queue, known.get(queue))
        except Refused as error:
            self._missing(queue, known, error)
            return None

    def advance(self, start: Positions, limits: AdmissionLimits) -> Positions:
        """Where the batch ends that begins there; what is before it is acknowledged."""
        return self._despite_deletions(start, lambda: self._advance(start, limits))

    def _advance(self, start: Positions, limits: AdmissionLimits) -> Positions:
        self.repeats_nothing()
        self._cursors.has_begun = True
        self.queues(start)
        for queue in sorted(start):
            self._joined(queue, start)
        if not self._checked:
            # Before anything is acknowledged: a copy of the checkpoint may have run ahead.
            self._plans.check(start)
            self._checked = True
            if self._settings.ack_on != "auto":
                self._cursors.go_on_where_they_stand(start)
        self._plans.check_read(start)
        with self._acknowledging(start):
            found = None if self._empty.arrive(start) else self._end(start, limits)
        end = start if found is None else self._plans.settle(start, found)
        self._empty.answer(end)
        if end != start:
            # Spark writes a file before it asks for the tasks.
            self._splits.ask(start, end)
        return end

    @contextmanager
    def _acknowledging(self, start: Positions) -> Iterator[None]:
        """What the caller asks meanwhile is on its way while the broker makes the acknowledgement durable."""
        if self._settings.ack_on != "auto":
            self._cursors.check_owned()
            yield
            return
        asked = self._cursors.ask_to_acknowledge(start, tag_of(start))
        try:
            yield
        except Unreachable:
            raise  # There was time enough for an answer.
        except BaseException:
            # That the group is another query's now explains what the rest has met.
            self._cursors.acknowledged(asked)
            raise
        self._cursors.acknowledged(asked)
        self._acknowledged = start

    def _end(self, start: Positions, limits: AdmissionLimits) -> Positions:
        if self._waits_to_enter(start):
            # Which queues entered in this batch is part of how it was cut.
            entered = self._plans.find(start) or self.entered(start)
            if entered != start:
                return entered
        end = self._admission.next(start, limits, self._targets)
        return end if end == start else self._without_those_gone(start, end)

    def _without_those_gone(self, start: Positions, end: Positions) -> Positions:
        """Deleted queues of a pattern leave the offset with the next batch that has rows: else it would only grow."""
        if not self._settings.queue_pattern or self._settings.fail_on_data_loss:
            return end
        return {queue: at for queue, at in end.items() if queue not in start or self._cursors.get(queue) is not None}

    def commit(self, end: Positions) -> None:
        self._empty.committed(end)
        if self._settings.ack_on != "never" and self._checked and end != self._acknowledged:
            for queue, position in end.items():
                self._cursors.of(queue, position)
            self._cursors.acknowledge(end, tag_of(end))

    def stop_at_tails(self) -> None:
        self._targets = self.tails()

    def tails(self) -> Positions:
        asked = [(queue, self._client.ask_verb("group.offsets", queue, {})) for queue in self.queues({})]
        found = {}
        for queue, ticket in asked:
            try:
                now = self._client.json(ticket)
            except Refused as error:
                if error.code != "QUEUE_NOT_FOUND" or not self._settings.queue_pattern:
                    raise explained(error, queue, self._settings.group) from None
                continue
            found[queue] = QueuePosition(str(now["incarnation"]), int(now["tail"]))
        return found

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        """Also joins, so that whoever had the group before is fenced before this query's tasks begin."""
        found = self._despite_deletions(start, lambda: self._partitions(start, end))
        self.repeats_nothing()
        return found

    def _partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        self.queues(end)
        begins = start
        if start == self._first:
            # The checkpoint has the end of batch 0 alone; its start must be what it was. Queues that are not in the end
            # have entered the pattern later.
            self._plans.check_first(start, end)
            begins = {queue: start[queue] for queue in end if queue in start}
        for queue in sorted(begins):
            # One of them keeps the plan, and it need not be one that has rows.
            self._joined(queue, begins)
        wanted: list[OffsetRange] = spans(start, end, self._settings.group)
        for span in wanted:
            try:
                self._cursors.of(span.queue, QueuePosition(span.incarnation, span.first))
            except Refused as error:
                self._missing(span.queue, start, error)
        self._cursors.warn_of_standstill(wanted)
        if begins == end:
            # Spark asks for the tasks of a batch without rows in batch 0 only. One task tells the broker whose it is.
            self._empty.first(begins)
            return task_without_rows(self._plans.without_rows(begins), self._settings.group)
        planned = self._plans.planned(begins, end)
        if planned is not None and not wanted:
            # Queues have entered: nobody reads anything.
            enter_batch(self._client, self._settings.group, planned, "", 0)
        return partitions(self._client, self._settings, self._splits.of(start, end, wanted), planned)

    def report(self) -> dict[str, Any] | None:
        try:
            return report(self._client, self._settings.group, self._queues)
        except (SourceError, KeyError, ValueError):
            return None  # A report is not worth a query.

    def close(self) -> None:
        self._client.close()

    def _missing(self, queue: str, known: Positions, error: Refused) -> None:
        """A queue of the checkpoint or the pattern is gone: raise, or go on without it. Without one that belongs to a
        connection the query goes on as well: no cursor can read it."""
        if error.code == "QUEUE_EXCLUSIVE" and self._settings.queue_pattern and queue not in known:
            # It is asked for again at the next discovery, and not by each batch until then.
            self._queues = tuple(name for name in self._queues if name != queue)
            return
        if error.code != "QUEUE_NOT_FOUND" or not self._settings.queue_pattern:
            raise error
        if queue in known and self._settings.fail_on_data_loss:
            raise deleted_queues([queue]) from None

    def _check_same(self, queue: str, known: Positions) -> None:
        if queue in known and self._settings.fail_on_data_loss:
            raise explained(Refused("WRONG_INCARNATION", "its incarnation has changed"), queue, self._settings.group)
