"""Messages of a queue, without taking them: list them, show one, download its body, remove one that waits."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from vibemq.errors import ErrorCode, InvalidPayload, MessageNotFound, NotAuthorized
from vibemq.web.api.contract import BYTES, Endpoint, Exchange, Parameter
from vibemq.web.api.endpoints.shapes import (
    ANYTHING,
    INSTANT,
    MESSAGE_HEADERS,
    NULLABLE_TEXT,
    TEXT,
    WHOLE,
    listed,
    nothing,
    record,
)
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.kinds import Kind
from vibemq.web.api.services import BodyDownload
from vibemq.web.limits import extender

log = logging.getLogger("vibemq.http")

PEEK_MAX = 100
PEEK = 50
PREVIEW_BYTES_MAX = 4_096
_PEEKED = ("state", "from", "newer_than_ms", "preview_bytes", "message_id", "header")
DIGITS_MAX = 20
_RANGE = re.compile(r"\s*bytes=\s*([0-9]*)-([0-9]*)\s*", re.IGNORECASE | re.ASCII)
PART_BYTES = 65_536
"""Of a body that is copied before the loop has a turn."""
DOWNLOAD_S = 60.0
BYTES_PER_S_MIN = 262_144
"""Slower downloads are ended: each holds a place, and its whole row. While nobody waits for the memory they have
`DOWNLOAD_S` beside that."""

MESSAGE = record(
    {
        "sequence": WHOLE,
        "id": TEXT,
        "published_at": INSTANT,
        "priority": WHOLE,
        "headers": MESSAGE_HEADERS,
        "state": TEXT,
    }
    | {"payload_size": WHOLE, "attempts": WHOLE},
    {"expires_at": INSTANT, "deliver_at": INSTANT, "due_at": INSTANT, "holders": listed(ANYTHING)}
    | {"payload": NULLABLE_TEXT, "payload_base64": NULLABLE_TEXT, "offset": WHOLE, "size": WHOLE}
    | {"truncated": {"type": "boolean"}, "sha256": NULLABLE_TEXT, "decoded_size": {"type": ["integer", "null"]}},
)


def peeked(exchange: Exchange) -> dict[str, Any]:
    query = exchange.query
    limit = query.get("limit", PEEK)
    return {
        "queue": exchange.path["queue"],
        **({} if query.keys() & {"message_id", "header"} else {"state": "ready"}),
        "limit": limit,
        **{name: query[name] for name in _PEEKED if name in query},
    }


def removed(exchange: Exchange) -> dict[str, Any]:
    sequence = _sequence(exchange)
    return {"queue": exchange.path["queue"], "runs": [[sequence, sequence]], **exchange.query}


def was_removed(result: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    if not result["count"]:
        raise MessageNotFound(
            f"queue {exchange.path['queue'][:64]!r} has no message {exchange.path['sequence'][:20]} that waits; it was "
            "consumed or removed, is with a consumer, or never existed"
        )
    return nothing(result, exchange)


def _sequence(exchange: Exchange) -> int:
    text = exchange.path["sequence"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise InvalidPayload(f"{text[:40]!r} is no sequence of a message, which is a number", "sequence")
    return int(text)


async def download(exchange: Exchange) -> Response:
    """The whole body as a file, or a range of it. Whatever a browser takes it for, it is saved and not shown."""
    if exchange.state.hides_bodies(exchange.user.principal):
        raise NotAuthorized("the broker's settings (http.show_bodies) hide what is in messages from you")
    sequence = _sequence(exchange)
    arguments: dict[str, Any] = {"queue": exchange.path["queue"], "sequence": sequence, "length": 0}
    arguments |= {"decode": exchange.query["decode"]} if "decode" in exchange.query else {}
    found = await exchange.services.messages.body(exchange.user, arguments)
    size = len(found.body)
    headers = {
        "Content-Disposition": f'attachment; filename="message-{sequence}.bin"',
        "Accept-Ranges": "bytes",
        **exchange.headers,
    }
    # A range is that of a GET alone (RFC 9110, 14.2).
    asked = exchange.request.headers if exchange.request.method == "GET" else Headers()
    status, part = 200, byte_range(asked, size)
    if part is not None:
        start, end = part
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        status, found.body = 206, found.body[start:end]
    headers["Content-Length"] = str(len(found.body))
    return StreamingResponse(parts(exchange, found), status, headers=headers, media_type=BYTES)


async def parts(exchange: Exchange, found: BodyDownload) -> AsyncIterator[bytes]:
    """Each when the one before is on its way: a large body is not copied as a whole."""
    size = len(found.body)
    extend = extender(exchange.request.scope)
    extend(DOWNLOAD_S + size / BYTES_PER_S_MIN)

    def cut() -> None:
        log.info(
            "download of %s by %s ended: %d B were left, it took less than %d B/s or needed long for the rest, and "
            "others wait for the memory that is kept for large messages (limits.message_memory_bytes)",
            exchange.request.url.path,
            exchange.user.user,
            found.row_left,
            BYTES_PER_S_MIN,
            extra={"event": "conn.dropped", "conn_id": exchange.user.connection_id, "remote": exchange.user.host},
        )
        extend(0.0)

    with found.under_way(cut, BYTES_PER_S_MIN):
        for at in range(0, size, PART_BYTES):
            yield bytes(found.body[at : at + PART_BYTES])
            found.row_left = max(0, size - at - PART_BYTES)
            await asyncio.sleep(0)


def byte_range(headers: Headers, size: int) -> tuple[int, int] | None:
    """(start, end) of the one range that is asked for; None: the whole. As RFC 9110, 14.2, a header that is no range of
    bytes is passed over, and so is one with `If-Range`, because no answer has a validator that it could name.

    Raises:
        Problem: RANGE_NOT_SATISFIABLE.
    """
    found = _RANGE.fullmatch(headers.get("range", ""))
    if found is None or "if-range" in headers:
        return None
    # More digits than any size has are as good as the largest.
    first, last = (int(part.lstrip("0")[:DIGITS_MAX] or "0") if part else None for part in found.groups())
    if first is None:
        if last is None:
            return None
        start, end = max(0, size - last), size
    else:
        if last is not None and last < first:
            return None
        start, end = first, size if last is None else min(last + 1, size)
    if start < end:
        return start, end
    raise Problem(
        HttpCode.RANGE_NOT_SATISFIABLE,
        f"the header Range must be one range of the body's {size:,} bytes, as bytes=0-1023",
        headers={"Content-Range": f"bytes */{size}"},
    )


PEEK_MESSAGES = Endpoint(
    method="GET",
    path="/queues/{queue}/messages",
    summary="Look at messages without taking them: those that are ready, delayed or in flight.",
    operation="queue.peek",
    items="messages",
    limit_max=PEEK_MAX,
    after="from",
    arguments=peeked,
    query=(
        Parameter(
            "state",
            {"type": "string", "enum": ["ready", "delayed", "in_flight"]},
            "Which; left out: ready, and of a search all.",
        ),
        Parameter("from", {"type": "integer", "minimum": 0}, "First sequence to look at."),
        Parameter(
            "newer_than_ms",
            {"type": "integer", "minimum": 0},
            "Look from the first message on that was published within this time.",
        ),
        Parameter(
            "preview_bytes",
            {"type": "integer", "minimum": 0, "maximum": PREVIEW_BYTES_MAX},
            "Most bytes of each body; left out: 1,024.",
        ),
        Parameter(
            "message_id",
            TEXT,
            "Search: only messages with this id. A search looks at one message after the other, for a moment, and "
            "tells in `examined` how many these were; the next page goes on there, and may find more.",
        ),
        Parameter(
            "header",
            {"type": "object", "additionalProperties": TEXT},
            "Search: only messages that have these headers, each as `name:value`.",
        ),
    ),
    response=MESSAGE,
    errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.STORAGE_DAMAGED),
)

SHOW = Endpoint(
    method="GET",
    path="/queues/{queue}/messages/{sequence}",
    summary="One message with a part of its body, as it is or opened (gzip, brotli).",
    operation="message.show",
    response=MESSAGE,
    errors=(
        ErrorCode.QUEUE_NOT_FOUND,
        ErrorCode.MESSAGE_NOT_FOUND,
        ErrorCode.WRONG_INCARNATION,
        ErrorCode.STORAGE_DAMAGED,
    ),
)

REMOVE = Endpoint(
    method="DELETE",
    path="/queues/{queue}/messages/{sequence}",
    summary="Remove one message that waits.",
    operation="queue.remove",
    kind=Kind.CHANGE,
    query=(Parameter("dry_run", {"type": "boolean"}, "Check everything, say what would be done, and change nothing."),),
    arguments=removed,
    shape=was_removed,
    response={"type": "object"},
    errors=(ErrorCode.QUEUE_NOT_FOUND, ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.QUEUE_EXCLUSIVE),
)

DOWNLOAD = Endpoint(
    method="GET",
    path="/queues/{queue}/messages/{sequence}/body",
    summary="The whole body of a message as a file, or a range of it.",
    operation="message.show",
    kind=Kind.SCAN,
    query=(Parameter("decode", {"type": "string", "enum": ["gzip", "br"]}, "Open it first."),),
    handler=download,
    produces=BYTES,
    more_statuses=(206,),
    conditional=False,
    errors=(
        ErrorCode.QUEUE_NOT_FOUND,
        ErrorCode.MESSAGE_NOT_FOUND,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.BLOCKED,
        ErrorCode.STORAGE_DAMAGED,
        HttpCode.RANGE_NOT_SATISFIABLE,
    ),
)
