"""Typed properties of messages, as they are kept in the headers of a row.

Each property is one readable header under its own name: numbers in decimal, `true` or `false`, strings as they are,
binary in base64. One more header names the types of those that are not plain strings:

    region        eu
    total         250
    paid          true
    vibemq-types  total=int64,paid=bool

A name that a header cannot have, or that means something to the broker (`priority`, `reply-to`, `vibemq-…`), is kept as
`vibemq-property-` and the name in percent encoding. A string is listed among the types too when it is empty, or no
UTF-8, so that nothing is lost where headers without a value are left out, and when it reads as a number or a bool, for
which a selector would take it. A header whose type is not named is text.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from vibemq.errors import InvalidMessage
from vibemq.model.rows import header_pairs
from vibemq.model.selector.values import Text, integer_in

TYPES_HEADER = "vibemq-types"
PROPERTY_PREFIX = "vibemq-property-"
OWN_PREFIX = "vibemq-"
OWN_HEADERS = frozenset({"priority", "reply-to", "correlation-id"})
"""What they say is meant for the broker or for clients, beside everything that begins with `OWN_PREFIX`."""
VALUE_BYTES_MAX = 0xFFFF
"""Of a header, and so of a property as it is kept, and of the list of types."""
_TYPES_REMEMBERED = 1024
_TYPES_BYTES_REMEMBERED = 1024
"""Longer lists are read anew each time: a thousand of the longest would take a gigabyte."""


class PropertyType(IntEnum):
    """Numbered as BlazingMQ does."""

    BOOL = 1
    CHAR = 2
    """A number from -128 to 127."""
    SHORT = 3
    INT32 = 4
    INT64 = 5
    STRING = 6
    BINARY = 7


class Property(NamedTuple):
    type: PropertyType
    value: bool | int | str | bytes
    """STRING: text, in which bytes that are no UTF-8 are kept as Python's `surrogateescape` does; BINARY: bytes."""


BITS = {PropertyType.CHAR: 8, PropertyType.SHORT: 16, PropertyType.INT32: 32, PropertyType.INT64: 64}
_ENCODED_STRING = "string-base64"
_WORDS = {kind: kind.name.lower() for kind in PropertyType}
_KINDS: dict[str, tuple[PropertyType, bool]] = {word: (kind, False) for kind, word in _WORDS.items()}
_KINDS[_ENCODED_STRING] = (PropertyType.STRING, True)
_FIRST_OF_OTHERS = frozenset(bytes((first,)) for first in b"-0123456789tf")
_Types = Mapping[str, tuple[PropertyType, bool]]
_NO_TYPES: _Types = {}


# -- properties to headers and back -------------------------------------------------------------------------------


def headers_of(properties: Iterable[tuple[str, Property]]) -> list[tuple[str, str]]:
    """The headers that keep these properties, in their order; the list of types comes last, if one is needed.

    Raises:
        InvalidMessage: a name that comes twice, a value that its type cannot have, or one that no header has room for.
    """
    headers: dict[str, str] = {}
    types: list[str] = []
    for name, (kind, value) in properties:
        key = header_of(name)
        if key in headers:
            raise InvalidMessage(f"property {name!r} comes twice")
        text, word = _kept(name, kind, value)
        if len(text.encode()) > VALUE_BYTES_MAX or len(key.encode()) > VALUE_BYTES_MAX:
            raise InvalidMessage(
                f"property {name[:64]!r} is kept in a header of {len(text):,} bytes; a header has at most "
                f"{VALUE_BYTES_MAX:,} (binary takes a third more); put it into the payload"
            )
        headers[key] = text
        if word:
            types.append(f"{_quoted(name)}={word}")
    if types:
        listed = ",".join(types)
        if len(listed) > VALUE_BYTES_MAX:
            raise InvalidMessage(
                f"the names and types of {len(types)} properties take {len(listed):,} bytes; "
                f"{VALUE_BYTES_MAX:,} is the limit; use shorter names"
            )
        headers[TYPES_HEADER] = listed
    return list(headers.items())


