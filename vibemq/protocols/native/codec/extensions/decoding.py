"""Decoders of extension frames; see `bodies`."""

import struct
import sys
from array import array
from collections.abc import Sequence
from operator import gt
from typing import Any

import orjson

from vibemq.errors import RemoteProtocolError
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunArrays
from vibemq.protocols.native.codec.extensions.bodies import (
    ACKED,
    COLUMNS_FLAG,
    DELIVERED,
    FLOW,
    LONE_ROW,
    DeliverMany,
    ExtendMany,
    Flow,
    PublishMany,
    PublishManyAck,
    RequestFrame,
    ResponseFrame,
    SettleMany,
    StageFrame,
    SubscriptionEnded,
)
from vibemq.protocols.native.codec.extra_columns import WireColumns, decode_extras, has_too_many
from vibemq.protocols.native.codec.json_check import small_object
from vibemq.protocols.native.codec.wire import I64, STR16_MAX, U32, check_id, read_str16

_ACKED_PLAINLY = struct.Struct("!QIB")
_DELIVERED_ALONE = struct.Struct("!QQBII")
_SETTLED_PLAINLY = struct.Struct("!BqHIQQ")
_ASKED_PLAINLY = struct.Struct("!IBI")
_NO_ROW = Rows(0, b"", b"")
_JSON_FLAG = 1
_PLAIN_ID_BYTES = STR16_MAX // 3
_RUNS_AT_ONCE = 4_096
"""More of one frame become tuples only as they are worked off."""
_BACKWARD = "a run of sequences ends before it begins"


class CutShort(RemoteProtocolError):
    """The body ends inside a field."""


class _Reader:
    """Reads one body field by field; every overrun is the same RemoteProtocolError."""

    __slots__ = ("at", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 2

    def start(self) -> tuple[str, str]:
        """id and queue."""
        message_id, queue = self.text(), self.text()
        check_id(message_id)
        return message_id, queue

    def text(self) -> str:
        try:
            text, self.at = read_str16(self.body, self.at)
        except (struct.error, IndexError):
            raise self._cut() from None
        return text

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        try:
            values = layout.unpack_from(self.body, self.at)
        except struct.error:
            raise self._cut() from None
        self.at += layout.size
        return values

    def number(self, layout: struct.Struct) -> int:
        return int(self.unpack(layout)[0])

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.body):
            raise self._cut()
        piece = self.body[self.at : end]
        self.at = end
        return piece

    def json_block(self) -> Any:
        flags = self.raw(1)[0]
        return self.json() if flags & _JSON_FLAG else None

    def extras(self) -> tuple[dict[int, Any] | WireColumns | None, bytes | None]:
        """As JSON, or columns of rows whose number comes later."""
        flags = self.raw(1)[0]
        if flags & COLUMNS_FLAG:
            return None, self.raw(self.number(U32))
        return self._json_extras() if flags & _JSON_FLAG else None, None

    def json_extras(self) -> dict[int, Any] | WireColumns | None:
        """As JSON."""
        return self._json_extras() if self.raw(1)[0] & _JSON_FLAG else None

    def _json_extras(self) -> dict[int, Any] | WireColumns | None:
        text = self.raw(self.number(U32))
        return WireColumns(None, text) if has_too_many(text) else _by_index(self._parsed(text), "extras")

    def json(self) -> Any:
        return self._parsed(self.raw(self.number(U32)))

    def small_json(self) -> Any:
        """What a client describes something with; see `small_object`."""
        return self._parsed(self.raw(self.number(U32)), is_small=True)

    def _parsed(self, text: bytes, *, is_small: bool = False) -> Any:
        try:
            return small_object(text) if is_small else orjson.loads(text)
        except ValueError as error:
            raise RemoteProtocolError(
                f"the JSON block of a frame of type {self.body[1]} cannot be read: {error}"
            ) from None

    def rows(self, count: int | None = None) -> Rows:
        """`count`: it has been read."""
        if count is None:
            count = self.number(U32)
        lengths = self.raw(4 * count)
        rows = Rows(count, lengths, self.body[self.at :])
        total = count * int.from_bytes(lengths[:4], "big") if rows.alike else sum(rows.row_lengths())
        if total > len(rows.data):
            raise self._cut()
        return rows if total == len(rows.data) else Rows(count, lengths, rows.data[:total])

    def row(self) -> bytes:
        return self.raw(self.number(U32))

    def runs(self) -> Sequence[Run]:
        count = self.number(U32)
        if count > _RUNS_AT_ONCE:
            return self._very_many_runs(count)
        numbers = struct.unpack(f"!{2 * count}Q", self.raw(16 * count))
        runs = list(zip(numbers[::2], numbers[1::2], strict=True))
        if any(first > last for first, last in runs):
            raise RemoteProtocolError(_BACKWARD)
        return runs

    def _very_many_runs(self, count: int) -> RunArrays:
        numbers = array("Q", self.raw(16 * count))
        if sys.byteorder == "little":
            numbers.byteswap()
        firsts, lasts = numbers[::2], numbers[1::2]
        if any(map(gt, firsts, lasts)):
            raise RemoteProtocolError(_BACKWARD)
        return RunArrays(firsts, lasts)

    def lone_row(self, size: int) -> int:
        """Where the one row of a body of `size` bytes begins, of which the beginning is here."""
        count, length = self.unpack(LONE_ROW)
        if count != 1 or self.at + length != size:
            raise RemoteProtocolError(
                f"a frame of type {self.body[1]} has a body of {size:,} B and {count:,} rows; a body above the ordinary"
                " limit carries one row and nothing behind it"
            )
        return self.at

    def _cut(self) -> RemoteProtocolError:
        return CutShort(f"a body of {len(self.body)} B, type {self.body[1]}, ends inside a field")


