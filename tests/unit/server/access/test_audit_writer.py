"""Records on their way to the file: in order, in a thread, and what becomes of them when the disk takes nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import wait_until
from vibemq.server.access.audit_file import AuditFile, oldest_first
from vibemq.server.access.audit_writer import KEPT_MAX, AuditWriter


class Disk(AuditFile):
    """May be full."""

    def __init__(self, folder: Path, *, full: bool = False) -> None:
        super().__init__(folder)
        self.full = full
        self.flushes = 0

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().append(records)

    def flush(self) -> None:
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
    wait_until(lambda: writer.trouble)
    assert "No space left" in writer.trouble
    assert str(tmp_path) in writer.trouble
    wait_until(lambda: writer._lost == 7)
    disk.full = False
    wait_until(lambda: not writer.trouble)
    writer.close()
    assert numbers(tmp_path) == [*range(KEPT_MAX), None]
    *_, (_, last) = oldest_first(tmp_path, (0, 0))
    assert json.loads(last) == {"at": 5_000, "event": "audit.lost", "operation": "audit.lost", "count": 7}


def test_a_folder_that_cannot_be_made_is_told_before_there_is_anything_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = AuditWriter(AuditFile(tmp_path / "file" / "audit"))
    writer.start()
    wait_until(lambda: writer.trouble)
    writer.close()
