"""Rows that are written ahead of their record."""

import gc
import random
import threading

import pytest

from tests.waiting import wait_until
from vibemq.errors import StorageDamaged, StorageFailed, StorageFull
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.large import PreparedRow
from vibemq.storage.lmdb.journal.recovery import RecoveryReport
from vibemq.storage.lmdb.journal.segment import pack_header
from vibemq.testing.sim_disk import SimDisk

SEGMENT = 4_096
ROW = bytes(range(251)) * 6_000
HEAD, TAIL = b"head!", [b"tail", b"!"]
BODY = HEAD + ROW + b"tail!"


def opened(disk: SimDisk, applied_lsn: int = 0) -> tuple[Journal, RecoveryReport]:
    return Journal.open(disk, "/j", segment_bytes=SEGMENT, applied_lsn=applied_lsn)


def bodies(report: RecoveryReport) -> list[tuple[int, bytes]]:
    return [(record.lsn, record.body) for record in report]


def test_the_record_is_like_one_that_was_written_at_once() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"before"])
    prepared = journal.prepare_row(ROW, len(HEAD))
    journal.append([b"meanwhile"])
    place = journal.append_prepared(HEAD, prepared, TAIL)
    small = journal.append([b"behind"])
    assert place.lsn == 3
    assert small.segment == place.segment, "small records go on behind it"
    assert journal.read(place) == BODY
    journal.close()
    journal, report = opened(disk)
    assert bodies(report) == [(1, b"before"), (2, b"meanwhile"), (3, BODY), (4, b"behind")]
    journal.close()


@pytest.mark.parametrize("seed", range(5))
def test_the_row_is_durable_before_its_record_is_flushed(seed: int) -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    prepared = journal.prepare_row(ROW, len(HEAD))
    journal.append_prepared(HEAD, prepared, TAIL)
    assert journal.sync() == 1
    _, report = opened(disk.crash(random.Random(seed)))
    assert bodies(report) == [(1, BODY)]


@pytest.mark.parametrize("seed", range(5))
def test_a_row_without_its_record_is_nothing(seed: int) -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"before"])
    journal.sync()
    prepared = journal.prepare_row(ROW, len(HEAD))
    for after in (disk.kill(), disk.crash(random.Random(seed))):
        journal, report = opened(after)
        assert bodies(report) == [(1, b"before")]
        assert journal.append([b"next"]).lsn == 2
        journal.close()
    assert prepared.segment is not None


def test_a_row_that_nobody_wants_leaves_its_segment_to_the_next() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    prepared = journal.prepare_row(ROW, len(HEAD))
    assert prepared.segment is not None
    serial = prepared.segment.serial
    del prepared
    gc.collect()
    files = len(disk.listdir("/j"))
    again = journal.prepare_row(ROW[:-5], len(HEAD))
    assert again.segment is not None
    assert again.segment.serial != serial
    assert len(disk.listdir("/j")) == files
    place = journal.append_prepared(HEAD, again, TAIL)
    assert journal.read(place) == HEAD + ROW[:-5] + b"tail!"
    journal.close()
    _, report = opened(disk)
    assert bodies(report) == [(1, HEAD + ROW[:-5] + b"tail!")]


def test_a_row_without_its_record_is_no_record_whatever_it_looks_like() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"before"])
    journal.sync()
    look_alikes = [
        pack_header([b"ghost"], epoch=serial, lsn=lsn, durable_lsn=lsn, kind=1) + b"ghost"
        for serial in range(1, 40)
        for lsn in (2, 3, 9)
    ]
    prepared = journal.prepare_row(b"".join(look_alikes), len(HEAD))
    _, report = opened(disk.kill())
    assert bodies(report) == [(1, b"before")]
    del prepared
    gc.collect()
    journal.pool.give_back()
    journal.close()
    _, report = opened(disk)
    assert bodies(report) == [(1, b"before")]


