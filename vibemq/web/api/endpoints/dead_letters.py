"""Dead letters: look at them, put one back, remove one."""

from typing import Any

from vibemq.errors import ErrorCode, MessageNotFound
from vibemq.web.api.contract import Endpoint, Exchange
from vibemq.web.api.kinds import Kind

_WHOLE = {"type": "integer"}
_TEXT = {"type": "string"}
_INSTANT = {"type": ["string", "null"], "format": "date-time"}
LETTER = {
    "type": "object",
    "required": ["dead_id", "queue", "reason", "error", "dead_at"],
    "properties": {
        "dead_id": _WHOLE,
        "queue": _TEXT,
        "group": {"type": ["string", "null"]},
        "sequence": _WHOLE,
        "id": _TEXT,
        "reason": _TEXT,
        "error": _TEXT,
        "attempts": _WHOLE,
        "failed": _WHOLE,
        **dict.fromkeys(("first_failed_at", "dead_at", "published_at"), _INSTANT),
        "replay_count": _WHOLE,
        "headers": {"type": "object", "additionalProperties": _TEXT},
    },
}


def _ids(exchange: Exchange) -> dict[str, Any]:
    queue = exchange.query.get("queue") or (exchange.body or {}).get("queue")
    return {"ids": [int(exchange.path["dead_id"])], **({"queue": queue} if queue else {})}


def found(letter: dict[str, Any] | None, exchange: Exchange) -> dict[str, Any]:
    if letter is None:
        raise MessageNotFound(f"there is no dead letter {exchange.path['dead_id'][:20]}; it was replayed or purged")
    return letter


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/dead-letters",
        summary="Dead letters, in pages.",
        operation="dlq.list",
        kind=Kind.SCAN,
        items="letters",
        response=LETTER,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
    Endpoint(
        method="GET",
        path="/dead-letters/{dead_id}",
        summary="One dead letter with its message.",
        operation="dlq.show",
        shape=found,
        response=LETTER,
        errors=(ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.STORAGE_DAMAGED),
    ),
)