def properties_of(headers: Iterable[tuple[str, str]]) -> dict[str, Property]:
    """What `headers_of` was given, and every other header as a STRING, in their order. Headers without a value are left
    out, and a header that does not have what its type needs is a STRING."""
    pairs = dict(headers)
    types = types_in(pairs.pop(TYPES_HEADER, "").encode())
    found: dict[str, Property] = {}
    for key, text in pairs.items():
        name = name_of(key)
        kind = types.get(name)
        if kind is not None:
            found[name] = _typed(*kind, text)
        elif text and key:
            found[name] = Property(PropertyType.STRING, text)
    for name, (type_, _) in types.items():
        if name not in found and type_ in (PropertyType.STRING, PropertyType.BINARY):
            found[name] = Property(type_, "" if type_ is PropertyType.STRING else b"")
    return found


def properties_in(data: bytes, offset: int) -> dict[str, Property]:
    """The same of a row's sound header block at `offset`."""
    return properties_of(header_pairs(data, offset))


def header_of(name: str) -> str:
    """Under which header a property is kept."""
    raw = name.encode(errors="surrogateescape")
    plain = name and name not in OWN_HEADERS and not name.startswith(OWN_PREFIX)
    return name if plain and _is_text(raw) else PROPERTY_PREFIX + quote_from_bytes(raw, safe="")


def name_of(header: str) -> str:
    """The property that is kept under a header."""
    if not header.startswith(PROPERTY_PREFIX):
        return header
    return unquote_to_bytes(header.removeprefix(PROPERTY_PREFIX)).decode(errors="surrogateescape")


def types_in(listed: bytes) -> _Types:
    """Property -> (its type, whether it is a string in base64), of the header that lists them. What cannot be read in
    it is left out."""
    if not listed:
        return _NO_TYPES
    return _remembered_types(listed) if len(listed) <= _TYPES_BYTES_REMEMBERED else _types(listed)


def _types(listed: bytes) -> _Types:
    types: dict[str, tuple[PropertyType, bool]] = {}
    for entry in listed.decode(errors="replace").split(","):
        name, _, word = entry.rpartition("=")
        kind = _KINDS.get(word)
        if kind is not None:
            types[unquote_to_bytes(name).decode(errors="surrogateescape")] = kind
    return types


_remembered_types = lru_cache(_TYPES_REMEMBERED)(_types)


def _types_of(names: Iterable[str], listed: bytes) -> _Types:
    """The same of these properties only, where a list is too long to be read for each look at it."""
    found: dict[str, tuple[PropertyType, bool]] = {}
    for name in names:
        _, here, rest = (b"," + listed).rpartition(b",%s=" % _quoted(name).encode())
        kind = _KINDS.get(rest.partition(b",")[0].decode(errors="replace")) if here else None
        if kind is not None:
            found[name] = kind
    return found


def _quoted(name: str) -> str:
    return quote_from_bytes(name.encode(errors="surrogateescape"), safe="")


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _kept(name: str, kind: PropertyType, value: bool | int | str | bytes) -> tuple[str, str]:
    """(text of the header, word in the list of types, "" for a plain string)."""
    if kind is PropertyType.BOOL and isinstance(value, bool):
        return ("true" if value else "false"), _WORDS[kind]
    if kind is PropertyType.BINARY and isinstance(value, bytes):
        return b64encode(value).decode(), _WORDS[kind]
    if kind is PropertyType.STRING and isinstance(value, str):
        raw = value.encode(errors="surrogateescape")
        if not _is_text(raw):
            return b64encode(raw).decode(), _ENCODED_STRING
        return value, "" if value and not reads_otherwise(raw) else _WORDS[kind]
    if kind in BITS and isinstance(value, int) and not isinstance(value, bool) and _fits(value, kind):
        return str(value), _WORDS[kind]
    raise InvalidMessage(f"property {name!r} of type {kind.name} cannot be {value!r}")


