"""The reader of S-expressions: its rules, its limits, its cost."""

import re
from re import _constants, _parser  # type: ignore[attr-defined]  # what a pattern is made of is told nowhere else
from typing import Any

import pytest

from vibemq.protocols.omq import scalars, sexp
from vibemq.protocols.omq.sexp import Sexp, SexpError, SexpReader, SexpTooLarge, print_atom, print_sexp


def read(*pieces: bytes, **limits: int) -> list[Sexp]:
    reader = SexpReader(**limits)
    found: list[Sexp] = []
    for piece in pieces:
        reader.receive_data(piece)
        found += reader.values()
    return found


def read_bytewise(text: bytes) -> list[Sexp]:
    return read(*(text[at : at + 1] for at in range(len(text))))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"(a b)", (b"a", b"b")),
        (b"()", ()),
        (b"(()(()))", ((), ((),))),
        (b"(a\t\n\r\n\fb)", (b"a", b"b")),
        (b'(a"b"c)', (b"a", b"b", b"c")),
        (b'(a"")', (b"a", b"")),
        (b"(a\x0bb\x00)", (b"a\x0bb\x00",)),
        (rb"(a\n\065)", (rb"a\n\065",)),
        (rb'("\065\x4F\x4f\n\t\b\r\\\"\'")', (b"AOO\n\t\b\r\\\"'",)),
        (rb'("\q\ \o101")', (rb"\q\ \o101",)),
        (b'("a\\\n  \t b\\\r\n c")', (b"abc",)),
        (b'("\\\rx")', (b"\rx",)),
        (b'("a\nb\xff")', (b"a\nb\xff",)),
        (b"(a ; ) (\n b)", (b"a", b"b")),
        (b"(a;b\n)", (b"a",)),
        (b'(#| "|#" #| ) |# |# a)', (b"a",)),
        (b"(#||#a)", (b"a",)),
        (b"(#| ##|x|#|# b)", (b"b",)),
        (b"(#;a b)", (b"b",)),
        (b"(#;(a (b)) c)", (b"c",)),
        (b"(#;#; a b c)", (b"c",)),
        (b"(a #; b)", (b"a",)),
        (b"(# | #x |x a|b a#b)", (b"#", b"|", b"#x", b"|x", b"a|b", b"a#b")),
        (b"#;(a) (b)", (b"b",)),
        (b"#| a |# (b)", (b"b",)),
        (b"; a\n(b)", (b"b",)),
    ],
)
def test_values(text: bytes, value: Sexp) -> None:
    assert read(text) == [value]
    assert read_bytewise(text) == [value]


@pytest.mark.parametrize(
    "text",
    [
        b")",
        b"(a))",
        b"(#;)",
        b"(a #;)",
        b"(a#|b)",
        b"(##|a)",
        b"(|#)",
        b"(a||#b)",
        rb'("\256")',
        rb'("\19")',
        rb'("\1"',
        rb'("\xC")',
        rb'("\xg0")',
        rb'(#| "\999" |# a)',
    ],
)
def test_errors(text: bytes) -> None:
    for pieces in ([text], [text[at : at + 1] for at in range(len(text))]):
        with pytest.raises(SexpError) as caught:
            read(*pieces)
        assert not isinstance(caught.value, SexpTooLarge)


@pytest.mark.parametrize("text", [b"(a", b'("a', b"#| a", b"#; ", b"#", b"a", b'(a "\\', b"(a ; b"])
def test_unfinished(text: bytes) -> None:
    reader = SexpReader()
    reader.receive_data(text)
    assert list(reader.values()) == []
    assert reader.unfinished


@pytest.mark.parametrize("text", [b"", b"(a) ", b"; comment", b"#| a |# \n", b"#;a "])
def test_finished(text: bytes) -> None:
    reader = SexpReader()
    reader.receive_data(text)
    list(reader.values())
    assert not reader.unfinished


def test_several_values_come_one_by_one() -> None:
    assert read(b"(a)(b)c (d)") == [(b"a",), (b"b",), b"c", (b"d",)]


def test_what_stands_before_an_error_is_read_first() -> None:
    reader = SexpReader()
    reader.receive_data(b"(a)(b))")
    values = reader.values()
    assert [next(values), next(values)] == [(b"a",), (b"b",)]
    with pytest.raises(SexpError):
        next(values)


