"""What readers by range ask for."""

from typing import Any

import pytest

from vibemq.operations.arguments import read
from vibemq.operations.range_reads import FETCH_BYTES, FETCH_BYTES_MAX, FetchArguments


@pytest.mark.parametrize(
    ("given", "room", "asked"),
    [
        ({}, FETCH_BYTES, 0),
        ({"max_bytes": 5_000}, 5_000, 5_000),
        ({"max_bytes": 1 << 40}, FETCH_BYTES_MAX, FETCH_BYTES_MAX),
    ],
)
def test_only_what_a_reader_has_asked_for_is_more_than_its_frames_hold(
    given: dict[str, Any], room: int, asked: int
) -> None:
    wanted = read(FetchArguments, "group.fetch", {"queue": "q", "from": 1, "to": 2, **given})
    assert (wanted.room, wanted.asked_bytes) == (room, asked)
