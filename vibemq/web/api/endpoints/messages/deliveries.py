"""Fetch messages under leases, and settle them by their leases."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from vibemq.auth.matrix import SUBSCRIBE
from vibemq.errors import ErrorCode, InvalidOptions, InvalidPayload, QueueNotFound
from vibemq.model import commands
from vibemq.model.options import QueueOptions
from vibemq.model.rows import RowView
from vibemq.operations.messages import payload_json
from vibemq.operations.reading.instants import with_instants, written
from vibemq.web.api.answers import json_answer
from vibemq.web.api.arguments import checked
from vibemq.web.api.contract import Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import INSTANT, MESSAGE_HEADERS, NULLABLE_TEXT, TEXT, WHOLE, listed, record
from vibemq.web.api.errors import MEANINGS, HttpCode, Problem, as_problem
from vibemq.web.api.guardrails.deadlines import in_time
from vibemq.web.api.guardrails.json_shapes import LISTS_MARKS_MAX
from vibemq.web.api.kinds import Kind
from vibemq.web.api.messages.leases import Lease
from vibemq.web.api.messages.peers import HttpPeer
from vibemq.web.api.messages.session import FetchedBatch, FetchedMessage
from vibemq.web.api.messages.settling import ACK_TIMEOUT_MS_MAX, SETTLEMENTS_MAX, SettlementOutcome, settle
from vibemq.web.api.streams.stream import until_gone

FETCH_MAX = 100
UNSETTLED_MAX = 5
"""Where nothing is held, no bytes are counted, and what a client does not hear of is lost."""
WAIT_MS_MAX = 20_000
ACK_TIMEOUT_MS = 30_000
"""Where the queue itself has none: a script that has died must give back what it holds."""
SETTLEMENTS_BYTES_MAX = 1_048_576
"""Room for 1,000 of them with reasons."""

_DELIVERY = record(
    {"lease": NULLABLE_TEXT, "expires_at": INSTANT, "queue": TEXT, "group": NULLABLE_TEXT, "sequence": WHOLE}
    | {"id": TEXT, "published_at": INSTANT, "attempts": WHOLE, "failed": WHOLE, "headers": MESSAGE_HEADERS}
    | {"payload_size": WHOLE},
    {"payload": TEXT, "payload_base64": TEXT},
)
_RESULT = record(
    {"done": {"type": "boolean"}},
    {"expires_at": INSTANT, "code": TEXT, "status": WHOLE, "detail": TEXT},
)


class FetchBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    max: int = Field(
        1,
        ge=1,
        le=FETCH_MAX,
        description=f"Most messages; {UNSETTLED_MAX} of a queue in which a message is settled when it is handed out.",
    )
    wait_ms: int = Field(0, ge=0, le=WAIT_MS_MAX, description="How long to wait for the first one.")
    ack_timeout_ms: int | None = Field(
        None,
        ge=1,
        le=ACK_TIMEOUT_MS_MAX,
        description="What is not settled by then is handed out again; left out: the queue's, or "
        f"{ACK_TIMEOUT_MS:,} where it has none.",
    )
    group: str | None = Field(
        None, min_length=1, max_length=256, description="A durable group; a fan-out queue needs one."
    )


async def fetch(exchange: Exchange) -> Response:
    wanted = {name: info.default for name, info in FetchBody.model_fields.items()} | checked(FetchBody, exchange.body)
    principal, queue = exchange.user.principal, exchange.path["queue"]
    exchange.services.accounts.policy.authorize(principal, SUBSCRIBE, queue)
    peer = exchange.state.door.peers.of(principal, exchange.user.host)
    options = _options(exchange, queue, peer)
    if options.is_fan_out and wanted["group"] is None:
        raise InvalidOptions(
            f"queue {queue[:64]!r} is a fan-out queue, in which each group has every message; name a durable group"
        )
    timeout_ms = wanted["ack_timeout_ms"]
    if timeout_ms is None:
        timeout_ms = min(options.ack_timeout_ms, ACK_TIMEOUT_MS_MAX) or ACK_TIMEOUT_MS
    fetching = peer.fetch(
        queue,
        wanted["group"],
        wanted["max"] if options.consumers_settle else min(wanted["max"], UNSETTLED_MAX),
        wait_ms=wanted["wait_ms"],
        ack_timeout_ms=timeout_ms,
        keeps_letters=options.dead_letter,
        now=exchange.services.now(),
    )
    gone = asyncio.ensure_future(until_gone(exchange.request.receive))
    try:
        batch = await _fetched(fetching, gone)
        try:
            answer = json_answer({"items": await _items(exchange, peer, batch)}, exchange)
            if gone.done():
                raise _has_gone()
        except BaseException:
            peer.session.give_back(batch)
            raise
        return answer
    finally:
        gone.cancel()


def _options(exchange: Exchange, queue: str, peer: HttpPeer) -> QueueOptions:
    try:
        return exchange.services.messages.options(queue)
    except QueueNotFound:
        # The engine creates it, or refuses the fetch.
        return peer.session.queue_defaults


async def _fetched(fetching: Coroutine[Any, Any, FetchedBatch], gone: "asyncio.Future[None]") -> FetchedBatch:
    """What comes for a client that has gone meanwhile goes back unharmed."""
    task = asyncio.ensure_future(fetching)
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _has_gone()
        return task.result()
    finally:
        task.cancel()


def _has_gone() -> Problem:
    return Problem(HttpCode.REQUEST_TIMEOUT, "the client has gone")


async def _items(exchange: Exchange, peer: HttpPeer, batch: FetchedBatch) -> list[orjson.Fragment]:
    items: list[orjson.Fragment] = []
    for message in batch.messages:
        # One by one, with turns for the loop between them: bodies are up to a megabyte.
        items.append(orjson.Fragment(orjson.dumps(_delivery(exchange, peer.session.number, batch, message))))
        if len(items) % 10 == 0 or len(message.row) > 65_536:
            await asyncio.sleep(0)
    return items


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
    async with in_time(exchange.request, exchange.timeout_s):
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


FETCH = Endpoint(
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
        ErrorCode.MESSAGE_TOO_LARGE,
        HttpCode.REQUEST_TIMEOUT,
    ),
)

SETTLE = Endpoint(
    method="POST",
    path="/deliveries",
    summary="Settle messages by their leases, each with a result of its own; refused when none can be settled.",
    command=commands.Settle,
    kind=Kind.SETTLE,
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
)
