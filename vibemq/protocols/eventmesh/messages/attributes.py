"""Attributes of a CloudEvent that the libraries of clients read. At another one a client ends its connection, and gets
the event again with the next one.

    extensions                      names of lower-case letters and digits
    time                            a timestamp of RFC 3339, with at most nine digits of a second
    source, dataschema, schemaurl   a reference to a URI, as `java.net.URI` reads it

Source: CloudEvents 1.0.2; RFC 3339; RFC 2396.
"""

import re
from datetime import date
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any

from vibemq.errors import InvalidMessage

CORE = frozenset({"specversion", "id", "source", "type", "subject", "time", "dataschema", "schemaurl"})
"""All other attributes are extensions. As properties of a message these keep their `ce-`: a message has other fields of
these names, or none."""
_URIS = frozenset({"source", "dataschema", "schemaurl"})
_NAME = re.compile("[a-z0-9]+")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{0,9})?)?"
    r"(?:[Zz]|[+-](?:(?:0[0-9]|1[0-7]):[0-5][0-9]|18:00))"
)
_OTHER = "\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\U0010ffff"
"""Beyond ASCII, but for blanks and controls."""
_PLAIN = rf"A-Za-z0-9_.!~*'():@&=+$,;{_OTHER}-"
_ESCAPE = "%[0-9A-Fa-f]{2}"
_QUERY = rf"(?:[{_PLAIN}/?\[\]]|{_ESCAPE})*+"
_HOST = rf"(?:[{_PLAIN}]|{_ESCAPE})*+(?:\[(?P<address>[0-9A-Fa-f:.]+)\](?::[0-9]*)?)?"
_PATH = rf"(?:[{_PLAIN}/]|{_ESCAPE})*+"
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*")
_OPAQUE = re.compile(_QUERY)
_HIERARCHY = re.compile(rf"(?://{_HOST}(?:/{_PATH})?|(?!//){_PATH})(?:\?{_QUERY})?")


def is_readable(name: str, value: str) -> bool:
    if name in _URIS:
        return is_uri_reference(value)
    if name == "time":
        return is_timestamp(value)
    return is_name(name)


def check_attribute(name: str, value: Any) -> None:
    """Raises InvalidMessage: it is none that clients read."""
    if name in CORE and not isinstance(value, str):
        raise InvalidMessage(f"{name!r} of a CloudEvent must be text, not {type(value).__name__}")
    if name not in CORE and not is_name(name):
        raise InvalidMessage(
            f"the attribute {name[:64]!r} of a CloudEvent: names have lower-case letters and digits, and nothing else"
        )
    if name in CORE and not is_readable(name, value):
        what = "a timestamp like 2026-11-27T10:00:00.123Z" if name == "time" else "a URI, or a part of one"
        raise InvalidMessage(f"{name!r} of a CloudEvent is {value[:64]!r}; it must be {what}")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_timestamp(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    try:
        date.fromisoformat(found[1])
    except ValueError:
        return False
    return True


def is_uri_reference(text: str) -> bool:
    return _known_reference(text) if len(text) <= _REMEMBERED_CHARACTERS else _is_reference(text)


def _is_reference(text: str) -> bool:
    rest, mark, fragment = text.partition("#")
    if _OPAQUE.fullmatch(fragment) is None:
        return False
    scheme, colon, behind = rest.partition(":")
    if colon and "/" not in scheme and "?" not in scheme:
        if not behind or _SCHEME.fullmatch(scheme) is None:
            return False
        if not behind.startswith("/"):
            return _OPAQUE.fullmatch(behind) is not None
        rest = behind
    found = _HIERARCHY.fullmatch(rest)
    return found is not None and (rest != "//" or bool(mark)) and _is_address(found["address"])


_REMEMBERED_CHARACTERS = 256
_known_reference = lru_cache(maxsize=256)(_is_reference)
"""Nearly all events have one of a few."""


def _is_address(text: str | None) -> bool:
    if text is None:
        return True
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
