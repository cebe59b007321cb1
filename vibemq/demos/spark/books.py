"""The account after the run: what the broker has, read by ordinary clients, beside what pandas computes directly."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from vibemq.cli.admin.dlq import pages
from vibemq.cli.progress import Tracker
from vibemq.client import Client
from vibemq.demos.flights import audit, flights
from vibemq.demos.spark import hours
from vibemq.demos.spark.flow import FlowResult
from vibemq.demos.spark.names import DELAYS, FLIGHTS

CANCELLED_QUEUE = "flights.cancelled"
FETCH = 2_000
EMPTY_AFTER_S = 1.0


@dataclass(slots=True)
class Books:
    results: hours.Results = field(default_factory=hours.Results)
    results_written: int = 0
    left: int = 0
    """Flights that are still in their queue."""
    stored_twice: int = 0
    dead_by_reason: dict[str, int] = field(default_factory=dict)
    rejected_rows: list[int] = field(default_factory=list)


async def close(mq: Client, result: FlowResult, progress: Tracker) -> Books:
    """Read everything: the results, and the dead letters by way of a queue that they are replayed into."""
    books = Books()
    source, written = [await mq.admin("queue.info", queue=queue) for queue in (FLIGHTS, DELAYS)]
    books.left = audit.left_in(source)
    books.stored_twice = max(0, source["next_sequence"] - 1 - result.published)
    books.results_written = written["next_sequence"] - 1
    books.dead_by_reason = await audit.dead_by_reason(mq, FLIGHTS)
    await mq.create_queue(CANCELLED_QUEUE, durability="strong")
    plan = await pages.chosen(mq, {"queue": FLIGHTS}, None)
    await pages.Replay(mq, plan, to=CANCELLED_QUEUE).run(_silent)
    while bodies := await _fetch(mq, CANCELLED_QUEUE):
        books.rejected_rows += [orjson.loads(body)[flights.ROW] for body in bodies]
    while books.results.messages < books.results_written and (bodies := await _fetch(mq, DELAYS)):
        books.results.add(bodies)
        progress(books.results.messages, books.results_written)
    return books


async def _fetch(mq: Client, queue: str) -> list[bytes]:
    messages = await mq.fetch(queue, max=FETCH, timeout=EMPTY_AFTER_S)
    bodies = [bytes(message.payload) for message in messages]
    for message in messages:
        message.ack()
    return bodies


def _silent(done: int, total: int) -> None:
    """A second or so."""


@dataclass(slots=True)
class BookAccount:
    """The books beside the truth."""

    books: Books
    result: FlowResult
    cancelled: list[int]
    """Rows without a departure."""
    direct: dict[hours.Key, hours.Hour]

    @classmethod
    def of(cls, books: Books, result: FlowResult, frame: Any) -> "BookAccount":
        cancelled = frame["dep_time"].isna().to_numpy().nonzero()[0].tolist()
        return cls(books, result, cancelled, hours.direct(frame))

    @property
    def counted(self) -> int:
        return sum(hour.departed for hour in self.books.results.hours.values())

    @property
    def rejected(self) -> int:
        return len(set(self.books.rejected_rows))

    @property
    def lost(self) -> int:
        found = self.books.results.hours
        return hours.missing(self.direct, found) + len(set(self.cancelled) - set(self.books.rejected_rows))

    @property
    def counted_twice(self) -> int:
        return hours.too_many(self.direct, self.books.results.hours)

    @property
    def rejected_twice(self) -> int:
        return len(self.books.rejected_rows) - self.rejected

    @property
    def different(self) -> int:
        return hours.different(self.direct, self.books.results.hours)

    def findings(self) -> list[str]:
        """What does not balance; nothing when all does."""
        books, result = self.books, self.result
        checks = [
            (self.lost == 0, f"{self.lost:,} flights are lost"),
            (result.refused == 0, f"{result.refused:,} flights were refused by the broker"),
            (result.published == result.rows, f"{result.published:,} of {result.rows:,} flights were confirmed"),
            (books.stored_twice == 0, f"{books.stored_twice:,} flights are stored twice"),
            (self.different == 0, f"{self.different:,} hours differ from those computed directly"),
            (self.counted_twice == 0, f"{self.counted_twice:,} departures were counted twice"),
            (sorted(books.rejected_rows) == self.cancelled, "the dead letters are not the flights without a departure"),
            (books.results.duplicates == 0, f"{books.results.duplicates:,} results were published twice"),
            (books.results.messages == books.results_written, "not every result could be read"),
            (books.left == 0, f"{books.left:,} flights were left unacknowledged"),
        ]
        return [sentence for holds, sentence in checks if not holds]
