"""Fuzz targets: journal segments as a damaged disk may hold them, one by one and as a whole journal."""

import struct
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice, pairwise
from typing import cast

from tests.proof.fuzz_engine import Broken, Target
from tests.proof.fuzz_store import BYTE_WORDS
from vibemq.errors import StorageDamaged, StorageFailed
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.segment import DATA, HEADER, LSN_MAX, MARK, SegmentReader, pack_header, segment_name
from vibemq.storage.local.disk import Disk
from vibemq.testing.sim_disk import SimDisk

FOLDER = "/j"
SEGMENT_BYTES = 1024
ITEMS_MAX = 200
"""Of a script for several segments: each file that is opened costs the simulated disk more than its bytes do."""
_PLACE = struct.Struct("!BBBBB")
"""An item of a journal script: verb, epochs back, lsn step, durable lsn, size of what follows."""


class OneFile:
    """As much of a disk as a reader of one segment sees."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def size(self, file: int) -> int:
        return len(self._content)

    def pread(self, file: int, size: int, offset: int) -> bytes:
        return self._content[offset : offset + size]


def segment(data: bytes) -> Hashable:
    """One segment, as in `journal_store`: the records are a chain, islands lie behind it, nothing is read twice."""
    content, serial = _segment_of(data)
    reader = SegmentReader(cast(Disk, OneFile(content)), 0, serial)
    chain = list(reader.records())
    end = chain[-1].end if chain else 0
    last = chain[-1].lsn if chain else 0
    for record in chain:
        if content[record.offset + HEADER.size : record.end] != record.body:
            raise Broken("a record's body is not what stands in the segment")
    if any(after.lsn - before.lsn not in (0, 1) for before, after in pairwise(chain)):
        raise Broken("the records are no chain")
    islands = list(reader.islands(end, last, LSN_MAX))
    if any(before.end > after.offset for before, after in pairwise([*chain, *islands])):
        raise Broken("records lie upon each other")
    if not end <= reader.broken_end(end, last) <= len(content):
        raise Broken("a broken record ends outside its segment")
    return min(len(chain), 4), min(len(islands), 3), any(record.type == MARK for record in chain)


def _segment_of(script: bytes) -> tuple[bytes, int]:
    serial = 3
    content = bytearray()
    for verb, epoch, lsn, durable, piece in _items(script):
        if verb & 0xC0 == 0xC0:
            content += piece
        else:
            content += _record(piece, epoch=serial - epoch % 3, lsn=lsn, durable=durable, verb=verb)
    return bytes(content).ljust(256, b"\0"), serial


def _items(script: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """(verb, epoch, lsn, durable lsn, bytes) of each item; lsns count on, unless an item says otherwise."""
    at, lsn = 0, 1
    while at + _PLACE.size <= len(script):
        verb, epoch, step, durable, size = _PLACE.unpack_from(script, at)
        at += _PLACE.size
        piece = b"" if verb & 0xE0 == 0xE0 else script[at : at + size % 48]
        at += len(piece)
        if verb < 0xC0 and verb & 1:
            lsn = max(lsn + step % 4 - 1, 0)
        yield verb, epoch, lsn, durable, piece
        lsn += verb < 0xC0 and not _is_mark(verb)


def journal_store(data: bytes) -> Hashable:
    """A script of segments: records with any fields and right or wrong checksums, and plain garbage between them.

    What opens gives an unbroken chain of records; what is appended then is found behind it by the next opening, and
    nothing else is.
    """
    if len(data) < 2:
        return None
    applied, repair = data[0] & 7, bool(data[0] & 8)
    disk = _disk_of(data[1:])
    opened, report = Journal.open(disk, FOLDER, segment_bytes=SEGMENT_BYTES, applied_lsn=applied, repair=repair)
    found = [(record.lsn, record.body) for record in report]
    lsns = [lsn for lsn, _ in found]
    if not report.lost and lsns != list(range(applied + 1, applied + 1 + len(lsns))):
        raise Broken(f"records {lsns} are no chain above {applied}")
    position = opened.append([b"after"])
    if position.lsn <= max(lsns, default=applied):
        raise Broken(f"lsn {position.lsn} is used twice")
    opened.close()
    if not report.lost:
        _again(disk, applied, [*found, (position.lsn, b"after")])
    return min(len(found), 3), min(report.cut_records, 2), report.cut_bytes > 0, min(len(report.lost), 2), repair


def _again(disk: SimDisk, applied: int, expected: list[tuple[int, bytes]]) -> None:
    opened, report = Journal.open(disk, FOLDER, segment_bytes=SEGMENT_BYTES, applied_lsn=applied)
    found = [(record.lsn, record.body) for record in report]
    opened.abandon()
    if found != expected:
        raise Broken(f"opened again, the journal holds {found} instead of {expected}")


def _disk_of(script: bytes) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(FOLDER)
    serial = 1
    content = bytearray()
    for verb, epoch, lsn, durable, piece in islice(_items(script), ITEMS_MAX):
        if verb & 0xE0 == 0xE0:
            _put_segment(disk, serial, content, SEGMENT_BYTES if verb & 1 else 0)
            content = bytearray()
            serial += 1 + (epoch & 3)
        elif verb & 0xE0 == 0xC0:
            content += piece
        elif content or not _is_mark(verb):
            content += _record(piece, epoch=serial - epoch % 3, lsn=lsn, durable=durable, verb=verb)
    _put_segment(disk, serial, content, SEGMENT_BYTES)
    return disk


def _is_mark(verb: int) -> bool:
    return verb & 0x18 == 0x18


def _record(body: bytes, *, epoch: int, lsn: int, durable: int, verb: int) -> bytes:
    if _is_mark(verb):
        # The journal writes a mark only behind the record whose lsn it repeats.
        lsn = max(lsn - 1, 0)
        return pack_header([], epoch=max(epoch, 0), lsn=lsn, durable_lsn=lsn, kind=MARK)
    epoch = max(epoch, 0)
    durable_lsn = durable if verb & 4 else min(durable, max(lsn - 1, 0))
    header = pack_header([body], epoch=epoch, lsn=lsn, durable_lsn=durable_lsn, kind=DATA)
    if verb & 2:
        # The length lies, under a checksum that is right for the rest or is not.
        header = struct.pack("!I", (len(body) + durable) % 2**32) + header[4:]
    return header + body


def _put_segment(disk: SimDisk, serial: int, content: bytearray, size: int) -> None:
    file = disk.open(f"{FOLDER}/{segment_name(serial)}", create=True)
    whole = bytes(content).ljust(size, b"\0")
    if whole:
        disk.pwritev(file, [whole], 0)
    disk.close(file)


def _journal_seeds() -> Iterable[bytes]:
    record = _PLACE.pack(0, 0, 0, 0, 5) + b"hello"
    torn, new = _PLACE.pack(2, 0, 0, 9, 4) + b"torn", _PLACE.pack(0xE1, 0, 0, 0, 0)
    mark, stale = _PLACE.pack(0x18, 0, 0, 3, 0), _PLACE.pack(0, 1, 0, 0, 3) + b"old"
    raw, durable = _PLACE.pack(0xC0, 0, 0, 0, 8) + bytes(8), _PLACE.pack(4, 0, 0, 2, 2) + b"ok"
    for flags in (b"\0", b"\x02", b"\x08", b"\x09"):
        yield flags + record * 3
        yield flags + record * 2 + new + record * 2 + torn
        yield flags + record * 2 + mark + stale + raw
        yield flags + record + torn + durable + new + record
        yield flags + stale + new + record * 2 + raw + durable


def _segment_seeds() -> Iterable[bytes]:
    yield from (seed[1:] for seed in _journal_seeds())


TARGETS = [
    Target("segment", "one journal segment", segment, (), _segment_seeds, BYTE_WORDS, 400),
    Target(
        "journal-store",
        "whole journals: scan, recovery, next start",
        journal_store,
        (StorageDamaged, StorageFailed),
        _journal_seeds,
        (*BYTE_WORDS, bytes(HEADER.size)),
        240,
        torture_cases=200_000,
        is_decoder=False,
    ),
]
