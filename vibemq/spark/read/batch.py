"""Batch reads: a range of every queue, fixed when the DataFrame is planned. Nothing in the broker changes."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.connection.pool import leased
from vibemq.spark.errors import GO_ON, DataLoss, OptionError, Refused, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.fetching import notice, read_task
from vibemq.spark.read.offsets import OffsetRange
from vibemq.spark.read.planning import ask_splits, dead_partitions, is_gone_from_pattern, partitions, queues_of
from vibemq.spark.values import Start


class BatchReader(DataSourceReader):
    """Of queues, or of their dead letters. No pushFilters: Spark caches a pushed filter with the table and then
    answers later queries wrongly."""

    def __init__(self, settings: SourceOptions, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        settings = self._settings
        with leased(settings) as client:
            queues = queues_of(client, settings)
            if settings.dead_letters:
                return [task for queue in queues for task in dead_partitions(client, settings, queue)]
            _check_named(settings.starting_offsets, queues)
            _check_named(settings.ending_offsets, queues)
            spans = [span for queue in queues if (span := _span(client, settings, queue)) and span.first < span.end]
            return partitions(client, settings, ask_splits(client, settings, spans))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(partition.value, self._settings, self._schema)


def _span(client: BrokerClient, settings: SourceOptions, queue: str) -> OffsetRange | None:
    """None when the queue has gone since the pattern was looked up."""
    try:
        now = client.call("group.offsets", queue, {})
        head, tail = int(now["head"]), int(now["tail"])
        first, group = _first(client, settings, queue, head, tail)
        end = min(_end(client, settings, queue, tail), tail)
    except Refused as error:
        if is_gone_from_pattern(error, settings):
            return None
        raise explained(error, queue, settings.group) from None
    # What a group has no more of is told when it is read: below the head is also what it has given up, or let expire.
    if first < head and not group:
        what = f"queue {queue!r} keeps messages from {head} on; the read begins at {first}"
        if settings.fail_on_data_loss:
            raise DataLoss(f"{what}. {GO_ON}")
        notice(what)
        first = head
    return OffsetRange(queue, str(now["incarnation"]), first, end, group)


def _first(client: BrokerClient, settings: SourceOptions, queue: str, head: int, tail: int) -> tuple[int, str]:
    """(where to start, the group whose view it is)."""
    if settings.starting_timestamp is not None:
        return _sequence_at(client, queue, settings.starting_timestamp), ""
    start = settings.starting_offsets
    asked = start.word or start.of(queue)
    if isinstance(asked, int):
        return asked, ""
    if asked == "latest":
        return tail, ""
    if asked == "group" and settings.group:
        try:
            return int(client.call("group.offsets", queue, {"group": settings.group})["committed"]), settings.group
        except Refused as error:
            if error.code != "GROUP_NOT_FOUND":
                raise
    return head, ""


def _end(client: BrokerClient, settings: SourceOptions, queue: str, tail: int) -> int:
    if settings.ending_timestamp is not None:
        return _sequence_at(client, queue, settings.ending_timestamp)
    asked = settings.ending_offsets.of(queue)
    return asked if isinstance(asked, int) else tail


def _sequence_at(client: BrokerClient, queue: str, at_ms: int) -> int:
    return int(client.call("group.offsets", queue, {"at_ms": at_ms})["sequence_at"])


def _check_named(start: Start, queues: tuple[str, ...]) -> None:
    """JSON must name every queue that is read, and no other: a typing error would read everything."""
    named = {queue for queue, _ in start.positions}
    if named and named != set(queues):
        raise OptionError(
            f"the offsets name {', '.join(sorted(named))}, but what is read is {', '.join(queues) or 'nothing'}"
        )
