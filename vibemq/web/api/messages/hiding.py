"""Answers without what is in messages: bodies, values of headers, error texts. Pure."""

from collections.abc import Mapping
from typing import Any

from vibemq.errors import NotAuthorized

SEARCHES = frozenset(("dlq.list", "dlq.groups", "dlq.preview", "job.start", "queue.peek"))
"""Operations whose filters look into messages."""
FILTERS = ("error", "header")
"""Those that do."""
TEXTS = frozenset(("payload", "payload_base64", "error", "sample", "sha256", "sha256_before", "sha256_after"))
"""Fields of messages, dead letters, their groups and their edits, and of filters, that tell something of what is in a
message."""
HEADERS = frozenset(("headers", "header"))
"""Those of messages, and those that a filter asks for."""
COMPARED = frozenset(("edited", "headers_changed"))
"""Of an edit: whoever guesses a body or a header would be told, also by a dry run, whether it is the one."""


def without_bodies(value: Any) -> Any:
    """The same answer, with null in place of bodies and error texts, and names of headers only."""
    if isinstance(value, list):
        return [without_bodies(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    told: dict[str, Any] = {}
    for name, inner in value.items():
        if name in TEXTS or name in COMPARED:
            told[name] = None
        elif name in HEADERS and isinstance(inner, dict):
            told[name] = dict.fromkeys(inner)
        else:
            told[name] = without_bodies(inner)
    return told


def check_filters(operation: str, *given: Any) -> None:
    """Whoever is shown nothing of a text may not search for it either: the number of those found would tell it; nor
    have it written into a file.

    `given`: the query, the body, and its filter. Raises NotAuthorized.
    """
    if operation not in SEARCHES:
        return
    for fields in given:
        if not isinstance(fields, Mapping):
            continue
        for name in FILTERS:
            if fields.get(name):
                raise NotAuthorized(
                    f"the filter {name} looks into messages, and the broker's settings (http.show_bodies) hide what is "
                    "in messages from you; leave it out"
                )
        check_filters(operation, fields.get("filter"))
        if operation == "job.start" and fields.get("kind") == "export_dead":
            raise NotAuthorized(
                "the file of an export holds what is in messages, and the broker's settings (http.show_bodies) hide "
                "that from you; GET /dead-letters/export leaves it out"
            )
