"""How the control messages' schema is written down, once: a class per sequence, an element per field.

`messages.py` declares the classes. Both codecs, BER and JSON, and the checks of ranges and mandatory fields read what
is declared there; nothing about a single message is coded anywhere else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypeVar, cast, dataclass_transform

from vibemq.errors import RemoteProtocolError

DEPTH_MAX = 16
"""Levels of values within values, unknown ones included. The schema needs nine."""
VALUES_MAX = 4_096
"""Values in one message, unknown ones included. The largest of real clients, with a subscription, has about 20."""

_T = TypeVar("_T")


class Scalar(Enum):
    """Types of single values; of the numbers, the smallest and the largest."""

    INT = (-(1 << 31), (1 << 31) - 1)
    UINT = (0, (1 << 32) - 1)
    LONG = (-(1 << 63), (1 << 63) - 1)
    ULONG = (0, (1 << 64) - 1)
    BOOL = "bool"
    STRING = "string"
    BYTES = "bytes"


class Element(NamedTuple):
    """One field of a sequence."""

    number: int
    """Its tag in BER."""
    name: str
    """Its key in JSON."""
    attribute: str
    type: Any
    """A `Scalar`, an IntEnum, a class made by `sequence`, or a `Choice`."""
    is_array: bool
    is_mandatory: bool
    is_optional: bool
    """May be None, which is not written."""


class Choice(NamedTuple):
    """One of several sequences; the value's class says which."""

    by_number: Mapping[int, tuple[str, type[Any]]]
    by_name: Mapping[str, type[Any]]
    of_class: Mapping[type[Any], tuple[int, str]]


def choice(selections: Mapping[int, tuple[str, type[Any]]]) -> Choice:
    """
    Args:
        selections: tag in BER -> (key in JSON, class).
    """
    by_name = dict(selections.values())
    return Choice(selections, by_name, {cls: (number, name) for number, (name, cls) in selections.items()})


class SchemaMismatch(RemoteProtocolError):
    """The encoding is sound, but a value is missing, of another type, or out of its range."""


def element(
    number: int,
    of: Any,
    *,
    array: bool = False,
    optional: bool = False,
    default: Any = None,
    factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare a field. Without `default` and `factory` it is mandatory, unless `optional`."""
    return _field(number, of, array=array, optional=optional, default=default, factory=factory, mandatory=False)


def mandatory(number: int, of: Any) -> Any:
    """Declare a field that must be there."""
    return _field(number, of, array=False, optional=False, default=None, factory=None, mandatory=True)


def _field(number: int, of: Any, **how: Any) -> Any:
    metadata = {"number": number, "of": of, "how": how}
    if how["mandatory"]:
        return field(metadata=metadata)
    if how["factory"] is not None:
        return field(default_factory=how["factory"], metadata=metadata)
    return field(default=how["default"], metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(element, mandatory))
def sequence(cls: type[_T]) -> type[_T]:
    """Make a frozen dataclass out of the declared fields, and remember them for the codecs."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    elements = tuple(_element(part) for part in fields(cast(Any, made)))
    _ELEMENTS[made] = elements
    _BY_NUMBER[made] = {part.number: part for part in elements}
    return made


_ELEMENTS: dict[type[Any], tuple[Element, ...]] = {}
_BY_NUMBER: dict[type[Any], dict[int, Element]] = {}


def _element(part: Any) -> Element:
    how = part.metadata["how"]
    name = _camel(part.name)
    return Element(
        part.metadata["number"],
        name,
        part.name,
        part.metadata["of"],
        how["array"],
        how["mandatory"],
        how["optional"],
    )


def _camel(attribute: str) -> str:
    first, *more = attribute.split("_")
    return first + "".join(word.capitalize() for word in more)


def elements_of(cls: type[Any]) -> tuple[Element, ...]:
    """In the order in which they are written."""
    return _ELEMENTS[cls]


def elements_by_number(cls: type[Any]) -> Mapping[int, Element]:
    return _BY_NUMBER[cls]


def is_sequence(of: Any) -> bool:
    return of in _ELEMENTS


def is_enumeration(of: Any) -> bool:
    return isinstance(of, type) and issubclass(of, IntEnum)


def build(cls: type[_T], values: dict[str, Any]) -> _T:
    """Make a sequence out of its decoded fields; those that are missing have their defaults.

    Raises:
        SchemaMismatch: a mandatory one is missing.
    """
    for part in elements_of(cls):
        if part.is_mandatory and part.attribute not in values:
            raise SchemaMismatch(f"{cls.__name__} has no {part.name}")
    return cls(**values)


def checked_number(of: Scalar, name: str, value: int) -> int:
    """
    Raises:
        SchemaMismatch: out of the type's range.
    """
    low, high = of.value
    if not low <= value <= high:
        raise SchemaMismatch(f"{name} is {value}; it must be from {low} to {high}")
    return value


def checked_member(of: type[IntEnum], name: str, value: int) -> IntEnum:
    """
    Raises:
        SchemaMismatch: the enumeration has no such number.
    """
    try:
        return of(value)
    except ValueError:
        known = ", ".join(f"{member.value} ({member.name})" for member in of)
        raise SchemaMismatch(f"{name} is {value}; known are {known}") from None


def named_member(of: type[IntEnum], name: str, value: str) -> IntEnum:
    """
    Raises:
        SchemaMismatch: the enumeration has no such name, and nothing that stands for unknown ones.
    """
    member = of.__members__.get(value)
    if member is not None:
        return member
    try:
        # An enumeration that takes any number takes any name.
        return of(1 << 31)
    except ValueError:
        raise SchemaMismatch(f"{name} is {value!r}; known are {', '.join(of.__members__)}") from None
