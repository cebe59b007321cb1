"""The lag of a query, from its progress report."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vibemq.spark.connection.client import BrokerClient, Ticket
from vibemq.spark.errors import Refused
from vibemq.spark.read.cursors import JOINS_SUSPICIOUS
from vibemq.spark.read.offsets import QueuePosition, dump


@dataclass(frozen=True)
class Lag:
    """What a query has not acknowledged yet: the batch it works on, and all that waits behind it."""

    messages: int
    bytes: int
    """Estimated by the broker."""
    age_ms: int
    """Of the oldest of them."""
    queues: Mapping[str, "Lag"] = field(default_factory=dict)


def report(client: BrokerClient, group: str, queues: Sequence[str]) -> dict[str, Any]:
    """An offset with the tails and more keys, of the queues in which the group is. Asks once, of all queues at the same
    time, and does not wait for a broker that is away. Raises SourceError, KeyError, ValueError."""
    tails, details = {}, {}
    for queue, now in _positions(client, group, queues):
        tails[queue] = QueuePosition(str(now["incarnation"]), int(now["tail"]))
        oldest = int(now["oldest_at"])
        details[queue] = {
            "backlog": int(now["backlog_messages"]),
            "bytes": int(now["backlog_bytes"]),
            "age_ms": max(0, int(time.time() * 1000) - oldest) if oldest else 0,
        }
        if int(now["expired_messages"]):
            details[queue]["expired"] = int(now["expired_messages"])
        if int(now["joins"]) >= JOINS_SUSPICIOUS:
            details[queue]["joins"] = int(now["joins"])
    return dump(tails, details)


def _positions(client: BrokerClient, group: str, queues: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    asked: list[tuple[str, Ticket]] = []
    about = {"group": group}
    try:
        asked.extend((queue, client.ask_verb("group.offsets", queue, about, patient=False)) for queue in queues)
        for queue, ticket in asked:
            try:
                yield queue, client.json(ticket, patient=False)
            except Refused:
                continue  # It is gone, or has not entered the query: there is nothing to report of it.
    finally:
        for _, ticket in asked:
            client.forget(ticket)


def lag(progress: Any) -> Lag | None:
    """The lag of a `query.lastProgress`; None when it has no source of ours, or none has reported yet."""
    queues: dict[str, Lag] = {}
    for source in (progress or {}).get("sources", ()):
        for queue, entry in _entries(source).items():
            one = Lag(int(entry["backlog"]), int(entry["bytes"]), int(entry["age_ms"]))
            # A queue is read by two groups in a join with itself.
            queues[queue] = _together([queues[queue], one]) if queue in queues else one
    return replace(_together(list(queues.values())), queues=queues) if queues else None


def _together(lags: Sequence[Lag]) -> Lag:
    return Lag(sum(one.messages for one in lags), sum(one.bytes for one in lags), max(one.age_ms for one in lags))


def _entries(source: Mapping[str, Any]) -> dict[str, Any]:
    """The queues of one source's report; none for a source of another kind."""
    offset = source.get("latestOffset")
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    entries = offset.get("q") if isinstance(offset, dict) else None
    if not isinstance(entries, dict):
        return {}
    return {queue: entry for queue, entry in entries.items() if isinstance(entry, dict) and "backlog" in entry}
