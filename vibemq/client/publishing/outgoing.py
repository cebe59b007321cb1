"""What a publisher hands over, turned into rows. Pure, but for the random prefix of the ids."""

import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

from vibemq.client import payload as payloads
from vibemq.errors import LocalProtocolError, MessageTooLarge
from vibemq.model.arguments import NOT_SENDABLE, SECONDS_OR_TIMEDELTA, misfit, utf16_units
from vibemq.model.options import PRIORITY_MAX, Priority, enum_of
from vibemq.model.quantities import whole_ms
from vibemq.model.rows import HEADER_VALUE_UNITS_MAX, HEADERS_MAX

Seconds = float | timedelta
PriorityLike = int | str | Priority
Extra = dict[str, int | str]
"""One message's part of a frame's `extras`."""

ROW_BYTES_MAX: Final = 1_048_576 - 4_096
"""An ordinary frame has 1 MiB; the rest is for the names and the extras around a single row. More has to be agreed."""
DEDUP_ID_BYTES_MAX: Final = 256

_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
pack_size: Final = _U32.pack
_NO_HEADERS = b"\0\0"
_ID_SIZE = 32
_FIRST_NUMBER = 16**11
"""The first of 12 hex digits: numbers need no padding."""
SECONDS_MAX: Final = 9_000_000_000_000
"""The largest time that a message can carry, in seconds."""


@dataclass(slots=True)
class Outgoing:
    """One message for `publish_many` with more than a body. Times in seconds."""

    body: Any
    id: str | None = None
    headers: Mapping[str, str] | None = None
    priority: PriorityLike | None = None
    ttl: Seconds | None = None
    delay: Seconds | None = None
    deliver_at: datetime | float | None = None
    """A moment (aware datetime, or epoch seconds) before which nobody receives it."""
    dedup_id: str | None = None


class RowPacker:
    """Packs rows with ids of its own making: 20 random hex digits that stay, then 12 that count."""

    __slots__ = ("_dedup_prefix", "_largest", "_of_priority", "_prefix", "head", "numbers")

    def __init__(self, largest: Callable[[], int] | None = None) -> None:
        """`largest`: the size of the largest row that the connection carries; asked for rows above `ROW_BYTES_MAX`.
        None: for requests and replies, which fit into an ordinary frame."""
        self._largest = largest
        self._prefix = secrets.token_hex(10)
        self.head = _U16.pack(_ID_SIZE) + self._prefix.encode()
        """How every row with an id of ours begins."""
        self._dedup_prefix = secrets.token_urlsafe(9)
        self.numbers = count(_FIRST_NUMBER)
        """Of ids and dedup ids; 12 hex digits each."""
        self._of_priority: dict[int, Callable[[object], bytes]] = {}
        """What packs bodies that come with a priority and no headers."""

    def new_id(self) -> str:
        return f"{self._prefix}{next(self.numbers):x}"

    def new_dedup_id(self) -> str:
        """Shorter than an id: the broker remembers it for the whole dedup window."""
        return f"{self._dedup_prefix}{next(self.numbers) - _FIRST_NUMBER:x}"

    def row(self, message: Outgoing) -> bytes:
        """
        Raises:
            LocalProtocolError: the body has no JSON form, or an id or header breaks the protocol's limits.
            MessageTooLarge: the row would not fit into a frame.
        """
        if message.headers is None and message.id is None:
            return self._packing_of(message.priority)(message.body)
        headers = message.headers or {}
        raw, json = payloads.encode(message.body) if payloads.CONTENT_TYPE not in headers else _labelled(message.body)
        if not json or message.priority is not None:
            headers = _completed(headers, message, json=json)
        block = header_block(headers) if headers else _NO_HEADERS
        if message.id is None:
            row = b"%b%x%b%b%b" % (self.head, next(self.numbers), pack_size(len(raw)), raw, block)
        else:
            row = _pack(message.id, raw, block)
        if len(row) > ROW_BYTES_MAX:
            self.check_size(len(row))
        return row

    def _packing_of(self, priority: PriorityLike | None) -> Callable[[object], bytes]:
        if priority is None:
            return self.plain_row
        number = priority_number(priority)
        packing = self._of_priority.get(number)
        if packing is None:
            packing = self._of_priority[number] = self.packing(Outgoing(None, priority=number))
        return packing

    def packing(self, common: Outgoing | None) -> Callable[[object], bytes]:
        """What packs bodies, each with what `common` has beside its own body. It raises as `row`."""
        if common is None or (common.headers is None and common.priority is None):
            return self.plain_row
        headers = {**common.headers} if common.headers else {}
        encode = payloads.encode if payloads.CONTENT_TYPE not in headers else _labelled
        blocks: dict[bool, bytes] = {}

        def row(body: object) -> bytes:
            raw, json = encode(body)
            block = blocks.get(json)
            if block is None:
                block = blocks[json] = header_block(_completed(headers, common, json=json))
            packed = b"%b%x%b%b%b" % (self.head, next(self.numbers), pack_size(len(raw)), raw, block)
            if len(packed) > ROW_BYTES_MAX:
                self.check_size(len(packed))
            return packed

        return row

    def plain_row(self, body: object) -> bytes:
        """The same for a body alone, in one formatting step: half the time of `row`."""
        if type(body) is bytes and body and body[0] not in payloads.JSON_STARTS:
            raw, headers = body, BINARY_HEADERS
        else:
            raw, json = payloads.encode(body)
            headers = _NO_HEADERS if json else BINARY_HEADERS
        row = b"%b%x%b%b%b" % (self.head, next(self.numbers), pack_size(len(raw)), raw, headers)
        if len(row) > ROW_BYTES_MAX:
            self.check_size(len(row))
        return row

    def check_size(self, size: int) -> None:
        if self._largest is None:
            raise MessageTooLarge(
                f"a request or reply of {size:,} bytes does not fit; with id and headers it has at most"
                f" {ROW_BYTES_MAX:,} bytes, whatever was agreed for messages: publish what is larger to a queue"
            )
        most = max(ROW_BYTES_MAX, self._largest())
        if size > most:
            raise too_large(size, most)


