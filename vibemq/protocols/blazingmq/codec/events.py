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
from collections.abc import Callable, Iterable
from enum import IntEnum
from io import BytesIO
from typing import Any, NamedTuple

from vibemq.errors import RemoteProtocolError
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.protocols.blazingmq.codec.put_runs import PUT_SAME_BYTES, RUN_MIN, AlikePuts, count_alike

EVENT_HEADER = struct.Struct("!IBBBB")
EVENT_HEADER_BYTES = EVENT_HEADER.size
CONFIRM_SAME_BYTES = 8
"""Of a CONFIRM, before the GUID."""
PADDINGS = (b"\4\4\4\4", b"\3\3\3", b"\2\2", b"\1")
"""By the length of the data modulo 4. There is no data without padding."""

OTHER_BYTES_MAX = 8 << 20
"""Of an event that is neither PUT nor CONTROL: a CONFIRM of 349,000 messages."""

_WHOLE_BYTES_MAX = 1 << 18
"""A larger PUT event is taken message by message."""
_EVENTS_AT_ONCE = 1_024
"""A header alone is an event: so many are cut out in about half a millisecond."""
_LOOKS_AT_ONCE = 32
"""Whether events are alike: looks that find few cost as much as many events."""
_PIECE_BYTES = 1 << 14
_MESSAGE_LENGTH_BYTES = 4
_MESSAGE_BYTES_MIN = 36
_COMPRESSION_AT = 7
_MESSAGE_WORDS = (1 << 28) - 1
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
_JOINED = {
    _VERSION | EventType.PUT: EVENT_HEADER_BYTES + PUT_SAME_BYTES,
    _VERSION | EventType.CONFIRM: EVENT_HEADER_BYTES + CONFIRM_SAME_BYTES,
}
"""How many bytes such events have in common at their beginning."""
_NONE_JOINED: dict[int, int] = {}
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


class LargeEvent(Event):
    """One with a single large message, and what holds the memory for it."""

    memory: Any = None


class AlikeEvents(Event):
    """PUT or CONFIRM events in a row, as long as each other, that begin alike; `data[start:end]` holds them with their
    headers."""

    each: int = 0
    """Bytes of one."""

    @property
    def puts(self) -> AlikePuts:
        """Of PUT events that have one message each."""
        return AlikePuts(self.data, self.start, self.end, self.each, EVENT_HEADER_BYTES)

    @property
    def events(self) -> list[Event]:
        kind, codec, data, start, end = self
        each = self.each
        return [Event(kind, codec, data, at + EVENT_HEADER_BYTES, at + each) for at in range(start, end, each)]


def _any_memory(size: int) -> Any:
    return size


