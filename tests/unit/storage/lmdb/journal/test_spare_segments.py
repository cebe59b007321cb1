"""The thread of the upkeep."""

import threading

import pytest

from vibemq.storage.lmdb.journal.spare_segments import SpareSegments


def test_what_nobody_has_foreseen_does_not_end_the_upkeep(caplog: pytest.LogCaptureFixture) -> None:
    """Who sends much would wait for it for ever."""
    worked = threading.Semaphore(0)
    failures = [MemoryError(), RuntimeError("can't start new thread")]

    def work() -> None:
        worked.release()
        if failures:
            raise failures.pop()

    spare_segments = SpareSegments(work)
    for _ in range(3):
        spare_segments.wake()
        assert worked.acquire(timeout=60)
    spare_segments.stop()
    assert [record.getMessage() for record in caplog.records] == ["housekeeping failed"] * 2
