"""Which journal records are believed after a stop of any kind.

Records are believed as one chain: lsn after lsn, from the checkpoint's `applied_lsn` on, over all segments in the
order of their first lsn. Where the chain breaks, later records that are still readable are the *evidence*:

    no evidence, or none that states a durable_lsn at or above the break    torn tail: never confirmed; cut
    evidence that the broken record was durable                             damage: refuse, or save the rest

The note beside the journal (`storage/local/high_water.py`) is evidence too: the last records have none behind them.

Breaks at or below `applied_lsn` do not matter, those records are in the checkpoint.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vibemq.errors import StorageDamaged
from vibemq.storage.lmdb.journal.room import VALUE_BYTES
from vibemq.storage.lmdb.journal.segment import HEADER, LSN_MAX, MARK, JournalRecord, SegmentReader
from vibemq.storage.local.disk import Disk

REPAIR_HINT = "restore a backup, or run `vibemq-admin check --repair` to keep what is readable"


@dataclass(slots=True, eq=False)
class Segment:
    """A journal file that is open. `first_lsn` 0: no valid record at its start."""

    serial: int
    path: str
    file: int
    size: int
    first_lsn: int = 0
    last_lsn: int = 0
    end: int = 0
    """Where the next record goes."""
    urgent: bool = False
    """Made on a full disk for what drains it: no message goes into it before there is room for one."""
    readers: int = 0
    """Who reads a row of it beside all others; it is not released meanwhile."""
    value_bytes: int = VALUE_BYTES
    """Messages up to this size may go into it without another look at the room that is left."""


class JournalPlace(NamedTuple):
    segment: int
    offset: int
    lsn: int
    size: int
    is_mark: bool
    """Says that the record of this lsn was there; is not the record."""


@dataclass(slots=True)
class Chain:
    """The verdict on a set of segments."""

    covered: int
    """The chain reaches up to this lsn; at least `applied_lsn`."""
    believed: list[Segment] = field(default_factory=list)
    unchained: list[Segment] = field(default_factory=list)
    """Hold evidence only; with a torn tail none of it is believed."""
    empty: list[Segment] = field(default_factory=list)
    evidence: list[JournalPlace] = field(default_factory=list)
    evidence_durable_lsn: int = 0
    torn_bytes: int = 0

    @property
    def broken(self) -> int:
        return self.covered + 1

    @property
    def is_damaged(self) -> bool:
        return self.evidence_durable_lsn >= self.broken

    @property
    def break_at(self) -> tuple[str, int] | None:
        """(path, offset) of the first byte that is not believed; None: there is no segment at all."""
        if self.believed:
            return self.believed[-1].path, self.believed[-1].end
        others = self.unchained or self.empty
        return (others[0].path, 0) if others else None


def scan_all(disk: Disk, segments: Sequence[Segment], applied_lsn: int) -> None:
    """Flush the segments, and fill in the lsns and ends of those that may hold a record above `applied_lsn`.

    Released segments keep their old records until they are used again, a few hundred megabytes of them. Records of one
    segment come before those of the next, so where the next begins at or below `applied_lsn + 1` nothing of it counts,
    and its first record is all that is read.
    """
    begun: list[Segment] = []
    for segment in segments:
        # What a dead process wrote may still be in the page cache only. It must not be believed now and lost later. Of
        # what is believed all that no flush is known of is written again besides, see `write_again`.
        disk.fdatasync(segment.file)
        first = SegmentReader(disk, segment.file, segment.serial).record_at(0)
        if first is not None:
            segment.first_lsn = first.lsn
            begun.append(segment)
    begun.sort(key=lambda segment: segment.first_lsn)
    for segment, following in zip(begun, [*begun[1:], None], strict=False):
        if following is not None and segment.first_lsn < following.first_lsn <= applied_lsn + 1:
            segment.last_lsn = following.first_lsn - 1
        else:
            scan(disk, segment)


def scan(disk: Disk, segment: Segment) -> None:
    """Find the valid records of a segment that was flushed, and fill in its lsns and end."""
    for record in SegmentReader(disk, segment.file, segment.serial).records():
        segment.first_lsn = segment.first_lsn or record.lsn
        segment.last_lsn = record.lsn
        segment.end = record.end


def judge(disk: Disk, segments: Sequence[Segment], applied_lsn: int, noted_lsn: int = 0) -> Chain:
    """Chain scanned segments and weigh what lies behind the break.

    Args:
        noted_lsn: everything up to here was durable.
    """
    chain = Chain(covered=applied_lsn, evidence_durable_lsn=noted_lsn)
    for segment in sorted(segments, key=lambda s: s.first_lsn):
        if not segment.first_lsn:
            chain.empty.append(segment)
        elif _continues(chain, segment, applied_lsn):
            chain.believed.append(segment)
            chain.covered = max(chain.covered, segment.last_lsn)
        else:
            chain.unchained.append(segment)
    _weigh(disk, chain)
    return chain


def _continues(chain: Chain, segment: Segment, applied_lsn: int) -> bool:
    if chain.unchained:
        return False
    if segment.last_lsn <= applied_lsn:
        return True
    if chain.covered > applied_lsn and segment.first_lsn <= chain.covered:
        raise StorageDamaged(
            f"journal record {segment.first_lsn} is there twice", path=segment.path, offset=0, hint=REPAIR_HINT
        )
    return segment.first_lsn <= chain.covered + 1


def _weigh(disk: Disk, chain: Chain) -> None:
    last = chain.believed[-1:]
    for segment in [*last, *chain.unchained, *chain.empty]:
        offset = segment.end if segment in last else 0
        reader = SegmentReader(disk, segment.file, segment.serial)
        end = reader.broken_end(offset, chain.covered)
        for record in reader.islands(offset, chain.covered, _lsn_max(segment)):
            place = JournalPlace(segment.serial, record.offset, record.lsn, len(record.body), record.type == MARK)
            chain.evidence.append(place)
            chain.evidence_durable_lsn = max(chain.evidence_durable_lsn, record.durable_lsn)
            end = max(end, record.end)
        chain.torn_bytes += end - offset
        if segment not in last and end > offset:
            segment.end = end
    chain.evidence.sort(key=lambda place: (place.lsn, place.is_mark))


def _lsn_max(segment: Segment) -> int:
    """No record of the segment has a higher lsn: they follow one another, and none takes less than its header.

    Where the beginning is broken, any lsn may stand: nobody can tell how many segments before it are gone. The epoch,
    which nobody can guess, then says by itself that a record is none of a user's or of an earlier life.
    """
    return segment.first_lsn + segment.size // HEADER.size if segment.first_lsn else LSN_MAX


def refuse_damage(chain: Chain, folder: str) -> None:
    """Raise StorageDamaged when a record that was durable is broken; it names the place."""
    if chain.is_damaged:
        path, offset = chain.break_at or (folder, 0)
        raise StorageDamaged(
            f"journal record {chain.broken} is broken although it was durable",
            path=path,
            offset=offset,
            hint=REPAIR_HINT,
        )


class RecoveryReport:
    """What recovery found; iterate it for the records above `applied_lsn`, read from disk as you go.

    Iterate before the first append or release of the journal.
    """

    def __init__(self, disk: Disk, chain: Chain, *, applied_lsn: int, repaired: bool) -> None:
        self._disk = disk
        self._chain = chain
        self._applied_lsn = applied_lsn
        found = max([chain.covered, chain.evidence_durable_lsn, *(p.lsn for p in chain.evidence)])
        self.last_lsn = found if repaired else chain.covered
        self.cut_records = 0 if repaired else len(chain.evidence)
        self.cut_bytes = 0 if repaired else chain.torn_bytes
        self.cut_at = chain.break_at if self.cut_bytes else None
        self.lost = _lost(chain) if repaired else []
        """Inclusive lsn ranges that repair could not save."""

    def __iter__(self) -> Iterator[JournalRecord]:
        for segment in self._chain.believed:
            if segment.last_lsn > self._applied_lsn:
                for record in SegmentReader(self._disk, segment.file, segment.serial).records():
                    if record.lsn > self._applied_lsn and record.type != MARK:
                        yield record
        if self.last_lsn > self._chain.covered:
            yield from self._saved()

    def _saved(self) -> Iterator[JournalRecord]:
        segments = {s.serial: s for s in [*self._chain.believed, *self._chain.unchained, *self._chain.empty]}
        saved = self._chain.covered
        for place in self._chain.evidence:
            if place.is_mark or place.lsn <= saved:
                # No record is applied twice, whatever stands in the files.
                continue
            segment = segments[place.segment]
            record = SegmentReader(self._disk, segment.file, segment.serial).record_at(place.offset)
            if record is not None:
                saved = record.lsn
                yield record


def _lost(chain: Chain) -> list[tuple[int, int]]:
    lost: list[tuple[int, int]] = []
    expected = chain.broken
    for place in chain.evidence:
        last = place.lsn if place.is_mark else place.lsn - 1
        if last >= expected:
            lost.append((expected, last))
        expected = max(expected, place.lsn + 1)
    if chain.evidence_durable_lsn >= expected:
        lost.append((expected, chain.evidence_durable_lsn))
    return lost
