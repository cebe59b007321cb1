"""The form of commands, effects and records, and of what the native protocol makes of them."""

from dataclasses import dataclass, field, fields
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

W = TypeVar("W")


@dataclass_transform(field_specifiers=(field,))
def word(cls: type[W]) -> type[W]:
    """As `dataclass(slots=True)`, which compiles `==` and `repr` anew for each class. There are so many words that this
    was a twentieth of a broker's start; they share these two."""
    cls.__eq__ = _equal  # type: ignore[method-assign]
    cls.__repr__ = _shown  # type: ignore[method-assign]
    cls.__hash__ = None  # type: ignore[assignment]
    return dataclass(slots=True, eq=False, repr=False)(cls)


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = [field.name for field in fields(self) if field.compare]
    return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]


@recursive_repr()
def _shown(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"