def test_a_value_ends_at_its_parenthesis_and_waits_for_no_newline() -> None:
    assert read(b"(a") == []
    assert read(b"(a", b")") == [(b"a",)]


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filling", [b"a", b"(", b' "', b' "\\n', b" ", b"#|", b";", b'#| "', b"()", b"#;a "])
def test_endless_values_are_refused_and_cost_no_memory(filling: bytes) -> None:
    reader = SexpReader(bytes_max=1000, nesting_max=10_000)
    reader.receive_data(b"(" + filling * 20)
    assert list(reader.values()) == []
    with pytest.raises(SexpTooLarge):  # noqa: PT012
        for _ in range(2000):
            reader.receive_data(filling[:1] if filling == b";" else filling)
            assert list(reader.values()) == []
            assert len(reader._data) < 10
            assert len(reader._text) <= 1000


@pytest.mark.parametrize("noise", [b"   \n", b"; comment\n", b"#| x |# ", b"#| ", b";;;;", b'#| " '])
def test_endless_noise_between_values_is_neither_refused_nor_kept(noise: bytes) -> None:
    reader = SexpReader(bytes_max=100)
    for _ in range(1000):
        reader.receive_data(noise)
        assert list(reader.values()) == []
        assert len(reader._data) - reader._at < 2
        assert not reader._text


def test_the_longest_value_fits_and_one_byte_more_does_not() -> None:
    longest = b"(" + b"a" * 98 + b")"
    too_long = b"(" + b"a" * 99 + b")"
    assert read(longest * 3, bytes_max=100) == [(b"a" * 98,)] * 3
    for pieces in ([too_long], [too_long[at : at + 1] for at in range(101)]):
        with pytest.raises(SexpTooLarge, match="100 bytes"):
            read(*pieces, bytes_max=100)


def test_the_limit_counts_a_value_and_not_the_stream() -> None:
    assert len(read(b"(a b c d)   ; more\n" * 1000, bytes_max=10)) == 1000


def test_the_deepest_value_fits_and_one_level_more_does_not() -> None:
    assert read(b"(" * 64 + b")" * 64)
    with pytest.raises(SexpTooLarge, match="64"):
        read(b"(" * 65)


def test_a_commented_value_has_the_same_limits() -> None:
    with pytest.raises(SexpTooLarge):
        read(b"#;" + b"(" * 65)
    with pytest.raises(SexpTooLarge):
        read(b"#;(" + b"a" * 200, bytes_max=100)


def test_cost_is_linear_when_bytes_come_one_by_one() -> None:
    """Counts the bytes that are copied, since a clock would lie: each byte is looked at a bounded number of times."""

    class Counted(bytes):
        copied = 0

        def __radd__(self, other: bytes) -> bytes:
            Counted.copied += len(other) + len(self)
            return bytes(other) + bytes(self)

    reader = SexpReader(bytes_max=1 << 20)
    text = b'(Subscribe "' + b"a\\065\\\n  b" * 5_000 + b'" ' + b"#| x |# word " * 1_000 + b")"
    values: list[Sexp] = []
    for at in range(len(text)):
        reader.receive_data(Counted(text[at : at + 1]))
        values += reader.values()
    assert len(values) == 1
    assert Counted.copied < 5 * len(text)


# -- printing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("atom", "printed"),
    [
        (b"", b'""'),
        (b"plain", b"plain"),
        (b"#", b"#"),
        (b"a#|b", b'"a#|b"'),
        (b"a|#b", b'"a|#b"'),
        (b"a b", b'"a b"'),
        (b'"', b'"\\""'),
        (b"\\", b'"\\\\"'),
        (b"\n\t\r\b\x00\x7f\xc3\xa9", rb'"\n\t\r\b\000\127\195\169"'),
        (b"it's", b"it's"),
    ],
)
def test_atoms_print_as_sexplib_does(atom: bytes, printed: bytes) -> None:
    assert print_atom(atom) == printed


def test_a_blank_stands_only_between_two_plain_atoms() -> None:
    assert print_sexp((b"a", b"b", (b"c",), b"d", b"e f", b"g", (), b"")) == b'(a b(c)d"e f"g()"")'


def endless_repeats(parsed: Any) -> int:
    """Parts of a pattern that may match any length, and any shorter one after that."""
    found = 0
    for operator, argument in parsed:
        if operator is _constants.MAX_REPEAT and argument[1] is _constants.MAXREPEAT:
            found += 1
        for part in argument if isinstance(argument, tuple | list) else (argument,):
            for inner in part if isinstance(part, list) else (part,):
                if isinstance(inner, _parser.SubPattern):
                    found += endless_repeats(inner)
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(value, id=name)
        for module in (sexp, scalars)
        for name, value in vars(module).items()
        if isinstance(value, re.Pattern)
    ],
)
def test_no_text_is_looked_at_again_and_again(pattern: re.Pattern[Any]) -> None:
    """Two such parts would be tried in all their lengths: seconds for a command of 64 KiB, from anybody."""
    assert endless_repeats(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)) <= 1


def test_a_list_that_is_blanks_is_too_large() -> None:
    with pytest.raises(SexpTooLarge):
        read(b"(" + 65_536 * b" ")
