"""Reading the arguments of a JSON request; what is wrong is told by name."""

from collections.abc import Mapping
from typing import Any

from vibemq.errors import InvalidPayload
from vibemq.model.runs import Run

Arguments = Mapping[str, Any]

INSTANT_MAX = (1 << 63) - 1
TEXT_MAX = 4096
LIST_MAX = 100_000


def text(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_MAX:
        raise InvalidPayload(f"argument {name} must be text of 1 to {TEXT_MAX} characters")
    return value


def text_or_none(arguments: Arguments, name: str) -> str | None:
    return None if arguments.get(name) is None else text(arguments, name)


def number(arguments: Arguments, name: str, default: int | None = None, *, most: int = INSTANT_MAX) -> int:
    """Required when there is no default."""
    value = arguments.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidPayload(f"argument {name} must be a whole number from 0 to {most}")
    return value


def number_or_none(arguments: Arguments, name: str) -> int | None:
    return None if arguments.get(name) is None else number(arguments, name)


def flag(arguments: Arguments, name: str) -> bool:
    """False when it is not given."""
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise InvalidPayload(f"argument {name} must be true or false")
    return value


def items(arguments: Arguments, name: str) -> list[Any]:
    value = arguments.get(name)
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise InvalidPayload(f"argument {name} must be a list of at most {LIST_MAX} items")
    return value


def texts(arguments: Arguments, name: str) -> list[str]:
    values = items(arguments, name)
    if not all(isinstance(value, str) for value in values):
        raise InvalidPayload(f"argument {name} must be a list of texts")
    return values


def numbers(arguments: Arguments, name: str) -> list[int]:
    values = items(arguments, name)
    if not all(type(value) is int and 0 <= value <= INSTANT_MAX for value in values):
        raise InvalidPayload(f"argument {name} must be a list of whole numbers")
    return values


def runs(arguments: Arguments, name: str) -> list[Run]:
    pairs = items(arguments, name)
    if not all(isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair) for pair in pairs):
        raise InvalidPayload(f"argument {name} must be a list of pairs [first, last]")
    found = [(first, last) for first, last in pairs]
    if any(not 1 <= first <= last <= INSTANT_MAX for first, last in found):
        raise InvalidPayload(f"a run in {name} does not go from 1 or more to something as large")
    return found
