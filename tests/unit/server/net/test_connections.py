"""How many connections there may be."""

import resource
import sys

import pytest

from vibemq.server.net.connections import FILES_KEPT, connections_max


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
