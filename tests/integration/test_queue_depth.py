"""GET /queues/{name}: what a scaler of consumers reads, by its token, for names of every alphabet."""

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from anyio import to_thread
from pydantic import SecretStr

import vibemq
from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio

TOKEN = "s3cret-of-the-scraper"  # of this test alone


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = Settings(
        data_dir=tmp_path / "data",
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0),),
        http=Http(port=0, token=SecretStr(TOKEN)),
    )
    async with Broker(settings=settings) as broker:
        yield broker


async def get(broker: Broker, path: str, token: str | None = TOKEN) -> tuple[int, Any]:
    assert broker.http_address is not None
    host, port = broker.http_address
    request = urllib.request.Request(f"http://{host}:{port}{path}")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")

    def fetch() -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    status, body = await to_thread.run_sync(fetch)
    return status, json.loads(body) if body.startswith(b"{") else body


async def test_the_depth_of_a_queue_has_the_figures_that_scalers_use(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("orders", durability="transient")
        assert await get(broker, "/queues/orders") == (
            200,
            {"ready": 0, "in_flight": 0, "delayed": 0, "dead": 0, "consumers": 0, "oldest_age_seconds": 0.0},
        )
        for _ in range(3):
            await mq.publish("orders", b"x")
        await mq.publish("orders", b"later", delay=600)
        async with mq.subscribe("orders", prefetch=2) as messages:
            first = await anext(messages)
            await first.reject("of no use")
            await anext(messages)
            status, figures = await get(broker, "/queues/orders")
    assert status == 200
    assert figures.pop("oldest_age_seconds") >= 0
    assert figures == {"ready": 0, "in_flight": 2, "delayed": 1, "dead": 1, "consumers": 1}


@pytest.mark.parametrize("name", ["заказы", "注文", "a.b-c_d", "größe"])
async def test_a_name_may_be_percent_encoded(broker: Broker, name: str) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue(name, durability="transient")
        await mq.publish(name, b"x")
    status, figures = await get(broker, "/queues/" + quote(name, safe=""))
    assert (status, figures["ready"]) == (200, 1)
    everything = "".join(f"%{byte:02x}" for byte in name.encode())
    assert (await get(broker, "/queues/" + everything))[0] == 200


@pytest.mark.parametrize("path", ["/queues/nothing", "/queues/", "/queues/a%2Fb", "/queues/a/b", "/queues/%ff%00"])
async def test_a_missing_queue_is_not_found(broker: Broker, path: str) -> None:
    status, answer = await get(broker, path)
    assert (status, answer["code"]) == (404, "QUEUE_NOT_FOUND")
    assert "does not exist" in answer["message"]


async def test_the_route_asks_for_the_token_before_it_tells_what_exists(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("orders", durability="transient")
    for path in ("/queues/orders", "/queues/nothing"):
        assert (await get(broker, path, token=None))[0] == 401
        assert (await get(broker, path, token="wrong"))[0] == 401  # of no use anywhere