def parse_publish_many(body: bytes) -> PublishMany:
    reader = _Reader(body)
    message_id, queue = reader.start()
    extras, columns = reader.extras()
    rows = reader.rows()
    return PublishMany(message_id, queue, rows, extras if columns is None else decode_extras(columns, rows.count))


def begin_publish_many(head: bytes, size: int) -> tuple[PublishMany, int]:
    """What stands before the one row of a body of `size` bytes, and where the row begins.

    Raises:
        CutShort: more than `head` is needed.
        RemoteProtocolError: the body carries something else.
    """
    reader = _Reader(head)
    message_id, queue = reader.start()
    extras, columns = reader.extras()
    told = extras if columns is None else decode_extras(columns, 1)
    return PublishMany(message_id, queue, _NO_ROW, told), reader.lone_row(size)


def begin_deliver_many(head: bytes, size: int) -> tuple[DeliverMany, int]:
    """As `begin_publish_many`."""
    reader = _Reader(head)
    message_id, queue = reader.start()
    first_sequence, published_at = reader.unpack(DELIVERED)
    acquired, failed = _attempts(_by_index(reader.json_block(), "acquired") or {})
    at = reader.lone_row(size)
    return DeliverMany(message_id, queue, first_sequence, published_at, _NO_ROW, acquired, failed), at


def parse_stage(body: bytes) -> StageFrame:
    reader = _Reader(body)
    message_id, queue = reader.start()
    about = reader.small_json()
    if not isinstance(about, dict):
        raise RemoteProtocolError("the stage of a Stage frame is not an object")
    extras = reader.json_extras()
    return StageFrame(message_id, queue, about, reader.rows(), extras)


def parse_request(body: bytes) -> RequestFrame:
    return _plain_request(body) or _general_request(body)


def _plain_request(body: bytes) -> RequestFrame | None:
    """One without an extra; None: it is another one, or broken."""
    try:
        message_id, queue, at = _names(body)
        timeout_ms, flags, size = _ASKED_PLAINLY.unpack_from(body, at)
    except (struct.error, IndexError):
        return None
    at += _ASKED_PLAINLY.size
    if flags or at + size != len(body) or not message_id:
        return None
    return RequestFrame(message_id, queue, timeout_ms, body[at:], None)


def _general_request(body: bytes) -> RequestFrame:
    reader = _Reader(body)
    message_id, queue = reader.start()
    timeout_ms, flags = reader.number(U32), reader.raw(1)[0]
    extra = reader.small_json() if flags & _JSON_FLAG else None
    if extra is not None and not isinstance(extra, dict):
        raise RemoteProtocolError("the extra of a Request is not an object")
    return RequestFrame(message_id, queue, timeout_ms, reader.row(), extra)


