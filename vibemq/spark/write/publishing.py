"""One task's rows into frames, several on their way at once, until each row is confirmed."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from vibemq.spark.connection import wire
from vibemq.spark.connection.client import BrokerClient, Patience, Ticket
from vibemq.spark.errors import FOR_NOW, Refused, SourceError, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.write.bulk import Bulk
from vibemq.spark.write.rows import Row

LENGTH_BYTES = 4
"""What a frame has beside each row: its length."""
EXTRA_ROWS_MAX = 2_048
"""Rows with extras that the broker takes in a frame."""
EXTRA_BYTES = 128
"""More than a row's extras have beside its dedup id."""
FILLING_BYTES_MAX = 64 << 20
"""Of rows that wait for more rows of their queues, in a task that writes to many."""
SPARE_BYTES = 512
"""What a chunk keeps free, because a row is weighed without its extras."""


@dataclass
class StagedChunk:
    """Rows for one queue that travel together, and the room for more of them."""

    queue: str
    rows_left: int = 0
    bytes_left: int = 0
    size: int = 0
    """Bytes of the rows, as they were weighed."""
    lengths: list[int] = field(default_factory=list)
    """Of each row."""
    data: list[bytes | memoryview] = field(default_factory=list)
    """The rows joined, in pieces."""
    extras: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lengths)

    def add(self, row: Row, size: int) -> None:
        """`size`: as `weight_of` says."""
        if row.extra:
            self.extras[len(self)] = row.extra
        self._take([len(row.data)], row.data, size)
        if len(self.extras) == EXTRA_ROWS_MAX:
            self.rows_left = 0

    def add_bulk(self, bulk: Bulk, start: int, stop: int) -> None:
        """Rows [start, stop)."""
        ends = bulk.ends[start : stop + 1]
        if isinstance(ends, range):
            lengths = [ends.step] * (stop - start)
        else:
            lengths = [end - begin for begin, end in pairwise(ends)]
        size = ends[-1] - ends[0] + LENGTH_BYTES * (stop - start)
        self._take(lengths, bulk.data[ends[0] : ends[-1]], size)

    def _take(self, lengths: list[int], data: bytes | memoryview, size: int) -> None:
        self.lengths += lengths
        self.data.append(data)
        self.rows_left -= len(lengths)
        self.bytes_left -= size
        self.size += size

    def row(self, index: int) -> bytes:
        ends = list(accumulate(self.lengths[: index + 1], initial=0))
        return b"".join(self.data)[ends[-2] : ends[-1]]

    def only(self, indexes: list[int]) -> "StagedChunk":
        """Some of the rows, to be sent again, without room for others."""
        ends, data = list(accumulate(self.lengths, initial=0)), b"".join(self.data)
        extras = {at: self.extras[index] for at, index in enumerate(indexes) if index in self.extras}
        return StagedChunk(
            self.queue,
            lengths=[self.lengths[index] for index in indexes],
            data=[data[ends[index] : ends[index + 1]] for index in indexes],
            extras=extras,
        )


def weight_of(row: Row) -> int:
    """The most bytes that it takes in a frame, with its length and its extras."""
    extra = EXTRA_BYTES + wire.text_size_max(row.extra.get("dedup_id", "")) if row.extra else 0
    return len(row.data) + LENGTH_BYTES + extra


@dataclass
class WriteTotals:
    accepted: int = 0
    duplicates: int = 0


