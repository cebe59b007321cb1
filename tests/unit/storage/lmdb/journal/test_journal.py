import errno
import os
import random
from collections.abc import Sequence

import pytest

from vibemq.errors import StorageDamaged, StorageFailed, StorageFull
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.recovery import RecoveryReport
from vibemq.storage.lmdb.journal.segment import HEADER, pack_header, read_segment, segment_name, serial_of
from vibemq.storage.lmdb.journal.segment_pool import FREE_SEGMENTS_MAX
from vibemq.testing.sim_disk import SimDisk

SEGMENT = 1024


def opened(disk: SimDisk, applied_lsn: int = 0, *, repair: bool = False) -> tuple[Journal, RecoveryReport]:
    return Journal.open(disk, "/j", segment_bytes=SEGMENT, applied_lsn=applied_lsn, repair=repair)


def bodies(report: RecoveryReport) -> dict[int, bytes]:
    return {record.lsn: record.body for record in report}


def filled(count: int, size: int = 100) -> tuple[SimDisk, list[JournalPosition]]:
    """A journal of `count` synced records that was not closed."""
    disk = SimDisk()
    journal, _ = opened(disk)
    positions = []
    for number in range(count):
        positions.append(journal.append([bytes([number]) * size]))
        journal.sync()
    return disk.kill(), positions


def path_of(position: JournalPosition) -> str:
    return f"/j/{segment_name(position.segment)}"


def spoil(disk: SimDisk, position: JournalPosition) -> None:
    disk.damage(path_of(position), position.offset + HEADER.size, b"spoilt")


def test_names() -> None:
    assert serial_of(segment_name(0x1F)) == 0x1F
    assert serial_of("data.mdb") is None
    assert serial_of("zzzzzzzzzzzzzzzz.journal") is None


def test_records_come_back_in_order_with_their_places() -> None:
    disk = SimDisk()
    journal, report = opened(disk)
    assert (bodies(report), report.last_lsn) == ({}, 0)
    places = [journal.append([b"a", b"", b"bc"]), journal.append([], kind=7), journal.append([b"z" * 900])]
    assert [p.lsn for p in places] == [1, 2, 3]
    assert [journal.read(p) for p in places] == [b"abc", b"", b"z" * 900]
    journal.close()
    _, report = opened(disk)
    records = list(report)
    assert [(r.lsn, r.type, r.body) for r in records] == [(1, 1, b"abc"), (2, 7, b""), (3, 1, b"z" * 900)]
    assert [(r.lsn, r.segment, r.offset, len(r.body)) for r in records] == places


def test_a_record_bigger_than_a_segment_gets_its_own() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    sent = [b"s" * 10, b"B" * 5000, b"t" * 10]
    for body in sent:
        journal.append([body])
    journal.close()
    journal, report = opened(disk)
    assert list(bodies(report).values()) == sent
    journal.release(3)
    journal.pool.give_back()
    assert journal.stats().bytes_on_disk % SEGMENT == 0


def test_sync_says_what_is_durable_and_flushes_each_dirty_segment_once() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"x" * 900])
    journal.append([b"x" * 900])
    disk.log.clear()
    assert journal.sync() == 2
    assert disk.log == ["fdatasync ", "fdatasync "]
    assert journal.sync() == 2
    assert len(disk.log) == 2


def test_an_append_is_one_write() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"x"])
    disk.log.clear()
    journal.append([b"y", b"z"])
    assert len(disk.log) == 1


def test_sealed_segments_are_listed_when_durable_and_released_when_applied() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    for _ in range(4):
        journal.append([b"x" * 600])
    assert journal.sealed_segments() == []
    journal.sync()
    assert [(s.first_lsn, s.last_lsn) for s in journal.sealed_segments()] == [(1, 1), (2, 2), (3, 3)]
    journal.seal()
    assert [s.last_lsn for s in journal.sealed_segments()] == [1, 2, 3, 4]
    journal.release(3)
    assert [s.last_lsn for s in journal.sealed_segments()] == [4]
    assert journal.append([b"x"]).lsn == 5


def test_released_segments_are_recycled_under_a_new_serial() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    seen = set()
    for _ in range(50):
        position = journal.append([b"x" * 600])
        seen.add(position.segment)
        journal.sync()
        journal.release(position.lsn - 1)
        journal.pool.prepare_spare()
    assert len(seen) == 50
    assert len(disk.listdir("/j")) <= 4


