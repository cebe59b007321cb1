"""Instants: milliseconds inside, RFC 3339 with milliseconds outside. Pure."""

from collections.abc import Collection
from datetime import timedelta
from functools import lru_cache
from typing import Any

from vibemq.errors import InvalidPayload
from vibemq.model.quantities import EPOCH, instant_ms

_LAST = 253_402_300_799_999
OPAQUE = frozenset(("headers", "header", "options", "arguments", "payload", "values"))
"""Fields whose content people or programs have chosen: nothing in them is taken for an instant."""


@lru_cache(maxsize=1024)
def written(instant: int) -> str:
    """`2026-11-26T00:35:00.000Z`; what lies beyond the year 9999 is its end."""
    instant = min(max(instant, 0), _LAST)
    moment = EPOCH + timedelta(milliseconds=instant)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant % 1000:03d}Z"


INSTANTS = frozenset(("since", "until"))
"""Names of instants in requests and answers beside `at` and `*_at`."""


def read_in(value: Any) -> Any:
    """The same JSON value of a request, whose instants are numbers of milliseconds.

    Raises:
        InvalidPayload: the sentence names the field.
    """
    if isinstance(value, dict):
        return {name: _read_field(name, inner) for name, inner in value.items()}
    return value


def _read_field(name: str, value: Any) -> Any:
    if name in OPAQUE:
        return value
    if name not in INSTANTS or not isinstance(value, str):
        return read_in(value)
    try:
        return instant_ms(value)
    except (ValueError, OverflowError):
        raise InvalidPayload(
            f"{name} must be an instant with its time zone, such as 2026-11-26T00:35:00Z, not {value[:40]!r}", name
        ) from None


def with_instants(value: Any, opaque: Collection[str] = OPAQUE) -> Any:
    """The same JSON value, whose instants in fields `at`, `*_at` and INSTANTS are written out. 0 means never: null."""
    if isinstance(value, dict):
        return {name: _told(name, inner, opaque) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_instants(inner, opaque) for inner in value]
    return value


def _told(name: str, value: Any, opaque: Collection[str]) -> Any:
    if name == "at" or name in INSTANTS or name.endswith("_at"):
        if type(value) is int:
            return written(value) if value else None
        return value
    return value if name in opaque else with_instants(value, opaque)
