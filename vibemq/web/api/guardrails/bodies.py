"""Bodies of requests: bounded in size and in time."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import orjson
from starlette.requests import ClientDisconnect, Request

from vibemq.errors import Blocked, InvalidMessage, MessageTooLarge
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.guardrails.json_shapes import MARKS_MAX, check_shape
from vibemq.web.api.guardrails.rates import Client, Shares

BODY_BYTES_MAX = 16_384
"""Of a body that is neither a message nor a batch."""
BUDGET_BYTES = 67_108_864
BODY_TIMEOUT_S = 10.0
LOOKED_AT_TWICE = 65_536
"""A body up to this size is searched for fields that stand in it twice; of larger ones the last counts."""


class BodyBudget:
    """Memory for bodies above the ordinary size, of all clients together. What the requests under way bring of
    ordinary bodies is bounded by their number."""

    def __init__(self, bytes_max: int = BUDGET_BYTES) -> None:
        self._shares = Shares(bytes_max)

    @contextmanager
    def hold(self, client: Client, request: Request, bytes_max: int) -> Iterator[None]:
        """As much as the request says that it brings; one that does not say it, the most. Raises Blocked."""
        told = request.headers.get("content-length", "")
        size = min(int(told), bytes_max) if told.isascii() and told.isdecimal() else bytes_max
        if size <= BODY_BYTES_MAX:
            yield
            return
        with self._shares.hold(client, size) as is_held:
            if not is_held:
                raise Blocked("too many large requests are under way; send it again in a moment, or send less at once")
            yield


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


def read_json(body: bytes, marks_max: int = MARKS_MAX) -> dict[str, Any]:
    """`marks_max`: see `check_shape`. Raises InvalidMessage."""
    if not body.strip():
        return {}
    check_shape(body, marks_max)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidMessage(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidMessage("the body must be a JSON object, {…}")
    if len(body) <= LOOKED_AT_TWICE:
        try:
            json.loads(body, object_pairs_hook=_once_each)
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"the body cannot be read: {error}") from None
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for a field that stands there twice: readers do not agree on which one counts."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the field {name[:40]!r} stands in one object twice; keep one of them")
        found[name] = value
    return found