def parse_response(body: bytes) -> ResponseFrame:
    return _plain_response(body) or _general_response(body)


def _plain_response(body: bytes) -> ResponseFrame | None:
    """One that ends with its row; None: it is another one, or broken."""
    try:
        message_id, _, at = _names(body)
        start = at + 2
        end = start + (body[at] << 8 | body[at + 1])
        (size,) = U32.unpack_from(body, end)
    except (struct.error, IndexError):
        return None
    if end + 4 + size != len(body) or not message_id:
        return None
    return ResponseFrame(message_id, body[start:end].decode(errors="replace"), body[end + 4 :])


def _general_response(body: bytes) -> ResponseFrame:
    reader = _Reader(body)
    message_id, _ = reader.start()
    return ResponseFrame(message_id, reader.text(), reader.row())


def _names(body: bytes) -> tuple[str, str, int]:
    """id, queue, and where they end. Raises IndexError when the body ends before, or the id has to be looked at."""
    id_end = 4 + (body[2] << 8 | body[3])
    if id_end > _PLAIN_ID_BYTES:
        raise IndexError("a long id")
    at = id_end + 2
    end = at + (body[id_end] << 8 | body[id_end + 1])
    return body[4:id_end].decode(errors="replace"), body[at:end].decode(errors="replace"), end


def _plain_ack(body: bytes) -> PublishManyAck | None:
    """One that only says that all is well, as nearly all do; None: it is another one, or broken."""
    try:
        message_id, queue, at = _names(body)
        first_sequence, count, flags = _ACKED_PLAINLY.unpack_from(body, at)
    except (struct.error, IndexError):
        return None
    return None if flags or not message_id else PublishManyAck(message_id, queue, first_sequence, count)


def _lone_delivery(body: bytes) -> DeliverMany | None:
    """One of a single row that nobody had before; None: it is another one, or broken."""
    try:
        message_id, queue, at = _names(body)
        first_sequence, published_at, flags, count, size = _DELIVERED_ALONE.unpack_from(body, at)
    except (struct.error, IndexError):
        return None
    at += _DELIVERED_ALONE.size
    if flags or count != 1 or at + size != len(body) or not message_id:
        return None
    return DeliverMany(message_id, queue, first_sequence, published_at, Rows(1, body[at - 4 : at], body[at:]))


def parse_publish_many_ack(body: bytes) -> PublishManyAck:
    return _plain_ack(body) or _detailed_ack(body)


def _detailed_ack(body: bytes) -> PublishManyAck:
    reader = _Reader(body)
    message_id, queue = reader.start()
    first_sequence, count = reader.unpack(ACKED)
    detail = reader.json_block() or {}
    if not isinstance(detail, dict):
        raise RemoteProtocolError("the detail of a PublishManyAck is not an object")
    refused = _by_index(detail.get("refused"), "refused") or {}
    by_runs = _by_runs(detail.get("refused_runs"), count)
    duplicates = _by_index(detail.get("duplicates"), "duplicates") or {}
    return PublishManyAck(
        message_id,
        queue,
        first_sequence,
        count,
        {index: _code_and_sentence(pair) for index, pair in refused.items()} | by_runs,
        _numbers(duplicates, "duplicates"),
    )


def parse_deliver_many(body: bytes) -> DeliverMany:
    return _lone_delivery(body) or _general_delivery(body)


def _general_delivery(body: bytes) -> DeliverMany:
    reader = _Reader(body)
    message_id, queue = reader.start()
    first_sequence, published_at = reader.unpack(DELIVERED)
    acquired, failed = _attempts(_by_index(reader.json_block(), "acquired") or {})
    return DeliverMany(message_id, queue, first_sequence, published_at, reader.rows(), acquired, failed)


def parse_deliver_scattered(body: bytes) -> DeliverMany:
    reader = _Reader(body)
    message_id, queue = reader.start()
    acquired, failed = _attempts(_by_index(reader.json_block(), "acquired") or {})
    count = reader.number(U32)
    if not count:
        raise RemoteProtocolError("a DeliverScattered has no rows")
    numbers = struct.unpack(f"!{2 * count}Q", reader.raw(16 * count))
    sequences, instants, rows = numbers[:count], numbers[count:], reader.rows(count)
    return DeliverMany(message_id, queue, sequences[0], instants[0], rows, acquired, failed, sequences, instants)