class EventReader:
    """Cuts a stream into events. What it keeps of an event that is not complete is what has come of it, no more.

    A PUT event of many messages, as a client sends after a reconnect, is not waited for: it comes as several events of
    whole messages. So the most that is kept is one message, and of a message that is too large only the header is.

    Args:
        event_bytes_max: largest PUT event accepted; may be raised once the peer is known.
        control_bytes_max: largest CONTROL or AUTHENTICATION event.
        message_bytes_max: a message of a large PUT event that is larger comes without its data, as one that cannot be
            loaded.
        reserve_memory: (bytes of a large message) -> what holds the memory for it; None: not now.
        joins_alike: PUT and CONFIRM events may come as `AlikeEvents`.
    """

    def __init__(
        self,
        *,
        event_bytes_max: int,
        control_bytes_max: int,
        message_bytes_max: int = 1 << 30,
        reserve_memory: Callable[[int], Any] = _any_memory,
        joins_alike: bool = False,
    ) -> None:
        self._joins_alike = joins_alike
        self.event_bytes_max = event_bytes_max
        self.control_bytes_max = control_bytes_max
        self.message_bytes_max = message_bytes_max
        self._reserve_memory = reserve_memory
        self._memory: Any = None
        """Of the large message that comes."""
        self.waits_for_memory = False
        """A large message has begun, and there is no memory for it: nothing is read until there is."""
        self._data = b""
        self._at = 0
        self._more: list[bytes | bytearray] = []
        """What has come behind `_data`. It is joined once, when there is enough of it."""
        self._more_bytes = 0
        self._coming: BytesIO | None = None
        """Instead of `_more`: a large message, put together as it comes, and what comes behind it."""
        self._needed = EVENT_HEADER_BYTES
        self._put_left = 0
        """Bytes to come of a PUT event that is taken message by message."""
        self._to_skip = 0
        """Bytes to come of a message that is too large."""

    def receive_data(self, data: bytes) -> None:
        if self._at == len(self._data) and not self._more and self._coming is None:
            self._data, self._at = data, 0
        else:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        more = self._more
        if self._coming is not None:
            self._coming.write(data)
        elif len(data) >= _PIECE_BYTES:
            more.append(data)
        elif more and type(more[-1]) is bytearray and len(more[-1]) < _PIECE_BYTES:
            # Pieces of a few bytes each would cost several times their size.
            more[-1] += data
        else:
            more.append(bytearray(data))
        self._more_bytes += len(data)

    def _join(self) -> None:
        """Have in one place what is left of the old bytes, which is less than is needed, and what has come since."""
        if self._coming is not None:
            self._data, self._coming = self._coming.getvalue(), None
        else:
            self._data = b"".join((memoryview(self._data)[self._at :], *self._more))
        self._at = self._more_bytes = 0
        self._more.clear()

    def _collect(self) -> None:
        """The rest of a large message is awaited: joining it at its end would take milliseconds."""
        if self._coming is None:
            self._coming = BytesIO()
            self._coming.writelines((memoryview(self._data)[self._at :], *self._more))
            self._more_bytes = self._coming.tell()
            self._data, self._at = b"", 0
            self._more.clear()

    @property
    def buffered_bytes(self) -> int:
        """Of what `read` has not returned."""
        return len(self._data) - self._at + self._more_bytes

    @property
    def awaited_bytes(self) -> int:
        """Length of the event, or the message of a large event, that is not complete yet; 0: none has begun, or its
        length is not known."""
        return self._needed if self.buffered_bytes and self._needed > EVENT_HEADER_BYTES else 0

    @property
    def large_left(self) -> int:
        """Bytes of a large message that have not come; 0: none has begun, or it waits for memory."""
        return 0 if self._memory is None else max(0, self._needed - self.buffered_bytes)

    def read(self, bytes_max: int = 1 << 62) -> list[Event]:
        """The next complete events, until their bytes reach `bytes_max` or they are very many; an empty list: more must
        come first.

        Raises:
            RemoteProtocolError: an event that cannot be; those before it have been returned by an earlier call.
        """
        self.waits_for_memory = False
        events = [] if self._put_left or self._to_skip else self._plain_events(bytes_max)
        if events:
            return events
        try:
            while bytes_max > 0 and len(events) < _EVENTS_AT_ONCE and self._can_go_on():
                event = self._next_messages(bytes_max) if self._put_left else self._next_event()
                if event is not None:
                    events.append(event)
                    bytes_max -= event.end - event.start + EVENT_HEADER_BYTES
                    if bytes_max > 0 and not (self._put_left or self._to_skip):
                        # Only the first one was cut by the network.
                        at = self._at
                        events += self._plain_events(bytes_max)
                        bytes_max -= self._at - at
        except RemoteProtocolError:
            # It is met again by the next call.
            if not events:
                raise
        return events

    def _can_go_on(self) -> bool:
        return not self.waits_for_memory and self._have_enough()

    def _plain_events(self, bytes_max: int) -> list[Event]:
        """The next events as long as they are whole, small and as usual: most are, one for each message."""
        events: list[Event] = []
        data, at = self._data, self._at
        last, largest = len(data), min(self.control_bytes_max, self.event_bytes_max, _WHOLE_BYTES_MAX)
        unpack, new, append = EVENT_HEADER.unpack_from, tuple.__new__, events.append
        stop = min(last, at + bytes_max)
        joined, looks = _JOINED if self._joins_alike else _NONE_JOINED, _LOOKS_AT_ONCE
        for _ in range(_EVENTS_AT_ONCE):
            if at >= stop or last - at < EVENT_HEADER_BYTES:
                break
            length, kind, words, specific, _ = unpack(data, at)
            end = at + length
            if end > last or length & 3 or kind >> 6 != 1 or words != 2 or not EVENT_HEADER_BYTES <= length <= largest:
                break
            if looks and kind in joined and end < stop and data.startswith(data[at : at + EVENT_HEADER_BYTES], end):
                looks -= 1
                count = count_alike(data, at, length, min(last, stop + length), joined[kind])
                if count >= RUN_MIN:
                    alike = AlikeEvents(kind & 63, specific >> 5, data, at, at + count * length)
                    alike.each = length
                    append(alike)
                    at = alike.end
                    continue
            append(new(Event, (kind & 63, specific >> 5, data, at + EVENT_HEADER_BYTES, end)))
            at = end
        if events:
            self._needed = EVENT_HEADER_BYTES
            self._at = at
        return events

    def _have_enough(self) -> bool:
        """Whether what is needed next stands in `_data`."""
        left = len(self._data) - self._at
        if self._to_skip:
            self._skip()
            left = len(self._data) - self._at
        if left >= self._needed:
            return not self._to_skip
        if self._to_skip or left + self._more_bytes < self._needed:
            return False
        self._join()
        return True

    def _skip(self) -> None:
        for _ in range(2):
            step = min(len(self._data) - self._at, self._to_skip)
            self._at += step
            self._to_skip -= step
            if self._to_skip and self._more:
                self._join()

    def _next_event(self) -> Event | None:
        """None: it is not complete, or is taken message by message."""
        data, at = self._data, self._at
        length, kind, words, specific, _ = EVENT_HEADER.unpack_from(data, at)
        fault = self._fault(length, kind, words)
        if fault:
            raise RemoteProtocolError(fault)
        if length > _WHOLE_BYTES_MAX and kind & 63 == EventType.PUT:
            if len(data) - at < 4 * words:
                # A header longer than those of today.
                self._needed = 4 * words
                return None
            self._at = at + 4 * words
            self._put_left = length - 4 * words
            self._needed = _MESSAGE_LENGTH_BYTES
            return None
        if length > LARGE_ROW_BYTES and not self._has_memory(length):
            return None
        if len(data) - at < length:
            self._needed = length
            if length > LARGE_ROW_BYTES:
                self._collect()
            return None
        self._needed = EVENT_HEADER_BYTES
        self._at = at + length
        found = (kind & 63, specific >> 5, data, at + 4 * words, at + length)
        event = Event(*found)
        return self._large(event) if length > LARGE_ROW_BYTES else event

    def _has_memory(self, size: int) -> bool:
        if self._memory is None:
            self._memory = self._reserve_memory(size)
            self.waits_for_memory = self._memory is None
        return not self.waits_for_memory

    def _large(self, whole: Event) -> LargeEvent:
        event = LargeEvent(*whole)
        event.memory, self._memory = self._memory, None
        return event

    def end(self) -> None:
        """Nothing is read any more: let go of what has come, and of the memory for the rest."""
        self._memory, self._data, self._at, self._more_bytes = None, b"", 0, 0
        self._more.clear()
        self._coming = None
        self.waits_for_memory = False

    def _next_messages(self, bytes_max: int) -> Event | None:
        """Whole messages of the large PUT event, as an event of their own. None: the next one is not complete."""
        data, start = self._data, self._at
        at, end = start, min(len(data), start + self._put_left)
        size = _MESSAGE_LENGTH_BYTES
        while at - start < bytes_max and at + _MESSAGE_LENGTH_BYTES <= end:
            size = 4 * (int.from_bytes(data[at : at + _MESSAGE_LENGTH_BYTES], "big") & _MESSAGE_WORDS)
            if size < _MESSAGE_BYTES_MIN or size > self._put_left - (at - start):
                if at > start:
                    break
                left = self._put_left
                raise RemoteProtocolError(f"a message of {size} bytes in a PUT event that has {left} bytes left")
            if size > self.message_bytes_max:
                return self._messages(start, at) if at > start else self._too_large(size)
            if size > LARGE_ROW_BYTES:
                return self._messages(start, at) if at > start else self._large_message(size, end)
            if at + size > end:
                break
            at += size
            size = _MESSAGE_LENGTH_BYTES
        if at == start:
            self._needed = size
            return None
        return self._messages(start, at)

    def _messages(self, start: int, end: int) -> Event:
        self._at = end
        self._put_left -= end - start
        self._needed = _MESSAGE_LENGTH_BYTES if self._put_left else EVENT_HEADER_BYTES
        return Event(EventType.PUT, 0, self._data, start, end)

    def _large_message(self, size: int, end: int) -> Event | None:
        at = self._at
        if end - at < _COMPRESSION_AT + 1:
            self._needed = _COMPRESSION_AT + 1
            return None
        # What is compressed and what comes of it are there together. Both are asked for at once: who had the one and
        # waited for the other could wait for ever.
        inflated = self.message_bytes_max if self._data[at + _COMPRESSION_AT] & 0xE0 else 0
        if not self._has_memory(size + inflated):
            return None
        if at + size > end:
            self._needed = size
            self._collect()
            return None
        return self._large(self._messages(at, at + size))

    def _too_large(self, size: int) -> Event | None:
        """The header of a message, and instead of its data a padding that cannot be: enough for a refusal."""
        at = self._at
        if len(self._data) - at < _MESSAGE_BYTES_MIN:
            self._needed = _MESSAGE_BYTES_MIN
            return None
        header = self._data[at : at + _MESSAGE_BYTES_MIN]
        flags, compression = header[0] & 0xF0, header[7] & 0xE0
        words = _MESSAGE_BYTES_MIN // 4
        start = bytes((flags, 0, 0, words + 1, 0, 0, 0, compression | words))
        alone = b"".join((start, header[8:], bytes(4)))
        self._put_left -= size
        self._to_skip = size
        self._skip()
        self._needed = _MESSAGE_LENGTH_BYTES if self._put_left else EVENT_HEADER_BYTES
        return Event(EventType.PUT, 0, alone, 0, len(alone))

    def _fault(self, length: int, kind: int, words: int) -> str:
        """Why an event with this header cannot be; "" when it can. The header alone condemns it, before its body."""
        bytes_max = self.event_bytes_max
        if kind & 63 != EventType.PUT:
            bytes_max = min(bytes_max, self.control_bytes_max if kind & 63 in _CONTROLS else OTHER_BYTES_MAX)
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


def event(kind: EventType, pieces: Iterable[bytes | memoryview], body_bytes: int, codec: int = 0) -> bytes:
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