def test_segments_of_a_burst_are_given_back_one_at_a_time() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    for _ in range(FREE_SEGMENTS_MAX + 5):
        journal.append([b"x" * 600])
    journal.sync()
    journal.release(journal.last_lsn)
    assert journal.stats().spares == FREE_SEGMENTS_MAX + 4, "all but the active one"
    for left in (3, 2, 1, 0, 0):
        journal.pool.give_back()
        assert journal.stats().spares == FREE_SEGMENTS_MAX + left
        assert len(disk.listdir("/j")) == FREE_SEGMENTS_MAX + left + 1


def test_an_outsized_segment_is_given_back_first() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"x" * 3 * SEGMENT])
    journal.append([b"x"])
    journal.sync()
    journal.release(journal.last_lsn)
    assert max(disk.size(disk.open(f"/j/{name}")) for name in disk.listdir("/j")) > SEGMENT
    journal.pool.give_back()
    assert max(disk.size(disk.open(f"/j/{name}")) for name in disk.listdir("/j")) == SEGMENT


def test_reading_a_released_record_says_so() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    position = journal.append([b"x"])
    journal.sync()
    journal.seal()
    journal.release(position.lsn)
    with pytest.raises(LookupError):
        journal.read(position)


def test_recovery_skips_what_is_applied() -> None:
    disk, _ = filled(20)
    journal, report = opened(disk, 15)
    assert list(bodies(report)) == [16, 17, 18, 19, 20]
    assert journal.append([b"next"]).lsn == 21


def test_a_checkpoint_ahead_of_the_journal_sets_the_lsn() -> None:
    disk, _ = filled(3)
    journal, report = opened(disk, 10)
    assert bodies(report) == {}
    assert journal.append([b"next"]).lsn == 11


def test_a_torn_tail_is_cut_counted_and_never_comes_back() -> None:
    disk, positions = filled(5)
    spoil(disk, positions[-1])
    journal, report = opened(disk)
    assert (report.last_lsn, report.cut_bytes, report.cut_records) == (4, 133, 0)
    assert report.cut_at == (path_of(positions[-1]), positions[-1].offset)
    assert journal.append([b"new"]).lsn == 5
    journal.sync()
    _, report = opened(disk.kill())
    assert bodies(report)[5] == b"new"
    assert report.cut_bytes == 0


def test_records_behind_a_torn_one_are_cut_with_it() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    positions = [journal.append([b"x" * 300]) for _ in range(7)]
    spoil(disk, positions[1])
    _, report = opened(disk.kill())
    assert (list(bodies(report)), report.cut_records) == ([1], 5)
    _, report = opened(disk.kill())
    assert list(bodies(report)) == [1]


def test_damage_below_the_durable_lsn_is_refused_with_its_place() -> None:
    disk, positions = filled(20)
    spoil(disk, positions[3])
    with pytest.raises(StorageDamaged) as error:
        opened(disk)
    assert (error.value.path, error.value.offset) == (path_of(positions[3]), positions[3].offset)


def test_damage_below_the_applied_lsn_harms_nobody() -> None:
    disk, positions = filled(20)
    spoil(disk, positions[3])
    _, report = opened(disk, 12)
    assert list(bodies(report)) == list(range(13, 21))


def test_repair_keeps_every_readable_record_and_lists_the_rest() -> None:
    disk, positions = filled(20)
    for index in (3, 9, 10):
        spoil(disk, positions[index])
    journal, report = opened(disk, repair=True)
    assert report.lost == [(4, 4), (10, 11)]
    assert list(bodies(report)) == [n for n in range(1, 21) if n not in (4, 10, 11)]
    assert journal.append([b"next"]).lsn == 21


def test_repair_keeps_the_records_of_segments_far_behind_the_break() -> None:
    """A segment has as many records as fit into it; those behind the break may be the thousandth after it."""
    disk, positions = filled(120, size=6)
    spoil(disk, positions[0])
    assert positions[-1].lsn - positions[0].lsn > 2 * SEGMENT // HEADER.size
    _, report = opened(disk, repair=True)
    assert report.lost == [(1, 1)]
    assert list(bodies(report)) == list(range(2, 121))


