"""One task's rows into frames, several on their way at once, until each row is confirmed."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from vibemq.spark import wire
from vibemq.spark.client import Client, Patience, Ticket
from vibemq.spark.errors import FOR_NOW, Refused, SourceError, explained
from vibemq.spark.options import Settings
from vibemq.spark.rows import Row

LENGTH_BYTES = 4
"""What a frame has beside each row: its length."""
SPARE_BYTES = 512
"""What a chunk keeps free, because a row is weighed without its extras."""


@dataclass
class Chunk:
    """Rows for one queue that travel together, and the room for more of them."""

    queue: str
    rows_left: int = 0
    bytes_left: int = 0
    rows: list[bytes] = field(default_factory=list)
    extras: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, row: Row, size: int) -> None:
        """`size` counts the row and its length."""
        if row.extra:
            self.extras[len(self.rows)] = row.extra
            size += 128 + len(row.extra.get("dedup_id", ""))
        self.rows.append(row.data)
        self.rows_left -= 1
        self.bytes_left -= size

    def only(self, indexes: list[int]) -> "Chunk":
        """Some of the rows, to be sent again, without room for others."""
        extras = {at: self.extras[index] for at, index in enumerate(indexes) if index in self.extras}
        return Chunk(self.queue, rows=[self.rows[index] for index in indexes], extras=extras)


@dataclass
class Totals:
    accepted: int = 0
    duplicates: int = 0


class Window:
    """At most `maxInFlight` chunks without an answer. Subclasses say how a chunk is sent and what an answer means."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._filling: dict[str, Chunk] = {}
        self._out: deque[tuple[Ticket, Chunk]] = deque()
        self._chunk_bytes_max = min(settings.batch_bytes, row_bytes_max(settings)) - SPARE_BYTES
        self.totals = Totals()

    def add(self, row: Row) -> None:
        """Raises what `Client.answer` raises, and SourceError for a row that was refused for good."""
        size = len(row.data) + LENGTH_BYTES
        self._chunk_for(row.queue, size).add(row, size)

    def add_rows(self, queue: str, rows: list[bytes]) -> None:
        """Many rows for one queue, without extras; otherwise as `add`."""
        ends = list(accumulate((len(row) + LENGTH_BYTES for row in rows), initial=0))
        at = 0
        while at < len(rows):
            chunk = self._chunk_for(queue, ends[at + 1] - ends[at])
            stop = min(at + chunk.rows_left, bisect_right(ends, ends[at] + chunk.bytes_left, at) - 1)
            chunk.rows += rows[at:stop]
            chunk.rows_left -= stop - at
            chunk.bytes_left -= ends[stop] - ends[at]
            at = stop

    def finish(self) -> Totals:
        """Send what is left, and wait for every answer."""
        for queue in list(self._filling):
            self._send(self._filling.pop(queue))
        while self._out:
            self._settle_oldest()
        return self.totals

    def _chunk_for(self, queue: str, size: int) -> Chunk:
        """A chunk with room for a row that takes `size` bytes; one too large for any has a chunk of its own."""
        chunk = self._filling.get(queue)
        if chunk is not None:
            if chunk.rows_left and size <= chunk.bytes_left:
                return chunk
            self._send(self._filling.pop(queue))
        chunk = Chunk(queue, self._settings.batch_messages, max(self._chunk_bytes_max, size))
        self._filling[queue] = chunk
        return chunk

    def _send(self, chunk: Chunk) -> None:
        while len(self._out) >= self._settings.max_in_flight:
            self._settle_oldest()
        self._out.append((self._client.ask(self.frame(chunk)), chunk))

    def _settle_oldest(self) -> None:
        ticket, chunk = self._out.popleft()
        try:
            self.settle(self._client.answer(ticket), chunk)
        except Refused as error:
            raise explained(error, chunk.queue) from None

    def frame(self, chunk: Chunk) -> Callable[[str], bytes]:
        raise NotImplementedError

    def settle(self, answer: wire.Reply, chunk: Chunk) -> None:
        raise NotImplementedError


class Publishing(Window):
    """At least once: what was sent over a connection that broke is sent again."""

    def frame(self, chunk: Chunk) -> Callable[[str], bytes]:
        return lambda request_id: wire.publish_many(request_id, chunk.queue, chunk.rows, chunk.extras)

    def settle(self, answer: wire.Reply, chunk: Chunk) -> None:
        """Rows refused for the moment are sent again until they are accepted or the time is over."""
        patience = Patience(self._settings.retry_timeout_ms)
        while True:
            result = wire.acked(answer)
            self.totals.accepted += len(chunk.rows) - len(result.refused)
            self.totals.duplicates += result.duplicates
            if not result.refused:
                return
            index, (code, sentence) = next(
                (item for item in result.refused.items() if item[1][0] not in FOR_NOW),
                next(iter(result.refused.items())),
            )
            who = f"message_id {message_id(chunk.rows[index])!r} for queue {chunk.queue!r} was refused"
            if code not in FOR_NOW:
                raise Refused(code, sentence, who)
            patience.wait(f"{who}: {sentence} [{code}]", _giving_up(code, sentence, who))
            chunk = chunk.only(sorted(result.refused))
            answer = self._client.answer(self._client.ask(self.frame(chunk)))


def _giving_up(code: str, sentence: str, who: str) -> Callable[[str], Exception]:
    return lambda after: Refused(code, sentence, f"{who}, and still is {after}")


class Staging(Window):
    """For a transaction: invisible until the driver commits the stage."""

    def __init__(self, client: Client, settings: Settings, *, app: str, version: int, stage: str) -> None:
        super().__init__(client, settings)
        self._about = {"app": app, "version": version, "stage": stage}
        self._next_chunk = 0

    def frame(self, chunk: Chunk) -> Callable[[str], bytes]:
        about = {**self._about, "chunk": self._next_chunk}
        self._next_chunk += 1
        return lambda request_id: wire.stage(request_id, chunk.queue, about, chunk.rows, chunk.extras)

    def settle(self, answer: wire.Reply, chunk: Chunk) -> None:
        staged = wire.json_payload(answer)["staged"]
        if staged != len(chunk.rows):
            raise SourceError(f"the broker staged {staged} rows of {len(chunk.rows)} for queue {chunk.queue!r}")
        self.totals.accepted += len(chunk.rows)


def row_bytes_max(settings: Settings) -> int:
    """The largest row that fits into a frame alone."""
    return settings.frame_bytes - wire.ROWS_OVERHEAD_BYTES


def message_id(row: bytes) -> str:
    return row[2 : 2 + int.from_bytes(row[:2], "big")].decode(errors="replace")
