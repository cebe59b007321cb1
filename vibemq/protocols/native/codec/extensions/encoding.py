"""Encoders of extension frames; see `bodies`."""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

from vibemq.model.rows import Rows
from vibemq.model.runs import Run, runs_of
from vibemq.protocols.native.codec.extensions.bodies import ACKED, COLUMNS_FLAG, DELIVERED, FLOW, LONE_ROW, ToldAttempts
from vibemq.protocols.native.codec.wire import I64, STR16_MAX, U16, U32, VERSION, CommandType, str16

_COLUMNS_START = struct.Struct("!BI")


def publish_many(
    request_id: str,
    queue: str,
    rows: Rows,
    extras: Mapping[int, Mapping[str, Any]] | None = None,
    columns: bytes | None = None,
) -> bytes:
    """`columns`: the extras by columns, in place of the others."""
    block = _json_block(extras) if columns is None else _COLUMNS_START.pack(COLUMNS_FLAG, len(columns)) + columns
    return b"".join((_start(CommandType.PUBLISH_MANY, request_id, queue), block, *_rows_block(rows)))


def publish_lone(request_id: str, queue: str, row: bytes, extras: Mapping[int, Mapping[str, Any]] | None) -> bytes:
    """A whole PublishMany of one row, as `publish_many`."""
    start = _start(CommandType.PUBLISH_MANY, request_id, queue)
    return b"".join((start, _json_block(extras), LONE_ROW.pack(1, len(row)), row))


def publish_many_ack(
    request_id: str,
    queue: str,
    first_sequence: int,
    count: int,
    refused: Mapping[int, tuple[str, str]] | None = None,
    duplicates: Mapping[int, int] | None = None,
    *,
    by_runs: bool = False,
) -> bytes:
    """`by_runs` names refused rows by code and runs, without sentences: smaller than the frame they came in."""
    told: Any = refused
    if by_runs and refused:
        by_code: dict[str, list[int]] = {}
        for index, (code, _) in refused.items():
            by_code.setdefault(code, []).append(index)
        told = [[code, [number for run in runs_of(sorted(which)) for number in run]] for code, which in by_code.items()]
    parts = (("refused_runs" if by_runs else "refused", told), ("duplicates", duplicates))
    detail = {name: part for name, part in parts if part}
    start = _start(CommandType.PUBLISH_MANY_ACK, request_id, queue)
    return start + ACKED.pack(first_sequence, count) + _json_block(detail)


def deliver_one(
    subscription: str, queue: str, first_sequence: int, published_at: int, row_size: int, attempts: ToldAttempts
) -> bytes:
    """A DeliverMany of one row, without the row itself, which follows."""
    start = _start_again(CommandType.DELIVER_MANY, subscription, queue)
    told = DELIVERED.pack(first_sequence, published_at) + _json_block(attempts)
    return start + told + LONE_ROW.pack(1, row_size)


def publish_one(request_id: str, queue: str, row_size: int, extras: Mapping[int, Mapping[str, Any]] | None) -> bytes:
    """A PublishMany of one row, without the row itself, which follows."""
    start = _start(CommandType.PUBLISH_MANY, request_id, queue)
    return start + _json_block(extras) + LONE_ROW.pack(1, row_size)


def deliver_many(
    subscription: str,
    queue: str,
    first_sequence: int,
    published_at: int,
    rows: Rows,
    attempts: ToldAttempts | None = None,
) -> bytes:
    start = _start_again(CommandType.DELIVER_MANY, subscription, queue)
    return b"".join((start, DELIVERED.pack(first_sequence, published_at), _json_block(attempts), *_rows_block(rows)))


def deliver_scattered(
    subscription: str,
    queue: str,
    sequences: Sequence[int],
    instants: Sequence[int],
    rows: Rows,
    attempts: ToldAttempts | None = None,
) -> bytes:
    """`instants`: when they were published."""
    start = _start_again(CommandType.DELIVER_SCATTERED, subscription, queue)
    places = struct.pack(f"!I{2 * rows.count}Q", rows.count, *sequences, *instants)
    return b"".join((start, _json_block(attempts), places, rows.lengths, rows.data))


def settle(
    subscription: str,
    verb: int,
    runs: Sequence[Run],
    *,
    delay_ms: int | None = None,
    reason: str = "",
    queue: str = "",
) -> bytes:
    start = _start_again(CommandType.SETTLE, subscription, queue)
    delay = I64.pack(-1 if delay_ms is None else delay_ms)
    return b"".join((start, bytes((verb,)), delay, str16(reason) if reason else b"\0\0", _runs_block(runs)))


def extend_many(subscription: str, runs: Sequence[Run], *, ack_timeout_ms: int | None = None, queue: str = "") -> bytes:
    start = _start(CommandType.EXTEND_MANY, subscription, queue)
    return start + I64.pack(-1 if ack_timeout_ms is None else ack_timeout_ms) + _runs_block(runs)


def flow(
    subscription: str, capacity_messages: int, capacity_bytes: int = 0, add_credit: int = 0, *, queue: str = ""
) -> bytes:
    return _start(CommandType.FLOW, subscription, queue) + FLOW.pack(capacity_messages, capacity_bytes, add_credit)


def subscription_ended(subscription: str, queue: str, code: str, message: str) -> bytes:
    return _start(CommandType.SUBSCRIPTION_ENDED, subscription, queue) + str16(code) + str16(message)


def request(request_id: str, queue: str, row: bytes, timeout_ms: int, extra: Mapping[str, Any] | None = None) -> bytes:
    start = _start(CommandType.REQUEST, request_id, queue)
    return b"".join((start, U32.pack(timeout_ms), _json_block(extra), U32.pack(len(row)), row))


def give_up(request_id: str) -> bytes:
    return request(request_id, "", b"", 0)


def response(message_id: str, address: str, row: bytes) -> bytes:
    return b"".join((_start(CommandType.RESPONSE, message_id, ""), str16(address), U32.pack(len(row)), row))


def stage(
    request_id: str,
    queue: str,
    about: Mapping[str, Any],
    rows: Rows,
    extras: Mapping[int, Mapping[str, Any]] | None = None,
) -> bytes:
    text = orjson.dumps(about)
    start = _start(CommandType.STAGE, request_id, queue)
    return b"".join((start, U32.pack(len(text)), text, _json_block(extras), *_rows_block(rows)))


def _start(kind: CommandType, message_id: str, queue: str) -> bytes:
    raw_id, name = message_id.encode(errors="replace"), queue.encode(errors="replace")
    if len(raw_id) > STR16_MAX or len(name) > STR16_MAX:
        str16(raw_id if len(raw_id) > STR16_MAX else name)  # It refuses either.
    return b"%c%c%b%b%b%b" % (VERSION, kind, U16.pack(len(raw_id)), raw_id, U16.pack(len(name)), name)


_start_again = lru_cache(maxsize=1024)(_start)
"""Of frames whose id is that of a subscription, and the same again and again."""


def _json_block(value: Mapping[Any, Any] | None) -> bytes:
    """The flags byte, and the block when there is something in it."""
    if not value:
        return b"\0"
    text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    return b"\x01" + U32.pack(len(text)) + text


def _rows_block(rows: Rows) -> tuple[bytes, bytes, bytes]:
    return U32.pack(rows.count), rows.lengths, rows.data


def _runs_block(runs: Sequence[Run]) -> bytes:
    return U32.pack(len(runs)) + struct.pack(f"!{2 * len(runs)}Q", *chain.from_iterable(runs))
