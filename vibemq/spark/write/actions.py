"""Writes that publish nothing: rows that Spark rejects, dead letters that go back."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vibemq.spark.connection import wire
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused, SourceError, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.write.publishing import row_bytes_max

if TYPE_CHECKING:
    import pyarrow as pa

ERROR_TEXT_MAX = 4000
PER_REQUEST = 1000


@dataclass
class _Request:
    """Rows for one queue that are asked for together."""

    items: list[Any] = field(default_factory=list)
    bytes: int = 0


class Actions:
    """Gathers rows by queue, and asks for up to 1,000 at a time, or as many as fit into a frame. Asking again changes
    nothing."""

    def __init__(self, client: BrokerClient, settings: SourceOptions) -> None:
        self._client = client
        self._settings = settings
        self._filling: dict[tuple[str, str], _Request] = {}
        self._request_bytes_max = row_bytes_max(settings)
        self.done = 0
        self.already = 0
        self.late: Counter[str] = Counter()
        """Of them, by queue: rows below the group's position, so that they cannot be rejected any more."""

    def add(self, batch: "pa.RecordBatch") -> None:
        raise NotImplementedError

    def ask(self, queue: str, to: str, items: list[Any]) -> tuple[int, int]:
        """(done, done before). Raises Refused."""
        raise NotImplementedError

    def finish(self) -> None:
        for key in list(self._filling):
            self._flush(key)

    def _put(self, queue: str | None, to: str | None, item: Any) -> None:
        key = (queue or self._settings.queue, to or self._settings.to)
        if not key[0]:
            raise SourceError("a row's column queue is null, and there is no option queue")
        size = wire.json_size(item)
        if key in self._filling and self._filling[key].bytes + size > self._request_bytes_max:
            self._flush(key)
        request = self._filling.setdefault(key, _Request())
        request.items.append(item)
        request.bytes += size
        if len(request.items) >= PER_REQUEST:
            self._flush(key)

    def _flush(self, key: tuple[str, str]) -> None:
        queue, to = key
        try:
            done, already = self.ask(queue, to, self._filling.pop(key).items)
        except Refused as error:
            named = to if to and repr(to) in error.sentence else queue
            raise explained(error, named, self._settings.group) from None
        self.done += done
        self.already += already


class Rejecting(Actions):
    """Copies go to the dead letters, once per group and sequence."""

    def add(self, batch: "pa.RecordBatch") -> None:
        for queue, sequence, reason in _tuples(batch, ("queue", "seq", "reason")):
            if sequence is None:
                raise SourceError("a row's column seq is null")
            self._put(queue, None, [sequence, (reason or "rejected by Spark")[:ERROR_TEXT_MAX]])

    def ask(self, queue: str, to: str, items: list[Any]) -> tuple[int, int]:
        answer = self._client.call("group.reject", queue, {"group": self._settings.group, "rejects": items})
        if late := int(answer.get("acknowledged", 0)):  # an older broker does not tell
            self.late[queue] += late
        return int(answer["rejected"]), int(answer["already"])


class Redriving(Actions):
    """Out of the dead letters and into a queue, in one step."""

    def add(self, batch: "pa.RecordBatch") -> None:
        for queue, dead_id, to in _tuples(batch, ("queue", "dead_id", "to")):
            if dead_id is None:
                raise SourceError("a row's column dead_id is null")
            self._put(queue, to, dead_id)

    def ask(self, queue: str, to: str, items: list[Any]) -> tuple[int, int]:
        arguments: dict[str, Any] = {"ids": items}
        if to:
            arguments["to"] = to
        answer = self._client.call("dead.redrive", queue, arguments)
        return int(answer["redriven"]), int(answer["gone"])


def _tuples(batch: "pa.RecordBatch", names: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """Rows of these columns; a column that is not there is all null."""
    given = batch.schema.names
    columns = [
        batch.column(given.index(name)).to_pylist() if name in given else [None] * batch.num_rows for name in names
    ]
    return zip(*columns, strict=True)
