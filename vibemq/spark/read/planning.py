"""Which queues, which ranges, how many tasks."""

import fnmatch
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from vibemq.spark.connection.client import BrokerClient, Ticket
from vibemq.spark.errors import Refused, deleted_queues, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.fetching import PlannedBatch, Task
from vibemq.spark.read.offsets import OffsetRange, Positions, spans

LETTERS_PER_TASK = 20_000
PARTS_MAX = 4_096
"""Into so many the broker divides a range at most."""
OWN_QUEUE_PREFIX = "~"
"""Begins the names of queues that are the broker's own, and nobody's to read."""
AskedSplit = tuple[OffsetRange, Ticket]


def queues_of(client: BrokerClient, settings: SourceOptions) -> tuple[str, ...]:
    """The queues the options name; of a pattern those that exist now, without the broker's own."""
    if settings.queue:
        return (settings.queue,)
    if settings.queues:
        return settings.queues
    pattern = settings.queue_pattern
    prefix = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    names = client.list_queues(prefix)
    return tuple(name for name in names if fnmatch.fnmatchcase(name, pattern) and not name.startswith(OWN_QUEUE_PREFIX))


def is_gone_from_pattern(error: Refused, settings: SourceOptions) -> bool:
    """Whether the queue has gone since the pattern was looked up."""
    return bool(settings.queue_pattern) and error.code == "QUEUE_NOT_FOUND"


def ask_splits(client: BrokerClient, settings: SourceOptions, spans: Sequence[OffsetRange]) -> list[AskedSplit]:
    """All queues at once; what `partitions` takes."""
    share = max(1, len(spans))
    arguments = {
        "target_bytes": settings.target_partition_bytes,
        "min": min(-(-settings.min_partitions // share), PARTS_MAX),
        "max": min(max(1, settings.max_partitions // share), PARTS_MAX),
    }
    asked = []
    for span in spans:
        about = {**arguments, "from": span.first, "to": span.end, "incarnation": span.incarnation}
        asked.append((span, client.ask_verb("group.split", span.queue, about)))
    return asked


class SplitsAhead:
    """How a batch that was just planned is cut into tasks: asked before Spark wants to know."""

    def __init__(self, client: BrokerClient, settings: SourceOptions) -> None:
        self._client = client
        self._settings = settings
        self._range: tuple[Positions, Positions] | None = None
        self._asked: list[AskedSplit] = []

    def ask(self, start: Positions, end: Positions) -> None:
        self._forget()
        self._asked = ask_splits(self._client, self._settings, spans(start, end, self._settings.group))
        self._range = start, end

    def of(self, start: Positions, end: Positions, wanted: Sequence[OffsetRange]) -> list[AskedSplit]:
        """`wanted`: the spans of the batch. Each answer serves once."""
        if self._range != (start, end):
            self._forget()
            return ask_splits(self._client, self._settings, wanted)
        asked, self._asked, self._range = self._asked, [], None
        return asked

    def _forget(self) -> None:
        """What was asked for a batch that Spark did not make, or in vain."""
        for _, ticket in self._asked:
            self._client.forget(ticket)
        self._asked, self._range = [], None


def partitions(
    client: BrokerClient,
    settings: SourceOptions,
    asked: Sequence[AskedSplit],
    batch: PlannedBatch | None = None,
) -> list[InputPartition]:
    """Tasks balanced by bytes: one big message does not make a straggler."""
    found: list[InputPartition] = []
    for span, ticket in asked:
        try:
            cuts = client.json(ticket)["cuts"]
        except Refused as error:
            if settings.fail_on_data_loss and is_gone_from_pattern(error, settings):
                raise deleted_queues([span.queue]) from None
            if settings.fail_on_data_loss or not error.says_queue_is_gone:
                raise explained(error, span.queue, span.group) from None
            # Whoever reads it finds the same, and says so.
            cuts = [span.first, span.end]
        for first, end in pairwise(cuts):
            found.append(_partition(span.queue, span.incarnation, first, end, group=span.group))
    if batch is not None:
        for partition in found:
            partition.value["batch"] = batch
    return found


def task_without_rows(batch: PlannedBatch | None, group: str) -> list[InputPartition]:
    """Enters the batch, and reads nothing."""
    if batch is None:
        return []
    partition = _partition(batch["keeper"], batch["incarnation"], 0, 0, group=group)
    partition.value["batch"] = batch
    return [partition]


def dead_partitions(client: BrokerClient, settings: SourceOptions, queue: str) -> list[InputPartition]:
    """All dead letters of a queue, in tasks of equal ranges of ids."""
    try:
        range_now = client.call("dead.offsets", queue, {})
    except Refused as error:
        if is_gone_from_pattern(error, settings):
            return []
        raise explained(error, queue) from None
    head, tail, count = int(range_now["head"]), int(range_now["tail"]), int(range_now["count"])
    if head >= tail:
        return []
    parts = min(max(settings.min_partitions, -(-count // LETTERS_PER_TASK), 1), settings.max_partitions, tail - head)
    cuts = [head + (tail - head) * part // parts for part in range(parts + 1)]
    return [_partition(queue, "", first, end, dead=True) for first, end in pairwise(cuts)]


def _partition(
    queue: str, incarnation: str, first: int, end: int, *, group: str = "", dead: bool = False
) -> InputPartition:
    task = Task(queue=queue, incarnation=incarnation, first=int(first), end=int(end), group=group, dead=dead)
    value: Any = task
    return InputPartition(value)
