"""How many connections there may be."""

import resource
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.guard.counting import instructions
from vibemq.server.net.connections import FILES_KEPT, ConnectionTable, connections_max


@pytest.mark.parametrize(
    ("wanted", "open_files", "most"),
    [
        (10_000, 1024, 1024 - FILES_KEPT),
        (100, 1024, 100),
        (0, 1024, 1024 - FILES_KEPT),
        (10_000, 64, 32),
        (10_000, 1, 1),
        (10_000, resource.RLIM_INFINITY, 10_000),
        (0, resource.RLIM_INFINITY, sys.maxsize),
    ],
)
def test_connections_leave_open_files_to_storage(wanted: int, open_files: int, most: int) -> None:
    assert connections_max(wanted, open_files) == most


def test_whose_session_it_is_costs_the_same_however_many_have_no_socket() -> None:
    def cost(count: int) -> int:
        peers = {number: SimpleNamespace(number=number) for number in range(count)}
        table: Any = SimpleNamespace(_connections={}, without_socket=peers)
        find = lambda: ConnectionTable.peer(cast(ConnectionTable, table), count - 1)  # noqa: E731
        assert find() is peers[count - 1]
        return sum(instructions(find).values())

    assert cost(2) == cost(1_000)