def test_repair_lists_a_broken_record_of_which_only_the_closing_mark_tells() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    positions = [journal.append([b"x" * 20]) for _ in range(3)]
    journal.close()
    spoil(disk, positions[-1])
    journal, report = opened(disk, repair=True)
    assert report.lost == [(3, 3)]
    assert list(bodies(report)) == [1, 2]
    assert journal.append([b"next"]).lsn == 4


def test_repair_saves_a_record_once_however_often_it_is_there() -> None:
    disk, positions = filled(4, size=20)
    spoil(disk, positions[1])
    again = pack_header([b"again"], epoch=positions[3].segment, lsn=4, durable_lsn=3, kind=1) + b"again"
    disk.damage(path_of(positions[3]), positions[3].offset + 2 * HEADER.size, again)
    _, report = opened(disk, repair=True)
    assert [record.lsn for record in report] == [1, 3, 4]


def test_a_missing_segment_is_damage() -> None:
    disk, positions = filled(20)
    disk.unlink(path_of(positions[10]))
    with pytest.raises(StorageDamaged):
        opened(disk)


def test_several_missing_segments_are_damage() -> None:
    disk, positions = filled(120, size=6)
    gone = {path_of(position) for position in positions[:60]}
    for path in gone:
        disk.unlink(path)
    with pytest.raises(StorageDamaged):
        opened(disk)


@pytest.mark.parametrize("noted_lsn", [0, 200])
@pytest.mark.parametrize("gone_up_to", [60, 90, 150])
def test_records_behind_missing_segments_are_kept_though_their_segments_begin_with_damage(
    gone_up_to: int, noted_lsn: int
) -> None:
    """Nothing says how many segments are missing, so nothing says which lsn may stand behind them."""
    disk, positions = filled(200, size=6)
    first = path_of(positions[0])
    gone = {path_of(position) for position in positions[:gone_up_to]} - {first}
    for path in gone:
        disk.unlink(path)
    broken: dict[str, int] = {}
    for position in positions:
        if path_of(position) not in {first, *gone, *broken}:
            broken[path_of(position)] = position.lsn
            spoil(disk, position)
    with pytest.raises(StorageDamaged):
        Journal.open(disk.kill(), "/j", segment_bytes=SEGMENT, noted_lsn=noted_lsn)
    _, report = Journal.open(disk, "/j", segment_bytes=SEGMENT, noted_lsn=noted_lsn, repair=True)
    kept = [p.lsn for p in positions if path_of(p) not in gone and p.lsn not in broken.values()]
    assert list(bodies(report)) == kept
    assert sum(last - first + 1 for first, last in report.lost) == 200 - len(kept)


def test_an_lsn_that_no_record_of_the_segment_can_have_is_no_evidence() -> None:
    disk, positions = filled(3)
    path, end = path_of(positions[-1]), positions[-1].offset + HEADER.size + 100
    far = 1 + SEGMENT // HEADER.size + 1
    disk.damage(path, end, pack_header([b""], epoch=positions[-1].segment, lsn=far, durable_lsn=far, kind=1))
    _, report = opened(disk)
    assert (list(bodies(report)), report.last_lsn) == ([1, 2, 3], 3)


def test_rot_in_the_last_record_is_seen_after_a_clean_close() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    positions = [journal.append([b"x" * 20]) for _ in range(3)]
    journal.close()
    spoil(disk, positions[-1])
    with pytest.raises(StorageDamaged):
        opened(disk)


def test_every_flipped_bit_is_noticed() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    position = journal.append([b"0123456789"])
    clean = disk.content(path_of(position))
    for at in range(HEADER.size + position.size):
        for bit in range(8):
            disk.damage(path_of(position), at, bytes([clean[at] ^ 1 << bit]))
            with pytest.raises(StorageDamaged):
                journal.read(position)
        disk.damage(path_of(position), at, clean[at : at + 1])
    assert journal.read(position) == b"0123456789"


def test_a_failed_flush_ends_the_journal() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    position = journal.append([b"x"])
    disk.errors[disk.ops + 1] = errno.EIO
    for call in (journal.sync, journal.sync, lambda: journal.append([b"y"]), lambda: journal.read(position)):
        with pytest.raises(StorageFailed):
            call()
    journal.close()


