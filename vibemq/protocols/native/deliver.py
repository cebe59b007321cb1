"""Deliveries out: rows from storage to frames, without decoding them.

`PlainDeliveries` writes a Deliver (26) for each row, as .NET clients read them; `bulk_bodies` writes DeliverMany (62),
in which the rows travel as they are stored. `together` finds small slices that become one DeliverScattered (74).
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from vibemq.model.effects import Deliver
from vibemq.model.rows import Rows, join_rows
from vibemq.model.steps import Steps
from vibemq.model.stored import Slice
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.extensions import ToldAttempts, deliver_many, deliver_scattered
from vibemq.protocols.native.codec.frames import HEADER
from vibemq.protocols.native.codec.headers import NO_HEADERS
from vibemq.protocols.native.codec.json_check import VALUES_AT_ONCE, JsonCheck, as_json, values_in
from vibemq.protocols.native.codec.wire import STR16_MAX, U16, U32, VERSION, CommandType, str16
from vibemq.protocols.native.outbox import FrameQueue

_START = bytes((VERSION, CommandType.DELIVER))
_ATTEMPTS = str16("deliveryAttempts")
_FIRST_ATTEMPT = _ATTEMPTS + str16("1")
_ONLY_FIRST_ATTEMPT = U16.pack(1) + _FIRST_ATTEMPT
_BASE64 = str16("content-encoding") + str16("base64")

SCATTERED_ROWS_MAX = 1024
"""Of one frame."""
SCATTERED_BYTES_MAX = 256 << 10
"""Of the rows of one frame."""
SCATTERED_SLICE_ROWS_MAX = 4
"""A slice of more rows travels better as it is stored."""
_SCATTERED_ROW_BYTES = 128
"""Of a row at most, for what is told of it beside its bytes: two numbers, a length, and its attempts."""
_SCATTERED_FRAME_BYTES_MAX = SCATTERED_BYTES_MAX + SCATTERED_ROWS_MAX * _SCATTERED_ROW_BYTES + 3 * STR16_MAX

Acquired = Mapping[int, int]


class PlainDeliveries:
    """Writes rows as Deliver frames for peers that read nothing else."""

    def __init__(self, outbox: FrameQueue, json: JsonCheck) -> None:
        self._outbox = outbox
        self._json = json

    def send(
        self, piece: Slice, queue_block: bytes, acquired: Acquired, strange: frozenset[int] | None = None
    ) -> tuple[list[bytes], list[int], list[int]]:
        """Queue the frames of one slice: (ids, their sequences, sequences of rows too large for a frame).

        Every frame carries the header `deliveryAttempts` after the publisher's own (which come verbatim), unless just
        that would make it too large. A payload that is not JSON becomes a JSON string, because the peer's reader would
        give up over it: its text, or base64 and the header `content-encoding: base64`. `strange` says which they are,
        where `strange_payloads` has told.
        """
        rows = list(piece.rows)
        cuts = _cuts(rows)
        if strange is None:
            present, payloads = _payloads(rows, cuts)
            strange = frozenset(present[index] for index in self._json.bad(payloads))
        ids: list[bytes] = []
        sequences: list[int] = []
        too_large: list[int] = []
        parts: list[bytes] = []
        body_bytes_max = self._outbox.body_bytes_max
        compressing = self._outbox.compression is not Compression.NONE
        overhead = len(_START) + len(queue_block)
        sequence = piece.first_sequence - 1
        for row, (id_end, payload_end) in zip(rows, cuts, strict=True):
            sequence += 1
            payload, headers = row[id_end:payload_end], row[payload_end:]
            if strange and sequence - piece.first_sequence in strange:
                payload, headers = _as_json_block(payload[4:], headers)
            attempts = acquired.get(sequence, 1) if acquired else 1
            if headers == NO_HEADERS and attempts == 1:
                told = _ONLY_FIRST_ATTEMPT
            else:
                told = _with_attempts(headers, attempts)
            size = overhead + id_end + len(payload) + len(told)
            if size > body_bytes_max:
                size += len(headers) - len(told)
                told = headers
                if size > body_bytes_max:
                    too_large.append(sequence)
                    continue
            ids.append(row[2:id_end])
            sequences.append(sequence)
            if compressing and self._outbox.compresses(size):
                self._outbox.send_frames(b"".join(parts))
                parts.clear()
                self._outbox.send(b"".join((_START, row[:id_end], queue_block, payload, told)))
            else:
                parts += (HEADER.pack(size, 0) + _START, row[:id_end], queue_block, payload, told)
        self._outbox.send_frames(b"".join(parts))
        return ids, sequences, too_large

    def strange_payloads(self, piece: Slice) -> Steps[frozenset[int]]:
        """Indexes of the rows whose payload is no JSON."""
        rows = list(piece.rows)
        present, payloads = _payloads(rows, _cuts(rows))
        bad = yield from self._json.bad_in_steps(payloads)
        return frozenset(present[index] for index in bad)


def takes_steps(slices: Sequence[Slice]) -> bool:
    """Whether to check their payloads takes more than one turn."""
    if sum(len(piece.rows.data) for piece in slices) <= VALUES_AT_ONCE:
        return False
    return sum(values_in(piece.rows.data) for piece in slices) > VALUES_AT_ONCE


def _payloads(rows: Sequence[bytes], cuts: Sequence[tuple[int, int]]) -> tuple[list[int], list[bytes]]:
    """Those that are there, with the indexes of their rows."""
    present = [index for index, (start, end) in enumerate(cuts) if end - start > 4]
    return present, [rows[index][cuts[index][0] + 4 : cuts[index][1]] for index in present]


def _cuts(rows: Sequence[bytes]) -> list[tuple[int, int]]:
    """(end of the id, end of the payload) of each row."""
    cuts: list[tuple[int, int]] = []
    id_size = -1
    unpack = struct.Struct("!HI").unpack_from
    for row in rows:
        if row[0] << 8 | row[1] != id_size:
            id_size = row[0] << 8 | row[1]
            unpack = struct.Struct(f"!H{id_size}xI").unpack_from
        cuts.append((2 + id_size, 6 + id_size + unpack(row)[1]))
    return cuts


def _with_attempts(headers: bytes, attempts: int) -> bytes:
    """The header block with `deliveryAttempts` as its last pair, so that it wins over one of the publisher."""
    count = headers[0] << 8 | headers[1]
    if count == STR16_MAX:
        return headers
    ours = _FIRST_ATTEMPT if attempts == 1 else _ATTEMPTS + str16(str(attempts))
    return U16.pack(count + 1) + headers[2:] + ours


def _as_json_block(payload: bytes, headers: bytes) -> tuple[bytes, bytes]:
    text, encoded = as_json(payload)
    count = headers[0] << 8 | headers[1]
    if encoded and count < STR16_MAX:
        headers = U16.pack(count + 1) + headers[2:] + _BASE64
    return U32.pack(len(text)) + text, headers


def told_attempts(deliver: Deliver, *, with_failures: bool) -> ToldAttempts:
    """What a DeliverMany says of earlier attempts."""
    acquired = deliver.acquired or {}
    if not (with_failures and deliver.failed):
        return acquired
    return {**acquired, **{sequence: (acquired[sequence], failed) for sequence, failed in deliver.failed.items()}}


def bulk_bodies(
    piece: Slice, subscription: str, queue: str, attempts: ToldAttempts, body_bytes_max: int
) -> Iterator[tuple[int, bytes | Rows]]:
    """DeliverMany bodies of one slice within the limit: (first sequence, body); the row itself when it does not fit."""
    rows, first = piece.rows, piece.first_sequence
    room = body_bytes_max - _bulk_overhead(subscription, queue)
    while rows.count:
        count = _fitting(rows, room)
        if count == 0:
            count = 1
            yield first, rows.slice(0, 1)
        else:
            again = _told(attempts, first, count) if attempts else {}
            body = deliver_many(subscription, queue, first, piece.published_at, rows.slice(0, count), again)
            while len(body) > body_bytes_max:
                # Only the attempts can make it so: fewer rows at a time, and a lone row goes without them.
                count = (count + 1) // 2
                again = _told(again, first, count) if count > 1 else {}
                body = deliver_many(subscription, queue, first, piece.published_at, rows.slice(0, count), again)
            yield first, body
        rows = rows.slice(count, rows.count)
        first += count


def _bulk_overhead(subscription: str, queue: str) -> int:
    """Bytes of a DeliverMany body around lengths and rows, without attempts."""
    return len(deliver_many(subscription, queue, 0, 0, Rows(0, b"", b"")))


def _fitting(rows: Rows, room: int) -> int:
    """How many rows from the first on fit, each with the 4 bytes of its length."""
    if len(rows.data) + len(rows.lengths) <= room:
        return rows.count
    ends = [offset + 4 * index for index, offset in enumerate(rows.offsets())]
    return bisect_right(ends, room) - 1


def _told(attempts: ToldAttempts, first: int, count: int) -> ToldAttempts:
    if len(attempts) <= count:
        return {sequence: told for sequence, told in attempts.items() if first <= sequence < first + count}
    return {sequence: attempts[sequence] for sequence in range(first, first + count) if sequence in attempts}


def together(slices: Sequence[Slice], body_bytes_max: int) -> Iterator[list[Slice]]:
    """The slices in order, in groups: a lone one, or small ones that fit into one DeliverScattered."""
    if body_bytes_max < _SCATTERED_FRAME_BYTES_MAX:
        yield from ([part] for part in slices)
        return
    group: list[Slice] = []
    count = size = 0
    for part in slices:
        rows, row_bytes = part.rows.count, len(part.rows.data)
        if count + rows > SCATTERED_ROWS_MAX or size + row_bytes > SCATTERED_BYTES_MAX:
            if group:
                yield group
            group, count, size = [], 0, 0
        if rows > SCATTERED_SLICE_ROWS_MAX or row_bytes > SCATTERED_BYTES_MAX:
            if group:
                yield group
            group, count, size = [], 0, 0
            yield [part]
            continue
        group.append(part)
        count += rows
        size += row_bytes
    if group:
        yield group


def scattered_body(group: Sequence[Slice], subscription: str, queue: str, attempts: ToldAttempts) -> bytes:
    """A DeliverScattered of a group of `together`."""
    sequences: list[int] = []
    instants: list[int] = []
    for part in group:
        count = part.rows.count
        sequences += range(part.first_sequence, part.first_sequence + count)
        instants += repeat(part.published_at, count)
    told = {sequence: attempts[sequence] for sequence in sequences if sequence in attempts} if attempts else {}
    return deliver_scattered(subscription, queue, sequences, instants, join_rows(part.rows for part in group), told)
