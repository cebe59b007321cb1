"""The area of message properties, in front of the payload when a message has any.

    header       reserved u2 | half-words of each property's header u3 = 3 | half-words of this header u3 = 3
                 words u24     of the area, padding included
                 0 u8
                 count u8      1 to 255
    count times  reserved u1 | type u5 | X u26
                 reserved u4 | name length u12
    count times  name, value
    padding      1 to 4 bytes

X is the length of the value in the old style, and in the new one the offset of the name behind the headers. The style
is not told by the area but by the message's schema id: 0 is old. Source: docs/spec/blazingmq.md, "Message properties".
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

from vibemq.errors import InvalidMessage, LocalProtocolError
from vibemq.model.selector import PropertyType
from vibemq.protocols.blazingmq.codec.events import PADDINGS

NAME_BYTES_MAX = 4_095
PROPERTIES_MAX = 255
AREA_BYTES_MAX = 4 * 0xFFFFFF

SCHEMA_OLD = 0
"""Old style, or no properties."""
SCHEMA_NONE = 1
"""New style without a schema: what consumers get. The ids of producers are private to their connections."""

_HEADER = struct.Struct("!BBHBB")
_LAYOUTS_REMEMBERED = 1_024
_PROPERTIES_REMEMBERED = 16
"""Larger areas are taken apart anew each time, so that what is remembered stays small."""
_HEADER_BYTES = 0x1B
_PROPERTY = struct.Struct("!HHH")
_X = (1 << 26) - 1
_NAME = (1 << 12) - 1

PropertyValue = bool | int | str | bytes


class MessageProperty(NamedTuple):
    name: str
    """Bytes that are not UTF-8 are kept as lone surrogates (PEP 383), as in a STRING value."""
    type: PropertyType
    value: PropertyValue
    """bool; int for CHAR (-128 to 127), SHORT, INT32, INT64; str for STRING; bytes for BINARY."""


_NUMBERS = {
    PropertyType.BOOL: struct.Struct("?"),
    PropertyType.CHAR: struct.Struct("b"),
    PropertyType.SHORT: struct.Struct("!h"),
    PropertyType.INT32: struct.Struct("!i"),
    PropertyType.INT64: struct.Struct("!q"),
}
TYPES_BY_NUMBER = {member.value: member for member in PropertyType}


class AreaLayout(NamedTuple):
    """Where everything stands in an area."""

    kinds: bytes
    """The number of each property's type."""
    places: tuple[tuple[int, int, int], ...]
    """Of each property: where its name begins, its value, and where that ends."""
    area_bytes: int


def area_layout(data: bytes, schema_id: int) -> AreaLayout:
    """How the area in front of uncompressed application data is laid out.

    Raises:
        InvalidMessage: the area cannot be read.
    """
    area = area_bytes(data)
    first, _, _, _, count = _HEADER.unpack_from(data)
    header_size, property_size = 2 * (first & 7), 2 * (first >> 3 & 7)
    at = header_size + count * property_size
    padding = data[area - 1] if area else 0
    if header_size < _HEADER.size or property_size < _PROPERTY.size or not count:
        raise InvalidMessage(f"an area of {count} properties with headers of {header_size} and {property_size} bytes")
    if not 1 <= padding <= 4 or at > area - padding:
        raise InvalidMessage(f"{count} properties do not fit into an area of {area} bytes with padding {padding}")
    lay_out = _remembered_layout if count <= _PROPERTIES_REMEMBERED else _layout
    return lay_out(data[:at], area - padding, schema_id == SCHEMA_OLD)


def _layout(head: bytes, end: int, old: bool) -> AreaLayout:
    """
    Args:
        head: all headers, whole.
        end: of names and values.
    """
    header_size, property_size = 2 * (head[0] & 7), 2 * (head[0] >> 3 & 7)
    at = len(head)
    headers = [_PROPERTY.unpack_from(head, place) for place in range(header_size, at, property_size)]
    xs = [(first << 16 | low) & _X for first, low, _ in headers]
    name_sizes = [last & _NAME for _, _, last in headers]
    if old:
        sizes = [name + value for name, value in zip(name_sizes, xs, strict=True)]
    else:
        if xs[0]:
            raise InvalidMessage(f"the first property begins at offset {xs[0]}, not 0")
        sizes = [after - before for before, after in pairwise((*xs, end - at))]
    kinds, places = [], []
    for (first, _, _), name_size, size in zip(headers, name_sizes, sizes, strict=True):
        value_at, stop = at + name_size, at + size
        if not name_size or value_at > stop or stop > end:
            raise InvalidMessage(f"a property of {size} bytes with a name of {name_size} contradicts its area")
        kinds.append(_kind(first >> 10 & 31, stop - value_at))
        places.append((at, value_at, stop))
        at = stop
    if at != end:
        raise InvalidMessage(f"{end - at} bytes behind the last property")
    return AreaLayout(bytes(kinds), tuple(places), _area_bytes(head))


