"""Answers of the API: JSON, pages, tags of their content, problems. Pure."""

import asyncio
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response

from vibemq.errors import InvalidPayload
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.operations.reading.instants import with_instants
from vibemq.web.api.contract import JSON, Exchange
from vibemq.web.api.cursors import CursorSeal
from vibemq.web.api.errors import MEANINGS, Problem, body_of, headers_of

PROBLEM = "application/problem+json"
_TAG_OF_PROXY = re.compile(r'(?:W/)?("[^"]*?)(?:-(?:br|deflate|gzip|zstd))?"')


ITEMS_PER_TURN = 50
"""Of a list that is read before the loop has a turn."""


LONG_CHARACTERS = 64 * 1024
"""Of a text that is encoded before the loop has a turn."""
LONG_FIELDS = ("payload", "payload_base64")


class LongText:
    """A text of an answer that would take too long to encode at once. No data class: orjson would write its fields."""

    __slots__ = ("digest", "pieces")

    def __init__(self, pieces: list[bytes], digest: str) -> None:
        self.pieces = pieces
        """Of its JSON, without the quotation marks."""
        self.digest = digest
        """What the tag of the answer has of it."""


async def plain(result: Any, items: str = "") -> Any:
    """What an operation has answered, as the JSON that it is: its data classes are read once more.

    `items`: the name of a list in it that may be long. The loop has a turn between the parts of such a list, of one
    that stands alone, and of the body of a message.
    """
    if isinstance(result, dict) and (texts := _long_texts(result)):
        rest: dict[str, Any] = _read({**result, **dict.fromkeys(texts)})
        return {**rest, **{name: await _long_text(text) for name, text in texts.items()}}
    if isinstance(result, list):
        return await _plain_list(result)
    # Of a page that is a data class only the page itself: what is in it is read below.
    page = {one.name: getattr(result, one.name) for one in fields(result)} if is_dataclass(result) else result
    if not items or not isinstance(page, dict):
        return _read(page)
    listed = page.get(items)
    if not isinstance(listed, list) or sum(map(_weight, listed)) <= ITEMS_PER_TURN:
        return _read(page)
    rest = _read({name: page[name] for name in page if name != items})
    return {**rest, items: await _plain_list(listed)}


def _long_texts(result: dict[str, Any]) -> dict[str, str]:
    texts = {name: result[name] for name in LONG_FIELDS if name in result}
    return {name: text for name, text in texts.items() if isinstance(text, str) and len(text) > LONG_CHARACTERS}


async def _long_text(text: str) -> LongText:
    pieces, hashed = list[bytes](), hashlib.blake2b(digest_size=12)
    for at in range(0, len(text), LONG_CHARACTERS):
        piece = orjson.dumps(text[at : at + LONG_CHARACTERS])[1:-1]
        hashed.update(piece)
        pieces.append(piece)
        await asyncio.sleep(0)
    return LongText(pieces, hashed.hexdigest())


async def _plain_list(listed: list[Any]) -> list[Any]:
    read: list[Any] = []
    begun = weight = 0
    for end, item in enumerate(listed, 1):
        weight += _weight(item)
        if weight >= ITEMS_PER_TURN or end == len(listed):
            read += _read(listed[begun:end])
            begun, weight = end, 0
            await asyncio.sleep(0)
    return read


def _weight(item: Any) -> int:
    """The groups of a queue are items as well."""
    return 1 + len(item.groups) if isinstance(item, QueueInfo) else 1


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
    texts = [inner for inner in value.values() if isinstance(inner, LongText)] if isinstance(value, dict) else []
    body = _with_texts(value, texts) if texts else orjson.dumps(value)
    endpoint = exchange.endpoint
    status = exchange.status or endpoint.status
    if endpoint.reads and endpoint.conditional:
        content = orjson.dumps(value, default=_digest_of) if texts else body
        tag = f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        exchange.headers.setdefault("ETag", tag)
        if knows(exchange.request.headers, tag):
            return Response(status_code=304, headers=exchange.headers)
    if status == 204:
        return Response(status_code=204, headers=exchange.headers)
    return Response(body, status, headers=exchange.headers, media_type=JSON)


def _with_texts(value: Any, texts: list[LongText]) -> bytes:
    """They are copied once."""
    mark = os.urandom(16).hex()
    first, *others = orjson.dumps(value, default=lambda text: mark).split(mark.encode())
    parts = [first]
    for text, following in zip(texts, others, strict=True):
        parts += [*text.pieces, following]
    return b"".join(parts)


def _digest_of(text: LongText) -> str:
    return text.digest


def own_tag(text: str) -> str:
    """A tag that a client has brought back, as the broker has written it, without its mark of a weak one. Proxies that
    compress an answer make its tag a weak one, or add the coding to it."""
    found = _TAG_OF_PROXY.fullmatch(text.strip())
    return text if found is None else f'{found[1]}"'


def seen_tag(text: str) -> str | None:
    """Of the header If-Match; None: whatever it is. Raises InvalidPayload."""
    if text.count('"') > 2:
        raise InvalidPayload("the header If-Match has several tags; send that of the queue as it was read", "if-match")
    return None if text.strip() == "*" else own_tag(text).strip().strip('"') or "none"


def knows(headers: Headers, tag: str) -> bool:
    """Whether the client has this content."""
    known = headers.get("if-none-match", "")
    return any(own_tag(part).strip() in (own_tag(tag), "*") for part in known.split(","))


def problem_answer(problem: Problem, request_id: str, challenges: tuple[str, ...]) -> Response:
    headers: Mapping[str, str] = headers_of(problem, challenges)
    body = orjson.dumps(with_instants(body_of(problem, request_id)))
    return Response(body, MEANINGS[problem.code].status, headers=headers, media_type=PROBLEM)
