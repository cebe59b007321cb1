"""The smallest form of the soak; the long one is `make console-soak`."""

from pathlib import Path

import pytest

from tests.browser.conftest import CHROMIUM
from tests.proof.console_soak import soaked
from tests.proof.growth import judge_growth


@pytest.mark.slow
def test_people_who_click_about_are_told_of_no_error_and_leave_nothing_open(tmp_path: Path) -> None:
    told = soaked(tmp_path, seed=7, sessions=4, clicks=40, chromium=False)
    assert told.complaints == []
    assert min(told.clicks[kind] for kind in ("page", "stream", "tail", "work", "replay")) > 0
    assert told.answers[200] > 100
    assert told.events > 0


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path (Debian: apt-get install chromium)")
def test_a_browser_beside_them_fails_nowhere(tmp_path: Path) -> None:
    told = soaked(tmp_path, seed=7, sessions=1, clicks=5, chromium=True)
    assert (told.complaints, told.tabs.clicks) == ([], 5)


def test_memory_that_grows_is_told() -> None:
    assert judge_growth("memory", [10.0, 200.0, 200.0, 210.0, 10.0, 200.0], 10.0) == []
    assert judge_growth("memory", [10.0, 10.0, 100.0, 100.0, 111.0, 200.0], 10.0) != []
