"""Records on their way to the file: in order, in a thread, and what becomes of them when the disk takes nothing."""

import errno
import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.waiting import wait_until
from vibemq.server.access.audit_file import (
    RESERVE_BYTES,
    RESERVE_FILE,
    AuditFile,
    FlushFailed,
    numbers_in,
    oldest_first,
)
from vibemq.server.access.audit_writer import KEPT_MAX, QUEUED_MAX, AuditWriter


class Disk(AuditFile):
    """May be full."""

    def __init__(self, folder: Path, *, full: bool = False) -> None:
        super().__init__(folder)
        self.full = full
        self.breaks = False
        self.hangs = Event()
        self.hangs.set()
        self.flushes = 0

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.hangs.wait()
        super().append(records)

    def flush(self) -> None:
        if self.breaks:
            raise FlushFailed(5, "Input/output error")
        super().flush()
        self.flushes += 1


def numbers(folder: Path) -> list[int | None]:
    return [json.loads(line).get("number") for _, line in oldest_first(folder, (0, 0))]


def test_everything_is_there_in_order_after_the_end(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    writer = AuditWriter(disk)
    writer.put({"number": 0})
    writer.start()
    for number in range(1, 3_000):
        writer.put({"number": number})
    writer.close()
    assert numbers(tmp_path) == list(range(3_000))
    assert disk.flushes


def test_what_was_written_is_flushed_although_nothing_follows(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    writer = AuditWriter(disk)
    writer.start()
    writer.put({"number": 1})
    wait_until(lambda: disk.flushes)
    writer.close()


def test_a_full_disk_is_told_and_caught_up_with(tmp_path: Path) -> None:
    disk = Disk(tmp_path, full=True)
    writer = AuditWriter(disk, wall=lambda: 5.0)
    writer.start()
    for number in range(KEPT_MAX + 7):
        writer.put({"number": number})
    wait_until(lambda: "No space left" in writer.trouble)
    assert str(tmp_path) in writer.trouble
    wait_until(lambda: writer._lost == 7)
    disk.full = False
    wait_until(lambda: not writer.trouble)
    writer.close()
    assert numbers(tmp_path) == [*range(KEPT_MAX), None]
    *_, (_, last) = oldest_first(tmp_path, (0, 0))
    assert json.loads(last) == {"at": 5_000, "event": "audit.lost", "operation": "audit.lost", "count": 7}


class SmallDisk(AuditFile):
    """With room for the reserve and little beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.room = RESERVE_BYTES + 100
        self.flushes = 0

    def _write(self, data: bytes) -> None:
        kept = RESERVE_BYTES if (self.folder / RESERVE_FILE).exists() else 0
        if self._size + len(data) + kept > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._write(data)

    def reserve(self) -> None:
        if self._size + RESERVE_BYTES > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().reserve()

    def flush(self) -> None:
        super().flush()
        self.flushes += 1


def test_what_was_done_before_a_full_disk_is_known_of_has_its_record(tmp_path: Path) -> None:
    """Whoever refuses changes then has refused none before."""
    disk = SmallDisk(tmp_path)
    writer = AuditWriter(disk, monotonic=count().__next__)
    writer.start()
    writer.put({"number": 1, "arguments": "x" * 1_000})
    wait_until(lambda: disk.flushes)
    writer.catch_up()
    # What is flushed is safe; the next record has no room all the same.
    assert "No space left" in writer.trouble
    assert numbers(tmp_path) == [1]
    assert not (tmp_path / RESERVE_FILE).exists()
    disk.room *= 2
    wait_until(lambda: not writer.trouble)
    assert (tmp_path / RESERVE_FILE).stat().st_blocks * 512 >= RESERVE_BYTES
    writer.close()


def test_a_disk_that_was_full_before_the_start_is_known_of_before_the_first_record(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path)
    disk.room = 10
    writer = AuditWriter(disk)
    writer.start()
    writer.catch_up()
    assert "No space left" in writer.trouble
    writer.close()


def test_a_folder_that_cannot_be_made_is_told_before_there_is_anything_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = AuditWriter(AuditFile(tmp_path / "file" / "audit"))
    assert "has not been opened yet" in writer.trouble
    writer.start()
    wait_until(lambda: "Not a directory" in writer.trouble)
    writer.close()


def test_trouble_is_over_after_the_repair_although_nothing_is_to_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "audit"
    blocked.write_text("")
    writer = AuditWriter(AuditFile(blocked))
    writer.start()
    wait_until(lambda: "Not a directory" in writer.trouble)
    blocked.unlink()
    wait_until(lambda: not writer.trouble)
    writer.close()


def test_what_waits_behind_a_write_that_hangs_is_bounded_and_counted(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.hangs.clear()
    writer = AuditWriter(disk)
    writer.start()
    writer.put({"number": 0})
    wait_until(lambda: writer._waiting and not writer._records.qsize())
    for number in range(1, QUEUED_MAX + 4):
        writer.put({"number": number})
    assert "a write does not come back" in writer.trouble
    assert writer._records.qsize() == QUEUED_MAX
    disk.hangs.set()
    wait_until(lambda: not writer.trouble)
    writer.close()
    told = [json.loads(line) for _, line in oldest_first(tmp_path, (0, 0))]
    assert sum(record["count"] for record in told if record.get("event") == "audit.lost") >= 3
    assert told[0] == {"number": 0}


def test_after_a_failed_flush_it_goes_on_in_a_new_file_and_says_so(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.breaks = True
    writer = AuditWriter(disk, wall=lambda: 5.0)
    writer.start()
    writer.put({"number": 1})
    wait_until(lambda: "Input/output error" in writer.trouble)
    writer.put({"number": 2})
    # It fails again and again, and leaves one new file at most.
    failed_at = writer._flushed_at
    wait_until(lambda: writer._flushed_at > failed_at)
    assert "Input/output error" in writer.trouble
    disk.breaks = False
    wait_until(lambda: not writer.trouble)
    writer.close()
    assert numbers_in(tmp_path) == [1, 2]
    told = [json.loads(line) for _, line in oldest_first(tmp_path, (2, 0))]
    assert told[0] == {"at": 5_000, "event": "audit.repeated", "operation": "audit.repeated", "count": 1}
    assert [record.get("number") for record in told[1:]] == [1, 2]


def test_a_reader_waits_for_what_was_put_before(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.hangs.clear()
    writer = AuditWriter(disk)
    writer.start()
    writer.put({"number": 1})
    wait_until(lambda: writer._waiting and not writer._records.qsize())
    writer.put({"number": 2})
    reader = Thread(target=writer.catch_up)
    reader.start()
    wait_until(lambda: writer._records.qsize() == 2)
    assert reader.is_alive()
    disk.hangs.set()
    reader.join()
    assert numbers(tmp_path) == [1, 2]
    writer.close()


def test_a_reader_is_not_kept_by_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, full=True)
    writer = AuditWriter(disk)
    writer.start()
    writer.put({"number": 1})
    writer.catch_up()
    assert "No space left" in writer.trouble
    disk.full = False
    writer.close()
    writer.catch_up()
    assert numbers(tmp_path) == [1]
