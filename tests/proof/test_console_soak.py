"""The smallest form of the soak; the long one is `make console-soak`."""

from pathlib import Path

import pytest

from tests.proof.console_soak import GROWN_MIB_MAX, judge_memory, soaked


@pytest.mark.slow
def test_people_who_click_about_are_told_of_no_error_and_leave_nothing_open(tmp_path: Path) -> None:
    told = soaked(tmp_path, seed=7, sessions=4, clicks=40)
    assert told.complaints == []
    assert min(told.clicks[kind] for kind in ("page", "stream", "tail", "work", "replay")) > 0
    assert told.answers[200] > 100
    assert told.events > 0


def test_memory_that_grows_is_told() -> None:
    assert judge_memory([10.0, 200.0, 200.0, 200.0 + GROWN_MIB_MAX, 10.0, 200.0]) == []
    assert judge_memory([10.0, 10.0, 100.0, 100.0, 100.0 + GROWN_MIB_MAX + 1, 200.0])
