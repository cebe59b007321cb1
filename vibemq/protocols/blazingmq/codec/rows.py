"""Posted messages to stored rows, and rows to delivered messages.

    id         the GUID as text
    payload    as the application posted it, decompressed
    headers    the properties, as `vibemq.model.selector` keeps typed properties: readable ones, and a list of types

A zlib payload is decompressed when it is posted. What is stored is then what every consumer can read: native, OCaml and
Spark consumers, dead letters, exports; none of them would know what to do with a compressed body, while the SDKs read a
message whatever compression they were opened with. A payload that cannot be decompressed is refused to the one who sent
it, before it is confirmed, and is no puzzle for each consumer after it. The price is processor time at the post, and
the bytes that compression would have saved on disk and towards consumers.

What comes out is bounded, since a megabyte may hold a gigabyte, and comes in pieces: a large payload is decompressed
over several turns of the event loop.
"""

import struct
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from io import BytesIO

from vibemq.errors import InvalidMessage
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow, Rows, RowView
from vibemq.protocols.blazingmq.codec.guid import GUID_TEXT_BYTES, guid_text, guids_of_message_ids
from vibemq.protocols.blazingmq.codec.properties import SCHEMA_NONE, SCHEMA_OLD, area_bytes
from vibemq.protocols.blazingmq.codec.property_headers import NO_HEADERS, area_of_headers, headers_of_area
from vibemq.protocols.blazingmq.codec.push import (
    EVENT_BYTES_SOFT_MAX,
    PushMessage,
    around_push,
    build_alike_pushes,
)
from vibemq.protocols.blazingmq.codec.put import MESSAGE_PROPERTIES, DataChecksum, PutMessage

_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
_ID_SIZE = b"\0\x20"

_COUNT_AT = 5
_FEW_PROPERTIES = 16

PIECE_BYTES = 1 << 18
"""Of output; about half a millisecond."""
INPUT_BYTES = 1 << 16
"""Of input to a step: a stream of empty blocks has no output that would end it."""


ROW_STEP_BYTES = 1 << 20
"""Of a large row, copied at once: about half a millisecond."""
STEP_WORK = 60
"""What such a step, or one of a checksum, counts as, in messages."""
STREAM_WORK = 4
"""What a step of decompression counts beside its output, in messages."""


class CompressionType(IntEnum):
    """CAT of a message."""

    NONE = 0
    ZLIB = 1


class PayloadInflater:
    """Decompresses one payload.

    Args:
        data: the whole zlib stream.
        bytes_max: most bytes that may come out.
        kept_max: what is larger is only counted, until there is memory for it.
    """

    def __init__(self, data: bytes | memoryview, bytes_max: int, kept_max: int = 1 << 62) -> None:
        self._data = memoryview(data)
        self._at = 0
        """So much has been taken by `_stream`, which keeps nothing of it but `unconsumed_tail`."""
        self._bytes_max = bytes_max
        self._stream = zlib.decompressobj()
        self._pieces: list[bytes] = []
        self._size = 0
        self._kept_max = kept_max

    def again(self) -> None:
        """There is memory for what has been counted: decompress it from the beginning."""
        self._at = self._size = 0
        self._stream = zlib.decompressobj()
        self._kept_max = self._bytes_max

    @property
    def counted(self) -> bool:
        """Whether it is larger than what is kept."""
        return self._size > self._kept_max

    def step(self) -> bool:
        """Decompress one more piece; whether that was the last.

        Raises:
            InvalidMessage: it is no zlib stream, not a whole one, or larger than the limit.
        """
        # One byte more than allowed tells a stream of just that size from a larger one.
        wanted = min(PIECE_BYTES, self._bytes_max - self._size + 1)
        given = self._data[self._at : self._at + INPUT_BYTES]
        try:
            piece = self._stream.decompress(given, wanted)
        except zlib.error as error:
            raise InvalidMessage(f"a payload that is not zlib data: {error}") from None
        # What is not taken is given again from its place, so that no tail is copied twice.
        taken = len(given) - len(self._stream.unconsumed_tail)
        self._at += taken
        self._size += len(piece)
        if self._size > self._bytes_max:
            raise InvalidMessage(f"a payload that decompresses to more than {self._bytes_max} bytes")
        if self.counted:
            self._pieces.clear()
        else:
            self._pieces.append(piece)
        if self._stream.eof:
            return True
        if not piece and not taken:
            raise InvalidMessage("a zlib payload that is cut short")
        return False

    @property
    def taken(self) -> int:
        """So much of the stream has been read."""
        return self._at

    @property
    def size(self) -> int:
        """Of what has been decompressed so far."""
        return self._size

    def result(self) -> list[bytes]:
        """In pieces, once `step` has said that it is done."""
        return self._pieces


