"""Dead letters in numbers: their groups, and what an action on those of a filter would do."""

from typing import Any

from vibemq.errors import ErrorCode, InvalidPayload
from vibemq.operations.dead_letters.rates import RATE_MAX
from vibemq.web.api.contract import Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import ANYTHING, BOOLEAN, INSTANT, TEXT, WHOLE, listed, record
from vibemq.web.api.guardrails.json_shapes import LISTS_BYTES_MAX, LISTS_MARKS_MAX
from vibemq.web.api.kinds import Kind

GROUP = record(
    {"queue": TEXT, "reason": TEXT, "fingerprint": TEXT, "count": WHOLE},
    {"first_id": WHOLE, "first_at": INSTANT, "last_id": WHOLE, "last_at": INSTANT, "sample": TEXT},
)
QUESTION: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "filter": {"type": "object", "description": "Which letters, with the names of the query of GET /dead-letters."},
        "to": {"type": ["string", "null"], "description": "Queue that they would go to; left out: where each died."},
        "rate": {
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": RATE_MAX,
            "description": "Letters in a second, 0.1 or more, for the time that it would take; 0: as many as possible. "
            "If it is left out or 0, the answer has no duration.",
        },
    },
}


def question(exchange: Exchange) -> dict[str, Any]:
    """Raises InvalidPayload: what is no filter would mean every letter."""
    body = dict(exchange.body or {})
    for name in body.keys() - QUESTION["properties"].keys():
        raise InvalidPayload(
            f"field {name[:40]!r} is unknown here; known are filter, to, rate; leave it out", name[:40]
        )
    chosen = body.pop("filter", {})
    if not isinstance(chosen, dict):
        raise InvalidPayload("filter must be an object, as in GET /dead-letters", "filter")
    return {**chosen, **body}


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
        body_bytes_max=LISTS_BYTES_MAX,
        marks_max=LISTS_MARKS_MAX,
        arguments=question,
        response=record(
            {"count": WHOLE, "count_max": WHOLE, "exact": BOOLEAN, "bytes": WHOLE},
            {"targets": listed(ANYTHING), "groups": listed(GROUP), "sentences": listed(TEXT)},
        ),
        errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.INVALID_OPTIONS),
    ),
)
