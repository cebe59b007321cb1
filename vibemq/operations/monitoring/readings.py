"""What operators' figures are made from: the picture of all queues as it is, an earlier one, and how far they are
apart. Rates are differences of counters between the two."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import lt
from typing import Any, Protocol

from vibemq.model.access import Principal

_LOOKED_AT_ONCE = 1_000
_HELD = ("ready", "in_flight", "delayed")
_MOVING = ("published", "delivered", "settled", "refused")
STUCK_MS = 60_000
"""A queue whose consumers take and settle nothing for so long, although something waits for them, is stuck."""


class CursorView(Protocol):
    """A group that reads by ranges."""

    @property
    def queue(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def backlog(self) -> int: ...


class SnapshotView(Protocol):
    """Row i of `names` and of every column is one queue. Nothing in it changes any more."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def columns(self) -> Mapping[str, Sequence[int]]: ...
    @property
    def cursors(self) -> Sequence[CursorView]: ...
    @property
    def totals(self) -> Mapping[str, int]: ...
    @property
    def connections(self) -> Mapping[str, int]: ...


class _RowsBefore:
    """Where queues are in the earlier picture. Their ids ascend as they do in the broker, so no index is needed."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self._index: dict[int, int] | None = None
        """When they do not."""

    def prepare(self) -> Iterator[None]:
        ids = self._ids
        for first in range(0, len(ids) - 1, _LOOKED_AT_ONCE):
            if not all(map(lt, ids[first : first + _LOOKED_AT_ONCE], ids[first + 1 : first + _LOOKED_AT_ONCE + 1])):
                break
            yield
        else:
            return
        index: dict[int, int] = {}
        for row, queue_id in enumerate(ids):
            index[queue_id] = row
            yield
        self._index = index

    def find(self, queue_id: int, row: int) -> int | None:
        """`row`: where it is in the later one."""
        ids = self._ids
        if row < len(ids) and ids[row] == queue_id:
            return row
        if self._index is not None:
            return self._index.get(queue_id)
        row = bisect_left(ids, queue_id)
        return row if row < len(ids) and ids[row] == queue_id else None


@dataclass(slots=True, eq=False)
class QueuesReading:
    """A picture with an earlier one."""

    now: SnapshotView
    before: SnapshotView | None
    """None: there is no earlier one, and all counters began at 0 when the broker started."""
    seconds: float
    """Between the two, or since the start of the broker."""
    at_ms: int
    """When the later one was taken, by the clock that messages are dated by."""
    still_ms: Mapping[int, int]
    """queue_id -> how long nothing was handed out nor settled, of queues in which something waits."""
    by_name: Sequence[int]
    """All rows in the order of the names."""
    refused_all: bool = False
    """Whether the broker has refused messages of every queue since the earlier one, for want of memory or disk: then
    refusals say nothing of a queue's own limits."""
    visible: dict[tuple[Principal, object, int], list[int]] = field(default_factory=dict)
    """What `vibemq.operations.monitoring.visible` has found out."""
    findings: dict[object, Any] = field(default_factory=dict)
    """What others have found out about the picture, and will be asked for again."""
    spent_s: float = 0.0
    """Processor time of the loop to find out what is shared by all who look, beside the picture itself."""
    _rows_before: "_RowsBefore | None" = None
    _read_by_range: Set[str] | None = None

    def prepare(self) -> Iterator[None]:
        """Index what every row is asked for, a little with each step; else the first row that is asked does it."""
        if self.before is not None:
            rows_before = _RowsBefore(self.before.columns["queue_id"])
            yield from rows_before.prepare()
            self._rows_before = rows_before
        read: set[str] = set()
        for cursor in self.now.cursors:
            read.add(cursor.queue)
            yield
        self._read_by_range = read

    def rate(self, counter: str, row: int) -> float:
        """Of one queue, per second. Of a column that is no counter: how much more there is than before."""
        return self.per_second(self.moved(counter, row))

    def moved(self, counter: str, row: int) -> int:
        """Of one queue, since the earlier picture."""
        count = self.now.columns[counter][row]
        earlier = self.row_before(row)
        return count if earlier is None or self.before is None else count - self.before.columns[counter][earlier]

    def is_moving(self, row: int) -> bool:
        """Whether something was published, handed out or settled since the earlier picture."""
        moved = self.moved
        return moved("published", row) > 0 or moved("delivered", row) > 0 or moved("settled", row) > 0

    def are_at_rest(self, first: int, last: int) -> bool:
        """Whether in all these rows nothing is ready, delayed or in flight, nothing has moved since the earlier
        picture, and none is full. Many rows cost little more than one: of many queues most are idle."""
        columns = self.now.columns
        if any(any(columns[name][first:last]) for name in _HELD) or max(columns["filled"][first:last]) >= 100:
            return False
        if self.before is None:
            return not any(any(columns[name][first:last]) for name in _MOVING)
        # With the ids equal, the rows are those of the same queues.
        before = self.before.columns
        return all(before[name][first:last] == columns[name][first:last] for name in ("queue_id", *_MOVING))

    def total_rate(self, counter: str) -> float:
        """Of all queues together, those that are gone included."""
        before = 0 if self.before is None else self.before.totals[counter]
        return self.per_second(self.now.totals[counter] - before)

    def per_second(self, count: int) -> float:
        return round(count / self.seconds, 2) if self.seconds > 0 else 0.0

    def row_before(self, row: int) -> int | None:
        """Where the queue is in the earlier picture; None when it is new."""
        if self.before is None:
            return None
        if self._rows_before is None:
            self._rows_before = _RowsBefore(self.before.columns["queue_id"])
            for _ in self._rows_before.prepare():
                pass
        return self._rows_before.find(self.now.columns["queue_id"][row], row)

    def oldest_age_ms(self, row: int) -> int:
        """0 when nothing waits."""
        oldest_at = self.now.columns["oldest_at"][row]
        return max(0, self.at_ms - oldest_at) if oldest_at else 0

    def is_still(self, row: int) -> bool:
        """Whether something waits and nothing has moved for STUCK_MS."""
        return self.still_ms.get(self.now.columns["queue_id"][row], 0) >= STUCK_MS

    def is_read_by_range(self, row: int) -> bool:
        """Whether a group without consumers reads it, as Spark does."""
        if self._read_by_range is None:
            self._read_by_range = {cursor.queue for cursor in self.now.cursors}
        return self.now.names[row] in self._read_by_range


class Readings(Protocol):
    async def reading(self, cursors_made: int = 0) -> QueuesReading:
        """The latest, shared by all who ask; it has every cursor that is still there of the first so many since the
        start of the broker."""
