"""JSON of strangers that is written again. What nests too deeply can be read, and then not be written."""

from typing import Any

import orjson

from vibemq.errors import InvalidMessage

DEPTH_MAX = 64
"""Levels of objects and lists, as `vibemq.protocols.session.SessionLimits.json_depth_max`."""


def check_depth(value: Any, what: str) -> None:
    """Raises InvalidMessage: objects and lists nest more than DEPTH_MAX levels deep."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEPTH_MAX):
        if not level:
            return
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
    if level:
        raise too_deep(what)


def json_text(value: Any, what: str) -> bytes:
    """The JSON of what was read from JSON. Raises InvalidMessage: it nests too deeply."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Numbers, texts and names that have been read can be written; only the depth that is written has an end.
        raise too_deep(what) from None


def too_deep(what: str) -> InvalidMessage:
    return InvalidMessage(f"{what} nests too deeply; at most {DEPTH_MAX} levels of objects and lists are allowed")
