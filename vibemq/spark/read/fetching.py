"""One task's reading: a range of sequences of one queue, fetched piece by piece, the next piece asked for ahead."""

import sys
from collections.abc import Callable, Iterator
from typing import Any, NotRequired, TypedDict

from pyspark.sql.types import StructType

from vibemq.spark.collector import relieve
from vibemq.spark.connection.client import BrokerClient, Ticket
from vibemq.spark.connection.pool import leased
from vibemq.spark.errors import GO_ON, DataLoss, Refused, SourceError, deleted_queues, explained, quarantine_command
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.columns import Block, arrow_schema, record_batch, wire_columns

LOSSES = ("WRONG_INCARNATION", "OFFSET_GONE", "QUEUE_NOT_FOUND")
RUNS_SHOWN = 5


class PlannedBatch(TypedDict):
    """The plan of the batch that the task belongs to, and the queue that keeps it."""

    keeper: str
    incarnation: str
    epoch: int
    tag: str
    end: str
    """Tag of the position where it ends."""
    remade: NotRequired[bool]
    """How it was cut was forgotten, and is known from the checkpoint alone: its number is not compared."""


class Task(TypedDict):
    """What an `InputPartition` carries. Plain, because it is pickled in one process and read in another."""

    queue: str
    incarnation: str
    first: int
    end: int
    group: str
    """Empty: no group's view."""
    dead: bool
    """Ids of dead letters instead of sequences."""
    batch: NotRequired[PlannedBatch]
    """Of a stream."""


Entry = Callable[[BrokerClient], Callable[[], None]]
"""Asks whether a task may read, with the client that it reads with; what it returns waits for the answer, or raises."""


def read_task(
    task: Task | None, settings: SourceOptions, schema: StructType, entry: Entry | None = None
) -> Iterator[Any]:
    """RecordBatches of exactly `schema`. None, which Spark makes of no partitions at all, reads nothing.

    Args:
        entry: no row is yielded before it is answered; rows may be on their way.

    Raises:
        DataLoss: something in the range is gone, and `failOnDataLoss` is true.
        SourceError: see `client`.
    """
    if task is None:
        return
    fields = arrow_schema(schema)
    with leased(settings) as client:
        entered = entry(client) if entry is not None else None
        if entered is not None and task["first"] == task["end"]:
            entered()
            return
        for block in _blocks(client, task, settings, wire_columns(schema.names), entered):
            if block.count:
                yield record_batch(block, task["queue"], fields, dead=task["dead"])
    relieve()


def _blocks(
    client: BrokerClient,
    task: Task,
    settings: SourceOptions,
    columns: list[str],
    entered: Callable[[], None] | None = None,
) -> Iterator[Block]:
    ask = _asker(client, task, settings, columns)
    at = task["first"]
    ticket: Ticket | None = ask(at)
    if entered is not None:
        entered()
    while ticket is not None:
        try:
            block = Block(client.answer(ticket))
        except Refused as error:
            on = _behind_the_loss(client, task, settings, at, error)
            ticket, at = (ask(on), on) if on < task["end"] else (None, on)
            continue
        if block.next <= at:
            raise SourceError(f"the broker answered a fetch at {at} of queue {task['queue']!r} with {block.next}")
        at = block.next
        ticket = ask(at) if at < task["end"] else None
        check_losses(task["queue"], [(first, last) for first, last, why in block.gaps if why == "lost"], settings)
        _tell_of_damage(task["queue"], block.gaps)
        yield block


def _tell_of_damage(queue: str, gaps: list[Any]) -> None:
    """Dead letters that the broker cannot read are stepped over; they are named in the log."""
    damaged = [first for first, _, why in gaps if why == "damaged"]
    if damaged:
        shown = ", ".join(map(str, damaged[:RUNS_SHOWN])) + (", …" if len(damaged) > RUNS_SHOWN else "")
        notice(f"queue {queue!r}: {len(damaged):,} dead letters cannot be read and are left out (ids {shown})")


def _asker(client: BrokerClient, task: Task, settings: SourceOptions, columns: list[str]) -> Callable[[int], Ticket]:
    arguments: dict[str, Any] = {"to": task["end"], "max_bytes": settings.fetch_bytes}
    arguments |= {"columns": columns, "compact": True}
    if task["group"]:
        arguments["group"] = task["group"]
    if task["incarnation"]:
        arguments["incarnation"] = task["incarnation"]
    verb = "dead.fetch" if task["dead"] else "group.fetch"
    return lambda at: client.ask_verb(verb, task["queue"], {**arguments, "from": at})


def _behind_the_loss(client: BrokerClient, task: Task, settings: SourceOptions, at: int, error: Refused) -> int:
    """Where to go on, or raise: the first sequence that is still there, or the end of the task."""
    if error.code == "MESSAGE_TOO_LARGE":
        # So the broker refuses a fetch whose first message alone is too large.
        raise _too_large(task, at, error) from None
    if settings.fail_on_data_loss or task["dead"] or error.code not in LOSSES:
        if error.code == "QUEUE_NOT_FOUND" and settings.queue_pattern:
            raise deleted_queues([task["queue"]]) from None
        if error.code == "OFFSET_GONE" and "batch" not in task:
            raise _acknowledged_meanwhile(task, error) from None
        raise explained(error, task["queue"], task["group"]) from None
    on = task["end"]
    if error.code == "OFFSET_GONE":
        arguments = {"group": task["group"]} if task["group"] else {}
        on = max(int(client.call("group.offsets", task["queue"], arguments)["head"]), at + 1)
    notice(f"queue {task['queue']!r}: messages {at} to {min(on, task['end']) - 1} are gone ({error.code})")
    return on


def _acknowledged_meanwhile(task: Task, error: Refused) -> DataLoss:
    """Of a batch read, which has no checkpoint."""
    return DataLoss(
        f"the query of group {task['group']!r} has acknowledged messages of queue {task['queue']!r} since this read was"
        " planned. Read again; or read without the option group; or set failOnDataLoss=false to leave them out"
        f" [{error.code}: {error.sentence}]",
        error.code,
    )


def _too_large(task: Task, at: int, error: Refused) -> Refused:
    queue, group = task["queue"], task["group"]
    which = f"dead letter {at}" if task["dead"] else f"message {at}"
    aside = f", or move it to the dead letters with `{quarantine_command(queue, group, at, at)}`" if group else ""
    return Refused(
        error.code,
        error.sentence,
        f"{which} of queue {queue!r}, or the next one that is there, is larger than an answer of the broker: raise its"
        f" limits.body_bytes_max, read without the column body{aside}",
    )


def check_losses(queue: str, runs: list[tuple[int, int]], settings: SourceOptions) -> None:
    """Raise DataLoss or say so in the log, if anything is lost."""
    if not runs:
        return
    count = sum(last - first + 1 for first, last in runs)
    shown = ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in runs[:RUNS_SHOWN])
    more = ", …" if len(runs) > RUNS_SHOWN else ""
    what = f"queue {queue!r}: {count:,} messages are gone before they were read (sequences {shown}{more}):"
    what += " they expired, were removed or purged, or were dropped by a limit"
    if settings.fail_on_data_loss:
        raise DataLoss(f"{what}. {GO_ON}")
    notice(what)


def notice(sentence: str) -> None:
    """Into the log of the driver or the executor, which is where Spark sends a worker's stderr."""
    print(f"vibemq: {sentence}", file=sys.stderr, flush=True)  # noqa: T201
