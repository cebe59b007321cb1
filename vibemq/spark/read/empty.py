"""Batches without rows of a source: another source has rows, or a watermark has moved. Spark makes them without asking
for tasks. They have numbers too, so they belong to the sequence of cuts.

    latestOffset(start) → start, commit(start)   there was one, or else Spark would not have committed again
    latestOffset(start) → start                  there was none

Each is told to the broker before it runs. A reader that repeats older batches repeats these as well, from the second
batch of a process on. Of the first the offset alone does not tell whether the batches without rows that follow it are
done; the tasks find out (`numbering`).
"""

from vibemq.spark.errors import SourceError
from vibemq.spark.read.offsets import Positions
from vibemq.spark.read.plans import QueryPlans


class EmptyBatches:
    def __init__(self, plans: QueryPlans, group: str) -> None:
        self._plans = plans
        self._group = group
        self._at: Positions | None = None
        """Where the reader stands, and what it has answered there last."""
        self._answered: Positions | None = None
        self._to_repeat = 0
        self._count = 0
        self._owed = ""
        """The mark of a batch of which the broker does not know yet."""

    def arrive(self, start: Positions) -> bool:
        """Spark asks for a batch; whether it is one that had no rows before, and has none now.

        Raises:
            SourceError: Spark does not make that batch again.
        """
        if self._owed and self._at is not None:
            self._tell(self._at, patient=True)
        if start != self._at:
            self._to_repeat = self._plans.empty_behind if start == self._answered else 0
            self._at, self._answered = start, None
        elif self._to_repeat and self._answered == start:
            raise SourceError(
                f"group {self._group!r} knows {self._to_repeat} batches without rows behind {self._shown(start)}, and"
                " Spark does not make them again: the query was changed, or another source of it. The next batch would"
                " have other rows than the sink has under its number. Use the newest checkpoint; or begin with a new"
                " one and an output that is new"
            )
        return self._to_repeat > 0

    def answer(self, end: Positions) -> None:
        self._answered = end

    def committed(self, position: Positions) -> None:
        """Spark has made a batch that begins there."""
        if position != self._at or self._answered != position:
            return
        self._answered = None
        if self._to_repeat:
            self._to_repeat -= 1
            return
        self._count += 1
        self._owed = f"{self._plans.epoch(position)}-{self._count}"
        self._tell(position, patient=False)

    def first(self, start: Positions) -> None:
        """Batch 0 has no rows. Spark commits nothing then."""
        self._plans.note_empty(start, "first", patient=True)

    def _tell(self, position: Positions, *, patient: bool) -> None:
        self._plans.note_empty(position, self._owed, patient=patient)
        self._owed = ""

    def _shown(self, start: Positions) -> str:
        return ", ".join(f"{queue!r} {position.sequence}" for queue, position in sorted(start.items())[:3])
