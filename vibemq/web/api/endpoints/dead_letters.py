"""Dead letters: look at them, put one back, remove one."""

from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from vibemq.errors import (
    AuthRequired,
    ErrorCode,
    InvalidPayload,
    MessageNotFound,
    NotAuthorized,
    VibeMQError,
)
from vibemq.operations.reading.giving_way import give_way
from vibemq.operations.reading.instants import with_instants
from vibemq.web.api.answers import ITEMS_PER_TURN
from vibemq.web.api.arguments import checked
from vibemq.web.api.contract import BYTES, NDJSON, Endpoint, Exchange, Parameter
from vibemq.web.api.endpoints.messages.queue_messages import parts
from vibemq.web.api.endpoints.shapes import (
    ANYTHING,
    INSTANT,
    NULLABLE_TEXT,
    NULLABLE_WHOLE,
    TEXT,
    WHOLE,
    record,
)
from vibemq.web.api.kinds import Kind
from vibemq.web.api.messages.hiding import check_filters, without_bodies
from vibemq.web.limits import extender

EXPORT_PAGE = 500
MESSAGE_BYTES_MAX = 1_572_864
"""Of a body with one message of the largest size, as base64."""
PAGE_TIMEOUT_S = 60.0
"""For a page of an export to be read and taken."""

LETTER = record(
    {"dead_id": WHOLE, "queue": TEXT, "reason": TEXT, "error": TEXT, "dead_at": INSTANT},
    {
        "group": NULLABLE_TEXT,
        "sequence": WHOLE,
        "id": TEXT,
        "attempts": WHOLE,
        "failed": WHOLE,
        "first_failed_at": INSTANT,
        "published_at": INSTANT,
        "replay_count": WHOLE,
        "headers": {"type": "object", "additionalProperties": TEXT},
        "payload": TEXT,
        "payload_base64": TEXT,
        "payload_size": WHOLE,
        "sha256": NULLABLE_TEXT,
        "truncated": {"type": "boolean"},
        "decoded_size": NULLABLE_WHOLE,
    },
)
MISSING = (ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.STORAGE_DAMAGED)


class ReplayBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    queue: str | None = Field(None, description="The queue it died in; users without a right to every queue name it.")
    to: str | None = Field(None, description="Queue that it goes to; left out: where it died.")


def named(exchange: Exchange) -> dict[str, Any]:
    """One letter, for an operation that takes many. Raises InvalidPayload."""
    given = checked(ReplayBody, exchange.body) if exchange.endpoint.method == "POST" else exchange.query
    text = exchange.path["dead_id"]
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise InvalidPayload("the id of a dead letter is a whole number", "dead_id")
    return {"ids": [int(text)], **{name: value for name, value in given.items() if value is not None}}


