"""Events, the frames of BlazingMQ: cut out of a stream however the network has cut it, and built.

    length     u32 BE  fragment u1 = 0 | bytes of the whole event u31, a multiple of 4
    kind       u8      protocol version u2 = 1 | event type u6
    words      u8      4-byte words of this header, 2
    specific   u8      CONTROL, AUTHENTICATION: codec u3 (0 BER, 1 JSON) | 0 u5
    reserved   u8      0
    body       `length` - 4 * `words` bytes

Source: docs/spec/blazingmq.md, "Framing".
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from vibemq.errors import RemoteProtocolError

EVENT_HEADER = struct.Struct("!IBBBB")
EVENT_HEADER_BYTES = EVENT_HEADER.size
PADDINGS = (b"\4\4\4\4", b"\3\3\3", b"\2\2", b"\1")
"""By the length of the data modulo 4. There is no data without padding."""

_VERSION = 1 << 6
_FRAGMENT = 1 << 31


class EventType(IntEnum):
    CONTROL = 1
    PUT = 2
    CONFIRM = 3
    PUSH = 4
    ACK = 5
    HEARTBEAT_REQ = 11
    HEARTBEAT_RSP = 12
    AUTHENTICATION = 15


class ControlCodec(IntEnum):
    """How a CONTROL or AUTHENTICATION event is encoded."""

    BER = 0
    JSON = 1


_CONTROLS = (EventType.CONTROL, EventType.AUTHENTICATION)
HEARTBEAT_REQ = EVENT_HEADER.pack(EVENT_HEADER_BYTES, _VERSION | EventType.HEARTBEAT_REQ, 2, 0, 0)
HEARTBEAT_RSP = EVENT_HEADER.pack(EVENT_HEADER_BYTES, _VERSION | EventType.HEARTBEAT_RSP, 2, 0, 0)


class Event(NamedTuple):
    """One whole event; its body is `data[start:end]`, and `data` may hold others."""

    type: int
    """An `EventType`, or a number unknown here, which is ignored."""
    codec: int
    """A `ControlCodec`, or a number that cannot be read. 0 in the types that have none."""
    data: bytes
    start: int
    end: int

    @property
    def body(self) -> bytes:
        return self.data[self.start : self.end]


class EventReader:
    """Cuts a stream into events. What it keeps of an event that is not complete is what has come of it, no more.

    Args:
        event_bytes_max: largest event accepted; may be raised once the peer is known.
        control_bytes_max: largest CONTROL or AUTHENTICATION event.
    """

    def __init__(self, *, event_bytes_max: int, control_bytes_max: int) -> None:
        self.event_bytes_max = event_bytes_max
        self.control_bytes_max = control_bytes_max
        self._data = b""
        self._at = 0
        self._more = bytearray()
        self._needed = EVENT_HEADER_BYTES

    def receive_data(self, data: bytes) -> None:
        if self._at == len(self._data) and not self._more:
            self._data, self._at = data, 0
        else:
            self._more += data

    @property
    def buffered_bytes(self) -> int:
        """Of events that `read` has not returned."""
        return len(self._data) - self._at + len(self._more)

    @property
    def awaited_bytes(self) -> int:
        """Length of the event that is not complete yet; 0: none has begun, or its length is not known."""
        return self._needed if self.buffered_bytes and self._needed > EVENT_HEADER_BYTES else 0

    def read(self, bytes_max: int = 1 << 62) -> list[Event]:
        """The next complete events, until their bytes reach `bytes_max`; an empty list: more must come first.

        Raises:
            RemoteProtocolError: an event that cannot be; those before it have been returned by an earlier call.
        """
        events: list[Event] = []
        while bytes_max > 0:
            data, at = self._data, self._at
            left = len(data) - at
            if left < self._needed:
                if left + len(self._more) < self._needed:
                    break
                # What is left of the old bytes is less than an event, and only copied when one is complete.
                self._data, self._at = b"".join((memoryview(data)[at:], self._more)), 0
                self._more.clear()
                continue
            length, kind, words, specific, _ = EVENT_HEADER.unpack_from(data, at)
            fault = self._fault(length, kind, words)
            if fault:
                if events:
                    break
                raise RemoteProtocolError(fault)
            if left < length:
                self._needed = length
                continue
            self._needed = EVENT_HEADER_BYTES
            self._at = at + length
            bytes_max -= length
            events.append(Event(kind & 63, specific >> 5, data, at + 4 * words, at + length))
        return events

    def _fault(self, length: int, kind: int, words: int) -> str:
        """Why an event with this header cannot be; "" when it can. The header alone condemns it, before its body."""
        bytes_max = self.event_bytes_max
        if kind & 63 in _CONTROLS:
            bytes_max = min(bytes_max, self.control_bytes_max)
        # The bit of a fragment makes the length larger than any limit.
        if (
            EVENT_HEADER_BYTES <= length <= bytes_max
            and not length & 3
            and kind >> 6 == 1
            and 2 <= words <= length >> 2
        ):
            return ""
        if length & _FRAGMENT:
            return "a fragmented event; fragments are not part of the protocol"
        if length < EVENT_HEADER_BYTES or length & 3:
            return f"an event of {length} bytes; its length is a multiple of 4, and at least {EVENT_HEADER_BYTES}"
        if length > bytes_max:
            return f"an event of {length} bytes; at most {bytes_max} are accepted now"
        if kind >> 6 != 1:
            return f"version {kind >> 6} of the protocol; only version 1 is spoken here"
        return f"an event header of {words} words in an event of {length} bytes"


def padded(data: bytes) -> bytes:
    """With word padding: 1 to 4 bytes, each of which holds their number."""
    return data + PADDINGS[len(data) & 3]


def unpadded_end(data: bytes, start: int, end: int) -> int:
    """Where the data before the word padding of `data[start:end]` ends.

    Raises:
        RemoteProtocolError: the padding is not 1 to 4 bytes long, or longer than everything.
    """
    padding = data[end - 1] if end > start else 0
    if not 1 <= padding <= 4 or end - padding < start:
        raise RemoteProtocolError(f"word padding of {padding} bytes behind {end - start - padding} bytes of data")
    return end - padding


def event(kind: EventType, pieces: Iterable[bytes], body_bytes: int, codec: int = 0) -> bytes:
    """Build an event out of its body's pieces.

    Args:
        body_bytes: of all pieces together, a multiple of 4.
    """
    header = EVENT_HEADER.pack(EVENT_HEADER_BYTES + body_bytes, _VERSION | kind, 2, codec << 5, 0)
    return b"".join((header, *pieces))


def control_event(codec: ControlCodec, message: bytes, kind: EventType = EventType.CONTROL) -> bytes:
    """Build a CONTROL or AUTHENTICATION event out of an encoded message, which is padded here."""
    padding = PADDINGS[len(message) & 3]
    return event(kind, (message, padding), len(message) + len(padding), codec)
