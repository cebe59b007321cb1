"""Answers of the API: JSON, pages, tags of their content, problems. Pure."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response

from vibemq.operations.reading.instants import with_instants
from vibemq.web.api.contract import JSON, Exchange
from vibemq.web.api.cursors import CursorSeal
from vibemq.web.api.errors import MEANINGS, Problem, body_of, headers_of

PROBLEM = "application/problem+json"


ITEMS_PER_TURN = 50
"""Of a list that is read before the loop has a turn."""


async def plain(result: Any, items: str = "") -> Any:
    """What an operation has answered, as the JSON that it is: its data classes are read once more.

    `items`: the name of a list in it that may be long. The loop has a turn between the parts of such a list, and of one
    that stands alone.
    """
    if isinstance(result, list):
        return await _plain_list(result)
    listed = result.get(items) if items and isinstance(result, dict) else None
    if not isinstance(listed, list) or len(listed) <= ITEMS_PER_TURN:
        return _read(result)
    rest = _read({name: result[name] for name in result if name != items})
    return {**rest, items: await _plain_list(listed)}


async def _plain_list(listed: list[Any]) -> list[Any]:
    read: list[Any] = []
    for at in range(0, len(listed), ITEMS_PER_TURN):
        if at:
            await asyncio.sleep(0)
        read += _read(listed[at : at + ITEMS_PER_TURN])
    return read


def _read(value: Any) -> Any:
    return with_instants(orjson.loads(orjson.dumps(value)))


def page_of(result: Any, exchange: Exchange, seal: CursorSeal) -> dict[str, Any]:
    """An operation's list under its common name, with an opaque cursor; the next page is linked, too."""
    endpoint = exchange.endpoint
    if isinstance(result, list):
        return {"items": result, "next": None}
    rest = {name: value for name, value in result.items() if name not in (endpoint.items, "next")}
    position = result.get("next")
    cursor = None
    if position is not None:
        cursor = seal.seal(position, endpoint.path, filters_of(exchange), exchange.user.user)
        query = {**_text(exchange), "cursor": cursor}
        exchange.headers["Link"] = f'<?{urlencode(query, doseq=True)}>; rel="next"'
    return {"items": result.get(endpoint.items, []), "next": cursor, **rest}


def filters_of(exchange: Exchange) -> dict[str, Any]:
    """What a cursor belongs to: the path, and the query without the page."""
    query = {name: value for name, value in exchange.query.items() if name not in ("limit", "cursor")}
    return {"path": dict(exchange.path), "query": query}


def _text(exchange: Exchange) -> dict[str, Any]:
    return {name: exchange.request.query_params.getlist(name) for name in exchange.query if name != "cursor"}


def json_answer(value: Any, exchange: Exchange) -> Response:
    """With a tag of its content, where the endpoint says so, and without its body for whoever knows it."""
    body = orjson.dumps(value)
    endpoint = exchange.endpoint
    status = exchange.status or endpoint.status
    if endpoint.reads and endpoint.conditional:
        tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        exchange.headers.setdefault("ETag", tag)
        if knows(exchange.request.headers, tag):
            return Response(status_code=304, headers=exchange.headers)
    if status == 204:
        return Response(status_code=204, headers=exchange.headers)
    return Response(body, status, headers=exchange.headers, media_type=JSON)


def knows(headers: Headers, tag: str) -> bool:
    """Whether the client has this content."""
    known = headers.get("if-none-match", "")
    plain_tag = tag.removeprefix("W/")
    return any(part.strip().removeprefix("W/") in (plain_tag, "*") for part in known.split(",") if part.strip())


def problem_answer(problem: Problem, request_id: str, challenges: tuple[str, ...]) -> Response:
    headers: Mapping[str, str] = headers_of(problem, challenges)
    body = orjson.dumps(with_instants(body_of(problem, request_id)))
    return Response(body, MEANINGS[problem.code].status, headers=headers, media_type=PROBLEM)