def _completed(headers: Mapping[str, str], message: Outgoing, *, json: bool) -> dict[str, str]:
    """With those that the protocol wants."""
    completed = {**headers}
    if not json:
        completed[payloads.CONTENT_TYPE] = payloads.BINARY
    if message.priority is not None:
        completed.setdefault("priority", str(priority_number(message.priority)))
    return completed


def extra_of(message: Outgoing) -> Extra | None:
    """The message's part of the frame's `extras`; None when it has none.

    Raises:
        InvalidOptions: an unknown priority.
        LocalProtocolError: a negative time, a TTL of 0, or both `delay` and `deliver_at`.
    """
    extra: Extra = {}
    if message.priority is not None:
        extra["priority"] = priority_number(message.priority)
    if message.ttl is not None:
        extra["ttl_ms"] = _ttl_ms(message.ttl)
    if message.delay is not None:
        if message.deliver_at is not None:
            raise LocalProtocolError("a message has either a delay or a deliver_at, not both")
        extra["delay_ms"] = milliseconds(message.delay, "delay")
    if message.deliver_at is not None:
        extra["deliver_at"] = _epoch_ms(message.deliver_at)
    if message.dedup_id is not None:
        extra["dedup_id"] = _checked_dedup_id(message.dedup_id)
    return extra or None


def _ttl_ms(value: Seconds) -> int:
    seconds = value if type(value) is float or type(value) is int else _seconds(value, "ttl")
    if not seconds > 0:
        raise LocalProtocolError(f"ttl is {seconds} s; it must be more than 0, or left out for no limit")
    return milliseconds(seconds, "ttl")


def milliseconds(value: Seconds, name: str, *, zero: str = "") -> int:
    """A duration for the wire, see `whole_ms`.

    Args:
        zero: what 0 means, for the sentence of an error.

    Raises:
        LocalProtocolError: a negative time, one that is no number (NaN), or one above `SECONDS_MAX`.
    """
    seconds = value if type(value) is float or type(value) is int else _seconds(value, name)
    if 0 < seconds <= SECONDS_MAX:
        return round(seconds * 1000) or 1  # As `whole_ms`.
    if not seconds >= 0:
        raise LocalProtocolError(f"{name} is {seconds} s; it must be 0{f' ({zero})' if zero else ''} or more")
    return whole_ms(_bounded(seconds, name) * 1000)


