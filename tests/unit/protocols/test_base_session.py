"""What the sessions of several protocols share."""

import pytest

from vibemq.protocols.base_session import LARGE_PROGRESS_BYTES, LargeProgress, runs_by_consumer

LARGE = 8 * LARGE_PROGRESS_BYTES


@pytest.fixture
def progress() -> LargeProgress:
    progress = LargeProgress(1_000)
    progress.note(LARGE, 0)
    return progress


def test_a_large_message_that_does_not_come_on_has_stalled(progress: LargeProgress) -> None:
    progress.note(LARGE - 1, 999)
    assert not progress.has_stalled(999, lambda: True)
    assert progress.has_stalled(1_000, lambda: True)


def test_one_that_comes_on_has_not(progress: LargeProgress) -> None:
    progress.note(LARGE - LARGE_PROGRESS_BYTES, 999)
    assert not progress.has_stalled(1_998, lambda: True)
    assert progress.has_stalled(1_999, lambda: True)


def test_time_in_which_nobody_reads_it_does_not_count(progress: LargeProgress) -> None:
    assert not progress.has_stalled(1_000, lambda: False)
    assert progress.deadline == 2_000
    assert not progress.has_stalled(1_999, lambda: True)
    assert progress.has_stalled(2_000, lambda: True)


def test_deliveries_are_settled_by_consumer_whatever_else_is_known_of_them() -> None:
    assert runs_by_consumer([(1, 7), (2, 5), (1, 9), (1, 8), (2, 7)]) == {1: [(7, 9)], 2: [(5, 5), (7, 7)]}
    assert runs_by_consumer([(1, 3, "reply to"), (1, 2, "")]) == {1: [(2, 3)]}
    assert runs_by_consumer([]) == {}
