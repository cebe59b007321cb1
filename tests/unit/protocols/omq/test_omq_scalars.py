"""Numbers and times in atoms. The expected values were printed by OCaml 4.13.1."""

import math

import pytest

from vibemq.protocols.omq.scalars import (
    CoreTime,
    float_of_text,
    int64_of_text,
    second_of,
    text_of_float,
    time_of_sexp,
)
from vibemq.protocols.omq.sexp import Sexp

NOON = 1_700_000_000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("007", 7),
        ("1_", 1),
        ("0_1", 1),
        ("+5", 5),
        ("-0x10", -16),
        ("-0xFFFFFFFFFFFFFFFF", 1),
        ("0xFFFFFFFFFFFFFFFF", -1),
        ("0O17", 15),
        ("0B11", 3),
        ("0u5", 5),
        ("-0u5", -5),
        ("-0u9223372036854775809", 9223372036854775807),
        ("0u18446744073709551615", -1),
        ("-9223372036854775808", -9223372036854775808),
        ("0" * 5000 + "1", 1),
    ],
)
def test_integers(text: str, number: int) -> None:
    assert int64_of_text(text) == number


@pytest.mark.parametrize("text", ["", "-", "--1", "+-1", " 1", "1 ", "_1", "0x", "0x_1", "0b102", "5.0", "1e3", "٣"])
def test_no_integers(text: str) -> None:
    with pytest.raises(ValueError, match="is not an integer"):
        int64_of_text(text)


@pytest.mark.parametrize(
    "text",
    ["9223372036854775808", "-9223372036854775809", "0u18446744073709551616", "0x10000000000000000", "9" * 5000],
)
def test_integers_beyond_64_bits(text: str) -> None:
    with pytest.raises(ValueError, match="beyond 64 bits"):
        int64_of_text(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (" 5", 5.0),
        ("_1", 1.0),
        ("1__0", 10.0),
        ("1_000.5_0", 1000.5),
        (".5", 0.5),
        ("1.e5", 1e5),
        ("+1", 1.0),
        ("0x1.8", 1.5),
        ("0X1P2", 4.0),
        ("0x.8p1", 1.0),
        ("0x_1_0", 16.0),
        ("1e400", math.inf),
        ("0x1p5000", math.inf),
        ("-0x1p5000", -math.inf),
        ("Infinity", math.inf),
        ("+inf", math.inf),
    ],
)
def test_floats(text: str, number: float) -> None:
    assert float_of_text(text) == number


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "nan(1)"])
def test_not_a_number(text: str) -> None:
    assert math.isnan(float_of_text(text))


@pytest.mark.parametrize("text", ["", "__", ".", "e5", "1e", "5 ", "--1", "0x", "0o17", "1f", "١"])
def test_no_floats(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        float_of_text(text)


@pytest.mark.parametrize(
    ("number", "text"), [(1e22, "1E+22"), (0.1, "0.1"), (-0.0, "-0"), (math.inf, "INF"), (1 / 3, "0.33333333333333331")]
)
def test_floats_are_printed_as_sexplib_does(number: float, text: str) -> None:
    assert text_of_float(number) == text


@pytest.mark.parametrize(
    ("value", "second"),
    [
        (b"1700000000", NOON),
        (b"1700000000.99", NOON),
        (b"-0.5", -1),
        (b"nan", None),
        (b"-inf", None),
        ((b"2023-11-14", b"22:13:20.000000Z"), NOON),
        ((b"2023-11-14", b"22:13:20.999999Z"), NOON),
        ((b"2023-11-14", b"17:13:20.123456-05:00"), NOON),
        ((b"2023-11-14", b"17:13:20.123456789-05:00"), NOON),
        ((b"2023-11-15", b"03:43:20+05:30"), NOON),
        ((b"2023-11-14", b"22:14:05+00:00:45"), NOON),
        ((b"2023-11-14", b"22:13:20.000000"), None),
        ((b"2023-11-14", b"22:13:20", b"UTC"), NOON),
        ((b"2023-11-14", b"22:13:20", b"Europe/Zurich"), None),
        (b"2023-11-14 22:13:20Z", NOON),
        (b"2023-11-14T22:13:20.5Z", NOON),
        ((b"1969-12-31", b"23:59:59.500000Z"), -1),
    ],
)
def test_times(value: Sexp, second: int | None) -> None:
    assert second_of(time_of_sexp(value)) == second


@pytest.mark.parametrize(
    "value",
    [
        (),
        (b"2023-11-14",),
        (b"2023-11-14", (b"22:13:20Z",)),
        (b"2023-13-14", b"22:13:20Z"),
        (b"2023-02-30", b"22:13:20Z"),
        (b"2023-11-14", b"25:13:20Z"),
        (b"2023-11-14", b"22:60:20Z"),
        (b"a", b"b", b"c", b"d"),
        b"yesterday",
        b"\xff",
        (b"\xff", b"\xff"),
    ],
)
def test_no_times(value: Sexp) -> None:
    with pytest.raises(ValueError):
        time_of_sexp(value)


def test_a_zone_with_seconds_is_printed_with_them() -> None:
    assert CoreTime(0, 3600 + 45).atoms() == (b"1970-01-01", b"01:00:45.000000+01:00:45")


@pytest.mark.parametrize("text", [60_000 * "1" + "x", "0x" + 60_000 * "1" + "x", "." + 60_000 * "1" + "x"])
def test_very_many_digits_that_are_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        float_of_text(text)
