"""Server-sent events as bytes. Pure. Source: the HTML standard, "Server-sent events"."""

from typing import Any

import orjson

HEARTBEAT = b": still here\n\n"
"""A comment, which readers leave out."""
RETRY_MS = 2_000
"""After so long a reader that was cut off comes again."""


def frame(event: str, data: bytes) -> bytes:
    """One event. `data` is JSON on one line; an event's name has no line break either."""
    assert b"\n" not in data, "it would end the event"
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"


def json_frame(event: str, value: Any) -> bytes:
    return frame(event, orjson.dumps(value))


def hello() -> bytes:
    return b"retry: %d\n\n" % RETRY_MS


def bye(reason: str) -> bytes:
    """The last event of a stream that the broker ends."""
    return json_frame("bye", {"reason": reason})
