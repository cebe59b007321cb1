"""The properties area of a posted message to the headers of its row, and back, as bytes.

What a property looks like as a header is decided by `vibemq.model.selector`; this does the same for whole areas, many
thousand times a second: how areas and headers are laid out is worked out once for all messages with the same names.
Whatever is not plain goes the long way, through `headers_of` and `properties_of`.
"""

import struct
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from vibemq.errors import InvalidMessage
from vibemq.model.rows import header_values
from vibemq.model.selector import TYPES_HEADER, Property, PropertyType, headers_of, name_of, properties_of
from vibemq.model.selector.properties import reads_otherwise, types_in
from vibemq.model.selector.values import integer_in
from vibemq.protocols.blazingmq.codec.properties import (
    NAME_BYTES_MAX,
    PROPERTIES_MAX,
    SCHEMA_OLD,
    TYPES_BY_NUMBER,
    AreaLayout,
    MessageProperty,
    area_head,
    area_layout,
    build_area,
    parse_area,
)

NO_HEADERS = b"\0\0"

_U16 = struct.Struct("!H")
_LAYOUTS_REMEMBERED = 1_024
_NAMES_REMEMBERED = 16
_NAMES_BYTES_REMEMBERED = 512
"""More or longer names take the long way, so that what is remembered stays small."""
_VALUE_BYTES_MAX = 0xFFFF
_INTERNAL_PREFIX = "vibemq-"
_PROPERTY_PREFIX = "vibemq-property-"
_TYPES_KEY = TYPES_HEADER.encode()


def headers_of_area(data: bytes, schema_id: int) -> tuple[bytes, int]:
    """(block of headers, where the payload begins) of application data with properties.

    Raises:
        InvalidMessage: the area cannot be read, or a property cannot be kept in a header.
    """
    layout = area_layout(data, schema_id)
    names = tuple([data[at:value_at] for at, value_at, _ in layout.places])
    keys = _keys_of(names, _listed_kinds(data, layout)) if _is_small(names) else None
    if keys is None:
        return _any_headers_of_area(data, schema_id)
    pieces = [keys.how_many]
    for key, text_of, (_, at, end) in zip(keys.keys, keys.convert, layout.places, strict=True):
        text = text_of(data[at:end])
        if text is None:
            return _any_headers_of_area(data, schema_id)
        pieces += (key, _U16.pack(len(text)), text)
    pieces.append(keys.types)
    return b"".join(pieces), layout.area_bytes


def _listed_kinds(data: bytes, layout: AreaLayout) -> bytes:
    """The kinds, with those of strings that have to be listed as such."""
    kinds = layout.kinds
    if PropertyType.STRING not in kinds:
        return kinds
    return bytes(
        _LISTED_STRING if kind == PropertyType.STRING and reads_otherwise(data[at:end]) else kind
        for kind, (_, at, end) in zip(kinds, layout.places, strict=True)
    )


def _any_headers_of_area(data: bytes, schema_id: int) -> tuple[bytes, int]:
    properties, payload_at = parse_area(data, schema_id)
    return _block_of(headers_of((name, Property(kind, value)) for name, kind, value in properties)), payload_at


def _is_small(names: Sequence[bytes]) -> bool:
    return 0 < len(names) <= _NAMES_REMEMBERED and sum(map(len, names)) <= _NAMES_BYTES_REMEMBERED


def _block_of(pairs: list[tuple[str, str]]) -> bytes:
    return _U16.pack(len(pairs)) + b"".join(_text16(text) for pair in pairs for text in pair)


def _text16(text: str) -> bytes:
    raw = text.encode()
    return _U16.pack(len(raw)) + raw


class _Keys(NamedTuple):
    """What the header blocks of all messages with the same properties have in common."""

    how_many: bytes
    keys: list[bytes]
    convert: "list[Callable[[bytes], bytes | None]]"
    types: bytes
    """The header that lists them; b"": all are plain strings."""


@lru_cache(_LAYOUTS_REMEMBERED)
def _keys_of(names: tuple[bytes, ...], kinds: bytes) -> _Keys | None:
    """None: their names or types take the long way, which also says what is wrong with them."""
    examples = [
        (name.decode(errors="surrogateescape"), Property(TYPES_BY_NUMBER[kind & _KIND], _EXAMPLES[kind]))
        for name, kind in zip(names, kinds, strict=True)
    ]
    try:
        pairs = headers_of(examples)
    except InvalidMessage:
        return None
    keys, types = pairs[: len(names)], pairs[len(names) :]
    return _Keys(
        _U16.pack(len(pairs)),
        [_text16(key) for key, _ in keys],
        [_TO_TEXT[kind] for kind in kinds],
        b"".join(_text16(text) for pair in types for text in pair),
    )


_LISTED_STRING, _KIND = 64 | PropertyType.STRING, 63
"""A string that reads as something else, so that its type is listed; and the type in the number of a kind."""
_EXAMPLES: dict[int, bool | int | str | bytes] = {
    PropertyType.BOOL: True,
    PropertyType.CHAR: 1,
    PropertyType.SHORT: 1,
    PropertyType.INT32: 1,
    PropertyType.INT64: 1,
    PropertyType.STRING: "x",
    PropertyType.BINARY: b"x",
    _LISTED_STRING: "1",
}
"""Values that have their type's usual word in the list of types."""