def properties_in(data: bytes | memoryview) -> int:
    """How many properties are in front of uncompressed data that has some."""
    return data[_COUNT_AT] if len(data) > _COUNT_AT else 0


def properties_work(data: bytes | memoryview) -> int:
    """What the properties in front of uncompressed data count as, in messages without any: those beyond a few take a
    long way."""
    count = properties_in(data)
    return count if count > _FEW_PROPERTIES else count >> 2


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
        return b"".join((_ID_SIZE, guid_text(guid).encode(), _U32.pack(len(data)), data, NO_HEADERS))
    area = data if isinstance(data, bytes) else bytes(data[: area_bytes(data)])
    headers, payload_at = headers_of_area(area, message.schema_id)
    size = _U32.pack(len(data) - payload_at)
    return b"".join((_ID_SIZE, guid_text(guid).encode(), size, memoryview(data)[payload_at:], headers))


def rows_of_run(guids: Sequence[bytes], payloads: Sequence[bytes]) -> tuple[Rows, list[bytes]]:
    """Rows of messages without properties, whose payloads have one size; and the ids of these rows."""
    count, size = len(guids), len(payloads[0])
    texts = b"".join(guids).hex().upper().encode()
    ids = [texts[at : at + GUID_TEXT_BYTES] for at in range(0, len(texts), GUID_TEXT_BYTES)]
    pieces = [NO_HEADERS + _ID_SIZE] * (4 * count + 1)
    pieces[0], pieces[-1] = _ID_SIZE, NO_HEADERS
    pieces[1::4] = ids
    pieces[2::4] = [_U32.pack(size)] * count
    pieces[3::4] = payloads
    row_bytes = len(_ID_SIZE) + GUID_TEXT_BYTES + _U32.size + size + len(NO_HEADERS)
    return Rows(count, _U32.pack(row_bytes) * count, b"".join(pieces)), ids


class RowInSteps:
    """Puts a large row together, a part of it per step."""

    def __init__(self, guid: bytes, headers: bytes, payload: Iterable[bytes | memoryview]) -> None:
        self._pieces = deque(memoryview(piece) for piece in payload)
        self._headers = headers
        self._row = BytesIO()
        size = _U32.pack(sum(map(len, self._pieces)))
        self._row.writelines((_ID_SIZE, guid_text(guid).encode(), size))

    def step(self) -> bytes | None:
        """The row once it is complete."""
        left = ROW_STEP_BYTES
        while self._pieces and left > 0:
            piece = self._pieces.popleft()
            if len(piece) > left:
                self._pieces.appendleft(piece[left:])
                piece = piece[:left]
            left -= self._row.write(piece)
        if self._pieces:
            return None
        self._row.write(self._headers)
        return self._row.getvalue()