class Window:
    """At most `maxInFlight` chunks without an answer. Subclasses say how a chunk is sent and what an answer means."""

    def __init__(self, client: BrokerClient, settings: SourceOptions) -> None:
        self._client = client
        self._settings = settings
        self._filling: dict[str, StagedChunk] = {}
        self._filling_bytes = 0
        self._out: deque[tuple[Ticket, StagedChunk]] = deque()
        self._chunk_bytes_max = min(settings.batch_bytes, row_bytes_max(settings)) - SPARE_BYTES
        self.totals = WriteTotals()

    def add(self, row: Row) -> None:
        """Raises what `BrokerClient.answer` raises, and SourceError for a row that was refused for good."""
        size = weight_of(row)
        chunk = self._chunk_for(row.queue, size)
        chunk.add(row, size)
        self._filling_bytes += size
        if self._filling_bytes > FILLING_BYTES_MAX and len(self._filling) > 1:
            self._send_filled(next(iter(self._filling)))

    def add_bulk(self, queue: str, bulk: Bulk) -> None:
        """Many rows for one queue, without extras; otherwise as `add`."""
        weighed = _weighed(bulk.ends)
        at, count = 0, len(weighed) - 1
        while at < count:
            chunk = self._chunk_for(queue, weighed[at + 1] - weighed[at])
            stop = min(at + chunk.rows_left, bisect_right(weighed, weighed[at] + chunk.bytes_left, at) - 1)
            chunk.add_bulk(bulk, at, stop)
            self._filling_bytes += weighed[stop] - weighed[at]
            at = stop

    def finish(self) -> WriteTotals:
        """Send what is left, and wait for every answer."""
        for queue in list(self._filling):
            self._send_filled(queue)
        while self._out:
            self._settle_oldest()
        return self.totals

    def _chunk_for(self, queue: str, size: int) -> StagedChunk:
        """A chunk with room for a row that takes `size` bytes; one too large for any has a chunk of its own."""
        chunk = self._filling.get(queue)
        if chunk is not None:
            if chunk.rows_left and size <= chunk.bytes_left:
                return chunk
            self._send_filled(queue)
        chunk = StagedChunk(queue, self._settings.batch_messages, max(self._chunk_bytes_max, size))
        self._filling[queue] = chunk
        return chunk

    def _send_filled(self, queue: str) -> None:
        chunk = self._filling.pop(queue)
        self._filling_bytes -= chunk.size
        self._send(chunk)

    def _send(self, chunk: StagedChunk) -> None:
        while len(self._out) >= self._settings.max_in_flight:
            self._settle_oldest()
        self._out.append((self._client.ask(self.frame(chunk)), chunk))

    def _settle_oldest(self) -> None:
        ticket, chunk = self._out.popleft()
        try:
            self.settle(self._client.answer(ticket), chunk)
        except Refused as error:
            raise explained(error, chunk.queue) from None

    def frame(self, chunk: StagedChunk) -> Callable[[str], wire.Frame]:
        raise NotImplementedError

    def settle(self, answer: wire.WireReply, chunk: StagedChunk) -> None:
        raise NotImplementedError


class RowPublisher(Window):
    """At least once: what was sent over a connection that broke is sent again."""

    def frame(self, chunk: StagedChunk) -> Callable[[str], wire.Frame]:
        return lambda request_id: wire.publish_many(request_id, chunk.queue, chunk.lengths, chunk.data, chunk.extras)

    def settle(self, answer: wire.WireReply, chunk: StagedChunk) -> None:
        """Rows refused for the moment are sent again until they are accepted or the time is over."""
        patience = Patience(self._settings.retry_timeout_ms)
        while True:
            result = wire.acked(answer)
            self.totals.accepted += len(chunk) - len(result.refused)
            self.totals.duplicates += result.duplicates
            if not result.refused:
                return
            index, (code, sentence) = next(
                (item for item in result.refused.items() if item[1][0] not in FOR_NOW),
                next(iter(result.refused.items())),
            )
            who = f"message_id {message_id(chunk.row(index))!r} for queue {chunk.queue!r} was refused"
            if code not in FOR_NOW:
                raise Refused(code, sentence, who)
            patience.wait(f"{who}: {sentence} [{code}]", _giving_up(code, sentence, who))
            chunk = chunk.only(sorted(result.refused))
            answer = self._client.answer(self._client.ask(self.frame(chunk)))


def _giving_up(code: str, sentence: str, who: str) -> Callable[[str], Exception]:
    return lambda after: Refused(code, sentence, f"{who}, and still is {after}")


class Staging(Window):
    """For a transaction: invisible until the driver commits the stage."""

    def __init__(self, client: BrokerClient, settings: SourceOptions, *, app: str, version: int, stage: str) -> None:
        super().__init__(client, settings)
        self._about = {"app": app, "version": version, "stage": stage}
        self._next_chunk = 0

    def frame(self, chunk: StagedChunk) -> Callable[[str], wire.Frame]:
        about = {**self._about, "chunk": self._next_chunk}
        self._next_chunk += 1
        return lambda request_id: wire.stage(request_id, chunk.queue, about, chunk.lengths, chunk.data, chunk.extras)

    def settle(self, answer: wire.WireReply, chunk: StagedChunk) -> None:
        staged = wire.json_payload(answer)["staged"]
        if staged != len(chunk):
            raise SourceError(f"the broker staged {staged} rows of {len(chunk)} for queue {chunk.queue!r}")
        self.totals.accepted += len(chunk)


def _weighed(ends: Sequence[int]) -> Sequence[int]:
    """Where each row ends when its length is counted with it."""
    if isinstance(ends, range):
        step = ends.step + LENGTH_BYTES
        return range(0, step * len(ends), step)
    return [end + LENGTH_BYTES * index for index, end in enumerate(ends)]


def row_bytes_max(settings: SourceOptions) -> int:
    """The largest row that fits into a frame alone."""
    return settings.frame_bytes - wire.ROWS_OVERHEAD_BYTES


def message_id(row: bytes) -> str:
    return row[2 : 2 + int.from_bytes(row[:2], "big")].decode(errors="replace")
