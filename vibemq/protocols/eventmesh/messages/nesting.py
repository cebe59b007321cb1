"""What strangers have sent as text. JSON that nests too deeply can be read, and then not be written again."""

from typing import Any

import orjson

from vibemq.errors import InvalidMessage

DEPTH_MAX = 64
"""Levels of objects and lists, as `vibemq.protocols.session.SessionLimits.json_depth_max`."""


_COUNT_MAX = 0xFFFF // 2
"""Of objects and lists: more fit into no header, and are not looked at."""


def check_depth(value: Any, what: str) -> None:
    """Of what is to be a header.

    Raises:
        InvalidMessage: objects and lists nest more than DEPTH_MAX levels deep, or are more than a header can hold.
    """
    count = 0
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEPTH_MAX):
        if not level:
            return
        count += len(level)
        if count + sum(map(len, level)) > _COUNT_MAX:
            raise InvalidMessage(f"{what} is too large for a header")
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
    if level:
        raise InvalidMessage(f"{what} nests too deeply; at most {DEPTH_MAX} levels of objects and lists are allowed")


def json_text(value: Any, what: str) -> bytes:
    """The JSON of what was read from JSON. Raises InvalidMessage: it nests more than about 250 levels deep."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Numbers, texts and names that have been read can be written; only the depth that is written has an end.
        raise InvalidMessage(f"{what} nests too deeply; send it as text or as base64") from None


def text_of(value: Any, what: str) -> str:
    """A text as it is, everything else as its JSON. Raises InvalidMessage as `json_text`."""
    return value if isinstance(value, str) else json_text(value, what).decode()


def payload_text(payload: bytes) -> str | None:
    """None: it is no UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None