def parse_settle(body: bytes) -> SettleMany:
    return _plain_settlement(body) or _general_settlement(body)


def _plain_settlement(body: bytes) -> SettleMany | None:
    """One of a single run and without a reason; None: it is another one, or broken."""
    try:
        message_id, queue, at = _names(body)
        verb, delay_ms, reason_size, count, first, last = _SETTLED_PLAINLY.unpack_from(body, at)
    except (struct.error, IndexError):
        return None
    if reason_size or count != 1 or first > last or not message_id:
        return None
    return SettleMany(message_id, queue, verb, None if delay_ms < 0 else delay_ms, "", [(first, last)])


def _general_settlement(body: bytes) -> SettleMany:
    reader = _Reader(body)
    message_id, queue = reader.start()
    verb = reader.raw(1)[0]
    delay_ms = reader.number(I64)
    reason = reader.text()
    return SettleMany(message_id, queue, verb, None if delay_ms < 0 else delay_ms, reason, reader.runs())


def parse_extend_many(body: bytes) -> ExtendMany:
    reader = _Reader(body)
    message_id, queue = reader.start()
    timeout = reader.number(I64)
    return ExtendMany(message_id, queue, None if timeout < 0 else timeout, reader.runs())


def parse_flow(body: bytes) -> Flow:
    reader = _Reader(body)
    message_id, queue = reader.start()
    capacity_messages, capacity_bytes, add_credit = reader.unpack(FLOW)
    return Flow(message_id, queue, capacity_messages, capacity_bytes, add_credit)


def parse_subscription_ended(body: bytes) -> SubscriptionEnded:
    reader = _Reader(body)
    message_id, queue = reader.start()
    return SubscriptionEnded(message_id, queue, reader.text(), reader.text())


def _by_index(value: Any, what: str) -> dict[int, Any] | None:
    """JSON object with numbers as keys -> dict by int."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{what} of a frame is not an object")
    try:
        return {int(key): entry for key, entry in value.items()}
    except ValueError:
        raise RemoteProtocolError(f"{what} of a frame has a key that is not a number") from None


def _numbers(values: dict[int, Any], what: str) -> dict[int, int]:
    if not all(type(value) is int for value in values.values()):
        raise RemoteProtocolError(f"{what} of a frame has a value that is not a whole number")
    return values


def _attempts(told: dict[int, Any]) -> tuple[dict[int, int], dict[int, int]]:
    """See `ToldAttempts`: hand-outs, and failed ones."""
    pairs = {sequence: value for sequence, value in told.items() if type(value) is list}
    if not pairs:
        return _numbers(told, "acquired"), {}
    if not all(len(pair) == 2 for pair in pairs.values()):
        raise RemoteProtocolError("acquired of a frame has a list that is not a pair")
    failed = _numbers({sequence: pair[1] for sequence, pair in pairs.items()}, "acquired")
    return _numbers(told | {sequence: pair[0] for sequence, pair in pairs.items()}, "acquired"), failed


def _by_runs(groups: Any, count: int) -> dict[int, tuple[str, str]]:
    """[[code, [first, last, first, last, …]], …] -> a refusal for each index."""
    refused: dict[int, tuple[str, str]] = {}
    try:
        for code, numbers in groups or ():
            for first, last in zip(numbers[::2], numbers[1::2], strict=True):
                if not 0 <= first <= last < count:
                    raise ValueError(f"{first} to {last} are not among {count} rows")
                refused.update(dict.fromkeys(range(first, last + 1), (str(code), "")))
    except (TypeError, ValueError) as error:
        raise RemoteProtocolError(f"refused_runs of a PublishManyAck cannot be read: {error}") from None
    return refused


def _code_and_sentence(pair: Any) -> tuple[str, str]:
    if isinstance(pair, list) and len(pair) == 2:
        return str(pair[0]), str(pair[1])
    raise RemoteProtocolError("a refusal in a PublishManyAck is not a pair of code and sentence")
