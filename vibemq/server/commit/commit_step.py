"""Outcomes on their way to disk, and the batches in which they are appended."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vibemq.errors import StorageFull
from vibemq.model.effects import Outcome, Payment
from vibemq.model.records import HandedOut, MessagesAdded, Record, Settled
from vibemq.model.rows import LargeRow
from vibemq.server.commit.release_order import Hold
from vibemq.storage.interface import IStorageProvider


@dataclass(slots=True)
class CommitStep:
    """One outcome on its way to disk."""

    outcome: Outcome
    holds: Sequence[Hold]
    """Answers that wait for the outcome's durability."""
    after_append: Sequence[Hold]
    """Answers that wait for the append."""
    deliveries: Sequence[Hold]
    """Hand-outs that wait for the append of the rows they name, however it ends."""
    size: int
    """Bytes of rows."""
    begun: float
    large: Sequence[LargeRow] = ()
    """Rows above `LARGE_ROW_BYTES` that it adds."""
    position: int = 0
    """How many appends had returned when its own had; a flush that starts later covers it."""

    @property
    def pays(self) -> bool:
        """Its holds wait for what earlier outcomes have left owed."""
        return isinstance(self.outcome, Payment)


@dataclass(slots=True, eq=False)
class Flush:
    """One flush under way."""

    covers: int
    """Appends that had returned when it began."""
    steps: list[CommitStep]
    is_small: bool
    """Says something about the disk, and not about the load."""


LIGHT_RUNS_MAX = 16
"""Of a hand-out or a settlement that may wait for an append of others."""


def is_light(records: Sequence[Record]) -> bool:
    """Whether losing them means no more than a redelivery, and writing them is short work."""
    return all(type(record) in _LIGHT and len(record.runs) <= LIGHT_RUNS_MAX for record in records)  # type: ignore[union-attr]


_LIGHT = frozenset({HandedOut, Settled})


def large_rows(outcome: Outcome) -> list[LargeRow]:
    rows = [record.rows for record in outcome.records if type(record) is MessagesAdded]
    return [row for row in rows if isinstance(row, LargeRow)]


def append_steps(storage: IStorageProvider, steps: Sequence[CommitStep]) -> tuple[int, StorageFull | None]:
    """Append all steps as one batch; when that is too much, one by one up to the first that does not fit.

    Returns how many are written, and why the next one is not.
    """
    records = [record for step in steps for record in step.outcome.records]
    if not records:
        return len(steps), None
    try:
        storage.append(records)
        return len(steps), None
    except StorageFull as error:
        if len(steps) == 1:
            return 0, error
    for index, step in enumerate(steps):
        try:
            if step.outcome.records:
                storage.append(step.outcome.records)
        except StorageFull as error:
            return index, error
    return len(steps), None


def append_apart(storage: IStorageProvider, steps: Sequence[CommitStep]) -> tuple[int, StorageFull | None]:
    """As `append_steps`, and each with a large row by itself: a row that was written ahead is its record's first."""
    written = 0
    for large, group in groupby(steps, lambda step: bool(step.large)):
        together = list(group)
        for part in [[step] for step in together] if large else [together]:
            number, full = append_steps(storage, part)
            written += number
            if full is not None:
                return written, full
    return written, None
