"""Records that checks write, and what they compare."""

from collections.abc import Sequence

from vibemq.model.options import QueueOptions
from vibemq.model.records import (
    DeadFacts,
    GroupCreated,
    MessagesAdded,
    QueueCreated,
    Reason,
    Record,
)
from vibemq.model.stored import Slice
from vibemq.testing.storage_workload import STRONG, rows

ALL = 2**63 - 1
NO_LIMIT = 1 << 40


def queue(queue_id: int = 1, options: QueueOptions = STRONG, name: str = "") -> list[Record]:
    """A queue and its default group."""
    created = QueueCreated(queue_id, name or f"queue-{queue_id}", options, 1_000, f"{queue_id:032x}")
    return [created, GroupCreated(queue_id, 0, "", True, 1)]


def added(first: int, count: int, queue_id: int = 1, *, at: int = 2_000, size: int = 20) -> MessagesAdded:
    return MessagesAdded(queue_id, first, at, rows(first, count, size))


def letter(dead_id: int, sequence: int, reason: Reason = Reason.REJECTED, error: str = "boom") -> DeadFacts:
    return DeadFacts(dead_id, sequence, reason, error, 3, 2, 2_100, 2_500)


def sequences(parts: Sequence[Slice]) -> list[int]:
    return [part.first_sequence + index for part in parts for index in range(part.rows.count)]


def assert_rows(parts: Sequence[Slice], wanted: Sequence[int], *, size: int = 20) -> None:
    """The slices hold exactly these sequences, each with the row that `rows` makes for it."""
    assert sequences(parts) == list(wanted)
    for part in parts:
        assert part.rows == rows(part.first_sequence, part.rows.count, size)