def _text_of_number(value: bytes) -> bytes:
    return b"%d" % int.from_bytes(value, "big", signed=True)


def _text_of_bool(value: bytes) -> bytes:
    return b"false" if value == b"\0" else b"true"


def _text_of_string(value: bytes) -> bytes | None:
    """None: it is empty, no UTF-8, or too long, which the list of types or an error has to tell."""
    if not 0 < len(value) <= _VALUE_BYTES_MAX:
        return None
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return None
    return value


def _text_of_binary(value: bytes) -> bytes | None:
    text = b64encode(value)
    return text if len(text) <= _VALUE_BYTES_MAX else None


_TO_TEXT: dict[int, Callable[[bytes], bytes | None]] = {
    PropertyType.BOOL: _text_of_bool,
    PropertyType.CHAR: _text_of_number,
    PropertyType.SHORT: _text_of_number,
    PropertyType.INT32: _text_of_number,
    PropertyType.INT64: _text_of_number,
    PropertyType.STRING: _text_of_string,
    PropertyType.BINARY: _text_of_binary,
    _LISTED_STRING: _text_of_string,
}


# -- and back ---------------------------------------------------------------------------------------------------------


def area_of_headers(block: bytes, schema_id: int) -> bytes:
    """The area with the properties that a row's block of headers keeps; b"": none.

    Every other header is a STRING property. Left out are those of the broker's own, and what no area has room for:
    names of more than 4,095 bytes and more than 255 properties, which only other protocols can publish.
    """
    if block == NO_HEADERS:
        return b""
    keys: list[bytes] = []
    values: list[bytes] = []
    types = b""
    for key, at, size in header_values(block, 0):
        if key == _TYPES_KEY:
            types = block[at : at + size]
        else:
            keys.append(key)
            values.append(block[at : at + size])
    names = _names_of(tuple(keys), types) if _is_small(keys) and len(types) <= _NAMES_BYTES_REMEMBERED else None
    if names is None:
        return _any_area_of_headers(block, schema_id)
    contents = []
    for content_of, value in zip(names.convert, values, strict=True):
        content = content_of(value)
        if content is None:
            return _any_area_of_headers(block, schema_id)
        contents.append(content)
    head, padding = area_head(names.kinds, names.sizes, tuple(map(len, contents)), schema_id == SCHEMA_OLD)
    pieces = [head]
    for name, content in zip(names.names, contents, strict=True):
        pieces += (name, content)
    pieces.append(padding)
    return b"".join(pieces)


def _any_area_of_headers(block: bytes, schema_id: int) -> bytes:
    pairs = []
    for key, at, size in header_values(block, 0):
        name = key.decode(errors="replace")
        if name and (_is_property(name) or name == TYPES_HEADER):
            pairs.append((name, block[at : at + size].decode(errors="replace")))
    properties = [
        MessageProperty(name, *kept)
        for name, kept in properties_of(pairs).items()
        if 1 <= len(name.encode(errors="surrogateescape")) <= NAME_BYTES_MAX
    ]
    return build_area(properties[:PROPERTIES_MAX], schema_id) if properties else b""


def _is_property(header: str) -> bool:
    return not header.startswith(_INTERNAL_PREFIX) or header.startswith(_PROPERTY_PREFIX)


class _Names(NamedTuple):
    """What the areas of all rows with the same headers have in common."""

    names: list[bytes]
    sizes: tuple[int, ...]
    kinds: bytes
    convert: "list[Callable[[bytes], bytes | None]]"


@lru_cache(_LAYOUTS_REMEMBERED)
def _names_of(keys: tuple[bytes, ...], types: bytes) -> _Names | None:
    """None: the headers take the long way."""
    try:
        headers = [key.decode() for key in keys]
    except UnicodeDecodeError:
        return None
    kept = {name_of(header): types_in(types).get(name_of(header), _TEXT) for header in headers if _is_property(header)}
    names = [name.encode(errors="surrogateescape") for name in kept]
    listed_only = types_in(types).keys() - kept.keys()
    encoded = any(is_encoded for _, is_encoded in kept.values())
    if len(names) != len(keys) or listed_only or encoded or not all(names):
        return None
    kinds = bytes(kind for kind, _ in kept.values())
    return _Names(names, tuple(map(len, names)), kinds, [_TO_CONTENT[kind] for kind in kinds])


def _number_content(pack: Callable[[int], bytes]) -> Callable[[bytes], bytes | None]:
    def content(text: bytes) -> bytes | None:
        number = integer_in(text)
        try:
            return None if number is None else pack(number)
        except struct.error:
            return None

    return content


def _binary_content(text: bytes) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except Error:
        return None


_TEXT = (PropertyType.STRING, False)
_TO_CONTENT: dict[int, Callable[[bytes], bytes | None]] = {
    PropertyType.BOOL: {b"true": b"\1", b"false": b"\0"}.get,
    PropertyType.CHAR: _number_content(struct.Struct("b").pack),
    PropertyType.SHORT: _number_content(struct.Struct("!h").pack),
    PropertyType.INT32: _number_content(struct.Struct("!i").pack),
    PropertyType.INT64: _number_content(struct.Struct("!q").pack),
    PropertyType.STRING: _text_of_string,
    PropertyType.BINARY: _binary_content,
}
