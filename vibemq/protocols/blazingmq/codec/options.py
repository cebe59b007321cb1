"""Options of a delivered message, in front of its application data.

    header       type u6 | packed u1 | type-specific u4 | words u21, header included

    SUB_QUEUE_IDS_OLD 1       n x id u32
    MSG_GROUP_ID 2            1 to 31 bytes, word padding
    SUB_QUEUE_INFOS 3         type-specific = 2 words an item; n x (id u32 | remaining attempts u8 | 0 u24)
    SUB_QUEUE_INFOS 3 packed  no body: the words are the remaining attempts, the id is 0

Source: docs/spec/blazingmq.md, "Options".
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from vibemq.errors import LocalProtocolError, RemoteProtocolError
from vibemq.protocols.blazingmq.codec.events import padded, unpadded_end

_WORD = struct.Struct("!I")
_INFO = struct.Struct("!IB3x")
_PACKED = 1 << 25
_INFO_WORDS = _INFO.size // 4
_GROUP_ID_BYTES_MAX = 31

UNLIMITED_ATTEMPTS = 0x80


class OptionType(IntEnum):
    SUB_QUEUE_IDS_OLD = 1
    MSG_GROUP_ID = 2
    SUB_QUEUE_INFOS = 3


class SubQueueInfo(NamedTuple):
    sub_queue_id: int
    remaining_attempts: int
    """`UNLIMITED_ATTEMPTS`, or a counter in the low six bits; 0x40 marks a message that may be poisonous."""


class PushOptions(NamedTuple):
    sub_queue_ids: tuple[int, ...] = ()
    group_id: bytes = b""
    sub_queue_infos: tuple[SubQueueInfo, ...] = ()


def sub_queue_ids_option(ids: Sequence[int]) -> bytes:
    """What real brokers send to SDKs, and every SDK understands: the subscription ids that the message is for."""
    return _WORD.pack(OptionType.SUB_QUEUE_IDS_OLD << 26 | 1 + len(ids)) + b"".join(map(_WORD.pack, ids))


def sub_queue_infos_option(infos: Sequence[SubQueueInfo]) -> bytes:
    if len(infos) == 1 and infos[0].sub_queue_id == 0:
        return _WORD.pack(OptionType.SUB_QUEUE_INFOS << 26 | _PACKED | infos[0].remaining_attempts)
    header = OptionType.SUB_QUEUE_INFOS << 26 | _INFO_WORDS << 21 | 1 + _INFO_WORDS * len(infos)
    return _WORD.pack(header) + b"".join(_INFO.pack(*info) for info in infos)


def group_id_option(group_id: bytes) -> bytes:
    """
    Raises:
        LocalProtocolError: it is empty or too long.
    """
    if not 1 <= len(group_id) <= _GROUP_ID_BYTES_MAX:
        raise LocalProtocolError(f"a group id has 1 to {_GROUP_ID_BYTES_MAX} bytes, not {len(group_id)}")
    body = padded(group_id)
    return _WORD.pack(OptionType.MSG_GROUP_ID << 26 | 1 + len(body) // 4) + body


def parse_options(options: bytes) -> PushOptions:
    """
    Raises:
        RemoteProtocolError: an unknown or repeated option, or lengths that contradict each other.
    """
    at, found = 0, PushOptions()
    seen: set[int] = set()
    while at < len(options):
        if len(options) - at < _WORD.size:
            raise RemoteProtocolError(f"{len(options) - at} bytes behind the last option")
        (header,) = _WORD.unpack_from(options, at)
        kind, words = header >> 26, header & 0x1FFFFF
        if kind in seen:
            raise RemoteProtocolError(f"option {kind} is there twice")
        seen.add(kind)
        if header & _PACKED:
            if kind != OptionType.SUB_QUEUE_INFOS or words > 0xFF:
                raise RemoteProtocolError(f"option {kind} cannot be packed with the value {words}")
            found = found._replace(sub_queue_infos=(SubQueueInfo(0, words),))
            at += _WORD.size
            continue
        end = at + 4 * words
        if words < 2 or end > len(options):
            raise RemoteProtocolError(f"option {kind} of {words} words in {(len(options) - at) // 4} words")
        found = _with_option(found, kind, header >> 21 & 15, options, at + _WORD.size, end)
        at = end
    return found


def _with_option(found: PushOptions, kind: int, specific: int, options: bytes, at: int, end: int) -> PushOptions:
    if kind == OptionType.SUB_QUEUE_IDS_OLD:
        return found._replace(sub_queue_ids=struct.unpack_from(f"!{(end - at) // 4}I", options, at))
    if kind == OptionType.MSG_GROUP_ID:
        group_id = options[at : unpadded_end(options, at, end)]
        if not 1 <= len(group_id) <= _GROUP_ID_BYTES_MAX:
            raise RemoteProtocolError(f"a group id of {len(group_id)} bytes; it has 1 to {_GROUP_ID_BYTES_MAX}")
        return found._replace(group_id=group_id)
    if kind == OptionType.SUB_QUEUE_INFOS:
        size = 4 * specific
        if specific < _INFO_WORDS or (end - at) % size:
            raise RemoteProtocolError(f"{end - at} bytes of sub-queue infos of {specific} words each")
        infos = tuple(SubQueueInfo(*_INFO.unpack_from(options, place)) for place in range(at, end, size))
        return found._replace(sub_queue_infos=infos)
    raise RemoteProtocolError(f"unknown option {kind}")
