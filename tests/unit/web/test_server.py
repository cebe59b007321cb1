"""How long idle HTTP connections stay."""

import re

from vibemq.web.console.files import STATIC
from vibemq.web.limits import HEAD_TIMEOUT_S
from vibemq.web.server import KEEP_ALIVE_S


def test_an_open_console_meets_no_connection_that_is_just_being_closed() -> None:
    source = (STATIC / "parts" / "data.js").read_text()
    found = re.search(r"EVERY_MS = (\d+);", source)
    assert found is not None
    period_s = int(found[1]) / 1000
    assert period_s * 1.1 < KEEP_ALIVE_S < HEAD_TIMEOUT_S, "it asks up to a tenth later than its period"
