"""Publish messages into a queue: one whose bytes are the body of the request, or many."""

import asyncio
from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from vibemq.errors import ErrorCode, InvalidPayload, ShuttingDown, VibeMQError
from vibemq.model import commands
from vibemq.model.effects import Published
from vibemq.model.rows import RowView
from vibemq.web.api.answers import json_answer
from vibemq.web.api.contract import BYTES, JSON, NDJSON, Endpoint, Exchange, Parameter
from vibemq.web.api.endpoints.shapes import ANYTHING, NULLABLE_TEXT, TEXT, WHOLE, listed, record
from vibemq.web.api.errors import Problem, as_problem
from vibemq.web.api.guardrails.deadlines import in_time
from vibemq.web.api.guardrails.json_shapes import LISTS_BYTES_MAX
from vibemq.web.api.kinds import Kind
from vibemq.web.api.messages.leases import key_of
from vibemq.web.api.messages.publishing import (
    MessageMaker,
    NewMessage,
    NewMessages,
    RefusedMessage,
    dedup_id_of,
    read_batch,
    read_lines,
    strict_json,
)

BATCH_BYTES_MAX = 8_388_608
TURN_S = 0.002
"""Lines are read for so long before the loop has its turn."""
PASSING = frozenset((ErrorCode.QUEUE_FULL, ErrorCode.STORAGE_FULL, ErrorCode.BLOCKED, ErrorCode.RATE_LIMITED))
"""Refusals that another attempt may not meet."""

_NEW = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "payload": {"type": "string", "description": "The body, where it is text."},
        "payload_base64": {"type": "string", "description": "The body, where it is not."},
        "id": TEXT,
        "headers": {"type": "object", "additionalProperties": TEXT},
        "content_type": TEXT,
        "priority": {"type": ["integer", "string"], "description": "low, normal, high, critical, or 0 to 31."},
        "ttl_ms": WHOLE,
        "delay_ms": WHOLE,
        "deliver_at": {"type": ["integer", "string"]},
        "dedup_id": TEXT,
    },
}
_PUBLISHED = record(
    {"queue": TEXT, "warnings": listed(TEXT)},
    {"sequence": WHOLE, "id": NULLABLE_TEXT, "duplicate": {"type": "boolean"}, "confirmed": WHOLE}
    | {"first_sequence": {"type": ["integer", "null"]}, "duplicates": listed(ANYTHING), "refused": listed(ANYTHING)},
)


async def publish(exchange: Exchange) -> Response:
    headers = exchange.request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    state, queue = exchange.state, exchange.path["queue"]
    peer = state.door.peers.of(exchange.user.principal, exchange.user.host)
    key = headers.get("idempotency-key", "")
    maker = MessageMaker(
        now=exchange.services.now(),
        size_max=exchange.services.messages.body_bytes_max,
        key=key,
        key_id=dedup_id_of(key_of(exchange.user.principal), key),
        new_id=peer.session.new_id,
    )
    try:
        if kind in (JSON, NDJSON):
            batch = await _read_many(exchange, maker, kind)
            return await _published_many(exchange, batch)
        _only_for_lines(exchange)
        message = maker.from_request(exchange.request.headers.raw, exchange.body)
        return await _published_one(exchange, queue, message)
    except VibeMQError as error:
        # Of what was interrupted the queue knows whether it was published, and answers the same key.
        interrupted = isinstance(error, ShuttingDown) and bool(_dedup_window_ms(exchange))
        exchange.passing = interrupted or error.code in PASSING
        raise


async def _published_one(exchange: Exchange, queue: str, message: NewMessage) -> Response:
    batch = NewMessages()
    batch.add(lambda index: message, 0)
    published = await _ask_to_publish(exchange, batch)
    if published.refused:
        raise published.refused[0]
    duplicate = (published.duplicates or {}).get(0)
    if duplicate is not None:
        exchange.headers["Idempotent-Replayed"] = "true"
    shown = {
        "queue": published.queue,
        "sequence": published.first_sequence if duplicate is None else duplicate,
        # That of the message which was published before is not known, and may be another one than this request has.
        "id": RowView(message.row).message_id if duplicate is None else None,
        "duplicate": duplicate is not None,
        "warnings": _warnings(exchange, batch),
    }
    return json_answer(shown, exchange)


async def _read_many(exchange: Exchange, maker: MessageMaker, kind: str) -> NewMessages:
    batch, body = NewMessages(), exchange.body
    given = [name for name in exchange.request.headers if name.startswith("vibemq-")]
    if given:
        raise InvalidPayload(f"the header {given[0][:40]} is for one message alone; say it in each message", given[0])
    if kind == JSON:
        _only_for_lines(exchange)
        if len(body) > LISTS_BYTES_MAX:
            raise Problem(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{len(body):,} bytes of JSON; {LISTS_BYTES_MAX:,} are the most. Send them as lines: {NDJSON}",
            )
        steps = read_batch(maker, strict_json(body), batch)
    else:
        steps = read_lines(maker, body, batch, bodies=exchange.query.get("lines") == "bodies")
    await _in_turns(steps)
    return batch


