"""The smallest form of the presses; the long one is `make console-presses`."""

from pathlib import Path

import pytest

from tests.browser.conftest import CHROMIUM
from tests.proof.console_presses import pressed

SEED, PRESSES = 3, 25


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path (Debian: apt-get install chromium)")
def test_whatever_is_pressed_no_page_fails(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="Playwright is not installed")
    told = pressed(tmp_path, seed=SEED, presses=PRESSES, letters=200)
    assert told.complaints == []
    assert len(told.counts) > PRESSES / 2
