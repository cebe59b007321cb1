"""Bodies of requests: bounded in size and in time."""

from typing import Any

import anyio
import orjson
from starlette.requests import ClientDisconnect, Request

from vibemq.errors import InvalidMessage, MessageTooLarge
from vibemq.web.api.errors import HttpCode, Problem

BODY_BYTES_MAX = 1_048_576
BODY_TIMEOUT_S = 10.0


async def read_body(request: Request, bytes_max: int, *, timeout_s: float = BODY_TIMEOUT_S) -> bytes:
    """Raises MessageTooLarge, InvalidMessage, Problem (REQUEST_TIMEOUT)."""
    told = request.headers.get("content-length", "0")
    if not told.isascii() or not told.isdecimal():
        raise InvalidMessage("the header Content-Length is no number")
    if int(told) > bytes_max:
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > bytes_max:
                    raise _too_large(bytes_max)
                parts.append(part)
    except TimeoutError:
        raise Problem(
            HttpCode.REQUEST_TIMEOUT, f"the body did not arrive within {timeout_s:g} s; send it faster"
        ) from None
    except ClientDisconnect:
        raise InvalidMessage("the client has gone") from None
    return b"".join(parts)


def _too_large(bytes_max: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"the body is larger than {bytes_max:,} bytes, which is the most for this request; send less"
    )


def read_json(body: bytes) -> dict[str, Any]:
    """Raises InvalidMessage."""
    if not body.strip():
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidMessage(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidMessage("the body must be a JSON object, {…}")
    return value