class PutLoader:
    """Makes the row of any message, in steps if it is compressed or large.

    Args:
        data_bytes_max: most bytes of properties and payload once decompressed.
        has_memory: for a large message.
    """

    def __init__(self, message: PutMessage, guid: bytes, data_bytes_max: int, *, has_memory: bool = False) -> None:
        self._message = message
        self._guid = guid
        self._plain = b""
        self.work = 0
        """Of the last step, in messages that are not compressed."""
        self.memory_wanted = 0
        """It is a large message of so many bytes, which goes on with `memory_is_there`."""
        self._inflater: PayloadInflater | None = None
        self._row: RowInSteps | None = None
        self._checksum: DataChecksum | None = None
        if message.crc32c and not message.fault and not isinstance(message.data, bytes):
            self._checksum = DataChecksum(message)
        if message.compression == CompressionType.ZLIB and not message.fault:
            compressed = message.data
            if message.flags & MESSAGE_PROPERTIES and message.schema_id != SCHEMA_OLD:
                # The properties of the new style are in front of what is compressed.
                at = area_bytes(compressed)
                self._plain, compressed = bytes(compressed[:at]), compressed[at:]
            bytes_max = max(0, data_bytes_max - len(self._plain))
            self._inflater = PayloadInflater(compressed, bytes_max, bytes_max if has_memory else LARGE_ROW_BYTES)

    def memory_is_there(self) -> None:
        assert self._inflater is not None
        self.memory_wanted = 0
        self._inflater.again()

    def step(self) -> bytes | None:
        """The row once it is complete; None: call again.

        Raises:
            InvalidMessage: the message cannot be loaded.
        """
        self.work = STEP_WORK
        if self._checksum is not None:
            if self._checksum.step():
                self._checksum = None
            return None
        if self._row is not None:
            return self._row.step()
        if self._inflater is None:
            return self._load(self._message.data)
        size, taken = self._inflater.size, self._inflater.taken
        done = self._inflater.step()
        made, read = self._inflater.size - size, self._inflater.taken - taken
        # Two pieces are about a millisecond.
        self.work = STREAM_WORK + (9 * made >> 15) + (read >> 10)
        if done and self._inflater.counted:
            self.memory_wanted = len(self._plain) + self._inflater.size
        if not done or self.memory_wanted:
            return None
        pieces, self._inflater = self._inflater.result(), None
        self._message = self._message._replace(compression=CompressionType.NONE)
        has_properties = self._message.flags & MESSAGE_PROPERTIES
        large = len(self._plain) + sum(map(len, pieces)) > LARGE_ROW_BYTES
        if large and (self._plain or not has_properties):
            # What was compressed is the payload.
            headers = NO_HEADERS
            if has_properties:
                self.work += properties_work(self._plain)
                headers, _ = headers_of_area(self._plain, self._message.schema_id)
            self._row = RowInSteps(self._guid, headers, pieces)
            return None
        return self._load(b"".join((self._plain, *pieces)))

    def _load(self, data: bytes | memoryview) -> bytes | None:
        """Of data that is not compressed any more."""
        message = self._message = self._message._replace(data=data)
        has_properties = message.flags & MESSAGE_PROPERTIES
        if has_properties:
            self.work += properties_work(data)
        if len(data) <= LARGE_ROW_BYTES or message.fault or message.compression != CompressionType.NONE:
            return row_of_put(message, self._guid)
        headers, payload_at = NO_HEADERS, 0
        if has_properties:
            headers, payload_at = headers_of_area(bytes(data[: area_bytes(data)]), message.schema_id)
        self._row = RowInSteps(self._guid, headers, [memoryview(data)[payload_at:]])
        return None


def push_around_row(row: LargeRow, push: PushMessage, *, new_style: bool = True) -> tuple[bytes, LargeRow, bytes]:
    """The event that delivers a large row: what comes before its payload, the row as what is sent is its payload alone,
    and what comes behind.

    Args:
        push: without properties and data.
    """
    view = RowView(row.data)
    end, schema = view.headers_at, SCHEMA_NONE if new_style else SCHEMA_OLD
    area = area_of_headers(row.data[end:], schema)
    if area:
        push = push._replace(flags=MESSAGE_PROPERTIES, schema_id=schema, data=area)
    before, behind = around_push(push, view.payload_size)
    return before, LargeRow(row.data, row.memory, row.origin, (end - view.payload_size, end)), behind


def alike_pushes_of_rows(
    rows: Rows, guids: Sequence[bytes], queue_id: int, options: bytes, *, new_style: bool = True
) -> bytes | None:
    """The event that delivers rows that have one size and the same headers; None: they differ, or are too much for one.

    Args: those of `pushes_of_rows`.
    """
    common = rows.common_headers() if rows.size < EVENT_BYTES_SOFT_MAX else None
    if common is None:
        return None
    schema = SCHEMA_NONE if new_style else SCHEMA_OLD
    area = area_of_headers(common, schema)
    like = PushMessage(queue_id, guids[0], MESSAGE_PROPERTIES if area else 0, 0, schema if area else 0, options, area)
    return build_alike_pushes(like, guids, rows.payloads())


def pushes_of_rows(
    rows: Rows, queue_id: int, options: bytes, *, new_style: bool = True, guids: Sequence[bytes] | None = None
) -> list[PushMessage]:
    """Messages that deliver these rows, in order.

    Args:
        options: encoded; the same for all.
        new_style: whether the consumer reads new-style properties.
        guids: None: those of the rows' ids.
    """
    schema = SCHEMA_NONE if new_style else SCHEMA_OLD
    guids = guids_of_message_ids(rows.ids()) if guids is None else guids
    payloads = rows.payloads()
    common = rows.common_headers()
    areas: Sequence[bytes]
    if common is not None:
        areas = [area_of_headers(common, schema)] * rows.count
    else:
        areas = [area_of_headers(block, schema) for block in rows.header_blocks()]
    return [
        PushMessage(queue_id, guid, MESSAGE_PROPERTIES, 0, schema, options, area + payload)
        if area
        else PushMessage(queue_id, guid, 0, 0, 0, options, payload)
        for guid, payload, area in zip(guids, payloads, areas, strict=True)
    ]
