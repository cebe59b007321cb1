"""Selectors: what they match, and where they are refused."""

import pytest

from vibemq.errors import InvalidSelector
from vibemq.model.rows import RowView, pack_row
from vibemq.model.selector import Property, PropertyType, Selector, Text, headers_of

KNOWN = {
    "x": 5,
    "y": -3,
    "s": "v3",
    "t": True,
    "f": False,
    "bin": b"\0",
    "exists": 1,
    "a.b_c": "dot",
    "text": Text(b"12"),
    "flag": Text(b"true"),
    "odd": Text(b"007"),
}


@pytest.mark.parametrize(
    "text",
    [
        'x > 1 && s == "v3"',
        "x - 1 == 4",
        "x--1 == 6",
        "2 + 3 * 4 == x + 9",
        "(2 + 3) * 4 == x * 4",
        "y / 2 == -1 && y % 2 == -1",
        "-x == -5 && - x == -5",
        "!f && ~f && !!t",
        "t == true && f != true && true == t && false != t",
        "(x > 1) == true && (x < 1) == false",
        "t || missing",
        "!(f && missing)",
        "exists(x) && !exists(missing)",
        "exists(missing) || x == 5",
        "exists == 1",
        "exists(exists)",
        'a.b_c == "dot"',
        's < "v4" && s > "v"',
        "text > 9 && 12 == text && text == text",
        'text == "12"',
        "flag && flag == true && !flag == false",
        'odd == "007"',
        "x == 5 || x / 0 == 1",
        "x\t==\n5",
        "true == true || x == 0",
    ],
)
def test_it_matches(text: str) -> None:
    assert Selector.parse(text).matches(KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x + 1",
        "s",
        "missing == 1",
        "missing != 1",
        "x == s",
        "x != s",
        "x / 0 == 1 || true",
        "x % 0 == 0",
        "bin == bin",
        "t == f",
        "t < true",
        "x && t",
        "!x",
        "-s == 1",
        "f && missing",
        "missing || t",
        "x * 9223372036854775807 > 0",
        "odd == 7",
        "flag == 1",
        "t > false",
        "text",
    ],
)
def test_it_does_not_match(text: str) -> None:
    assert not Selector.parse(text).matches(KNOWN)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("x-1", 1),
        ("x -1 == 2", 2),
        ("1 == 1", 0),
        ("a == b == c", 7),
        ("a < b < c", 6),
        ("a == b != c", 7),
        ("(x", 0),
        ("x)", 1),
        ("x = 1", 2),
        ("x & y", 2),
        ("'x' == y", 0),
        ('x == "a', 5),
        ('x == "a\\"', 5),
        ("x == 9223372036854775808", 5),
        ("x == -9223372036854775809", 5),
        ("exists()", 7),
        ("exists(true)", 7),
        ("x == 1 ||", 9),
        ("x y", 2),
        ("_x == 1", 0),
        ("X == 1 && True == é", 18),
        ("x\r== 1", 1),
        ("!" * 11 + "x", 10),
        ("x" * 129, 128),
        ("||".join("abcdefghijk"), 30),
        ("a+b+c+d+e+f+g+h+i+j+1+1 == 1", 21),
    ],
)
def test_it_is_refused_with_the_place(text: str, offset: int) -> None:
    with pytest.raises(InvalidSelector) as refused:
        Selector.parse(text)
    assert (refused.value.text, refused.value.offset) == (text, offset)


def test_the_limits_are_reached_and_not_passed() -> None:
    assert Selector.parse("x" + " " * 122 + "== 51"[:5]).text
    assert Selector.parse("!" * 10 + "t").matches({"t": True})
    assert Selector.parse("(" * 63 + "t" + ")" * 63).matches({"t": True})
    assert Selector.parse("||".join("abcdefghij")).names == tuple("abcdefghij")
    assert Selector.parse("x == -9223372036854775808").matches({"x": -(1 << 63)})


def test_a_backslash_lets_a_quote_stand_and_stays() -> None:
    selector = Selector.parse(r's == "a\"b"')
    assert selector.matches({"s": r"a\"b"})
    assert not selector.matches({"s": 'a"b'})


def test_equality_is_that_of_the_text() -> None:
    assert Selector.parse("x==1") == Selector.parse("x==1")
    assert Selector.parse("x==1") != Selector.parse("x == 1")
    assert len({Selector.parse("x==1"), Selector.parse("x==1")}) == 1


def test_a_row_is_read_by_the_headers_that_are_named() -> None:
    typed = [
        ("total", Property(PropertyType.INT64, 250)),
        ("empty", Property(PropertyType.STRING, "")),
        ("priority", Property(PropertyType.BOOL, True)),
        ("bin", Property(PropertyType.BINARY, b"\0\1")),
        ("latin", Property(PropertyType.STRING, "\udce9")),
    ]
    row = pack_row("m", b"payload", [*headers_of(typed), ("region", "eu"), ("count", "12"), ("void", "")])
    at = RowView(row).headers_at
    for text in (
        'region == "eu" && total > 100',
        'exists(empty) && empty == ""',
        "priority && exists(bin)",
        "count < 13",
        "!exists(void)",
        'latin > "z"',
    ):
        assert Selector.parse(text).matches_block(row, at), text
    for text in ('bin == "AAE="', 'total == "250"', "region", "exists(other)"):
        assert not Selector.parse(text).matches_block(row, at), text
