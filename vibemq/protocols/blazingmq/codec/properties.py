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
from itertools import pairwise
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
_TYPES = {member.value: member for member in PropertyType}


def parse_area(data: bytes, schema_id: int) -> tuple[list[MessageProperty], int]:
    """(properties in order, where the payload begins) of uncompressed application data.

    Raises:
        InvalidMessage: the area cannot be read.
    """
    headers, at, end = _bounds(data)
    xs = [(first << 16 | low) & _X for first, low, _ in headers]
    name_sizes = [last & _NAME for _, _, last in headers]
    if schema_id == SCHEMA_OLD:
        sizes = [name + value for name, value in zip(name_sizes, xs, strict=True)]
    else:
        if xs[0]:
            raise InvalidMessage(f"the first property begins at offset {xs[0]}, not 0")
        sizes = [after - before for before, after in pairwise((*xs, end - at))]
    found = []
    for (first, _, _), name_size, size in zip(headers, name_sizes, sizes, strict=True):
        value_at, stop = at + name_size, at + size
        if not name_size or value_at > stop or stop > end:
            raise InvalidMessage(f"a property of {size} bytes with a name of {name_size} contradicts its area")
        found.append(_property(first >> 10 & 31, data[at:value_at], data[value_at:stop]))
        at = stop
    if at != end:
        raise InvalidMessage(f"{end - at} bytes behind the last property")
    if len({name for name, _, _ in found}) != len(found):
        raise InvalidMessage("two properties have one name")
    return found, _area_bytes(data)


def area_bytes(data: bytes) -> int:
    """Where the payload begins, without a look at the properties.

    Raises:
        InvalidMessage: there is no whole area.
    """
    if len(data) < _HEADER.size or _area_bytes(data) > len(data):
        raise InvalidMessage(f"a properties area that does not fit into {len(data)} bytes of data")
    return _area_bytes(data)


def _area_bytes(data: bytes) -> int:
    return 4 * int.from_bytes(data[1:4], "big")


def _bounds(data: bytes) -> tuple[list[tuple[int, int, int]], int, int]:
    """Headers of the properties; start and end of names and values."""
    area = area_bytes(data)
    first, _, _, _, count = _HEADER.unpack_from(data)
    header_size, property_size = 2 * (first & 7), 2 * (first >> 3 & 7)
    at = header_size + count * property_size
    padding = data[area - 1] if area else 0
    if header_size < _HEADER.size or property_size < _PROPERTY.size or not count:
        raise InvalidMessage(f"an area of {count} properties with headers of {header_size} and {property_size} bytes")
    if not 1 <= padding <= 4 or at > area - padding:
        raise InvalidMessage(f"{count} properties do not fit into an area of {area} bytes with padding {padding}")
    places = range(header_size, at, property_size)
    return [_PROPERTY.unpack_from(data, place) for place in places], at, area - padding


def _property(kind: int, name: bytes, value: bytes) -> MessageProperty:
    of = _TYPES.get(kind)
    if of is None:
        raise InvalidMessage(f"property {name[:64]!r} has the unknown type {kind}")
    number = _NUMBERS.get(of)
    typed: PropertyValue
    if number is not None:
        if len(value) != number.size:
            raise InvalidMessage(f"property {name[:64]!r} is a {of.name} of {len(value)} bytes")
        (typed,) = number.unpack(value)
    elif of is PropertyType.STRING:
        typed = value.decode(errors="surrogateescape")
    else:
        typed = value
    return MessageProperty(name.decode(errors="surrogateescape"), of, typed)


def build_area(properties: Sequence[MessageProperty], schema_id: int = SCHEMA_NONE) -> bytes:
    """The area with these properties in this order, and its padding.

    Raises:
        LocalProtocolError: too many, too large, or a value that its type does not have.
    """
    if not 1 <= len(properties) <= PROPERTIES_MAX:
        raise LocalProtocolError(f"a message has 1 to {PROPERTIES_MAX} properties, not {len(properties)}")
    offset = 0
    headers: list[bytes] = []
    contents: list[bytes] = []
    for name, of, value in properties:
        raw = name.encode(errors="surrogateescape")
        if not 1 <= len(raw) <= NAME_BYTES_MAX:
            raise LocalProtocolError(f"a property's name has 1 to {NAME_BYTES_MAX} bytes, not {len(raw)}")
        content = _content(name, of, value)
        x = len(content) if schema_id == SCHEMA_OLD else offset
        contents += (raw, content)
        offset += len(raw) + len(content)
        if offset > AREA_BYTES_MAX:
            raise LocalProtocolError(f"properties of more than {AREA_BYTES_MAX} bytes")
        headers.append(_PROPERTY.pack(of << 10 | x >> 16, x & 0xFFFF, len(raw)))
    size = _HEADER.size + _PROPERTY.size * len(headers) + offset
    padding = PADDINGS[size & 3]
    words = (size + len(padding)) // 4
    if 4 * words > AREA_BYTES_MAX:
        raise LocalProtocolError(f"properties of more than {AREA_BYTES_MAX} bytes")
    header = _HEADER.pack(_HEADER_BYTES, words >> 16, words & 0xFFFF, 0, len(properties))
    return b"".join((header, *headers, *contents, padding))


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
