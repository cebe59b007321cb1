"""Answers without what is in messages: bodies, values of headers, error texts. Pure."""

from typing import Any

TEXTS = frozenset(("payload", "payload_base64", "error", "sample", "sha256"))
"""Fields of messages, dead letters and groups of them that tell something of what is in a message."""


def without_bodies(value: Any) -> Any:
    """The same answer, with null in place of bodies and error texts, and names of headers only."""
    if isinstance(value, list):
        return [without_bodies(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    told: dict[str, Any] = {}
    for name, inner in value.items():
        if name in TEXTS:
            told[name] = None
        elif name == "headers" and isinstance(inner, dict):
            told[name] = dict.fromkeys(inner)
        else:
            told[name] = without_bodies(inner)
    return told
