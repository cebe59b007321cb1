"""Many dead letters: their groups, what an action on those of a filter would do, and their export as lines of JSON.

The last line of an export has the count, so that a cut is seen.
"""

from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse

from vibemq.errors import ErrorCode, MessageNotFound, StorageDamaged, VibeMQError
from vibemq.operations.dead_letters import LetterListArguments
from vibemq.web.api.answers import plain
from vibemq.web.api.arguments import schema_of
from vibemq.web.api.contract import NDJSON, Endpoint, Exchange, Parameter
from vibemq.web.api.endpoints.shapes import ANYTHING, BOOLEAN, INSTANT, TEXT, WHOLE, listed, record
from vibemq.web.api.instants import with_instants
from vibemq.web.api.kinds import Kind
from vibemq.web.api.messages.hiding import without_bodies
from vibemq.web.limits import EXTEND

PAGE_LETTERS = 100
PAGE_S = 60.0
"""For one page to be read by the client."""
_LEFT_OUT = frozenset(("after", "limit", "order"))

GROUP = record(
    {"queue": TEXT, "reason": TEXT, "fingerprint": TEXT, "count": WHOLE},
    {"first_id": WHOLE, "first_at": INSTANT, "last_id": WHOLE, "last_at": INSTANT, "sample": TEXT},
)
QUESTION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "filter": {"type": "object", "description": "Which letters, with the names of the query of GET /dead-letters."},
        "to": {"type": "string", "description": "Queue that they would go to; left out: where each died."},
        "rate": {"type": "integer", "minimum": 0, "description": "Letters in a second."},
    },
}


def question(exchange: Exchange) -> dict[str, Any]:
    body = dict(exchange.body or {})
    chosen = body.pop("filter", None)
    return {**(chosen if isinstance(chosen, dict) else {}), **body}


async def export(exchange: Exchange) -> Response:
    """The first page is read before the answer begins, so that a refusal has its status."""
    pages = _pages(exchange)
    first = await anext(pages)
    headers = {"Content-Disposition": 'attachment; filename="dead-letters.ndjson"', "Cache-Control": "no-store"}
    return StreamingResponse(_lines(exchange, first, pages), media_type=NDJSON, headers=headers)


async def _pages(exchange: Exchange) -> AsyncIterator[list[dict[str, Any]]]:
    ask, asker = exchange.services.operations.ask, exchange.user
    after = 0
    while True:
        wanted = {**exchange.query, "after": after, "limit": PAGE_LETTERS, "order": "oldest"}
        found = (await ask(asker, "dlq.list", wanted)).result
        yield found["letters"]
        if found["next"] is None:
            return
        after = found["next"]


async def _lines(
    exchange: Exchange, first: list[dict[str, Any]], pages: AsyncIterator[list[dict[str, Any]]]
) -> AsyncIterator[bytes]:
    count = 0
    extend = exchange.request.scope.get(EXTEND, lambda seconds: None)
    try:
        letters: list[dict[str, Any]] | None = first
        while letters is not None:
            extend(PAGE_S)
            lines = [line for letter in letters if (line := await _line(exchange, letter)) is not None]
            count += len(lines)
            if lines:
                yield b"".join(lines)
            letters = await anext(pages, None)
    except VibeMQError as error:
        # The answer has begun: that it is not whole can only be said in it.
        yield orjson.dumps({"count": count, "error": str(error), "code": error.code}) + b"\n"
        return
    yield orjson.dumps({"count": count}) + b"\n"


async def _line(exchange: Exchange, letter: dict[str, Any]) -> bytes | None:
    """None: it has gone since the page was made."""
    wanted = {"dead_id": letter["dead_id"], "queue": letter["queue"]}
    try:
        letter = (await exchange.services.operations.ask(exchange.user, "dlq.show", wanted)).result
    except MessageNotFound:
        return None
    except StorageDamaged as error:
        letter = {**letter, "damaged": str(error)}
    shown = plain(letter)
    if exchange.state.hides_bodies(exchange.user.principal):
        shown = without_bodies(shown)
    return orjson.dumps(with_instants(shown)) + b"\n"


def _parameters() -> tuple[Parameter, ...]:
    properties = schema_of(LetterListArguments)["properties"]
    return tuple(
        Parameter(name, about, about.get("description", ""))
        for name, about in properties.items()
        if name not in _LEFT_OUT
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/dead-letters/groups",
        summary="Dead letters by queue, reason and kind of error.",
        operation="dlq.groups",
        items="groups",
        response=GROUP,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
    Endpoint(
        method="POST",
        path="/dead-letters/preview",
        summary="What an action on the dead letters of a filter would do. Changes nothing.",
        operation="dlq.preview",
        kind=Kind.SCAN,
        body=QUESTION,
        arguments=question,
        response=record(
            {"count": WHOLE, "exact": BOOLEAN, "bytes": WHOLE},
            {"targets": listed(ANYTHING), "groups": listed(GROUP), "sentences": listed(TEXT)},
        ),
        errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.INVALID_OPTIONS),
    ),
    Endpoint(
        method="GET",
        path="/dead-letters/export",
        summary="Dead letters of a filter with their bodies, as lines of JSON. The last line has their count.",
        operation="dlq.list",
        kind=Kind.STREAM,
        query=_parameters(),
        handler=export,
        produces=NDJSON,
        conditional=False,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
)
