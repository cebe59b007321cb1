"""Rot in the journal: every bit, sector, page and cut of it, against recovery and its repair.

Three things can come of damage: recovery refuses and names the place; the damage lies outside the records that count;
or it hit the very last flushed record, behind which nothing was written that could say so. The last is a torn tail to
every reader, and is counted apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from vibemq.errors import StorageDamaged
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.recovery import RecoveryReport
from vibemq.storage.lmdb.journal.segment import HEADER, MARK, JournalRecord, SegmentReader, serial_of
from vibemq.testing.sim_disk import SimDisk

FOLDER = "/journal"
SMEAR = 16


class Rot(NamedTuple):
    """`size` bytes from `offset` on are changed; a cut goes to the end of the file."""

    kind: str
    path: str
    offset: int
    size: int
    bit: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of {self.size} bytes at {self.offset} of {self.path}"


def flips(path: str, size: int, stride: int, phase: int = 0) -> Iterator[Rot]:
    """One bit in every `stride` bits."""
    for bit in range(phase % stride, 8 * size, stride):
        yield Rot("flip", path, bit // 8, 1, bit % 8)


def zeroes(path: str, size: int, length: int) -> Iterator[Rot]:
    for offset in range(0, size, length):
        yield Rot("zeroes", path, offset, min(length, size - offset))


def cuts(path: str, size: int, stride: int, phase: int = 0) -> Iterator[Rot]:
    for offset in range(phase % stride, size, stride):
        yield Rot("cut", path, offset, size - offset)


def smears(path: str, size: int, stride: int, phase: int = 0) -> Iterator[Rot]:
    """A few wrong bytes in a row."""
    for offset in range(phase % stride, size, stride):
        yield Rot("smear", path, offset, min(SMEAR, size - offset))


def damaged(content: bytes, rot: Rot) -> bytes:
    if rot.kind == "cut":
        return content[: rot.offset]
    old = content[rot.offset : rot.offset + rot.size]
    if rot.kind == "smear":
        new = bytes(byte ^ 0xA5 for byte in old)
    else:
        new = bytes([old[0] ^ 1 << rot.bit]) if rot.kind == "flip" else bytes(len(old))
    return content[: rot.offset] + new + content[rot.offset + rot.size :]


@dataclass(slots=True)
class Counts:
    cases: int = 0
    detected: int = 0
    harmless: int = 0
    tail: int = 0
    """The last flushed batch was hit, and nothing that is left says that it was durable."""
    flipped_tail: int = 0
    repaired: int = 0
    findings: list[str] = field(default_factory=list)


class RottenJournal:
    """All records of a journal's files as they are when sound."""

    def __init__(self, folder: Path, applied_lsn: int) -> None:
        self._applied_lsn = applied_lsn
        self._files = {f"{FOLDER}/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.journal"))}
        self._segment_bytes = max(map(len, self._files.values()))
        sound = self._disk(None)
        self.records: list[JournalRecord] = []
        for path in self._files:
            serial = serial_of(path.rpartition("/")[2])
            assert serial is not None
            records = list(SegmentReader(sound, sound.open(path), serial).records())
            if records and records[-1].lsn > applied_lsn:
                self.records += records
        self.records.sort(key=lambda record: (record.lsn, record.type == MARK))
        self._live = {r.lsn: r for r in self.records if r.lsn > applied_lsn and r.type != MARK}

    @property
    def sizes(self) -> dict[str, int]:
        """Used bytes of every file that holds records, and one sector of what follows."""
        ends: dict[str, int] = {}
        for record in self.records:
            path = self._path(record.segment)
            ends[path] = max(ends.get(path, 0), min(record.end + 512, len(self._files[path])))
        return ends

    def header_flips(self, path: str, cases: int) -> Iterator[Rot]:
        """Flips in the headers of its records, every bit of them if there is room for that many."""
        headers = [record.offset for record in self.records if self._path(record.segment) == path]
        bits = 8 * HEADER.size
        stride = max(1, bits * len(headers) // max(1, cases))
        for bit in range(0, bits * len(headers), stride):
            yield Rot("flip", path, headers[bit // bits] + bit % bits // 8, 1, bit % 8)

    def check(self, rot: Rot, counts: Counts) -> None:
        counts.cases += 1
        try:
            problem = self._check(rot, counts)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            counts.findings.append(f"{rot}: {problem}")

    def _check(self, rot: Rot, counts: Counts) -> str | None:
        if damaged(self._files[rot.path], rot) == self._files[rot.path]:
            counts.harmless += 1
            return None
        try:
            _, report = self._open(self._disk(rot))
        except StorageDamaged as error:
            counts.detected += 1
            return self._check_repair(rot, counts) if self._names(error, rot) else f"the error names no place: {error}"
        found = {record.lsn: record.body for record in report}
        for lsn, body in found.items():
            if lsn not in self._live or self._live[lsn].body != body:
                return f"record {lsn} is served with other bytes"
        if len(found) == len(self._live):
            counts.harmless += 1
            return None
        return self._check_tail(rot, report.last_lsn, counts)

    def _check_tail(self, rot: Rot, last_lsn: int, counts: Counts) -> str | None:
        """Records were cut. Only right if nothing that is left says that they were durable."""
        witnesses = [r for r in self.records if r.durable_lsn > last_lsn and r.lsn > last_lsn and not self._hit(r, rot)]
        if witnesses:
            return f"records above {last_lsn} were cut although record {witnesses[0].lsn} says that they were durable"
        counts.tail += 1
        counts.flipped_tail += rot.kind == "flip"
        return None

    def _names(self, error: StorageDamaged, rot: Rot) -> bool:
        return FOLDER in str(error)

    def _check_repair(self, rot: Rot, counts: Counts) -> str | None:
        """Repair saves every record that was not hit, and lists the others."""
        _, report = self._open(self._disk(rot), repair=True)
        found = {record.lsn: record.body for record in report}
        for lsn, body in found.items():
            if lsn not in self._live or self._live[lsn].body != body:
                return f"repair saved record {lsn} with other bytes"
        missing = self._live.keys() - found.keys()
        listed = {lsn for first, last in report.lost for lsn in range(first, last + 1)}
        if missing != listed & self._live.keys():
            return f"records {sorted(missing)} are lost, {sorted(listed)} are listed"
        spared = [lsn for lsn in missing if not self._hit(self._live[lsn], rot)]
        if spared:
            return f"repair lost records {spared}, which were whole"
        counts.repaired += 1
        return None

    def check_reading(self, rot: Rot, counts: Counts) -> None:
        """Rot that comes while the journal is open: reads of what it hit raise, all others answer."""
        counts.cases += 1
        disk = self._disk(None)
        journal, report = self._open(disk)
        list(report)
        self._damage(disk, rot)
        hit = {lsn for lsn, record in self._live.items() if self._hit(record, rot)}
        changed = damaged(self._files[rot.path], rot) != self._files[rot.path]
        for lsn, record in self._live.items():
            try:
                body = journal.read(JournalPosition(lsn, record.segment, record.offset, len(record.body)))
            except StorageDamaged:
                if lsn not in hit:
                    counts.findings.append(f"{rot}: reading the sound record {lsn} fails")
                continue
            if body != record.body:
                counts.findings.append(f"{rot}: record {lsn} was read with other bytes")
        if hit and changed:
            counts.detected += 1
        else:
            counts.harmless += 1

    # -- inside ---------------------------------------------------------------------------------------------------

    def _path(self, serial: int) -> str:
        return next(path for path in self._files if serial_of(path.rpartition("/")[2]) == serial)

    def _hit(self, record: JournalRecord, rot: Rot) -> bool:
        return (
            self._path(record.segment) == rot.path and record.offset < rot.offset + rot.size and rot.offset < record.end
        )

    def _disk(self, rot: Rot | None) -> SimDisk:
        disk = SimDisk()
        disk.mkdir(FOLDER)
        for path, content in self._files.items():
            disk.put(path, damaged(content, rot) if rot is not None and rot.path == path else content)
        disk.fsync_dir("/")
        disk.fsync_dir(FOLDER)
        return disk

    def _damage(self, disk: SimDisk, rot: Rot) -> None:
        disk.put(rot.path, damaged(self._files[rot.path], rot))

    def _open(self, disk: SimDisk, *, repair: bool = False) -> tuple[Journal, RecoveryReport]:
        return Journal.open(
            disk, FOLDER, segment_bytes=self._segment_bytes, applied_lsn=self._applied_lsn, repair=repair
        )
