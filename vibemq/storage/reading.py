"""Rows for deliveries, read back from storage in pieces of bounded size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vibemq.errors import StorageDamaged
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.runs import Run, RunSet, run_count
from vibemq.model.stored import Slice
from vibemq.storage.interface import PicksRows

SPAN_WASTE_MAX = 8
"""Scattered sequences are read as one stretch while at most this many rows are read for each one wanted."""
SPAN_RUNS_MAX = 256
STRETCH_BYTES_LEAST = 8_192
"""What the read of a stretch counts as: it takes as long as that of so many bytes in small slices."""


FEWER = 4
"""Of rows that are more than the bytes allow, one in so many are read next time."""


class ReadsRows(Protocol):
    """Of a storage provider, what is needed here."""

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]: ...


class ReadsScattered(ReadsRows, PicksRows, Protocol):
    """The same, for rows far apart from each other."""


@dataclass(slots=True)
class Piece:
    """What one read brought."""

    slices: list[Slice] = field(default_factory=list)
    rest: list[Run] = field(default_factory=list)
    """Not looked at yet."""
    damaged: list[Run] = field(default_factory=list)
    damage: StorageDamaged | None = None
    stretches: int = 0
    """Reads that it took: each costs something of its own."""

    @property
    def size(self) -> int:
        return sum(part.rows.size for part in self.slices)

    @property
    def count(self) -> int:
        return sum(part.rows.count for part in self.slices)


def _cost(slices: Iterable[Slice]) -> int:
    return sum(part.cost for part in slices)


def read_piece(storage: ReadsRows, queue_id: int, runs: Sequence[Run], max_bytes: int) -> Piece:
    """Read wanted sequences, ascending within each run, until about `max_bytes` have come or all runs are done.

    The work is bounded by that, too: see `Slice.cost` and `STRETCH_BYTES_LEAST`.
    Missing sequences are left out. Damaged ones are told apart from their sound neighbours and returned by number.
    """
    piece = Piece()
    index = 0
    while index < len(runs) and max_bytes > 0:
        wanted = _stretch(runs, index)
        piece.stretches += 1
        index += len(wanted)
        max_bytes -= max(_read_stretch(storage, queue_id, wanted, max_bytes, piece), STRETCH_BYTES_LEAST)
    piece.rest += runs[index:]
    return piece


def read_scattered(storage: ReadsScattered, queue_id: int, runs: Sequence[Run], rows: int, max_bytes: int) -> Piece:
    """As `read_piece`, of runs far apart from each other: up to `rows` of their messages are read in the order in which
    they are stored, block by block, and returned in the order in which they are wanted, each on its own."""
    wanted, rest = leading(runs, rows)
    sequences = [sequence for first, last in wanted for sequence in range(first, last + 1)]
    try:
        found, looked_at = storage.pick(queue_id, sorted(sequences), max_bytes)
    except StorageDamaged:
        # One by one: it says which of them are damaged.
        piece = read_piece(storage, queue_id, wanted, max_bytes)
        piece.rest += rest
        return piece
    if looked_at < len(sequences) > 1:
        return read_scattered(storage, queue_id, runs, max(1, len(sequences) // FEWER), max_bytes)
    by_sequence = {part.first_sequence: part for part in found}
    slices = [by_sequence[sequence] for sequence in sequences if sequence in by_sequence]
    return Piece(slices, rest, stretches=1)


def leading(runs: Sequence[Run], rows: int, runs_max: int = NUMBER_MAX) -> tuple[list[Run], list[Run]]:
    """The runs cut behind so many rows, or behind so many runs."""
    for index, (first, last) in enumerate(runs[:runs_max]):
        stop = first + rows - 1
        if stop < last:
            return [*runs[:index], (first, stop)], [(stop + 1, last), *runs[index + 1 :]]
        rows -= last - first + 1
        if not rows:
            return list(runs[: index + 1]), list(runs[index + 1 :])
    return list(runs[:runs_max]), list(runs[runs_max:])


def _stretch(runs: Sequence[Run], index: int) -> list[Run]:
    """The runs from `index` on that are worth one read."""
    wanted = [runs[index]]
    count = run_count(wanted)
    for first, last in runs[index + 1 : index + SPAN_RUNS_MAX]:
        count += last - first + 1
        if first <= wanted[-1][1] or last - wanted[0][0] + 1 > SPAN_WASTE_MAX * count:
            break
        wanted.append((first, last))
    return wanted


def _read_stretch(storage: ReadsRows, queue_id: int, wanted: list[Run], max_bytes: int, piece: Piece) -> int:
    """Read one stretch into `piece`; return what it cost."""
    first, last = wanted[0][0], wanted[-1][1]
    taken, until = 0, last
    while first <= last:
        if taken >= max_bytes:
            piece.rest += _from(wanted, first)
            break
        try:
            slices = storage.read(queue_id, first, until, max_bytes - taken)
        except StorageDamaged as damage:
            low, high = damage.run or _first_damaged(storage, queue_id, first, until)
            if low > first:
                # What stands before it is sound.
                until = low - 1
            else:
                piece.damage = damage
                piece.damaged += _cut(wanted, first, high)
                first, until = high + 1, last
            continue
        kept = slices if len(wanted) == 1 else _only(slices, wanted)
        taken += _cost(slices) if kept is slices else max(_cost(slices), _cost(kept))
        piece.slices += kept
        first = slices[-1].first_sequence + slices[-1].rows.count if slices else until + 1
        if first > until:
            until = last
    return taken


def _first_damaged(storage: ReadsRows, queue_id: int, first: int, last: int) -> Run:
    """The first sequence in [first, last] whose own read fails; called when a read of all of them has failed, and the
    storage does not know which it is."""
    while first < last:
        middle = (first + last) // 2
        try:
            _read_whole(storage, queue_id, first, middle)
        except StorageDamaged:
            last = middle
        else:
            first = middle + 1
    return first, first


def _read_whole(storage: ReadsRows, queue_id: int, first: int, last: int) -> None:
    while first <= last:
        slices = storage.read(queue_id, first, last, 1 << 20)
        if not slices:
            return
        first = slices[-1].first_sequence + slices[-1].rows.count


def _from(runs: Sequence[Run], sequence: int) -> list[Run]:
    return [(max(first, sequence), last) for first, last in runs if last >= sequence]


def _cut(runs: Sequence[Run], low: int, high: int) -> list[Run]:
    return [(max(first, low), min(last, high)) for first, last in runs if last >= low and first <= high]


def _only(slices: Sequence[Slice], wanted: Sequence[Run]) -> list[Slice]:
    members = RunSet(wanted)
    kept: list[Slice] = []
    for part in slices:
        start = part.first_sequence
        for first, last in members.overlap(start, start + part.rows.count - 1):
            kept.append(Slice(first, part.published_at, part.rows.slice(first - start, last - start + 1)))
    return kept
