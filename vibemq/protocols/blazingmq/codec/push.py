"""PUSH events: messages that the broker delivers. Many messages to an event.

    header       flags u4 | message words u28, header to padding
                 options words u24 | compression u3 | header words u5 = 8
                 queue id i32       of the consumer
                 GUID 16 bytes
                 schema id u16      1 with new-style properties, else 0
                 reserved u16
    options      see `options.py`
    data         [properties area] payload
    padding      1 to 4 bytes

Source: docs/spec/blazingmq.md, "PUSH".
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec.events import PADDINGS, Event, EventType, event

_HEADER = struct.Struct("!IIi16sHH")
_HEADER_WORDS = _HEADER.size // 4
_GUID_AT = 12
_WORDS = (1 << 28) - 1

EVENT_BYTES_SOFT_MAX = 1 << 20
"""A PUSH event ends with the message that reaches this."""


class PushMessage(NamedTuple):
    queue_id: int
    guid: bytes
    flags: int
    """MESSAGE_PROPERTIES."""
    compression: int
    schema_id: int
    options: bytes
    """Encoded."""
    data: bytes
    """Properties area and payload."""


def build_pushes(messages: Iterable[PushMessage], *, event_bytes_soft_max: int = EVENT_BYTES_SOFT_MAX) -> list[bytes]:
    """Encode messages, in order, into as few events as the soft limit allows."""
    events: list[bytes] = []
    pieces: list[bytes] = []
    total = 0
    pack = _HEADER.pack
    for queue_id, guid, flags, compression, schema_id, options, data in messages:
        padding = PADDINGS[len(data) & 3]
        size = _HEADER.size + len(options) + len(data) + len(padding)
        second = len(options) << 6 | compression << 5 | _HEADER_WORDS
        pieces += (pack(flags << 28 | size >> 2, second, queue_id, guid, schema_id, 0), options, data, padding)
        total += size
        if total >= event_bytes_soft_max:
            events.append(event(EventType.PUSH, pieces, total))
            pieces, total = [], 0
    if pieces:
        events.append(event(EventType.PUSH, pieces, total))
    return events


def build_alike_pushes(like: PushMessage, guids: Sequence[bytes], payloads: Sequence[bytes]) -> bytes:
    """One event of messages that differ in GUID and payload only, whose payloads have one size.

    Args:
        like: with the properties area alone as its data.
    """
    queue_id, _, flags, compression, schema_id, options, area = like
    data_bytes = len(area) + len(payloads[0])
    padding = PADDINGS[data_bytes & 3]
    size = _HEADER.size + len(options) + data_bytes + len(padding)
    second = len(options) << 6 | compression << 5 | _HEADER_WORDS
    header = _HEADER.pack(flags << 28 | size >> 2, second, queue_id, like.guid, schema_id, 0)
    before, behind = header[:_GUID_AT], header[_GUID_AT + len(like.guid) :]
    pieces = [padding + before] * (4 * len(guids) + 1)
    pieces[0], pieces[-1] = before, padding
    pieces[1::4] = guids
    pieces[2::4] = [behind + options + area] * len(guids)
    pieces[3::4] = payloads
    return event(EventType.PUSH, pieces, size * len(guids))


def around_push(message: PushMessage, payload_bytes: int) -> tuple[bytes, bytes]:
    """An event of one message whose payload stands elsewhere: what comes before the payload, and what behind it.

    Args:
        message: with the properties area alone as its data.
    """
    queue_id, guid, flags, compression, schema_id, options, area = message
    data_bytes = len(area) + payload_bytes
    padding = PADDINGS[data_bytes & 3]
    size = _HEADER.size + len(options) + data_bytes + len(padding)
    second = len(options) << 6 | compression << 5 | _HEADER_WORDS
    header = _HEADER.pack(flags << 28 | size >> 2, second, queue_id, guid, schema_id, 0)
    return event(EventType.PUSH, (header, options, area), size), padding


def parse_pushes(pushed: Event) -> Iterator[PushMessage]:
    """The messages of an event, as a client reads them.

    Raises:
        RemoteProtocolError: a message's lengths contradict its event.
    """
    _, _, data, at, end = pushed
    while at < end:
        if end - at < _HEADER.size:
            raise RemoteProtocolError(f"a message of {end - at} bytes in a PUSH event")
        first, second, queue_id, guid, schema_id, _ = _HEADER.unpack_from(data, at)
        stop = at + 4 * (first & _WORDS)
        options_at = at + 4 * (second & 31)
        body = options_at + 4 * (second >> 8)
        if second & 31 < _HEADER_WORDS or body >= stop or stop > end:
            raise RemoteProtocolError(f"a message of {first & _WORDS} words contradicts its PUSH event")
        padding = data[stop - 1]
        if not 0 < padding < 5 or stop - padding < body:
            raise RemoteProtocolError(f"a message in a PUSH event has {padding} bytes of padding")
        yield PushMessage(
            queue_id, guid, first >> 28, second >> 5 & 7, schema_id, data[options_at:body], data[body : stop - padding]
        )
        at = stop
