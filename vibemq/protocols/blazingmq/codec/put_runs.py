"""Messages of PUT events that are alike, in a row: clients post most messages with one size, the Python SDK an event
for each, others many in an event.

They differ in GUID, checksum and data only, so one struct cuts all of them into columns, and none of them is looked at
alone.

    -8  event header        the same in all, if each has one
    0   flags, lengths      the same
    8   queue id            the same
    12  GUID
    28  CRC-32C of the data
    32  schema id, reserved
    36  data, padding       of one size
"""

import struct
from functools import lru_cache
from typing import NamedTuple

import google_crc32c

RUN_MIN = 4
"""Fewer are not worth it."""
RUN_MAX = 512
"""Taken in about half a millisecond."""
PUT_SAME_BYTES = 12
"""Before the GUID."""
_DATA_AT = 36
_HEAD = struct.Struct("!IIi")
_PLAIN_SECOND = 9
"""No options, no compression, a header of nine words."""
_PADDING_MAX = 4
_WORDS = (1 << 28) - 1


class AlikePuts(NamedTuple):
    """`data[start:end]` is messages of `each` bytes, which include `lead` bytes of an event's header before it."""

    data: bytes
    start: int
    end: int
    each: int
    lead: int

    def plain_queue_id(self, flags: int) -> int | None:
        """The queue id, if all messages have these flags, no options, no compression and a sound padding; else None."""
        size = self.each - self.lead
        first, second, queue_id = _HEAD.unpack_from(self.data, self.start + self.lead)
        if first != flags << 28 | size >> 2 or second != _PLAIN_SECOND:
            return None
        padding = self.data[self.end - 1]
        return int(queue_id) if 0 < padding <= min(_PADDING_MAX, size - _DATA_AT) else None

    def columns(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]] | None:
        """(GUIDs, data) of messages that have a `plain_queue_id`; None: one of them does not have its checksum."""
        layout = _layout(self.each, self.lead, self.data[self.end - 1])
        messages = layout.iter_unpack(memoryview(self.data)[self.start : self.end])
        guids, checksums, contents = zip(*messages, strict=True)
        return (guids, contents) if tuple(map(google_crc32c.value, contents)) == checksums else None


@lru_cache(maxsize=256)
def _layout(each: int, lead: int, padding: int) -> struct.Struct:
    return struct.Struct(f"!{lead + PUT_SAME_BYTES}x16sI4x{each - lead - _DATA_AT - padding}s{padding}x")


def count_alike(data: bytes, at: int, each: int, end: int, same: int = PUT_SAME_BYTES) -> int:
    """How many pieces of `each` bytes, from `at` on, begin with the same so many bytes and end with the same one."""
    count = min((end - at) // each, RUN_MAX)
    stop = at + count * each
    for column in (at + each - 1, *range(at + same - 1, at - 1, -1)):
        if data[column:stop:each] != data[column : column + 1] * count:
            break
    else:
        return count
    first, last = data[at : at + same], data[at + each - 1]
    for number, start in enumerate(range(at, stop, each)):
        if data[start + each - 1] != last or not data.startswith(first, start):
            return number
    return count


def alike_in_event(data: bytes, at: int, end: int) -> AlikePuts | None:
    """The next messages of a PUT event, if there are some that are alike."""
    each = 4 * (int.from_bytes(data[at : at + 4], "big") & _WORDS)
    if each <= _DATA_AT or at + RUN_MIN * each > end or data[at + each : at + each + 4] != data[at : at + 4]:
        return None
    count = count_alike(data, at, each, end)
    return AlikePuts(data, at, at + count * each, each, 0) if count >= RUN_MIN else None