_remembered_layout = lru_cache(_LAYOUTS_REMEMBERED)(_layout)


def _kind(number: int, size: int) -> PropertyType:
    kind = TYPES_BY_NUMBER.get(number)
    if kind is None:
        raise InvalidMessage(f"a property has the unknown type {number}")
    fixed = _NUMBERS.get(kind)
    if fixed is not None and size != fixed.size:
        raise InvalidMessage(f"a property of type {kind.name} has {size} bytes")
    return kind


def parse_area(data: bytes, schema_id: int) -> tuple[list[MessageProperty], int]:
    """(properties in order, where the payload begins) of uncompressed application data.

    Raises:
        InvalidMessage: the area cannot be read.
    """
    layout = area_layout(data, schema_id)
    found = []
    for number_of_kind, (at, value_at, end) in zip(layout.kinds, layout.places, strict=True):
        kind = TYPES_BY_NUMBER[number_of_kind]
        number, raw = _NUMBERS.get(kind), data[value_at:end]
        value: PropertyValue = raw
        if number is not None:
            (value,) = number.unpack(raw)
        elif kind is PropertyType.STRING:
            value = raw.decode(errors="surrogateescape")
        found.append(MessageProperty(data[at:value_at].decode(errors="surrogateescape"), kind, value))
    if len({name for name, _, _ in found}) != len(found):
        raise InvalidMessage("two properties have one name")
    return found, layout.area_bytes


def area_bytes(data: bytes | memoryview) -> int:
    """Where the payload begins, without a look at the properties.

    Raises:
        InvalidMessage: there is no whole area.
    """
    if len(data) < _HEADER.size or _area_bytes(data) > len(data):
        raise InvalidMessage(f"a properties area that does not fit into {len(data)} bytes of data")
    return _area_bytes(data)


def _area_bytes(data: bytes | memoryview) -> int:
    return 4 * int.from_bytes(data[1:4], "big")


def build_area(properties: Sequence[MessageProperty], schema_id: int = SCHEMA_NONE) -> bytes:
    """The area with these properties in this order, and its padding.

    Raises:
        LocalProtocolError: too many, too large, or a value that its type does not have.
    """
    if not 1 <= len(properties) <= PROPERTIES_MAX:
        raise LocalProtocolError(f"a message has 1 to {PROPERTIES_MAX} properties, not {len(properties)}")
    names, contents = [], []
    for name, kind, value in properties:
        raw = name.encode(errors="surrogateescape")
        if not 1 <= len(raw) <= NAME_BYTES_MAX:
            raise LocalProtocolError(f"a property's name has 1 to {NAME_BYTES_MAX} bytes, not {len(raw)}")
        names.append(raw)
        contents.append(_content(name, kind, value))
    sizes = tuple(map(len, names)), tuple(map(len, contents))
    head, padding = _head(bytes(kind for _, kind, _ in properties), *sizes, schema_id == SCHEMA_OLD)
    return b"".join((head, *chain.from_iterable(zip(names, contents, strict=True)), padding))


def _head(kinds: bytes, name_sizes: tuple[int, ...], value_sizes: tuple[int, ...], old: bool) -> tuple[bytes, bytes]:
    """(all headers, padding) of an area with such names and values."""
    headers, offset = [], 0
    for kind, name_size, value_size in zip(kinds, name_sizes, value_sizes, strict=True):
        x = value_size if old else offset
        offset += name_size + value_size
        if offset > AREA_BYTES_MAX:
            break
        headers.append(_PROPERTY.pack(kind << 10 | x >> 16, x & 0xFFFF, name_size))
    size = _HEADER.size + _PROPERTY.size * len(kinds) + offset
    padding = PADDINGS[size & 3]
    words = (size + len(padding)) // 4
    if 4 * words > AREA_BYTES_MAX:
        raise LocalProtocolError(f"properties of more than {AREA_BYTES_MAX} bytes")
    header = _HEADER.pack(_HEADER_BYTES, words >> 16, words & 0xFFFF, 0, len(kinds))
    return b"".join((header, *headers)), padding


area_head = lru_cache(_LAYOUTS_REMEMBERED)(_head)


def _content(name: str, of: PropertyType, value: PropertyValue) -> bytes:
    try:
        number = _NUMBERS.get(of)
        if number is not None and isinstance(value, int):
            return number.pack(value)
        if of is PropertyType.STRING and isinstance(value, str):
            return value.encode(errors="surrogateescape")
        if of is PropertyType.BINARY and isinstance(value, bytes):
            return value
    except (struct.error, UnicodeEncodeError):
        pass
    raise LocalProtocolError(f"property {name[:64]!r} is {value!r:.64}, which is no {of.name}")
