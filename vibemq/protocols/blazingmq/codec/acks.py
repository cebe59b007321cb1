"""ACK events, which answer PUTs, and CONFIRM events, which settle PUSHes: both a header and many small equal messages.

    header       header words u4 = 1 | words of each message u4 = 6 | reserved u24
    ACK          reserved u4 | status u4 | correlation id u24, GUID 16 bytes, queue id i32
    CONFIRM      queue id i32, GUID 16 bytes, sub-queue id u32

Source: docs/spec/blazingmq.md, "ACK", "CONFIRM".
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec.events import EVENT_HEADER_BYTES, AlikeEvents, Event, EventType, event

_LIST_HEADER = b"\x16\0\0\0"
_ACK = struct.Struct("!I16si")
_CONFIRM = struct.Struct("!i16sI")
_CONFIRM_EVENT = struct.Struct("!12xi16sI")
"""With its header, one message."""
_MESSAGE_WORDS = 6
_STORED = bytes(4)
"""Status 0, correlation id 0."""
_ONE_CONFIRM_BYTES = len(_LIST_HEADER) + _CONFIRM.size


class AckStatus(IntEnum):
    SUCCESS = 0
    LIMIT_MESSAGES = 1
    LIMIT_BYTES = 2
    UNKNOWN = 5
    """Anything else: an unknown queue, a message that cannot be loaded, a zero GUID."""
    STORAGE_FAILURE = 6
    NOT_READY = 7


class AckMessage(NamedTuple):
    status: int
    """An `AckStatus`."""
    correlation_id: int
    """Echo to a client that leaves GUIDs to the broker, 0 to others."""
    guid: bytes
    queue_id: int


class ConfirmMessage(NamedTuple):
    queue_id: int
    guid: bytes
    sub_queue_id: int
    """The subId of openQueue, 0 when it had none; not the sId of a subscription."""


def build_acks(messages: Iterable[tuple[int, int, bytes, int]]) -> bytes:
    """One ACK event.

    Args:
        messages: (status, correlation id, GUID, queue id) each, an `AckMessage` or a plain tuple; at least one.
    """
    pack = _ACK.pack
    pieces = [pack(status << 24 | correlation, guid, queue_id) for status, correlation, guid, queue_id in messages]
    return event(EventType.ACK, (_LIST_HEADER, *pieces), 4 + _ACK.size * len(pieces))


def build_positive_acks(guids: Sequence[bytes], queue_id: int) -> bytes:
    """One ACK event that says of all these messages of a queue, whose client has made their GUIDs, that they are
    stored."""
    queue = queue_id.to_bytes(4, "big", signed=True)
    between = queue + _STORED
    pieces = (_LIST_HEADER, _STORED, between.join(guids), queue)
    return event(EventType.ACK, pieces, 4 + _ACK.size * len(guids))


def parse_acks(acks: Event) -> list[AckMessage]:
    """As a client reads them.

    Raises:
        RemoteProtocolError: the lengths contradict each other.
    """
    return [
        AckMessage(first >> 24 & 15, first & 0xFFFFFF, guid, queue_id) for first, guid, queue_id in _listed(acks, _ACK)
    ]


def build_confirms(messages: Iterable[tuple[int, bytes, int]]) -> bytes:
    """One CONFIRM event, as clients send it."""
    pieces = [_CONFIRM.pack(*message) for message in messages]
    return event(EventType.CONFIRM, (_LIST_HEADER, *pieces), 4 + _CONFIRM.size * len(pieces))


def parse_confirms(events: Iterable[Event]) -> Iterator[tuple[int, bytes, int]]:
    """(queue id, GUID, sub-queue id) of every confirmed message, as plain tuples in the order of `ConfirmMessage`.

    They are made one by one as they are asked for: an event may hold a million.

    Raises:
        RemoteProtocolError: the lengths of an event contradict each other; raised before its first message.
    """
    unpack = _CONFIRM.unpack_from
    for confirms in events:
        _, _, data, start, end = confirms
        if isinstance(confirms, AlikeEvents):
            if confirms.each == _CONFIRM_EVENT.size and data.startswith(_LIST_HEADER[:1], start + EVENT_HEADER_BYTES):
                yield from _CONFIRM_EVENT.iter_unpack(memoryview(data)[start:end])
            else:
                yield from parse_confirms(confirms.events)
            continue
        # What the SDKs send for each message; the general way costs twice as much.
        if end - start == _ONE_CONFIRM_BYTES and data.startswith(_LIST_HEADER[:1], start):
            yield unpack(data, start + 4)
        else:
            yield from _listed(confirms, _CONFIRM)


def _listed(listed: Event, message: struct.Struct) -> Iterator[tuple[int, bytes, int]]:
    kind, _, data, start, end = listed
    first = data[start] if end > start else 0
    at, words = start + 4 * (first >> 4), first & 15
    if at == start or words < _MESSAGE_WORDS or at > end or (end - at) % (4 * words):
        name = EventType(kind).name if kind in EventType.__members__.values() else str(kind)
        raise RemoteProtocolError(
            f"{name} event of {end - start} bytes with a header of {first >> 4} words and messages of {words} words; "
            f"a header has at least 1 word, a message at least {_MESSAGE_WORDS}, and there are whole messages only"
        )
    size = 4 * words
    if size == message.size:
        return message.iter_unpack(memoryview(data)[at:end])
    return chain.from_iterable([message.unpack_from(data, place)] for place in range(at, end, size))