def one_done(result: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    if not result.get("count"):
        raise _missing(exchange.path["dead_id"])
    return {"count": result["count"]}


def _missing(dead_id: str) -> MessageNotFound:
    return MessageNotFound(f"there is no dead letter {dead_id}; it was replayed or purged, or it never existed")


async def body(exchange: Exchange) -> Response:
    """Never as what it may be: a browser only stores it."""
    if exchange.state.hides_bodies(exchange.user.principal):
        raise NotAuthorized("the broker's settings (http.show_bodies) hide what is in messages from you")
    arguments = {"dead_id": typed_id(exchange), **exchange.query}
    found = await exchange.services.messages.letter_body(exchange.user, arguments)
    headers = {
        "Content-Disposition": f'attachment; filename="letter-{exchange.path["dead_id"]}.bin"',
        "Content-Length": str(len(found.body)),
    }
    return StreamingResponse(parts(exchange, found), headers=headers, media_type=BYTES)


async def export(exchange: Exchange) -> Response:
    """A line for each letter, and a last one with their number, by which a file that was cut is known. Where the login
    or a right ends meanwhile, the last line is the refusal; of all queues, where any permission has changed."""
    await exchange.services.operations.ask(exchange.user, "dlq.list", {**exchange.query, "limit": 1})
    headers = {"Content-Disposition": 'attachment; filename="dead-letters.ndjson"'}
    return StreamingResponse(exported(exchange), media_type=NDJSON, headers=headers)


async def exported(exchange: Exchange) -> AsyncIterator[bytes]:
    count = damaged = 0
    after: int | None = 0
    known: set[int] = set()
    """Damaged letters of a page that is read again."""
    extend = extender(exchange.request.scope)
    first, changed = _permissions(exchange), False
    while after is not None:
        extend(PAGE_TIMEOUT_S)
        rights = _rights(exchange)
        try:
            page = await _page(exchange, after)
        except VibeMQError as error:
            yield _refused(error, count)
            return
        letters, at = page["letters"], 0
        while at < len(letters) and _rights(exchange) == rights:
            some, began = letters[at : at + ITEMS_PER_TURN], monotonic()
            lines = _lines(exchange, some)
            worked_s = monotonic() - began
            yield lines
            at += len(some)
            after = some[-1]["dead_id"]
            # Behind the lines, not before: rights may end meanwhile.
            await give_way(worked_s)
        count += at
        found = {letter["dead_id"] for letter in page["damaged"]} - known
        damaged += len(found)
        if at == len(letters):
            after = page["next"]
            known.clear()
        else:
            # A right was taken or given meanwhile: the rest is read again, by whoever still may.
            known |= found
        changed = changed or _permissions(exchange) != first
    if changed and "queue" not in exchange.query:
        # Letters of a queue that was not to be seen for a while are left out, and nobody is refused.
        detail = "your permissions have changed meanwhile, so letters may be missing; export again"
        yield _refused(NotAuthorized(detail), count)
        return
    yield orjson.dumps({"count": count, "damaged": damaged}) + b"\n"


def _refused(error: VibeMQError, count: int) -> bytes:
    return orjson.dumps({"error": {"code": error.code, "detail": str(error)}, "count": count}) + b"\n"


def _rights(exchange: Exchange) -> object:
    """All that decides on what the export may show; it differs when something of it has changed."""
    hidden = exchange.state.hides_bodies(exchange.user.principal)
    return exchange.state.why_ended(exchange.user), _permissions(exchange), hidden


def _permissions(exchange: Exchange) -> object:
    return exchange.services.accounts.policy.rights_of(exchange.user.principal)


def _lines(exchange: Exchange, letters: list[dict[str, Any]]) -> bytes:
    told = with_instants(letters)
    shown = without_bodies(told) if exchange.state.hides_bodies(exchange.user.principal) else told
    return b"".join(orjson.dumps(letter) + b"\n" for letter in shown)


async def _page(exchange: Exchange, after: int) -> Any:
    """For who may still have it. Raises VibeMQError."""
    if reason := exchange.state.why_ended(exchange.user):
        raise AuthRequired(reason)
    if exchange.state.hides_bodies(exchange.user.principal):
        check_filters(exchange.endpoint.operation, exchange.query)
    arguments = {**exchange.query, "after": after, "limit": EXPORT_PAGE, "payloads": True}
    return (await exchange.services.operations.ask(exchange.user, "dlq.list", arguments)).result


def typed_id(exchange: Exchange) -> int:
    (number,) = named_ids(exchange)
    return number


def named_ids(exchange: Exchange) -> list[int]:
    found: list[int] = named(exchange)["ids"]
    return found


def found(letter: dict[str, Any] | None, exchange: Exchange) -> dict[str, Any]:
    if letter is None:
        raise _missing(exchange.path["dead_id"][:20])
    return letter


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/dead-letters",
        summary="Dead letters, in pages.",
        operation="dlq.list",
        hidden=frozenset(("payloads",)),
        kind=Kind.SCAN,
        items="letters",
        response=LETTER,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
    Endpoint(
        method="GET",
        path="/dead-letters/{dead_id}",
        summary="One dead letter with its message; of a body that is opened first (gzip, brotli) the beginning.",
        operation="dlq.show",
        shape=found,
        response=LETTER,
        errors=MISSING,
    ),
    Endpoint(
        method="GET",
        path="/dead-letters/{dead_id}/body",
        summary="The body of a dead letter as a file, as it was published or opened (gzip, brotli).",
        operation="dlq.show",
        kind=Kind.SCAN,
        query=(
            Parameter("queue", TEXT, "The queue it died in; users without a right to every queue name it."),
            Parameter("decode", {"type": "string", "enum": ["gzip", "br"]}, "Open it first."),
        ),
        handler=body,
        produces=BYTES,
        conditional=False,
        errors=(*MISSING, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.BLOCKED),
    ),
    Endpoint(
        method="DELETE",
        path="/dead-letters/{dead_id}",
        summary="Remove one dead letter.",
        operation="dlq.purge",
        kind=Kind.CHANGE,
        query=(Parameter("queue", TEXT, "The queue it died in; users without a right to every queue name it."),),
        arguments=named,
        shape=one_done,
        response=record({"count": WHOLE}),
        errors=(ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.QUEUE_NOT_FOUND),
    ),
    Endpoint(
        method="POST",
        path="/dead-letters/{dead_id}/replay",
        summary="Put one dead letter back into a queue.",
        operation="dlq.replay",
        kind=Kind.CHANGE,
        body=ReplayBody,
        arguments=named,
        shape=one_done,
        response=record({"count": WHOLE}),
        errors=(*MISSING, ErrorCode.QUEUE_NOT_FOUND, ErrorCode.QUEUE_FULL, ErrorCode.STORAGE_FULL),
        idempotent=True,
    ),
    Endpoint(
        method="POST",
        path="/dead-letters/{dead_id}/edit",
        summary="Replace one dead letter by an edited message, which enters its queue or another one; without a change "
        "the letter is put back as it is.",
        operation="dlq.edit",
        kind=Kind.CHANGE,
        body_bytes_max=MESSAGE_BYTES_MAX,
        response=ANYTHING,
        errors=(*MISSING, ErrorCode.QUEUE_NOT_FOUND, ErrorCode.QUEUE_FULL, ErrorCode.STORAGE_FULL),
        idempotent=True,
    ),
    Endpoint(
        method="GET",
        path="/dead-letters/export",
        summary="All dead letters that fit, a line of JSON for each; the last line counts them.",
        operation="dlq.list",
        kind=Kind.STREAM,
        hidden=frozenset(("payloads", "after", "limit")),
        handler=export,
        produces=NDJSON,
        response=LETTER,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
)
