"""Messages: publish them, look at them, fetch and settle them."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from vibemq.auth.matrix import SUBSCRIBE
from vibemq.errors import ErrorCode, InvalidOptions, InvalidPayload, MessageNotFound, NotAuthorized, VibeMQError
from vibemq.model import commands
from vibemq.model.effects import Published
from vibemq.model.rows import RowView
from vibemq.operations.messages import payload_json
from vibemq.operations.reading.instants import with_instants, written
from vibemq.web.api.answers import json_answer
from vibemq.web.api.arguments import checked
from vibemq.web.api.contract import BYTES, JSON, NDJSON, Endpoint, Exchange, Parameter
from vibemq.web.api.endpoints.shapes import ANYTHING, INSTANT, NULLABLE_TEXT, TEXT, WHOLE, listed, record
from vibemq.web.api.errors import MEANINGS, HttpCode, Problem, as_problem
from vibemq.web.api.guardrails.json_shapes import LISTS_BYTES_MAX, LISTS_MARKS_MAX
from vibemq.web.api.kinds import Kind
from vibemq.web.api.messages.leases import Lease
from vibemq.web.api.messages.publishing import (
    MessageMaker,
    NewMessage,
    NewMessages,
    RefusedMessage,
    read_batch,
    read_lines,
    strict_json,
)
from vibemq.web.api.messages.session import FetchedBatch, FetchedMessage
from vibemq.web.api.messages.settling import ACK_TIMEOUT_MS_MAX, SETTLEMENTS_MAX, SettlementOutcome, settle
from vibemq.web.api.streams.stream import until_gone

PEEK_MAX = 100
PEEK = 50
PREVIEW_BYTES_MAX = 4_096
FETCH_MAX = 100
WAIT_MS_MAX = 20_000
ACK_TIMEOUT_MS = 30_000
"""Where the queue itself has none: a script that has died must give back what it holds."""
BATCH_BYTES_MAX = 8_388_608
SETTLEMENTS_BYTES_MAX = 1_048_576
"""Room for 1,000 of them with reasons."""
TURN_S = 0.002
"""Lines are read for so long before the loop has its turn."""
PASSING = frozenset((ErrorCode.QUEUE_FULL, ErrorCode.STORAGE_FULL, ErrorCode.BLOCKED, ErrorCode.RATE_LIMITED))
"""Refusals that another attempt may not meet."""


class FetchBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    max: int = Field(1, ge=1, le=FETCH_MAX, description="Most messages.")
    wait_ms: int = Field(0, ge=0, le=WAIT_MS_MAX, description="How long to wait for the first one.")
    ack_timeout_ms: int | None = Field(
        None,
        ge=1,
        le=ACK_TIMEOUT_MS_MAX,
        description="What is not settled by then is handed out again; left out: the queue's.",
    )
    group: str | None = Field(
        None, min_length=1, max_length=256, description="A durable group; a fan-out queue needs one."
    )


# -- publish ------------------------------------------------------------------------------------------------------


async def publish(exchange: Exchange) -> Response:
    headers = exchange.request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    state, queue = exchange.state, exchange.path["queue"]
    peer = state.door.peers.of(exchange.user.principal, exchange.user.host)
    maker = MessageMaker(
        now=exchange.services.now(),
        size_max=exchange.services.messages.body_bytes_max,
        key=headers.get("idempotency-key", ""),
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
        exchange.passing = error.code in PASSING
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
    exchange.passing = any(one.error.code in PASSING for one in refused)
    if len(refused) == batch.count:
        first = as_problem(refused[0].error)
        raise Problem(
            first.code,
            f"none of the {batch.count:,} messages was accepted; the first: {refused[0].error}",
            headers=first.headers,
            refused=[_refused_json(one) for one in refused],
        )
    assert published is not None, "something was accepted"
    duplicates = published.duplicates or {}
    shown = {
        "queue": published.queue,
        "confirmed": batch.count - len(refused),
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
    return await peer.publish(exchange.path["queue"], batch.packed(), batch.extras or None)


def _warnings(exchange: Exchange, batch: NewMessages) -> list[str]:
    if not any(extra.dedup_id for extra in batch.extras.values()):
        return []
    try:
        options = exchange.services.messages.options(exchange.path["queue"])
    except VibeMQError:
        return []
    if options.dedup_window_ms:
        return []
    return [
        f"queue {exchange.path['queue']!r} has no dedup window, so the same message is taken twice when it is sent "
        "again after a restart of the broker; set its option dedup_window_ms"
    ]


# -- look ---------------------------------------------------------------------------------------------------------


def peeked(exchange: Exchange) -> dict[str, Any]:
    query = exchange.query
    limit = query.get("limit", PEEK)
    return {
        "queue": exchange.path["queue"],
        "state": query.get("state", "ready"),
        "limit": limit,
        **{name: query[name] for name in ("from", "preview_bytes") if name in query},
    }


def removed(exchange: Exchange) -> dict[str, Any]:
    sequence = _sequence(exchange)
    return {"queue": exchange.path["queue"], "runs": [[sequence, sequence]]}


def was_removed(result: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    if not result["count"]:
        raise MessageNotFound(
            f"queue {exchange.path['queue'][:64]!r} has no message {exchange.path['sequence'][:20]} that waits; it was "
            "consumed or removed, is with a consumer, or never existed"
        )
    return {}


def _sequence(exchange: Exchange) -> int:
    text = exchange.path["sequence"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise InvalidPayload(f"{text[:40]!r} is no sequence of a message, which is a number", "sequence")
    return int(text)


async def download(exchange: Exchange) -> Response:
    """The whole body as a file, or a range of it. Whatever a browser takes it for, it is saved and not shown."""
    if exchange.state.hides_bodies(exchange.user.principal):
        raise NotAuthorized("the broker's settings (http.show_bodies) hide what is in messages from you")
    sequence = _sequence(exchange)
    arguments: dict[str, Any] = {"queue": exchange.path["queue"], "sequence": sequence, "length": 0}
    arguments |= {"decode": exchange.query["decode"]} if "decode" in exchange.query else {}
    body = await exchange.services.messages.body(exchange.user, arguments)
    headers = {
        "Content-Disposition": f'attachment; filename="message-{sequence}.bin"',
        "Accept-Ranges": "bytes",
        **exchange.headers,
    }
    wanted = exchange.request.headers.get("range")
    if wanted is None:
        return Response(body, headers=headers, media_type=BYTES)
    start, end = byte_range(wanted, len(body))
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
    return Response(body[start:end], 206, headers=headers, media_type=BYTES)


def byte_range(header: str, size: int) -> tuple[int, int]:
    """(start, end) of the one range that is asked for. Raises Problem (RANGE_NOT_SATISFIABLE)."""
    unit, _, told = header.partition("=")
    first, dash, last = told.strip().partition("-")
    numbers = all(not part or (part.isascii() and part.isdecimal() and len(part) < 20) for part in (first, last))
    if unit.strip().lower() == "bytes" and dash and numbers and (first or last):
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last) + 1 if first and last else size, size)
        if start < end:
            return start, end
    raise Problem(
        HttpCode.RANGE_NOT_SATISFIABLE,
        f"the header Range must be one range of the body's {size:,} bytes, as bytes=0-1023",
        headers={"Content-Range": f"bytes */{size}"},
    )


# -- fetch and settle ---------------------------------------------------------------------------------------------


async def fetch(exchange: Exchange) -> Response:
    wanted = {name: info.default for name, info in FetchBody.model_fields.items()} | checked(FetchBody, exchange.body)
    principal, queue = exchange.user.principal, exchange.path["queue"]
    exchange.services.accounts.policy.authorize(principal, SUBSCRIBE, queue)
    options = exchange.services.messages.options(queue)
    if options.is_fan_out and wanted["group"] is None:
        raise InvalidOptions(
            f"queue {queue[:64]!r} is a fan-out queue, in which each group has every message; name a durable group"
        )
    timeout_ms = wanted["ack_timeout_ms"]
    if timeout_ms is None:
        timeout_ms = min(options.ack_timeout_ms, ACK_TIMEOUT_MS_MAX) or ACK_TIMEOUT_MS
    peer = exchange.state.door.peers.of(principal, exchange.user.host)
    batch = await _fetched(
        exchange.request,
        peer.fetch(
            queue,
            wanted["group"],
            wanted["max"],
            wait_ms=wanted["wait_ms"],
            ack_timeout_ms=timeout_ms,
            now=exchange.services.now(),
        ),
    )
    items: list[orjson.Fragment] = []
    for message in batch.messages:
        # One by one, with turns for the loop between them: bodies are up to a megabyte.
        items.append(orjson.Fragment(orjson.dumps(_delivery(exchange, peer.session.number, batch, message))))
        if len(items) % 10 == 0 or len(message.row) > 65_536:
            await asyncio.sleep(0)
    return json_answer({"items": items}, exchange)


async def _fetched(request: Request, fetching: Coroutine[Any, Any, FetchedBatch]) -> FetchedBatch:
    """What comes for a client that has gone meanwhile goes back unharmed."""
    task = asyncio.ensure_future(fetching)
    gone = asyncio.ensure_future(until_gone(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Problem(HttpCode.REQUEST_TIMEOUT, "the client has gone")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


def _delivery(exchange: Exchange, session: int, batch: FetchedBatch, message: FetchedMessage) -> dict[str, Any]:
    view = RowView(message.row)
    lease = None
    if not batch.settled:
        held = Lease(session, batch.consumer, message.sequence)
        lease = exchange.state.door.seal.seal(held, exchange.user.principal)
    told: dict[str, Any] = {
        "lease": lease,
        "expires_at": None if batch.settled else written(batch.now + batch.ack_timeout_ms),
        "queue": batch.queue,
        "group": batch.group or None,
        "sequence": message.sequence,
        "id": view.message_id,
        "published_at": written(message.published_at),
        "attempts": message.attempts,
        "failed": message.failed,
        "headers": view.headers,
        "payload_size": view.payload_size,
    }
    return told | payload_json(view.payload)


async def settle_many(exchange: Exchange) -> Response:
    items = (exchange.body or {}).get("settlements")
    if not isinstance(items, list) or not 1 <= len(items) <= SETTLEMENTS_MAX or len(exchange.body) > 1:
        raise InvalidPayload(
            f'the body must be {{"settlements": [{{"lease": "…", "verb": "…"}}, …]}}, 1 to {SETTLEMENTS_MAX:,} of them',
            "settlements",
        )
    door = exchange.state.door
    outcomes = await settle(door.peers, door.seal, exchange.user.principal, items)
    results = [_result(outcome) for outcome in outcomes]
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(failed) == len(outcomes):
        problem = failed[0] if isinstance(failed[0], Problem) else as_problem(failed[0])
        text = str(problem) if len(outcomes) == 1 else f"nothing was settled; the first: {problem}"
        raise Problem(problem.code, text, headers=problem.headers, results=results)
    return json_answer({"results": results}, exchange)


def _result(outcome: SettlementOutcome) -> dict[str, Any]:
    if outcome.error is None:
        done: dict[str, Any] = {"done": True}
        return done | (with_instants({"expires_at": outcome.expires_at}) if outcome.expires_at else {})
    problem = outcome.error if isinstance(outcome.error, Problem) else as_problem(outcome.error)
    return {"done": False, "code": problem.code, "status": MEANINGS[problem.code].status, "detail": str(problem)}


# -- rows ---------------------------------------------------------------------------------------------------------

_BODY: Mapping[str, Any] = {"payload": TEXT, "payload_base64": TEXT}
_HEADERS = {"type": "object", "additionalProperties": NULLABLE_TEXT}
MESSAGE = record(
    {"sequence": WHOLE, "id": TEXT, "published_at": INSTANT, "priority": WHOLE, "headers": _HEADERS, "state": TEXT}
    | {"payload_size": WHOLE, "attempts": WHOLE},
    {"expires_at": INSTANT, "deliver_at": INSTANT, "due_at": INSTANT, "holders": listed(ANYTHING)}
    | {"payload": NULLABLE_TEXT, "payload_base64": NULLABLE_TEXT, "offset": WHOLE, "size": WHOLE}
    | {"truncated": {"type": "boolean"}, "sha256": NULLABLE_TEXT, "decoded_size": {"type": ["integer", "null"]}},
)
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
_DELIVERY = record(
    {"lease": NULLABLE_TEXT, "expires_at": INSTANT, "queue": TEXT, "group": NULLABLE_TEXT, "sequence": WHOLE}
    | {"id": TEXT, "published_at": INSTANT, "attempts": WHOLE, "failed": WHOLE, "headers": _HEADERS}
    | {"payload_size": WHOLE},
    dict(_BODY),
)
_RESULT = record(
    {"done": {"type": "boolean"}},
    {"expires_at": INSTANT, "code": TEXT, "status": WHOLE, "detail": TEXT},
)


def _header(name: str, description: str) -> Parameter:
    return Parameter(name, {"type": "string"}, description)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/queues/{queue}/messages",
        summary="Look at messages without taking them: those that are ready, delayed or in flight.",
        operation="queue.peek",
        items="messages",
        limit_max=PEEK_MAX,
        after="from",
        arguments=peeked,
        query=(
            Parameter(
                "state", {"type": "string", "enum": ["ready", "delayed", "in_flight"]}, "Which; left out: ready."
            ),
            Parameter("from", {"type": "integer", "minimum": 0}, "First sequence to look at."),
            Parameter(
                "preview_bytes",
                {"type": "integer", "minimum": 0, "maximum": PREVIEW_BYTES_MAX},
                "Most bytes of each body; left out: 1,024.",
            ),
        ),
        response=MESSAGE,
        errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.STORAGE_DAMAGED),
    ),
    Endpoint(
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
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}/messages/{sequence}",
        summary="One message with a part of its body, as it is or opened (gzip, brotli).",
        operation="message.show",
        response=MESSAGE,
        errors=(
            ErrorCode.QUEUE_NOT_FOUND,
            ErrorCode.MESSAGE_NOT_FOUND,
            ErrorCode.WRONG_INCARNATION,
            ErrorCode.STORAGE_DAMAGED,
        ),
    ),
    Endpoint(
        method="DELETE",
        path="/queues/{queue}/messages/{sequence}",
        summary="Remove one message that waits.",
        operation="queue.remove",
        kind=Kind.CHANGE,
        query=(),
        arguments=removed,
        shape=was_removed,
        response={"type": "object"},
        errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.QUEUE_EXCLUSIVE),
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}/messages/{sequence}/body",
        summary="The whole body of a message as a file, or a range of it.",
        operation="message.show",
        kind=Kind.SCAN,
        query=(Parameter("decode", {"type": "string", "enum": ["gzip", "br"]}, "Open it first."),),
        handler=download,
        produces=BYTES,
        more_statuses=(206,),
        conditional=False,
        errors=(
            ErrorCode.QUEUE_NOT_FOUND,
            ErrorCode.MESSAGE_NOT_FOUND,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.STORAGE_DAMAGED,
            HttpCode.RANGE_NOT_SATISFIABLE,
        ),
    ),
    Endpoint(
        method="POST",
        path="/queues/{queue}/deliveries",
        summary="Fetch messages under leases; wait for them if there are none. None after that time: an empty list.",
        command=commands.Subscribe,
        kind=Kind.WAIT,
        keyless="messages that were fetched come again by themselves when their leases are over",
        body=FetchBody,
        handler=fetch,
        response=record({"items": listed(_DELIVERY)}),
        errors=(
            ErrorCode.INVALID_QUEUE,
            ErrorCode.QUEUE_NOT_FOUND,
            ErrorCode.QUEUE_EXCLUSIVE,
            ErrorCode.CONNECTION_LIMIT,
            HttpCode.REQUEST_TIMEOUT,
        ),
    ),
    Endpoint(
        method="POST",
        path="/deliveries",
        summary="Settle messages by their leases, each with a result of its own; refused when none can be settled.",
        command=commands.Settle,
        kind=Kind.MESSAGES,
        keyless="a lease is settled once, however often it is asked for",
        body={
            "type": "object",
            "required": ["settlements"],
            "additionalProperties": False,
            "properties": {
                "settlements": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": SETTLEMENTS_MAX,
                    "items": {
                        "type": "object",
                        "required": ["lease", "verb"],
                        "additionalProperties": False,
                        "properties": {
                            "lease": TEXT,
                            "verb": {"type": "string", "enum": ["ack", "retry", "release", "reject", "extend"]},
                            "delay_ms": WHOLE,
                            "reason": TEXT,
                            "ack_timeout_ms": WHOLE,
                        },
                    },
                }
            },
        },
        handler=settle_many,
        body_bytes_max=SETTLEMENTS_BYTES_MAX,
        marks_max=LISTS_MARKS_MAX,
        response=record({"results": listed(_RESULT)}),
        errors=(HttpCode.LEASE_GONE, ErrorCode.STORAGE_FULL),
    ),
)
