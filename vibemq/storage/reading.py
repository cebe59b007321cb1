"""Rows for deliveries, read back from storage in pieces of bounded size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vibemq.errors import StorageDamaged
from vibemq.model.runs import Run, RunSet, run_count
from vibemq.model.stored import Slice

SPAN_WASTE_MAX = 8
"""Scattered sequences are read as one stretch while at most this many rows are read for each one wanted."""
SPAN_RUNS_MAX = 256
STRETCH_BYTES_LEAST = 8_192
"""What the read of a stretch counts as: it takes as long as that of so many bytes in small slices."""


class ReadsRows(Protocol):
    """Of a storage provider, what is needed here."""

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]: ...


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
    taken = 0
    while first <= last:
        if taken >= max_bytes:
            piece.rest += _from(wanted, first)
            break
        try:
            slices = storage.read(queue_id, first, last, max_bytes - taken)
        except StorageDamaged as damage:
            middle = _sound_until(storage, queue_id, first, last)
            if middle == first:
                piece.damage = damage
                piece.damaged += _cut(wanted, first, first)
                first += 1
                continue
            slices = storage.read(queue_id, first, middle - 1, max_bytes - taken)
            if not slices:
                first = middle
                continue
        if not slices:
            break
        kept = slices if len(wanted) == 1 else _only(slices, wanted)
        taken += _cost(slices) if kept is slices else max(_cost(slices), _cost(kept))
        piece.slices += kept
        first = slices[-1].first_sequence + slices[-1].rows.count
    return taken


def _sound_until(storage: ReadsRows, queue_id: int, first: int, last: int) -> int:
    """The first sequence in [first, last] whose own read fails; called when a read of all of them has failed."""
    while first < last:
        middle = (first + last) // 2
        try:
            _read_whole(storage, queue_id, first, middle)
        except StorageDamaged:
            last = middle
        else:
            first = middle + 1
    return first


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
