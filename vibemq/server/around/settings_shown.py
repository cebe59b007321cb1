"""Settings as an operator may see them: names, values without secrets, origins. Pure."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from vibemq.config import Settings, WhenChanged
from vibemq.server.reload.changes import when_changed

SET = "set"
"""In the place of a secret."""
DEFAULT = "default"
PROGRAM = "the program"
_SECRET_NAME = re.compile(r"pass|secret|token|credential|(^|_)key($|_)", re.IGNORECASE)
"""Of options of plug-ins, whose values are plain text here."""
_WITH_PASSWORD = re.compile(r"(\w+://[^/@\s:]*):[^/@\s]*@")


def shown_settings(settings: Settings, origins: Mapping[str, str] | None) -> list[dict[str, Any]]:
    """`origins`: by dotted name, defaults left out; None = a program has made the settings."""
    return list(_of_group(settings, "", WhenChanged.RESTART, origins))


def _of_group(
    group: BaseModel, above: str, inherited: WhenChanged, origins: Mapping[str, str] | None
) -> Iterator[dict[str, Any]]:
    for name, field in type(group).model_fields.items():
        value, place = getattr(group, name), f"{above}{name}"
        when = when_changed(field) or inherited
        if isinstance(value, BaseModel):
            yield from _of_group(value, f"{place}.", when, origins)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for number, member in enumerate(value):
                yield from _of_group(member, f"{place}[{number}].", when, origins)
        elif isinstance(value, dict) and value:
            yield from _of_table(value, place, when, origins)
        else:
            default = value == field.get_default(call_default_factory=True)
            yield _row(place, _plain(value), when, _origin(place, origins, default=default))


def _of_table(
    table: Mapping[str, Any], place: str, when: WhenChanged, origins: Mapping[str, str] | None
) -> Iterator[dict[str, Any]]:
    for key, value in table.items():
        name = f"{place}.{key}"
        if isinstance(value, BaseModel):
            yield from _of_group(value, f"{name}.", when, origins)
        elif isinstance(value, dict) and value:
            yield from _of_table(value, name, when, origins)
        else:
            plain = SET if _SECRET_NAME.search(key) and value not in (None, "") else _plain(value)
            yield _row(name, plain, when, _origin(name, origins, default=False))


def _row(name: str, value: Any, when: WhenChanged, origin: str) -> dict[str, Any]:
    return {"name": name, "value": value, "origin": origin, "when": when.value}


def _origin(name: str, origins: Mapping[str, str] | None, *, default: bool) -> str:
    if origins is None:
        return DEFAULT if default else PROGRAM
    # A list, and a table that was given as one text, have one origin for all that is in them.
    while name:
        if name in origins:
            return origins[name]
        name = re.sub(r"(\.|^)[^.\[]*$|\[\d+\]$", "", name)
    return DEFAULT


def _plain(value: Any) -> Any:
    """JSON-ready."""
    match value:
        case SecretStr():
            return SET if value.get_secret_value() else ""
        case Enum():
            return value.name.lower() if isinstance(value, int) else value.value
        case Path():
            return str(value)
        case str():
            return _WITH_PASSWORD.sub(rf"\1:{SET}@", value)
        case tuple() | list():
            return [_plain(member) for member in value]
        case dict():
            return {key: SET if _SECRET_NAME.search(key) else _plain(member) for key, member in value.items()}
        case _:
            return value
