"""Which batch of which query a task reads: the broker compares it with the batches that it knows.

Spark tells its tasks, and not the process that plans. When a checkpoint was rolled back to where batches had no rows,
or its numbers begin again, or it is not the one that planned, only the tasks can find it out, and they do before they
read. A batch without tasks adds nothing under its number.
"""

from collections.abc import Callable

from pyspark import TaskContext

from vibemq.spark.connection.client import BrokerClient, Ticket
from vibemq.spark.errors import Refused, SourceError, deleted_queues, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.fetching import Entry, PlannedBatch, Task, notice

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def entry_of(task: Task | None, settings: SourceOptions) -> Entry | None:
    """How a task enters its batch, with what Spark tells; None when it has none."""
    planned = None if task is None else task.get("batch")
    if planned is None:
        return None
    context = TaskContext.get()
    told = (context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)) if context else (None, None)
    query, batch = told if all(told) else ("", "0")

    def entry(client: BrokerClient) -> Callable[[], None]:
        ticket = _ask_to_enter(client, settings.group, planned, query or "", int(batch or 0))
        return lambda: _task_entered(client, ticket, planned, settings)

    return entry


def _task_entered(client: BrokerClient, ticket: Ticket, planned: PlannedBatch, settings: SourceOptions) -> None:
    try:
        _entered(client, ticket, settings.group, planned)
    except SourceError as error:
        if settings.fail_on_data_loss and settings.queue_pattern and error.code == "QUEUE_NOT_FOUND":
            raise deleted_queues([planned["keeper"]]) from None
        if settings.fail_on_data_loss or not error.says_queue_is_gone:
            raise
        notice(f"queue {planned['keeper']!r} is gone, and with it the plan of this batch; the others are read")


def enter_batch(client: BrokerClient, group: str, planned: PlannedBatch, query: str, batch: int) -> None:
    """Somebody reads the batch.

    Args:
        query: "" where Spark does not tell the batch (Spark Connect and threads, in `foreachBatch`): nothing is
            compared.

    Raises:
        Refused: the query has had other rows under this number, or these under another one.
    """
    _entered(client, _ask_to_enter(client, group, planned, query, batch), group, planned)


def _ask_to_enter(client: BrokerClient, group: str, planned: PlannedBatch, query: str, batch: int) -> Ticket:
    if planned.get("remade"):
        query, batch = "", 0
    arguments = {
        "group": group,
        "incarnation": planned["incarnation"],
        "epoch": planned["epoch"],
        "tag": planned["tag"],
        "end": planned["end"],
        "query": query,
        "batch": batch,
    }
    return client.ask_verb("group.enter", planned["keeper"], arguments)


def _entered(client: BrokerClient, ticket: Ticket, group: str, planned: PlannedBatch) -> None:
    try:
        client.json(ticket)
    except Refused as error:
        raise explained(error, planned["keeper"], group) from None
