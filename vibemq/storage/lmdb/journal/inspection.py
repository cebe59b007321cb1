"""Reading a journal that stays as it is: no torn tail is cut off, no segment is prepared."""

from collections.abc import Iterator
from contextlib import contextmanager

from vibemq.storage.lmdb.journal.recovery import RecoveryReport, Segment, judge, refuse_damage, scan_all
from vibemq.storage.lmdb.journal.segment import serial_of
from vibemq.storage.local.disk import Disk


@contextmanager
def inspected(disk: Disk, folder: str, *, applied_lsn: int, noted_lsn: int) -> Iterator[RecoveryReport]:
    """What `Journal.open` would find, readable inside of the block. A missing folder is an empty journal.

    Args:
        disk: opens files for reading only.

    Raises:
        StorageDamaged: a record that was durable is broken; names file and offset.
    """
    segments = _open_segments(disk, folder)
    try:
        scan_all(disk, segments, applied_lsn)
        chain = judge(disk, segments, applied_lsn, noted_lsn)
        refuse_damage(chain, folder)
        yield RecoveryReport(disk, chain, applied_lsn=applied_lsn, repaired=False)
    finally:
        for segment in segments:
            disk.close(segment.file)


def _open_segments(disk: Disk, folder: str) -> list[Segment]:
    try:
        names = disk.listdir(folder)
    except FileNotFoundError:
        return []
    segments: list[Segment] = []
    for name in names:
        # One that is not named for good yet has no record.
        serial = serial_of(name)
        if serial is not None:
            file = disk.open(f"{folder}/{name}", readonly=True)
            segments.append(Segment(serial, f"{folder}/{name}", file, disk.size(file)))
    return segments