@pytest.mark.parametrize("seed", range(20))
def test_what_a_start_believes_after_a_failed_flush_survives_a_power_cut(seed: int) -> None:
    """The system shows it, counts it as written and flushes it no more; what is confirmed later stands behind it."""
    disk = SimDisk(seed=seed)
    journal, _ = opened(disk)
    journal.append([b"flushed" * 20])
    noted_lsn = journal.sync()
    journal.append([b"failed" * 100])
    disk.errors[disk.ops + 1] = errno.EIO
    with pytest.raises(StorageFailed):
        journal.sync()
    disk = disk.kill()
    journal, report = Journal.open(disk, "/j", segment_bytes=SEGMENT, noted_lsn=noted_lsn)
    believed = bodies(report)
    journal.append([b"confirmed" * 20])
    noted_lsn = journal.sync()
    after = disk.crash(random.Random(seed))
    _, report = Journal.open(after, "/j", segment_bytes=SEGMENT, noted_lsn=noted_lsn)
    assert bodies(report) == {**believed, noted_lsn: b"confirmed" * 20}


def test_what_is_appended_while_a_flush_fails_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be confirmed as weak, and no flush will ever follow."""
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"1"])
    write = disk.pwritev

    def fail_beside(file: int, buffers: Sequence[bytes], offset: int) -> int:
        disk.errors[disk.ops + 1] = errno.EIO
        with pytest.raises(StorageFailed):
            journal.sync()
        monkeypatch.undo()
        return write(file, buffers, offset)

    monkeypatch.setattr(disk, "pwritev", fail_beside)
    with pytest.raises(StorageFailed, match="flush failed"):
        journal.append([b"2"])


def test_a_failed_write_ends_the_journal() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"x"])
    disk.errors[disk.ops + 1] = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(StorageFailed):
            journal.append([b"y"])


def test_no_room_for_a_segment_leaves_the_journal_usable() -> None:
    disk = SimDisk(capacity=5 * SEGMENT // 2 + 100)
    journal, _ = opened(disk)
    journal.append([b"x" * 600])
    with pytest.raises(StorageFull):
        journal.append([b"y" * 600])
    with pytest.raises(StorageFull):
        journal.pool.prepare_spare()
    assert journal.append([b"z"]).lsn == 2
    assert journal.sync() == 2
    disk.capacity *= 3
    assert journal.append([b"y" * 600]).lsn == 3


def test_a_segment_whose_name_cannot_be_flushed_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try would leave another one, and there is one every second."""
    disk = SimDisk()
    journal, _ = opened(disk)
    files = disk.listdir("/j")

    def fsync_dir(folder: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "fsync_dir", fsync_dir)
        for _ in range(3):
            with pytest.raises(StorageFull, match="open files"):
                journal.pool.prepare_spare()
    assert disk.listdir("/j") == files
    journal.append([b"x"])
    journal.close()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EACCES, "chown"), (errno.EMFILE, "limit of open files"), (errno.EIO, "; restart to recover")],
)
def test_a_journal_that_cannot_be_opened_says_what_helps(
    monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    disk, _ = filled(1)

    def refuse(path: str) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(disk, "open", refuse)
    with pytest.raises(StorageFailed, match=remedy):
        opened(disk)


def test_short_writes_are_completed() -> None:
    disk = SimDisk(short_writes=True)
    journal, _ = opened(disk)
    for number in range(30):
        journal.append([bytes([number]) * 50])
    journal.sync()
    _, report = opened(disk.kill())
    assert list(bodies(report).values()) == [bytes([n]) * 50 for n in range(30)]


def test_another_process_reads_a_sealed_segment() -> None:
    disk, _ = filled(20)
    journal, _ = opened(disk)
    first, second, *_ = journal.sealed_segments()
    records = list(read_segment(disk, first.path, above_lsn=2, last_lsn=first.last_lsn))
    assert [r.lsn for r in records] == list(range(3, first.last_lsn + 1))
    disk.damage(second.path, 40, b"spoilt")
    with pytest.raises(StorageDamaged):
        list(read_segment(disk, second.path, above_lsn=0, last_lsn=second.last_lsn))


def test_look_alikes_in_a_payload_are_no_evidence() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.append([b"x"])
    forged = pack_header([b"ghost"], epoch=1, lsn=9, durable_lsn=8, kind=1) + b"ghost"
    journal.append([forged])
    journal.sync()
    _, report = opened(disk.kill())
    assert list(bodies(report)) == [1, 2]


def test_what_users_put_into_a_segment_is_no_record_of_its_next_life() -> None:
    """Whoever may publish may fill a segment with look-alikes for every serial and lsn that come next."""
    disk = SimDisk()
    journal, _ = opened(disk)
    look_alikes = [pack_header([b"ghost"], epoch=serial, lsn=70, durable_lsn=70, kind=1) for serial in range(55, 75)]
    for _ in range(59):
        journal.append([b"ghost".join([*look_alikes, b""])])
        journal.sync()
    journal.seal()
    journal.release(journal.durable_lsn)
    applied = journal.durable_lsn
    for _ in range(3):
        journal.append([b"next"])
        journal.sync()
    for end in (disk.kill(), disk):
        if end is disk:
            journal.close()
        _, report = opened(end, applied)
        assert list(bodies(report)) == [applied + 1, applied + 2, applied + 3]


def test_an_unfinished_new_segment_is_removed() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    journal.close()
    disk.open("/j/" + segment_name(77) + ".new", create=True)
    journal, _ = opened(disk)
    assert disk.listdir("/j") == []
    assert journal.append([b"x"]).segment != 77


def test_a_record_that_skips_an_lsn_is_not_believed() -> None:
    disk, positions = filled(3)
    path, end = path_of(positions[-1]), positions[-1].offset + HEADER.size + 100
    body = b"from a better past"
    header = pack_header([body], epoch=positions[-1].segment, lsn=9, durable_lsn=2, kind=1)
    disk.damage(path, end, header + body)
    _, report = opened(disk)
    assert list(bodies(report)) == [1, 2, 3]


def test_a_cut_tail_is_wiped() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    positions = [journal.append([b"tail" * 50]) for _ in range(4)]
    spoil(disk, positions[1])
    after = disk.kill()
    opened(after)
    assert b"tail" not in after.content(path_of(positions[1]))[positions[1].offset :]


def test_an_idle_journal_says_that_its_last_record_was_durable() -> None:
    disk = SimDisk()
    journal, _ = opened(disk)
    positions = [journal.append([b"x" * 100]) for _ in range(3)]
    journal.note_durable()
    journal.sync()
    untold = disk.kill()
    spoil(untold, positions[-1])
    assert opened(untold)[1].last_lsn == 2  # nothing was written behind it that could tell
    journal.note_durable()
    journal.note_durable()
    told = disk.kill()
    spoil(told, positions[-1])
    with pytest.raises(StorageDamaged, match="record 3"):
        opened(told)
    journal.append([b"y"])
    journal.sync()
    assert list(bodies(opened(disk.kill())[1])) == [1, 2, 3, 4]


def test_damage_that_the_store_does_not_need_is_no_torn_tail() -> None:
    disk, positions = filled(3)
    spoil(disk, positions[1])
    _, report = opened(disk, 3)
    assert (report.last_lsn, report.cut_bytes) == (3, 0)


def test_on_a_full_disk_a_drain_gets_a_small_segment_and_sealed_ones_lose_their_ends() -> None:
    disk = SimDisk(capacity=5 << 20)
    disk.mkdir("/j")
    journal, _ = Journal.open(disk, "/j", segment_bytes=2 << 20)
    journal.append([bytes(1 << 20)])
    journal.seal()
    journal.sync()
    with pytest.raises(StorageFull):
        journal.append([b"message"])
    journal.append([b"settled"], urgent=True)
    assert journal.stats().bytes_on_disk < 3 << 20
    free = disk.free_bytes("/")
    journal.cut_sealed()
    assert disk.free_bytes("/") - free > 900_000
    journal.sync()
    journal.abandon()
    _, report = Journal.open(disk, "/j", segment_bytes=2 << 20)
    assert [len(record.body) for record in report] == [1 << 20, 7]


def test_on_a_short_disk_one_free_segment_is_enough() -> None:
    disk = SimDisk()
    disk.mkdir("/j")
    journal, _ = Journal.open(disk, "/j", segment_bytes=1 << 16)
    for _ in range(40):
        journal.append([bytes(60_000)])
    journal.sync()
    journal.release(journal.last_lsn)
    before = journal.stats()
    journal.pool.give_back()
    assert journal.stats().spares == before.spares - 1
    journal.pool.give_back(short=True)
    assert journal.stats().spares == 1
    assert journal.stats().bytes_reusable < 2 << 16


def test_free_segments_that_stand_for_the_room_of_a_checkpoint_are_deleted_before_it() -> None:
    disk = SimDisk(capacity=40 << 16)
    disk.mkdir("/j")
    journal, _ = Journal.open(disk, "/j", segment_bytes=1 << 16)
    for lsn in range(1, 17):
        journal.append([bytes(60_000)])
        journal.sync()
        if lsn == 12:
            journal.seal()
            journal.release(12)
    journal.pool.make_room()
    assert journal.stats().spares == 8, "the disk has room enough"
    disk.capacity -= disk.free_bytes("/j")
    journal.pool.make_room()
    assert disk.free_bytes("/j") >= journal.pool.room_kept
    assert journal.stats().spares == 2
    journal.append([bytes(60_000)], urgent=True)
    assert journal.sync() == 17


def test_a_segment_that_is_made_beside_a_checkpoint_leaves_it_its_room() -> None:
    """One above the usual size is made anew. Free segments stand for room that the checkpoint cannot take itself."""
    disk = SimDisk(capacity=200 << 16)
    disk.mkdir("/j")
    journal, _ = Journal.open(disk, "/j", segment_bytes=1 << 16)
    for _ in range(16):
        journal.append([bytes(60_000)])
        journal.sync()
    journal.seal()
    journal.release(14)
    disk.capacity -= disk.free_bytes("/j") - (2 << 16)
    journal.append([bytes(100_000)])
    before_its_own = journal.pool.room_kept - int(1.5 * 100_100)
    assert disk.free_bytes("/j") >= before_its_own


def test_a_segment_of_less_than_the_usual_size_is_not_used_again() -> None:
    size = 1 << 20
    disk = SimDisk(capacity=100 * size)
    disk.mkdir("/j")
    journal, _ = Journal.open(disk, "/j", segment_bytes=size)
    journal.append([bytes(900_000)])
    journal.sync()
    disk.capacity -= disk.free_bytes("/j") - 500_000
    journal.append([bytes(200_000)], urgent=True)
    journal.sync()
    journal.seal()
    journal.release(journal.last_lsn)
    disk.capacity = 100 * size
    small = {path: len(disk.content(f"/j/{path}")) for path in disk.listdir("/j")}
    assert min(small.values()) < size
    for _ in range(4):
        journal.append([bytes(900_000)])
        journal.sync()
    grown = [path for path in disk.listdir("/j") if len(disk.content(f"/j/{path}")) not in (size, min(small.values()))]
    assert grown == []


def test_released_segments_are_not_read_at_the_start() -> None:
    disk = SimDisk()
    disk.mkdir("/j")
    journal, _ = Journal.open(disk, "/j", segment_bytes=1 << 20)
    for _ in range(20_000):
        journal.append([bytes(1_000)])
    journal.sync()
    applied = journal.last_lsn - 5
    journal.release(applied)
    journal.abandon()
    disk.log.clear()
    journal, report = Journal.open(disk, "/j", segment_bytes=1 << 20, applied_lsn=applied)
    assert [record.lsn for record in report] == list(range(applied + 1, applied + 6))
    assert journal.stats().segments == 1
    reads = [line for line in disk.log if line.startswith("pread")]
    assert len(reads) < 40, "a window of each segment, and the last one whole"


@pytest.mark.parametrize("applied", [0, 1, 30, 58, 59, 60, 61, 100])
def test_whatever_is_applied_the_records_above_it_are_found(applied: int) -> None:
    disk = SimDisk()
    disk.mkdir("/j")
    journal, _ = Journal.open(disk, "/j", segment_bytes=1 << 16)
    for _ in range(100):
        journal.append([bytes(2_000)])
    journal.sync()
    journal.abandon()
    _, report = Journal.open(disk, "/j", segment_bytes=1 << 16, applied_lsn=applied)
    assert [record.lsn for record in report] == list(range(applied + 1, 101))
