"""Bodies of messages and letters over HTTP, whole and in ranges."""

import base64
import gzip
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import vibemq
from tests.integration.http_api import ApiClient
from tests.integration.http_messages import info
from tests.waiting import until

pytestmark = pytest.mark.anyio


async def test_the_body_of_a_large_letter_is_fetched_whole(api: ApiClient) -> None:
    body = bytes(range(256)) * 8_000
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", body)
        (message,) = await mq.fetch("q")
        await message.reject("no")
    await until(lambda: info(api).dead == 1)
    (letter,) = (await api.done("GET", "/dead-letters"))["items"]
    whole = await api.get(f"/dead-letters/{letter['dead_id']}/body")
    assert (whole.content, whole.headers["content-length"]) == (body, str(len(body)))
    refused = await api.code("GET", f"/dead-letters/{letter['dead_id']}/body?decode=gzip")
    assert refused == (422, "INVALID_PAYLOAD")


async def test_the_packed_body_of_a_letter_is_fetched_opened(api: ApiClient) -> None:
    body = bytes(range(256)) * 8_000
    packed = gzip.compress(body)
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", packed)
        (message,) = await mq.fetch("q")
        await message.reject("no")
    await until(lambda: info(api).dead == 1)
    (letter,) = (await api.done("GET", "/dead-letters"))["items"]
    path = f"/dead-letters/{letter['dead_id']}"
    assert (await api.get(f"{path}/body?decode=gzip&queue=q")).content == body
    shown = await api.done("GET", f"{path}?decode=gzip&digest=true")
    assert (base64.b64decode(shown["payload_base64"]), shown["truncated"]) == (body[:262_144], True)
    assert shown["sha256"] == hashlib.sha256(packed).hexdigest()


async def test_the_head_of_an_export_reads_no_letter(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []

    async def exported(exchange: Any) -> AsyncIterator[bytes]:
        begun.append(exchange)
        yield b""

    monkeypatch.setattr("vibemq.web.api.endpoints.dead_letters.exported", exported)
    head = await api.ask("HEAD", "/dead-letters/export")
    assert (head.status_code, head.headers["content-type"], begun) == (200, "application/x-ndjson", [])
    await api.get("/dead-letters/export")
    assert len(begun) == 1


async def test_a_large_body_is_fetched_whole_and_in_ranges(api: ApiClient) -> None:
    body = bytes(range(256)) * 20_000
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", body)
    path = "/queues/q/messages/1/body"
    whole = await api.get(path)
    assert (whole.content, whole.headers["content-length"]) == (body, str(len(body)))
    part = await api.get(path, headers={"Range": "bytes=100000-299999"})
    assert (part.status_code, part.content) == (206, body[100_000:300_000])
    assert part.headers["content-length"] == "200000"
    assert (await api.get(path, headers={"Range": f"bytes={5:040}-6"})).content == body[5:7]
    head = await api.ask("HEAD", path, headers={"Range": "bytes=1-2"})
    assert head.status_code == 200
    assert (head.content, head.headers["content-length"]) == (b"", str(len(body)))
