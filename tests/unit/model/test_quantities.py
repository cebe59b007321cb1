"""Durations, sizes and instants. What is above 0 does not become 0, which is often no limit."""

from datetime import timedelta

import pytest

from vibemq.client.queues import option_values
from vibemq.model.quantities import duration_ms, instant_ms, size_bytes, whole_ms


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


AT = 1_764_117_300_007


@pytest.mark.parametrize(
    "text",
    [
        "2025-11-26T00:35:00.007Z",
        "2025-11-26t00:35:00.007z",
        "2025-11-26 00:35:00.007999999Z",
        "2025-11-26T02:35:00.007+02:00",
        "2025-11-25T13:05:00.007-11:30",
        "20251126T003500,007Z",
    ],
)
def test_instants(text: str) -> None:
    assert instant_ms(text) == AT


def test_a_leap_second_is_the_one_that_follows_it() -> None:
    assert instant_ms("2016-12-31T23:59:60Z") == instant_ms("2017-01-01T00:00:00Z")
    assert instant_ms("2016-12-31T18:59:60.5-05:00") == instant_ms("2017-01-01T00:00:00.5Z")


def test_instants_before_1970_are_below_0() -> None:
    assert instant_ms("1969-12-31T23:59:59.999Z") == -1


@pytest.mark.parametrize("text", ["2025-11-26T00:35:00", "2025-11-26"])
def test_what_has_no_zone_is_no_instant(text: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        instant_ms(text)


@pytest.mark.parametrize(
    "text", ["", "now", "2025-11-26T00:35:61Z", "2025-11-26T60:00:00Z", "2025-11-26T00:35:00+25:00"]
)
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|second|hour|offset"):
        instant_ms(text)
