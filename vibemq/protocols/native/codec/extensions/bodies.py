"""Bodies of the extension frames 60 to 65, 67 to 69, 73 and 74, both ways. 66, 70 and 71 have a plain body: see `wire`;
72 is columns: see `columns`.

Each starts as every body does: version u8, type u8, id str16, queue str16. A *run* is two u64, first and last
sequence, both inclusive. JSON blocks are a u32 size and the text; extras by columns (`extra_columns`) a u32 size and
the columns.

    60 PublishMany        flags u8 (1 = extras, 2 = extras by columns), [extras], count u32, count x u32 row length,
                          rows
    61 PublishManyAck     first_sequence u64, count u32, flags u8 (1 = detail), [detail]
    62 DeliverMany        first_sequence u64, published_at u64, flags u8 (1 = acquired), [acquired],
                          count u32, count x u32 row length, rows
    63 Settle             verb u8, delay_ms i64 (-1 = backoff), reason str16, count u32, runs
    64 ExtendMany         ack_timeout_ms i64 (-1 = the subscription's), count u32, runs
    65 Flow               capacity_messages u32, capacity_bytes u64, add_credit u32
    67 SubscriptionEnded  code str16, message str16
    68 Request            timeout_ms u32, flags u8 (1 = extra), [extra], row u32 length and bytes
    69 Response           address str16, row u32 length and bytes
    73 Stage              stage u32 and JSON, flags u8 (1 = extras), [extras], count u32, count x u32 row length, rows
    74 DeliverScattered   flags u8 (1 = acquired), [acquired], count u32, count x u64 sequence,
                          count x u64 published_at, count x u32 row length, rows

Source: docs/spec/native.md, "Extensions". Decoders raise RemoteProtocolError for anything cut short, of the wrong
JSON type or inconsistent; encoders raise LocalProtocolError for what does not fit.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.protocols.native.codec.extra_columns import EXTRAS_EXTENSION, WireColumns

SETTLE_EXTENSION = "settle/1"
BATCH_EXTENSION = "batch/1"
ADMIN_EXTENSION = "admin/1"
CURSOR_EXTENSION = "cursor/1"
FAILURES_EXTENSION = "failures/1"
REQUEST_EXTENSION = "request/1"
SCATTERED_EXTENSION = "scattered/1"
WHERE_EXTENSION = "where/1"
EXTENSIONS = (
    SETTLE_EXTENSION,
    BATCH_EXTENSION,
    ADMIN_EXTENSION,
    CURSOR_EXTENSION,
    FAILURES_EXTENSION,
    REQUEST_EXTENSION,
    EXTRAS_EXTENSION,
    SCATTERED_EXTENSION,
    WHERE_EXTENSION,
)

ToldAttempts = Mapping[int, int | tuple[int, int]]
"""Sequence -> hand-outs so far, or those and the failed ones among them (`failures/1`)."""

DELIVERED = struct.Struct("!QQ")
ACKED = struct.Struct("!QI")
FLOW = struct.Struct("!IQI")
LONE_ROW = struct.Struct("!II")
COLUMNS_FLAG = 2


@dataclass(slots=True)
class PublishMany:
    id: str
    queue: str
    rows: Rows
    """The lengths add up; what is inside the rows is unchecked (see `row_check.check_rows`)."""
    extras: "dict[int, dict[str, Any]] | WireColumns | None" = None
    """Index -> priority, ttl_ms, delay_ms, deliver_at, dedup_id, each optional; or the same by columns."""


@dataclass(slots=True)
class PublishManyAck:
    id: str
    queue: str
    first_sequence: int
    count: int
    refused: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Index -> (code, sentence)."""
    duplicates: dict[int, int] = field(default_factory=dict)
    """Index -> sequence of the message that is already there."""


@dataclass(slots=True)
class DeliverMany:
    id: str
    """The subscription's id."""
    queue: str
    first_sequence: int
    published_at: int
    rows: Rows
    acquired: dict[int, int] = field(default_factory=dict)
    """Sequence -> hand-outs so far, for those above 1."""
    failed: dict[int, int] = field(default_factory=dict)
    """Sequence -> failed attempts, for those that have any; empty without `failures/1`."""
    sequences: Sequence[int] = ()
    """Of a DeliverScattered, in the order of its rows; the first one is `first_sequence`."""
    instants: Sequence[int] = ()
    """Of a DeliverScattered, when its rows were published."""


@dataclass(slots=True)
class SettleMany:
    id: str
    queue: str
    verb: int
    """As `vibemq.model.commands.Settlement`."""
    delay_ms: int | None
    reason: str
    runs: Sequence[Run]


@dataclass(slots=True)
class ExtendMany:
    id: str
    queue: str
    ack_timeout_ms: int | None
    runs: Sequence[Run]


@dataclass(slots=True)
class Flow:
    id: str
    queue: str
    capacity_messages: int
    capacity_bytes: int
    add_credit: int


@dataclass(slots=True)
class StageFrame:
    id: str
    queue: str
    stage: dict[str, Any]
    """app, version, stage, chunk; unchecked."""
    rows: Rows
    extras: dict[int, dict[str, Any]] | WireColumns | None = None


@dataclass(slots=True)
class SubscriptionEnded:
    id: str
    queue: str
    code: str
    message: str


@dataclass(slots=True)
class RequestFrame:
    id: str
    queue: str
    timeout_ms: int
    row: bytes
    """Unchecked."""
    extra: dict[str, Any] | None = None
    """priority; unchecked."""


@dataclass(slots=True)
class ResponseFrame:
    id: str
    """To the broker, of the frame; from it, of the Request."""
    address: str
    """From the message's header `reply-to`; empty from the broker."""
    row: bytes
    """Unchecked."""
