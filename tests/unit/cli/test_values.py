"""Text of the command line to numbers and pairs."""

import pytest

from vibemq.cli.values import duration_ms, id_runs, key_value, key_values, seconds, size_bytes
from vibemq.errors import ConfigInvalid


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("2H", 7_200_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("1h30m", 5_400_000),
        (" 10 s ", 10_000),
        ("0", 0),
        ("0.1ms", 1),
        ("0ms", 0),
        ("1h 30m", 5_400_000),
        (1234, 1234),
    ],
)
def test_durations(text: str | int, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "s", "5x", "30", "1.5", "1h 5", "-3s", "1h30", "ten", "1h 30q", "1e3", "nan", "inf", "9" * 400 + "s"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="write 250ms, 30s"):
        duration_ms(text)


def test_a_duration_of_more_than_a_century_is_refused() -> None:
    assert duration_ms("36500d") == 36_500 * 86_400_000
    with pytest.raises(ConfigInvalid, match="too long"):
        duration_ms("99999999999999999999w")


def test_seconds_are_above_zero() -> None:
    assert seconds("500ms") == 0.5
    assert seconds(2.5) == 2.5
    with pytest.raises(ConfigInvalid, match="more than 0"):
        seconds("0s")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("64KiB", 65_536),
        ("64kib", 65_536),
        ("10MB", 10_000_000),
        ("1.5GiB", 1_610_612_736),
        ("16m", 1 << 24),
        ("1TB", 10**12),
        (7, 7),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "5 apples", "-1", "1h30m", "9" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="is not a size"):
        size_bytes(text)


def test_pairs_keep_every_further_equals_sign() -> None:
    assert key_value("query=a=b") == ("query", "a=b")
    assert key_values(["a=1", "b="]) == {"a": "1", "b": ""}
    assert key_values(None) == {}


@pytest.mark.parametrize("text", ["", "novalue", "=value"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="key=value"):
        key_value(text)


def test_ids_are_sorted_and_single() -> None:
    assert id_runs(["20-22,3", "21", "1"]) == [1, 3, 20, 21, 22]


@pytest.mark.parametrize("text", ["x", "3-", "-3", "1,,2", "1-2-3", "1-200000", "5-2", "9223372036854775808"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        id_runs([text])