def _only_for_lines(exchange: Exchange) -> None:
    if "lines" in exchange.query:
        raise InvalidPayload(f"lines is for bodies of the type {NDJSON}", "lines")


async def _in_turns(steps: Iterator[None]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + TURN_S
    for _ in steps:
        if loop.time() >= end:
            await asyncio.sleep(0)
            end = loop.time() + TURN_S


async def _published_many(exchange: Exchange, batch: NewMessages) -> Response:
    published = await _ask_to_publish(exchange, batch) if batch.rows else None
    refused = batch.all_refused(published)
    passes = any(one.error.code in PASSING for one in refused)
    if len(refused) == batch.count:
        exchange.passing = passes
        first = as_problem(refused[0].error)
        told = str(refused[0].error)
        raise Problem(
            first.code,
            told if batch.count == 1 else f"none of the {batch.count:,} messages was accepted; the first: {told}",
            headers=first.headers,
            refused=[_refused_json(one) for one in refused],
        )
    assert published is not None, "something was accepted"
    # What was confirmed is not taken again with the same key: the queue knows it, or the kept answer does.
    exchange.passing = passes and bool(_dedup_window_ms(exchange))
    duplicates = published.duplicates or {}
    confirmed = batch.count - len(refused)
    if len(duplicates) == batch.count:
        exchange.headers["Idempotent-Replayed"] = "true"
    shown = {
        "queue": published.queue,
        "confirmed": confirmed,
        "first_sequence": published.first_sequence or None,
        "duplicates": [
            {"index": batch.places[row][0], "sequence": sequence} for row, sequence in sorted(duplicates.items())
        ],
        "refused": [_refused_json(one) for one in refused],
        "warnings": _warnings(exchange, batch),
    }
    return json_answer(shown, exchange)


def _refused_json(refused: RefusedMessage) -> dict[str, Any]:
    error = refused.error
    told: dict[str, Any] = {"index": refused.number, "code": error.code, "detail": str(error)}
    return told | ({"line": refused.line} if refused.line else {})


async def _ask_to_publish(exchange: Exchange, batch: NewMessages) -> Published:
    peer = exchange.state.door.peers.of(exchange.user.principal, exchange.user.host)
    # It may wait for long, and the rows have all of it.
    exchange.body = None
    async with in_time(exchange.request, exchange.timeout_s):
        return await peer.publish(exchange.path["queue"], batch.packed(), batch.extras or None)


def _warnings(exchange: Exchange, batch: NewMessages) -> list[str]:
    if not any(extra.dedup_id for extra in batch.extras.values()) or _dedup_window_ms(exchange) != 0:
        return []
    return [
        f"queue {exchange.path['queue']!r} has no dedup window, so the same message is stored again when it is "
        "sent after an hour or after a restart of the broker; set its option dedup_window_ms"
    ]


def _dedup_window_ms(exchange: Exchange) -> int | None:
    """None: the queue has gone meanwhile."""
    try:
        return exchange.services.messages.options(exchange.path["queue"]).dedup_window_ms
    except VibeMQError:
        return None


def _header(name: str, description: str) -> Parameter:
    return Parameter(name, {"type": "string"}, description)


PUBLISH = Endpoint(
    method="POST",
    path="/queues/{queue}/messages",
    summary=(
        "Publish one message, whose bytes are the body, or up to 1,000 as JSON or lines. Answered when the "
        "queue's promise holds."
    ),
    command=commands.Publish,
    kind=Kind.MESSAGES,
    consumes=(BYTES, JSON, NDJSON),
    raw=True,
    body_bytes_max=BATCH_BYTES_MAX,
    body={
        "type": "object",
        "properties": {"messages": {"type": "array", "minItems": 1, "maxItems": 1_000, "items": _NEW}},
    },
    query=(
        Parameter(
            "lines",
            {"type": "string", "enum": ["messages", "bodies"]},
            "Of lines: each is a message as an object (messages), or the body itself (bodies).",
        ),
    ),
    headers=(
        _header("VibeMQ-Message-Id", "Id of the message; left out: a new one."),
        _header("VibeMQ-Content-Type", "Its header content-type."),
        _header("VibeMQ-Priority", "low, normal, high, critical, or 0 to 31."),
        _header("VibeMQ-TTL-Ms", "After so long it expires."),
        _header("VibeMQ-Delay-Ms", "It is handed out so much later."),
        _header("VibeMQ-Deliver-At", "In place of the delay: an instant."),
        _header("VibeMQ-Dedup-Id", "What has this id in the queue's dedup window already is not taken again."),
        _header("VibeMQ-Headers", "Headers of the message, as a JSON object; or one by one as VibeMQ-Header-NAME."),
    ),
    handler=publish,
    response=_PUBLISHED,
    errors=(
        ErrorCode.INVALID_QUEUE,
        ErrorCode.QUEUE_NOT_FOUND,
        ErrorCode.QUEUE_FULL,
        ErrorCode.STORAGE_FULL,
        ErrorCode.CONNECTION_LIMIT,
    ),
    idempotent=True,
)
