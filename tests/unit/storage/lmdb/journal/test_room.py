"""A short disk: what is left behind messages moves the journal into the store, and takes the next ones."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import StorageFull
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.room import DRAIN_BYTES, StoreRoom, in_store, journal_room, needed
from vibemq.testing.sim_disk import SimDisk

MIB = 1 << 20
SEGMENT = 64 << 10


@given(
    size=st.integers(1, 16 * MIB),
    waiting=st.integers(0, 64 * MIB),
    unused=st.integers(0, 64 * MIB),
    disk_bytes=st.integers(MIB, 1 << 34),
)
def test_what_is_left_behind_a_segment_checkpoints_it(size: int, waiting: int, unused: int, disk_bytes: int) -> None:
    reserve = journal_room(disk_bytes, disk_bytes // 64)
    left = needed(size, waiting=waiting, unused=unused, reserve=reserve) - size
    growth = max(0, in_store(waiting + size) - unused)
    assert left >= growth
    if growth:
        assert left - growth == reserve, "messages for unused pages have the journal's room"
        unused_for_one = in_store(disk_bytes // 64)
        assert needed(disk_bytes // 64, waiting=0, unused=unused_for_one, reserve=reserve) <= reserve + DRAIN_BYTES


@pytest.mark.parametrize("mebibytes", [8, 12, 24, 64, 4096])
def test_the_biggest_publish_fits_into_the_room_that_the_journal_keeps(mebibytes: int) -> None:
    reserve = journal_room(mebibytes * MIB, min(16 * MIB, mebibytes * MIB // 64))
    assert needed(MIB, waiting=0, unused=2 * MIB, reserve=reserve) <= reserve


class Room(StoreRoom):
    reserve = 8 * SEGMENT
    pages = 0

    def unused(self, value_bytes: int) -> int:
        return self.pages


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(capacity=60 * SEGMENT)
    disk.mkdir("/j")
    return disk


@pytest.fixture
def journal(disk: SimDisk, room: Room) -> Iterator[Journal]:
    journal, _ = Journal.open(disk, "/j", segment_bytes=SEGMENT, store_room=room)
    yield journal
    journal.close()


def fill(journal: Journal) -> int:
    """How many records were taken, each of which is a segment."""
    taken = 0
    while True:
        try:
            journal.append([bytes(60_000)])
        except StorageFull:
            return taken
        taken += 1


def grow(disk: SimDisk, journal: Journal, size: int) -> None:
    """What a checkpoint of the whole journal does that makes the store's file grow so far."""
    journal.seal()
    journal.sync()
    journal.pool.make_room()
    disk.capacity -= size
    journal.release(journal.last_lsn)


def test_a_journal_that_fills_the_disk_can_be_checkpointed_and_written_again(
    disk: SimDisk, journal: Journal, room: Room
) -> None:
    written = 0
    while taken := fill(journal):
        room_left = disk.free_bytes("/j") + journal.stats().bytes_reusable
        assert room_left >= in_store(taken * 60_000) + room.reserve
        grow(disk, journal, in_store(taken * 60_000))
        written += taken
    assert written > 20, "the disk is used"
    room.pages = 20 * SEGMENT
    assert fill(journal) > 1, "a part of what is there was settled"
    for _ in range(10):
        grow(disk, journal, 0)
        assert fill(journal) > 1, "and goes on to be"


def test_no_message_follows_settlements_into_the_room_that_is_kept_for_them(
    disk: SimDisk, journal: Journal, room: Room
) -> None:
    fill(journal)
    journal.seal()
    journal.append([b"settled"], urgent=True)
    for _ in range(2):
        with pytest.raises(StorageFull, match="kept for the next checkpoint and for draining the queues"):
            journal.append([b"message"])
    journal.append([b"settled"], urgent=True)
    journal.sync()
    disk.capacity += 4 * SEGMENT
    journal.append([b"message"])
    room.pages = 0
    assert journal.stats().segments == len(disk.listdir("/j"))


def test_a_segment_that_is_not_full_yet_is_counted_as_if_it_were(disk: SimDisk, journal: Journal) -> None:
    """Nobody looks at the room again before it is."""
    journal.append([b"a little"])
    assert journal.pool.room_kept == in_store(SEGMENT)
    journal.seal()
    assert journal.pool.room_kept < 1_000
