from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from vibemq.cli.admin.top import screen


@pytest.mark.parametrize(("connections", "shown"), [({"native": 1}, True), (None, False)])
def test_only_who_is_told_of_connections_is_shown_how_many_there_are(
    connections: dict[str, int] | None, shown: bool
) -> None:
    broker: dict[str, Any] = {
        "version": "0.1.0",
        "sampled_at": 2_000,
        "started_at": 1_000,
        "rates": {"in": 0.0, "out": 0.0, "ack": 0.0},
        "totals": {"queues": 0},
        "sentences": [],
        "connections": connections,
    }
    written = StringIO()
    Console(file=written, width=200).print(screen({"broker": broker, "queues": [], "connections": []}))
    assert ("connections" in written.getvalue()) is shown
