"""Pieces of JSON schema and of answers that several nouns share."""

from typing import Any

from vibemq.web.api.contract import Exchange, was_tried

WHOLE: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
TEXT: dict[str, Any] = {"type": "string"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
INSTANT: dict[str, Any] = {"type": ["string", "null"], "format": "date-time"}
ANYTHING: dict[str, Any] = {"type": "object"}
NULLABLE_TEXT: dict[str, Any] = {"type": ["string", "null"]}
NULLABLE_NUMBER: dict[str, Any] = {"type": ["number", "null"]}
NULLABLE_WHOLE: dict[str, Any] = {"type": ["integer", "null"]}
CONSUMER: dict[str, Any] = {
    **dict.fromkeys(("connection", "client", "user", "protocol", "group"), NULLABLE_TEXT),
    "in_flight": WHOLE,
    **dict.fromkeys(("prefetch", "ack_timeout_ms", "oldest_held_ms"), NULLABLE_WHOLE),
    "last_ack_at": INSTANT,
}
MESSAGE_HEADERS: dict[str, Any] = {"type": "object", "additionalProperties": NULLABLE_TEXT}


def listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def record(required: dict[str, Any], more: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object: the fields that it always has, and those that it may have. Others may come with later versions."""
    return {"type": "object", "required": list(required), "properties": {**required, **(more or {})}}


def nothing(result: Any, exchange: Exchange) -> dict[str, Any]:
    """The answer of a change that has nothing to tell, but that it was only tried."""
    return {"dry_run": True} if was_tried(result) else {}
