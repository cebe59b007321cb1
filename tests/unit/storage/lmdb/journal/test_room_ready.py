"""Whether appends would wait for a segment, so that those who send much wait in their place."""

import threading

from tests.waiting import wait_until
from vibemq.errors import StorageError
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.spare_segments import SpareSegments
from vibemq.testing.sim_disk import SimDisk

SEGMENT = 1024


def test_room_is_ready_as_long_as_a_spare_or_a_quarter_of_the_segment_is_left() -> None:
    journal, _ = Journal.open(SimDisk(), "/j", segment_bytes=SEGMENT)
    assert journal.room_is_ready
    journal.append([b"x" * 600])
    assert journal.room_is_ready
    journal.append([b"x" * 200])
    assert not journal.room_is_ready
    journal.pool.prepare_spare()
    assert journal.room_is_ready


def test_a_thread_is_busy_from_the_wish_to_its_end_also_when_it_fails() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()
        raise StorageError("no room")

    spares = SpareSegments(work)
    try:
        assert not spares.busy
        spares.wake()
        assert spares.busy
        begun.wait()
        assert spares.busy
        go_on.set()
        wait_until(lambda: not spares.busy)
    finally:
        go_on.set()
        spares.stop()
