"""A large row gives way to what others flush."""

import pytest

from vibemq.storage.lmdb.journal.pace import FLUSHES, REST_MAX_S, RowPace


class Others:
    """Their flushes, the time, and the rests that were taken."""

    def __init__(self) -> None:
        self.flushes, self.now_s = 7, 100.0
        self.rests: list[float] = []
        self.pace = RowPace(lambda: self.flushes, monotonic=lambda: self.now_s, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now_s += seconds

    def piece(self, seconds: float) -> None:
        self.now_s += seconds
        self.pace.rest()


def test_nobody_else_flushes_and_there_is_no_rest() -> None:
    others = Others()
    for _ in range(9):
        others.piece(0.001)
    others.flushes += FLUSHES - 1
    others.piece(0.001)
    assert others.rests == []


def test_a_rest_is_as_long_as_its_piece() -> None:
    others = Others()
    others.flushes += FLUSHES
    for seconds in (0.001, 0.003, 0.002):
        others.piece(seconds)
    assert others.rests == pytest.approx([0.001, 0.003, 0.002])


def test_a_piece_that_was_held_up_is_not_made_up_for() -> None:
    others = Others()
    others.flushes += FLUSHES
    others.piece(2.0)
    assert others.rests == [REST_MAX_S]