def test_the_journal_closes_when_nobody_writes_a_row_any_more() -> None:
    """Else the rest of the row would go into whichever file gets the number next."""
    disk = SimDisk()
    journal, _ = opened(disk)
    writes, goes_on = threading.Event(), threading.Event()
    flush = disk.fdatasync
    refused: list[StorageFailed] = []

    def slow_flush(file: int) -> None:
        writes.set()
        assert goes_on.wait(60)
        flush(file)

    def prepare() -> None:
        try:
            journal.prepare_row(bytes(5 << 20), len(HEAD))
        except StorageFailed as error:
            refused.append(error)

    disk.fdatasync = slow_flush  # type: ignore[method-assign]
    writer = threading.Thread(target=prepare)
    writer.start()
    assert writes.wait(60)
    disk.fdatasync = flush  # type: ignore[method-assign]
    closer = threading.Thread(target=journal.close)
    closer.start()
    wait_until(lambda: journal._row_threads._closed)
    assert closer.is_alive()
    goes_on.set()
    closer.join(60)
    writer.join(60)
    assert [str(error) for error in refused] == ["the journal is closed"]
    with pytest.raises(StorageFailed):
        journal.prepare_row(ROW, len(HEAD))


def test_rows_that_have_no_record_yet_count_as_what_a_checkpoint_has_to_move() -> None:
    counts = []
    for together in (False, True):
        disk = SimDisk(capacity=60 << 20)
        journal, _ = Journal.open(disk, "/j", segment_bytes=1 << 20)
        rows: list[PreparedRow] = []
        while len(rows) < 50:
            try:
                rows.append(journal.prepare_row(bytes(4 << 20), len(HEAD)))
            except StorageFull:
                break
            if not together:
                journal.append_prepared(HEAD, rows[-1], [])
        counts.append(len(rows))
    assert 1 < counts[0] == counts[1] < 50


def test_a_row_whose_size_is_damaged_is_damage() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    place = journal.append_prepared(HEAD, journal.prepare_row(ROW, len(HEAD)), TAIL)
    for size in (len(BODY), 2**60, 2**64):
        with pytest.raises(StorageDamaged):
            journal.read_row(place, len(HEAD), lambda _: size)  # noqa: B023


def test_one_row_is_read_without_the_rest() -> None:
    journal, _ = opened(SimDisk())
    place = journal.append_prepared(HEAD, journal.prepare_row(ROW, len(HEAD)), TAIL)
    asked = []

    def size_of(start: bytes) -> int:
        asked.append(start)
        return len(ROW)

    assert journal.read_row(place, len(HEAD), size_of) == ROW
    assert asked == [HEAD]
    assert journal.read_row(place, len(HEAD), lambda start: 0) is None
    plain = journal.append([HEAD, ROW, *TAIL])
    assert journal.read_row(plain, len(HEAD), lambda start: len(ROW)) == ROW


@pytest.mark.parametrize("offset", [0, 40, 33 + len(HEAD) + 700_000, 33 + len(BODY) - 1])
def test_a_damaged_row_is_not_returned(offset: int) -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    place = journal.append_prepared(HEAD, journal.prepare_row(ROW, len(HEAD)), TAIL)
    path = next(path for path in disk.listdir("/j") if int(path.split(".")[0], 16) == place.segment)
    disk.damage(f"/j/{path}", offset, b"\xfe")
    with pytest.raises(StorageDamaged):
        journal.read_row(place, len(HEAD), lambda start: len(ROW))


def test_a_segment_is_not_released_while_a_row_of_it_is_read() -> None:
    journal, _ = opened(SimDisk())
    place = journal.append_prepared(HEAD, journal.prepare_row(ROW, len(HEAD)), TAIL)
    journal.seal()
    journal.sync()

    def checkpoint(start: bytes) -> int:
        journal.release(place.lsn)
        return len(ROW)

    assert journal.read_row(place, len(HEAD), checkpoint) == ROW
    journal.release(place.lsn)
    with pytest.raises(LookupError):
        journal.read_row(place, len(HEAD), lambda start: len(ROW))
