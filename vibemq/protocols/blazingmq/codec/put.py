"""PUT events: messages that clients post.

    header       flags u4 | message words u28, header to padding
                 options words u24 | compression u3 | header words u5 = 9
                 queue id i32
                 GUID 16 bytes      from a client without GUIDs: 0 u8 | correlation id u24 | 0
                 CRC-32C u32        of the application data
                 schema id u16      missing when the header has 8 words
                 reserved u16
    options      skipped
    data         [properties area] payload
    padding      1 to 4 bytes

Source: docs/spec/blazingmq.md, "PUT".
"""

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import google_crc32c

from vibemq.errors import InvalidMessage, RemoteProtocolError
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.protocols.blazingmq.codec.events import PADDINGS, AlikeEvents, Event, EventType, event
from vibemq.protocols.blazingmq.codec.put_runs import AlikePuts, alike_in_event

_HEADER = struct.Struct("!IIi16sIHH")
_HEADER_WORDS = _HEADER.size // 4
_OLD_HEADER_WORDS = 8
_WORDS = (1 << 28) - 1
_CRC_BYTES = 1 << 16
"""The checksum is computed of bytes only, so of a view piece by piece."""
_CRC_STEP_BYTES = 1 << 20
"""About a quarter of a millisecond."""
WRONG_CHECKSUM = "its data does not have the checksum that the client gave it"

ACK_REQUESTED = 1
MESSAGE_PROPERTIES = 2
ZERO_GUID = bytes(16)


class PutMessage(NamedTuple):
    queue_id: int
    guid: bytes
    flags: int
    """ACK_REQUESTED, MESSAGE_PROPERTIES."""
    compression: int
    """0 none, 1 zlib; other numbers cannot be loaded."""
    schema_id: int
    """0: the properties, if any, are old style."""
    crc32c: int
    """0: the client has not computed it."""
    data: bytes | memoryview
    """Properties area and payload as they came, without the padding. A view of what is large, whose checksum has not
    been looked at."""
    fault: str
    """Why the message cannot be loaded ("" when it can): answered by a NACK, while the connection stays."""

    @property
    def correlation_id(self) -> int:
        """Of a client that leaves GUIDs to the broker."""
        return int.from_bytes(self.guid[1:4], "big")


class PutReader:
    """Takes the messages out of PUT events, a number of them at a time.

    An event may hold a million messages, so it is never taken apart as a whole.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._at = 0

    def add(self, events: Iterable[Event]) -> None:
        """Append PUT events."""
        self._events += events

    def __bool__(self) -> bool:
        """Whether there may be messages to take."""
        return bool(self._events)

    def next_run(self) -> AlikePuts | None:
        """The next messages, if there are some that are alike; they are left where they are."""
        if not self._events:
            return None
        head = self._events[0]
        if isinstance(head, AlikeEvents):
            return head.puts
        return alike_in_event(head.data, self._at or head.start, head.end)

    def skip_run(self, run: AlikePuts) -> None:
        """It has been taken."""
        if run.lead or run.end == self._events[0].end:
            self._at = 0
            self._events.popleft()
        else:
            self._at = run.end

    def take(self, messages_max: int) -> list[PutMessage]:
        """The next messages, up to a run that is not the first of them.

        Raises:
            RemoteProtocolError: a message's lengths contradict its event; the messages before it have been returned by
                an earlier call.
        """
        messages: list[PutMessage] = []
        unpack, append, new, checksum = _HEADER.unpack_from, messages.append, tuple.__new__, google_crc32c.value
        while self._events:
            head = self._events[0]
            if isinstance(head, AlikeEvents):
                if messages:
                    break
                self._events.popleft()
                self._events.extendleft(reversed(head.events))
            _, _, data, start, end = self._events[0]
            at = self._at or start
            try:
                while at < end and messages_max > 0:
                    # The shortest message, an old header and its padding, is as long as the new header.
                    first, second, queue_id, guid, crc, schema_id, _ = unpack(data, at)
                    stop = at + 4 * (first & _WORDS)
                    header_words = second & 31
                    body = at + 4 * (header_words + (second >> 8))
                    if body >= stop or stop > end or header_words < _HEADER_WORDS:
                        if body >= stop or stop > end or header_words < _OLD_HEADER_WORDS:
                            raise struct.error
                        schema_id = 0
                    padding = data[stop - 1]
                    fault = ""
                    if not 0 < padding < 5 or stop - padding < body:
                        fault, padding = f"its padding says {padding} bytes", 0
                    content: bytes | memoryview
                    if stop - body > LARGE_ROW_BYTES:
                        # Copied once, into its row, and looked at in steps: `DataChecksum`.
                        content = memoryview(data)[body : stop - padding]
                    else:
                        content = data[body : stop - padding]
                        if crc and not fault and checksum(content) != crc:
                            fault = WRONG_CHECKSUM
                    flags, compression = first >> 28, second >> 5 & 7
                    parts = (queue_id, guid, flags, compression, schema_id, crc, content, fault)
                    append(new(PutMessage, parts))
                    messages_max -= 1
                    at = stop
            except struct.error:
                self._at = at
                if messages:
                    return messages
                raise RemoteProtocolError(_contradiction(data, at, end)) from None
            if at < end:
                self._at = at
                break
            self._at = 0
            self._events.popleft()
        return messages


class DataChecksum:
    """Compares the checksum of large data, which the reader has not looked at, in steps."""

    def __init__(self, message: PutMessage) -> None:
        self._data, self._expected = message.data, message.crc32c
        self._at = self._crc = 0

    def step(self) -> bool:
        """Whether it is done.

        Raises:
            InvalidMessage: the data does not have its checksum.
        """
        stop = min(self._at + _CRC_STEP_BYTES, len(self._data))
        for at in range(self._at, stop, _CRC_BYTES):
            self._crc = google_crc32c.extend(self._crc, bytes(self._data[at : min(stop, at + _CRC_BYTES)]))
        self._at = stop
        if stop < len(self._data):
            return False
        if self._crc != self._expected:
            raise InvalidMessage(WRONG_CHECKSUM)
        return True


def _contradiction(data: bytes, at: int, end: int) -> str:
    if end - at < _HEADER.size:
        return f"a message of {end - at} bytes in a PUT event; its header alone has {_HEADER.size}"
    first, second = struct.unpack_from("!II", data, at)
    return (
        f"a message of {first & _WORDS} words, {second & 31} of them header and {second >> 8} options, where its PUT "
        f"event has {(end - at) // 4} words left; a message has a header of {_OLD_HEADER_WORDS} or more, and padding"
    )


def build_puts(messages: Sequence[PutMessage], *, header_words: int = _HEADER_WORDS) -> bytes:
    """One PUT event, as clients send it. Each message's `crc32c` goes out as it is; see `put_message`."""
    pieces: list[bytes | memoryview] = []
    total = 0
    for queue_id, guid, flags, compression, schema_id, crc, data, _ in messages:
        padding = PADDINGS[len(data) & 3]
        size = 4 * header_words + len(data) + len(padding)
        second = compression << 5 | header_words
        header = _HEADER.pack(flags << 28 | size // 4, second, queue_id, guid, crc, schema_id, 0)
        pieces += (header[: 4 * header_words], data, padding)
        total += size
    return event(EventType.PUT, pieces, total)


def put_message(
    queue_id: int, guid: bytes, data: bytes, *, flags: int = ACK_REQUESTED, compression: int = 0, schema_id: int = 0
) -> PutMessage:
    """A message with the checksum of its data."""
    crc = google_crc32c.value(data)
    return PutMessage(queue_id, guid, flags, compression, schema_id, crc, data, "")
