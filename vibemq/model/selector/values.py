"""The values that a selector works on, and what may be done with them.

At run time a value is a `bool`, an `int`, `bytes` (a string, compared byte by byte), or `Text`: a header that names no
type. Anything else, and everything that two values do not have in common, is `Unusable`: the selector does not match.
"""

from collections.abc import Callable

from vibemq.model.selector.scanner import INT64_MAX, INT64_MIN

_DIGITS_MAX = 20
_BOOLS = {b"true": True, b"false": False}


class Unusable(Exception):  # no error that anybody is shown: it ends one evaluation
    """The expression has no value for this message."""


class Text(bytes):
    """The value of a header without a type: a string, and what it can be read as where something else is needed."""

    __slots__ = ()


Value = bool | int | bytes
Compare = Callable[[bytes | int, bytes | int], bool]


def integer_in(text: bytes) -> int | None:
    """The number that the text is when it is written as numbers are: decimal, no plus, no leading zeros, 64 bits."""
    if not 0 < len(text) <= _DIGITS_MAX:
        return None
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or (digits[:1] == b"0" and text != b"0"):
        return None
    number = int(text)
    return number if INT64_MIN <= number <= INT64_MAX else None


def as_bool(value: Value) -> bool:
    if value is True or value is False:
        return value
    if type(value) is Text and (meant := _BOOLS.get(value)) is not None:
        return meant
    raise Unusable


def as_integer(value: Value) -> int:
    kind = type(value)
    if kind is int:
        return value  # type: ignore[return-value]
    if kind is Text and (number := integer_in(value)) is not None:  # type: ignore[arg-type]
        return number
    raise Unusable


def compared(compare: Compare, left: Value, right: Value) -> bool:
    """Two integers or two strings. Text is an integer beside an integer, and beside other such text."""
    left_kind, right_kind = type(left), type(right)
    if left_kind is int or right_kind is int:
        return compare(as_integer(left), as_integer(right))
    if left_kind is bool or right_kind is bool:
        raise Unusable
    if left_kind is Text and right_kind is Text:
        numbers = integer_in(left), integer_in(right)  # type: ignore[arg-type]
        if numbers[0] is not None and numbers[1] is not None:
            return compare(numbers[0], numbers[1])
    return compare(left, right)


def within_64_bits(number: int) -> int:
    if INT64_MIN <= number <= INT64_MAX:
        return number
    raise Unusable


def divided(left: int, right: int) -> int:
    """Towards zero."""
    if not right:
        raise Unusable
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder(left: int, right: int) -> int:
    """With the sign of the left one."""
    return left - right * divided(left, right)
