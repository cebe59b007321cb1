"""EventMesh over HTTP: what is asked of the part that all subscribers share is always answered."""

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from tests.integration.eventmesh_http import Client, client, http_settings, subscriber
from tests.waiting import until
from vibemq.protocols.eventmesh.http.push.registry import SubscriptionRegistry
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def ask(mesh: Client, verb: str, topics: Sequence[str], url: str, group: str = "g") -> int:
    body = {"url": url, "consumerGroup": group, "topic": [{"topic": topic, "mode": "CLUSTERING"} for topic in topics]}
    answer = await mesh.http.post(
        f"/eventmesh/{verb}/local", content=orjson.dumps(body), headers={"content-type": "application/json"}
    )
    code: int = orjson.loads(answer.content)["retCode"]
    return code


async def test_many_topics_in_one_request(tmp_path: Path) -> None:
    async with (
        Broker(settings=http_settings(tmp_path)) as broker,
        subscriber() as app,
        client(broker) as mesh,
    ):
        url = app.url()
        many = [f"t{number}" for number in range(400)]
        assert await ask(mesh, "subscribe", ["same"] * 1_000, url) == 0
        assert await ask(mesh, "subscribe", many, url) == 0
        assert await ask(mesh, "subscribe", many, url) == 0, "all of them are known"
        assert await ask(mesh, "subscribe", ["same"] * 1_001, url) != 0, "too many for one request"
        assert await ask(mesh, "unsubscribe", ["same"] * 1_001, url) != 0
        await mesh.publish("t399", "here")
        await until(lambda: app.contents == ["here"])
        assert await ask(mesh, "unsubscribe", many * 2, url) == 0
        await mesh.publish("t399", "gone")
        await mesh.publish("same", "there")
        await until(lambda: app.contents == ["here", "there"])


async def test_when_the_shared_part_fails_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = SubscriptionRegistry._take

    def broken(registry: SubscriptionRegistry, sequence: int, row: bytes) -> None:
        if b'"fault"' in bytes(row):
            monkeypatch.setattr(SubscriptionRegistry, "_take", take)
            raise RecursionError("injected")
        take(registry, sequence, row)

    async with TimedBroker(settings=http_settings(tmp_path)) as broker, subscriber() as app, client(broker) as mesh:
        url = app.url()
        assert await ask(mesh, "subscribe", ["before"], url) == 0
        monkeypatch.setattr(SubscriptionRegistry, "_take", broken)
        await ask(mesh, "subscribe", ["fault"], url)
        await until(lambda: "a new one takes its place" in caplog.text)
        broker.advance(2)
        assert await ask(mesh, "subscribe", ["after"], url) == 0
        assert await ask(mesh, "subscribe", ["before"], url) == 0
        for topic in ("before", "after", "fault"):
            await mesh.publish(topic, topic)
        await until(lambda: {"before", "after"} <= set(app.contents))
        assert await ask(mesh, "unsubscribe", ["before", "after", "fault"], url) == 0
        before = len(app.contents)
        assert await ask(mesh, "subscribe", ["last"], url) == 0
        await mesh.publish("before", "nobody")
        await mesh.publish("last", "last")
        await until(lambda: "last" in app.contents)
        assert app.contents[before:] == ["last"]