def _seconds(value: Seconds, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise misfit(name, value, SECONDS_OR_TIMEDELTA)
    return value


def _bounded(seconds: float, name: str) -> float:
    if not abs(seconds) <= SECONDS_MAX:
        raise LocalProtocolError(f"{name} is {seconds} s; it must be at most {SECONDS_MAX:,} s")
    return seconds


def priority_number(value: PriorityLike) -> int:
    if isinstance(value, int) and 0 <= value <= PRIORITY_MAX and value is not True and value is not False:
        return int(value)
    return int(enum_of(Priority, value, "priority", besides=f"a number from 0 to {PRIORITY_MAX}"))


def header_block(headers: Mapping[str, str]) -> bytes:
    """
    Raises:
        LocalProtocolError: what the protocol cannot carry, with the limit.
    """
    if len(headers) > HEADERS_MAX:
        raise LocalProtocolError(f"a message has at most {HEADERS_MAX} headers, not {len(headers)}")
    parts = [_U16.pack(len(headers))]
    for key, value in headers.items():
        if not isinstance(key, str) or not isinstance(value, str) or not key or not value:
            raise LocalProtocolError(f"headers are pairs of texts that are not empty, unlike {key!r}: {value!r}")
        name, raw = key.encode(), value.encode()
        # Text has no more UTF-16 units than bytes.
        if len(raw) > HEADER_VALUE_UNITS_MAX and utf16_units(value) > HEADER_VALUE_UNITS_MAX:
            raise LocalProtocolError(f"header {key!r} is longer than {HEADER_VALUE_UNITS_MAX} UTF-16 units")
        if len(name) > 0xFFFF:
            raise LocalProtocolError(f"a header key has at most 65,535 bytes, not {len(name)}")
        parts += (_U16.pack(len(name)), name, _U16.pack(len(raw)), raw)
    return b"".join(parts)


def _pack(message_id: str, payload: bytes, headers: bytes) -> bytes:
    raw_id = message_id.encode()
    id_size = len(raw_id)
    if not 0 < id_size <= 0xFFFF:
        raise LocalProtocolError(f"a message id has 1 to 65,535 bytes, not {id_size}")
    return b"".join((_U16.pack(id_size), raw_id, pack_size(len(payload)), payload, headers))


def too_large(size: int, most: int) -> MessageTooLarge:
    """`size` and `most`: bytes with id and headers."""
    return MessageTooLarge(
        f"a message of {size:,} bytes does not fit; {most:,} bytes in all were agreed with the broker, see its setting"
        " limits.message_bytes_max and max_message_bytes of this client"
    )


def _labelled(body: object) -> tuple[bytes, bool]:
    """Payload of a message whose content type its publisher names: no need to look whether bytes are JSON."""
    if isinstance(body, str):
        try:
            return body.encode(), True
        except UnicodeEncodeError:
            raise misfit("body", body, NOT_SENDABLE) from None
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), True
    return payloads.encode(body)


def _checked_dedup_id(text: str) -> str:
    if not text or not text.isprintable() or encoded_size(text) > DEDUP_ID_BYTES_MAX:
        raise LocalProtocolError(f"a dedup_id has 1 to {DEDUP_ID_BYTES_MAX} printable bytes, unlike {text[:64]!r}")
    return text


def encoded_size(text: str) -> int:
    """Bytes of it in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _epoch_ms(moment: datetime | float) -> int:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise LocalProtocolError("deliver_at needs a datetime with a time zone; use datetime.now(UTC) + …")
        at = round(moment.timestamp() * 1000)
    else:
        at = round(_bounded(moment, "deliver_at") * 1000)
    if at < 0:
        raise LocalProtocolError(f"deliver_at is {moment}, an instant before 1970; give one from then on")
    return at


BINARY_HEADERS: Final = header_block({payloads.CONTENT_TYPE: payloads.BINARY})
"""Of a body in bytes that is no JSON."""
