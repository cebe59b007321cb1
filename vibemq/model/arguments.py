"""Kinds of arguments of the Python interface. Each check raises an error that says which argument was given what, and
what it must be.

They are called where a program does something once. Where it does something for each message, the work is tried first,
and only its failure is looked into.
"""

from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from vibemq.errors import LocalProtocolError, VibeMQError

SHOWN_CHARACTERS: Final = 80
SHORT_CHARACTERS: Final = 40
_LEVELS_SHOWN, _ITEMS_SHOWN = 3, 14
"""Of a value, in so many characters: no item of a list takes less than three."""
NOT_SENDABLE: Final = "text that has a UTF-8 form, without lone surrogates"
SECONDS: Final = "a number of seconds"
SECONDS_OR_TIMEDELTA: Final = "a number of seconds, or a timedelta"

Kind = type[VibeMQError]


def misfit(name: str, value: object, wanted: str, error: Kind = LocalProtocolError) -> VibeMQError:
    """The error of an argument."""
    return error(f"{name} is {shown(value)}; it must be {wanted}")


def shown(value: object) -> str:
    """The value as a program would write it, not longer than a line."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}… ({type(value).__name__})"


def short(value: Any) -> str:
    """As `shown`, of a value that came over a wire as JSON: of what is very large no more is looked at than is told."""
    text = repr(_part(value, _LEVELS_SHOWN))
    return text if len(text) <= SHORT_CHARACTERS else f"{text[: SHORT_CHARACTERS - 1]}…"


def _part(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return value[: SHORT_CHARACTERS + 1]
    if not isinstance(value, list | dict) or not value:
        return value
    if not levels:
        return _REST
    if isinstance(value, list):
        return [_part(each, levels - 1) for each in value[:_ITEMS_SHOWN]]
    return {_part(name, 0): _part(each, levels - 1) for name, each in islice(value.items(), _ITEMS_SHOWN)}


class _Rest:
    def __repr__(self) -> str:
        return "…"


_REST: Final = _Rest()


def check_text(name: str, value: object, error: Kind = LocalProtocolError, *, secret: bool = False) -> None:
    """
    Args:
        secret: say nothing of the value but its type.
    """
    if not isinstance(value, str):
        if secret:
            raise error(f"{name} is of type {type(value).__name__}; it must be text")
        raise misfit(name, value, "text", error)
    if not has_utf8(value):
        if secret:
            raise error(f"{name} has lone surrogates; it must be {NOT_SENDABLE}")
        raise misfit(name, value, NOT_SENDABLE, error)


def check_optional_text(name: str, value: object) -> None:
    if value is not None:
        check_text(name, value)


def check_flag(name: str, value: object, error: Kind = LocalProtocolError) -> None:
    if not isinstance(value, bool):
        raise misfit(name, value, "True or False", error)


def check_whole(name: str, value: object, error: Kind = LocalProtocolError) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise misfit(name, value, "a whole number", error)


def check_seconds(name: str, value: object, error: Kind = LocalProtocolError) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise misfit(name, value, SECONDS, error)


def check_callable(name: str, value: object, error: Kind = LocalProtocolError) -> None:
    if not callable(value):
        raise misfit(name, value, "a function, or another object that can be called", error)


def check_headers(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise misfit("headers", value, "a mapping of texts to texts, such as a dict")
    for key, text in value.items():
        check_text("a key of headers", key)
        check_text(f"headers[{key!r}]", text)


def check_time(name: str, value: object) -> None:
    """Of a message: seconds or a timedelta."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise misfit(name, value, SECONDS_OR_TIMEDELTA)


def has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf16_units(text: str) -> int:
    """The length of a text as .NET, Java and JavaScript count it: an emoji is two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def sendable(text: str) -> str:
    """With escapes in place of lone surrogates: what is only read by people must not be refused for them."""
    return text if has_utf8(text) else text.encode(errors="backslashreplace").decode()
