"""Posted messages to stored rows, and rows to delivered messages.

    id         the GUID as text
    payload    as the application posted it, decompressed
    headers    the properties, as `vibemq.model.selector` keeps typed properties: readable ones, and a list of types

A zlib payload is decompressed when it is posted. What is stored is then what every consumer can read: native, OCaml and
Spark consumers, dead letters, exports; none of them would know what to do with a compressed body, while the SDKs read a
message whatever compression they were opened with. A payload that cannot be decompressed is refused to the one who sent
it, before it is confirmed, and is no puzzle for each consumer after it. The price is processor time at the post, and
the bytes that compression would have saved on disk and towards consumers.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

from vibemq.errors import InvalidMessage
from vibemq.model.rows import Rows, header_values
from vibemq.model.selector import TYPES_HEADER, Property, headers_of, properties_of
from vibemq.protocols.blazingmq.codec.compression import CompressionType, Inflater
from vibemq.protocols.blazingmq.codec.guid import guid_of_message_id, guid_text
from vibemq.protocols.blazingmq.codec.properties import (
    NAME_BYTES_MAX,
    PROPERTIES_MAX,
    SCHEMA_NONE,
    SCHEMA_OLD,
    MessageProperty,
    area_bytes,
    build_area,
    parse_area,
)
from vibemq.protocols.blazingmq.codec.push import PushMessage
from vibemq.protocols.blazingmq.codec.put import MESSAGE_PROPERTIES, PutMessage

_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
_ID_SIZE = b"\0\x20"
_NO_HEADERS = b"\0\0"
_REMEMBERED = 1024
_REMEMBERED_BYTES_MAX = 2048
"""A longer block of headers is hardly ever met again."""
_INTERNAL_PREFIX = "vibemq-"
_PROPERTY_PREFIX = "vibemq-property-"


def row_of_put(message: PutMessage, guid: bytes) -> bytes:
    """The row of a message that is not compressed.

    Args:
        guid: the message's own, or one made for it.

    Raises:
        InvalidMessage: it cannot be loaded.
    """
    if message.fault:
        raise InvalidMessage(message.fault)
    if message.compression != CompressionType.NONE:
        raise InvalidMessage(f"compression {message.compression} is unknown here")
    data = message.data
    if not message.flags & MESSAGE_PROPERTIES:
        return b"".join((_ID_SIZE, guid_text(guid).encode(), _U32.pack(len(data)), data, _NO_HEADERS))
    headers, payload_at = _headers_of_area(data, message.schema_id)
    size = _U32.pack(len(data) - payload_at)
    return b"".join((_ID_SIZE, guid_text(guid).encode(), size, memoryview(data)[payload_at:], headers))


class PutLoader:
    """Makes the row of any message, decompressing a piece of it per step.

    Args:
        data_bytes_max: most bytes of properties and payload once decompressed.
    """

    def __init__(self, message: PutMessage, guid: bytes, data_bytes_max: int) -> None:
        self._message = message
        self._guid = guid
        self._plain = b""
        self._inflater: Inflater | None = None
        if message.compression == CompressionType.ZLIB and not message.fault:
            compressed = message.data
            if message.flags & MESSAGE_PROPERTIES and message.schema_id != SCHEMA_OLD:
                # The properties of the new style are in front of what is compressed.
                at = area_bytes(compressed)
                self._plain, compressed = compressed[:at], compressed[at:]
            self._inflater = Inflater(compressed, max(0, data_bytes_max - len(self._plain)))

    def step(self) -> bytes | None:
        """The row once it is complete; None: call again.

        Raises:
            InvalidMessage: the message cannot be loaded.
        """
        if self._inflater is None:
            return row_of_put(self._message, self._guid)
        if not self._inflater.step():
            return None
        data = self._plain + self._inflater.result()
        self._inflater = None
        self._message = self._message._replace(compression=CompressionType.NONE, data=data)
        return row_of_put(self._message, self._guid)


def pushes_of_rows(rows: Rows, queue_id: int, options: bytes, *, new_style: bool = True) -> list[PushMessage]:
    """Messages that deliver these rows, in order.

    Args:
        options: encoded; the same for all.
        new_style: whether the consumer reads new-style properties.
    """
    schema = SCHEMA_NONE if new_style else SCHEMA_OLD
    guids = map(guid_of_message_id, rows.ids())
    payloads = rows.payloads()
    common = rows.common_headers()
    areas: Sequence[bytes]
    if common is not None:
        areas = [_area_of_headers(common, schema)] * rows.count
    else:
        areas = [_area_of_headers(block, schema) for block in rows.header_blocks()]
    return [
        PushMessage(queue_id, guid, MESSAGE_PROPERTIES, 0, schema, options, area + payload)
        if area
        else PushMessage(queue_id, guid, 0, 0, 0, options, payload)
        for guid, payload, area in zip(guids, payloads, areas, strict=True)
    ]


# -- properties and headers -------------------------------------------------------------------------------------------


def _headers_of_area(data: bytes, schema_id: int) -> tuple[bytes, int]:
    """(block of headers, where the payload begins)."""
    properties, payload_at = parse_area(data, schema_id)
    pairs = headers_of((name, Property(of, value)) for name, of, value in properties)
    pieces = [_U16.pack(len(pairs))]
    for pair in pairs:
        for text in pair:
            raw = text.encode()
            pieces += (_U16.pack(len(raw)), raw)
    return b"".join(pieces), payload_at


def _area_of_headers(block: bytes, schema: int) -> bytes:
    if block == _NO_HEADERS:
        return b""
    return _remembered_area(block, schema) if len(block) <= _REMEMBERED_BYTES_MAX else _build_area(block, schema)


def _build_area(block: bytes, schema: int) -> bytes:
    """The area with the properties that a block of headers keeps; b"": none.

    Left out are headers of the broker's own, and what no area has room for: names of more than 4,095 bytes, and more
    than 255 properties, which only other protocols can publish.
    """
    pairs = []
    for key, at, size in header_values(block, 0):
        name = key.decode(errors="replace")
        if name and (
            not name.startswith(_INTERNAL_PREFIX) or name.startswith(_PROPERTY_PREFIX) or name == TYPES_HEADER
        ):
            pairs.append((name, block[at : at + size].decode(errors="replace")))
    properties = [
        MessageProperty(name, *kept)
        for name, kept in properties_of(pairs).items()
        if len(name.encode(errors="surrogateescape")) <= NAME_BYTES_MAX
    ]
    return build_area(properties[:PROPERTIES_MAX], schema) if properties else b""


_remembered_area = lru_cache(_REMEMBERED)(_build_area)
