"""Requests that wait for a reply: who asked, until when, and which message it is.

A request is known by its reply address, which its session has made and which nobody can guess. It leaves the table with
its outcome, so there is one and no second: a reply, an error, or nothing when its session has ended.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from vibemq.errors import VibeMQError
from vibemq.model.commands import Requester
from vibemq.model.runs import RunSet

_BUCKETS_PER_TIMEOUT = 64
"""Deadlines are seen to together, late by this part of the timeout at most. So the table is as large as what waits,
however long it may wait, and to forget a request costs the same wherever its deadline is."""
PER_UNIT = 2
"""Requests that end for the cost of one run."""


@dataclass(slots=True, eq=False)
class Waiting:
    """One request."""

    session: int
    requester: Requester
    queue: str
    due_at: int
    table: "RequestTable"
    places: "Places" = field(default_factory=lambda: _NOWHERE)
    """The requests of its queue."""
    sequence: int = 0
    """0: its message waits for room in the queue."""
    bucket: int = 0
    acknowledged: bool = False
    """A consumer has taken the message, and may reply later."""

    @property
    def waits(self) -> bool:
        return self.table.has(self)

    def place(self, queue: str, places: "Places", sequence: int) -> None:
        """Its message is in that queue now."""
        if self.waits:
            self.leave()
            self.queue, self.places, self.sequence = queue, places, sequence
            places.put(sequence, self)

    def leave(self) -> None:
        self.places.take_out(self.sequence)

    def fail(self, error: VibeMQError) -> None:
        """Its message is gone. Unless a consumer may still reply, the requester is told soon that nobody will."""
        if self.acknowledged:
            self.leave()
        elif self.table.forget(self):
            self.table.failed.append((self, error))


class Places(dict[int, Waiting]):
    """The requests of a queue, by sequence; changed by `put` and `take_out` only. Those of a run are found without a
    look at the others, or at the messages of the run that are none."""

    __slots__ = ("_sequences",)

    def __init__(self) -> None:
        super().__init__()
        self._sequences = RunSet()

    def put(self, sequence: int, waiting: Waiting) -> None:
        self[sequence] = waiting
        self._sequences.add(sequence, sequence)

    def take_out(self, sequence: int) -> None:
        if self.pop(sequence, None) is not None:
            self._sequences.remove(sequence, sequence)
            if not self:
                # A dict keeps the room of what it has had.
                self.clear()

    def within(self, first: int, last: int) -> Iterator[Waiting]:
        """Those of the messages in [first, last]; none may leave meanwhile."""
        for start, stop in self._sequences.overlap(first, last):
            for sequence in range(start, stop + 1):
                yield self[sequence]

    def cut(self, first: int, last: int, most: int) -> tuple[int, int]:
        """(stop, number): how far of [first, last] the first `most` requests in it reach, and how many these are."""
        return self._sequences.cut_members(first, last, most)


_NOWHERE: Places = Places()


class RequestTable:
    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._of_session: dict[int, dict[str, Waiting]] = {}
        self._buckets: dict[int, dict[str, Waiting]] = {}
        """Instant -> those whose deadline has passed by then."""
        self._instants: list[int] = []
        self.failed: deque[tuple[Waiting, VibeMQError]] = deque()
        """Those whose requesters are to be told."""

    def __len__(self) -> int:
        return len(self._waiting)

    def count(self, session: int) -> int:
        return len(self._of_session.get(session, ()))

    def add(self, waiting: Waiting) -> None:
        address = waiting.requester.address
        self._waiting[address] = waiting
        self._of_session.setdefault(waiting.session, {})[address] = waiting
        width = max(1, waiting.requester.timeout_ms // _BUCKETS_PER_TIMEOUT)
        # Powers of two, so that timeouts that differ a little share their instants.
        width = 1 << (width.bit_length() - 1)
        waiting.bucket = -(-waiting.due_at // width) * width
        bucket = self._buckets.get(waiting.bucket)
        if bucket is None:
            bucket = self._buckets[waiting.bucket] = {}
            heappush(self._instants, waiting.bucket)
        bucket[address] = waiting

    def find(self, address: str, now: int) -> Waiting | None:
        """None: there is none, its message is not in the queue yet, or its time has passed."""
        waiting = self._waiting.get(address)
        return waiting if waiting is not None and waiting.sequence and now < waiting.due_at else None

    def of(self, session: int, address: str) -> Waiting | None:
        return self._of_session.get(session, {}).get(address)

    def has(self, waiting: Waiting) -> bool:
        return self._waiting.get(waiting.requester.address) is waiting

    def forget(self, waiting: Waiting) -> bool:
        """Whether it still waited."""
        address = waiting.requester.address
        if not self.has(waiting):
            return False
        del self._waiting[address]
        its_session = self._of_session[waiting.session]
        del its_session[address]
        if not its_session:
            del self._of_session[waiting.session]
        del self._buckets[waiting.bucket][address]
        waiting.leave()
        if not self._waiting:
            self._waiting.clear()
        return True

    def next_due(self) -> int | None:
        self._drop_empty()
        return self._instants[0] if self._instants else None

    def take_due(self, now: int, most: int) -> list[Waiting]:
        """Up to `most` of those whose deadline has passed, taken out."""
        taken: list[Waiting] = []
        while len(taken) < most and (at := self.next_due()) is not None and at <= now:
            waiting = next(iter(self._buckets[at].values()))
            self.forget(waiting)
            taken.append(waiting)
        return taken

    def take_of(self, session: int, most: int) -> list[Waiting]:
        """Up to `most` of a session's, taken out."""
        taken = list(islice(self._of_session.get(session, {}).values(), most))
        for waiting in taken:
            self.forget(waiting)
        return taken

    def _drop_empty(self) -> None:
        while self._instants and not self._buckets[self._instants[0]]:
            del self._buckets[heappop(self._instants)]
