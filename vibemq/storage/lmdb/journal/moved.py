"""Stages whose messages have entered a queue since the last checkpoint.

The store still has them under the stage, and so has the write buffer; they are read from there under the sequences that
they have in the queue. With the checkpoint the blocks are the queue's.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from operator import attrgetter

from vibemq.model.records import StageMoved

_first_sequence = attrgetter("first_sequence")


class MovedStages:
    """Not thread-safe; the provider's lock guards it."""

    def __init__(self) -> None:
        self._by_queue: dict[int, list[StageMoved]] = {}
        """Ascending by sequence, and by when they came."""
        self._stages: dict[int, tuple[int, int]] = {}
        """queue_id of each stage -> (the record that moved it, queue_id of where it is), in the order in which they
        came."""

    def __bool__(self) -> bool:
        return bool(self._stages)

    def __contains__(self, stage_id: int) -> bool:
        return stage_id in self._stages

    def add(self, record: StageMoved, lsn: int) -> None:
        self._by_queue.setdefault(record.queue_id, []).append(record)
        self._stages[record.stage_id] = lsn, record.queue_id

    def release(self, applied_lsn: int) -> list[int]:
        """Forget those that the store has moved; return the stages. Costs nothing for the others."""
        gone = [stage_id for stage_id, _ in takewhile(lambda item: item[1][0] <= applied_lsn, self._stages.items())]
        counts = Counter(self._stages.pop(stage_id)[1] for stage_id in gone)
        for queue_id, count in counts.items():
            del self._by_queue[queue_id][:count]
            if not self._by_queue[queue_id]:
                del self._by_queue[queue_id]
        return gone

    def of(self, queue_id: int, sequence: int) -> StageMoved | None:
        records = self._by_queue.get(queue_id, [])
        at = self._floor(records, sequence)
        return records[at] if at >= 0 and sequence <= records[at].last_sequence else None

    @staticmethod
    def _floor(records: list[StageMoved], sequence: int) -> int:
        """The index of the last that begins at or before the sequence; -1 if none does."""
        return bisect_right(records, sequence, key=_first_sequence) - 1

    def pieces(self, queue_id: int, first: int, last: int) -> Iterator[tuple[StageMoved | None, int, int]]:
        """[first, last] in pieces that were moved with one stage, or with none."""
        records = self._by_queue.get(queue_id, [])
        for at in range(max(self._floor(records, first), 0), len(records)):
            record = records[at]
            if record.last_sequence < first:
                continue
            if record.first_sequence > last:
                break
            if first < record.first_sequence:
                yield None, first, record.first_sequence - 1
                first = record.first_sequence
            yield record, first, min(last, record.last_sequence)
            first = record.last_sequence + 1
        if first <= last:
            yield None, first, last
