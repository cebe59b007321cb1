"""Durations and sizes: what is above 0 does not become 0, which is often no limit."""

from datetime import timedelta

import pytest

from vibemq.client.queues import option_values
from vibemq.model.quantities import duration_ms, size_bytes, whole_ms


@pytest.mark.parametrize(("milliseconds", "whole"), [(0, 0), (0.4, 1), (0.6, 1), (1.4, 1), (2.6, 3), (-0.6, -1)])
def test_whole_milliseconds(milliseconds: float, whole: int) -> None:
    assert whole_ms(milliseconds) == whole


@pytest.mark.parametrize(
    ("text", "found"), [("0", 0), ("0ms", 0), ("0.4ms", 1), ("0.5ms", 1), ("0.0001s", 1), ("1s", 1_000)]
)
def test_durations(text: str, found: int) -> None:
    assert duration_ms(text) == found


def test_the_largest_number_of_other_programs_is_read_as_it_is() -> None:
    """Many write it where they want no limit. As a float it is one more, which is too large."""
    assert size_bytes(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "1x", "", "-1", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="a size, such as"):
        size_bytes(text)


@pytest.mark.parametrize("value", [0.0004, timedelta(microseconds=300)])
def test_queue_options_of_less_than_a_millisecond(value: float | timedelta) -> None:
    assert option_values({"message_ttl": value})["message_ttl_ms"] == 1