def reads_otherwise(text: bytes) -> bool:
    """Whether text without a type would be an integer or a bool where one is needed; a STRING never is."""
    return text[:1] in _FIRST_OF_OTHERS and (text in (b"true", b"false") or integer_in(text) is not None)


def _fits(value: int, kind: PropertyType) -> bool:
    bound = 1 << (BITS[kind] - 1)
    return -bound <= value < bound


def _typed(kind: PropertyType, encoded: bool, text: str) -> Property:
    match kind:
        case PropertyType.BOOL if text in ("true", "false"):
            return Property(kind, text == "true")
        case PropertyType.BINARY | PropertyType.STRING if kind is PropertyType.BINARY or encoded:
            raw = _decoded(text.encode())
            if raw is not None:
                return Property(kind, raw if kind is PropertyType.BINARY else raw.decode(errors="surrogateescape"))
        case _ if kind in BITS:
            number = integer_in(text.encode())
            if number is not None and _fits(number, kind):
                return Property(kind, number)
    return Property(PropertyType.STRING, text)


def _decoded(text: bytes) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


# -- what a selector looks at -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    """The properties that a selector uses, and the headers in which they may be."""

    names: tuple[str, ...]
    keys: dict[bytes, str]

    @classmethod
    def of(cls, names: Iterable[str]) -> "Looked":
        keys: dict[bytes, str] = {}
        for name in names:
            # A native publisher may have set a header of that name, whatever it means to the broker.
            keys[name.encode()] = name
            keys[header_of(name).encode()] = name
        return cls(tuple(names), keys)


_TYPES_KEY = TYPES_HEADER.encode()
_Known = dict[str, bool | int | bytes | None]


def known_values(data: bytes, offset: int, looked: Looked) -> _Known:
    """What a selector has to know of the row whose sound header block is at `offset`; see `parser.Known`."""
    keys = looked.keys
    raw: dict[str, bytes] = {}
    listed = b""
    at = offset + 2
    for _ in range(data[offset] << 8 | data[offset + 1]):
        value_at = at + 2 + (data[at] << 8 | data[at + 1])
        end = value_at + 2 + (data[value_at] << 8 | data[value_at + 1])
        key = data[at + 2 : value_at]
        if key in keys:
            raw[keys[key]] = data[value_at + 2 : end]
        elif key == _TYPES_KEY:
            listed = data[value_at + 2 : end]
        at = end
    types = types_in(listed) if len(listed) <= _TYPES_BYTES_REMEMBERED else _types_of(looked.names, listed)
    known: _Known = {}
    for name in looked.names:
        text, kind = raw.get(name), types.get(name)
        if kind is not None and (text or kind[0] in (PropertyType.STRING, PropertyType.BINARY)):
            known[name] = _value(*kind, text or b"")
        elif text:
            known[name] = Text(text)
    return known


def _value(kind: PropertyType, encoded: bool, text: bytes) -> bool | int | bytes | None:
    match kind:
        case PropertyType.STRING:
            return _decoded(text) if encoded else text
        case PropertyType.BOOL:
            return {b"true": True, b"false": False}.get(text)
        case PropertyType.BINARY:
            return None
    number = integer_in(text)
    return number if number is not None and _fits(number, kind) else None


def known_of(properties: Mapping[str, Property | bool | int | str | bytes]) -> _Known:
    """The same of properties that are known already. A plain `str` is a string, and `bytes` are binary."""
    return {name: _plain(value) for name, value in properties.items()}


def _plain(value: Property | bool | int | str | bytes) -> bool | int | bytes | None:
    if isinstance(value, Property):
        value = value.value
    if isinstance(value, Text):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    return None if isinstance(value, bytes) else value
