"""EventMesh over HTTP: a broker that is killed, and the other door of EventMesh."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import httpx
import orjson
import pytest
from anyio.to_thread import run_sync

import vibemq
from tests.integration.eventmesh_http import IDENTITY, Answer, Client, Push, Script, subscriber
from tests.interop.configured import ConfiguredBroker
from tests.interop.eventmesh import MeshWire
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class MeshDoors(ConfiguredBroker):
    """`vibemq serve` with both doors of EventMesh."""

    def __init__(self, folder: Path) -> None:
        allowed = '[listeners.settings]\npush_allowed_networks = ["127.0.0.0/8"]'
        super().__init__(folder, ["eventmesh", "eventmesh-http"], last=allowed)

    def client(self) -> Client:
        url = f"http://127.0.0.1:{self.ports['eventmesh-http']}"
        return Client(httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False), dict(IDENTITY))


async def test_subscriptions_and_what_waits_for_them_survive_a_kill(tmp_path: Path) -> None:
    broker = MeshDoors(tmp_path)
    await run_sync(broker.start)
    taking = False
    got: set[str] = set()

    def script(push: Push) -> Answer:
        if not taking:
            return Answer(hang=True)
        got.add(push.content)
        return Answer()

    try:
        async with subscriber(script) as app:
            mesh = broker.client()
            assert (await mesh.subscribe("t", app.url()))["retCode"] == 0
            confirmed = {str(number) for number in range(40)}
            for content in confirmed:
                assert (await mesh.publish("t", content))["retCode"] == 0
            await until(lambda: app.pushes)
            await mesh.http.aclose()
            await run_sync(broker.kill)
            taking = True
            await run_sync(broker.start)
            await until(lambda: got == confirmed)
            mesh = broker.client()
            assert (await mesh.unsubscribe("t", app.url()))["retCode"] == 0
            await mesh.http.aclose()
            # What was unsubscribed before a kill stays so.
            await run_sync(broker.kill)
            await run_sync(broker.start)
            mesh = broker.client()
            before = len(app.pushes)
            assert (await mesh.publish("t", "nobody"))["retCode"] == 0
            async with subscriber() as other:
                assert (await mesh.subscribe("t", other.url(), group="other"))["retCode"] == 0
                await mesh.publish("t", "x")
                await until(lambda: "x" in other.contents)
            assert len(app.pushes) == before
            await mesh.http.aclose()
    finally:
        await run_sync(broker.stop)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
async def test_a_ledger_over_kills_of_the_broker(tmp_path: Path, kills: int) -> None:
    """What was confirmed before a kill comes to the URLs, which fail as dice say, of both groups; nothing comes that
    nobody has published."""
    dice = random.Random(kills)
    broker = MeshDoors(tmp_path)
    await run_sync(broker.start)
    tried, confirmed = set[str](), set[str]()
    taken: dict[str, set[str]] = {"a": set(), "b": set()}

    def script_of(group: str) -> Script:
        def script(push: Push) -> Answer:
            roll = dice.random()
            if roll < 0.1:
                return Answer(raw=b"")
            if roll < 0.2:
                return Answer(raw=b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
            taken[group].add(push.content)
            return Answer()

        return script

    async def publish(life: int, number: int) -> None:
        """Until the broker is gone."""
        mesh, count = broker.client(), 0
        with suppress(httpx.HTTPError):
            while True:
                content = f"{life}-{number}-{count}"
                tried.add(content)
                if (await mesh.publish("t", content, bizseqno=content))["retCode"] == 0:
                    confirmed.add(content)
                count += 1
        await mesh.http.aclose()

    try:
        async with subscriber(script_of("a")) as a, subscriber(script_of("b")) as b:
            await make_queue(broker)
            mesh = broker.client()
            for group, app in (("a", a), ("b", b)):
                assert (await mesh.subscribe("t", app.url(), group=group))["retCode"] == 0
            await mesh.http.aclose()
            pushed = 0
            for life in range(1, kills + 1):
                before = len(confirmed)
                publishers = [asyncio.ensure_future(publish(life, number)) for number in range(3)]
                # The first push of a life comes at once. Later ones may wait until URLs that have failed have rested,
                # and what is published meanwhile is more than they take in time.
                await until(lambda: len(confirmed) > before + 20 and len(a.pushes) + len(b.pushes) > pushed)  # noqa: B023  # called at once
                await run_sync(broker.kill)
                await asyncio.gather(*publishers)
                pushed = len(a.pushes) + len(b.pushes)
                await run_sync(broker.start)
            await until(lambda: all(group >= confirmed for group in taken.values()))
            assert all(group <= tried for group in taken.values())
    finally:
        await run_sync(broker.stop)


async def make_queue(broker: MeshDoors) -> None:
    """As EventMesh makes it, but that it tries again soon, and as often as it takes."""
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue(
            "t", mode="fan-out-with-ack", durability="strong", max_attempts=1_000, retry_base_ms=10, retry_max_ms=50
        )


async def test_tcp_and_http_on_one_topic(tmp_path: Path) -> None:
    broker = MeshDoors(tmp_path)
    await run_sync(broker.start)
    mesh = broker.client()
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "y", "subject": "t"}
    event |= {"datacontenttype": "application/cloudevents+json", "data": {"content": "c"}}
    try:
        async with subscriber() as app:
            with MeshWire(broker.ports["eventmesh"]) as wire:
                await run_sync(wire.hello, "tcp")
                await run_sync(wire.subscribe, "t")
                await run_sync(wire.listen)
                await mesh.subscribe("t", app.url(), group="http")
                # HTTP to TCP, in both forms.
                assert (await mesh.publish("t", "from http"))["retCode"] == 0
                frame = await run_sync(wire.next, "ASYNC_MESSAGE_TO_CLIENT")
                assert (frame.json["topic"], frame.json["body"]) == ("t", "from http")
                assert frame.json["properties"]["uniqueid"] == "2" * 30
                await run_sync(wire.ack, frame)
                mesh.headers["protocoltype"] = "cloudevents"
                assert (await mesh.send(104, content=orjson.dumps(event).decode(), producergroup="p"))["retCode"] == 0
                frame = await run_sync(wire.next, "ASYNC_MESSAGE_TO_CLIENT")
                assert frame.properties["protocoltype"] == "cloudevents"
                assert frame.json["subject"] == "t"
                await run_sync(wire.ack, frame)
                # TCP to HTTP.
                await until(lambda: len(app.pushes) == 2)
                with MeshWire(broker.ports["eventmesh"]) as publisher:
                    await run_sync(lambda: publisher.hello("pub", "pub"))
                    await run_sync(lambda: publisher.publish("t", "from tcp", colour="red"))
                await until(lambda: len(app.pushes) == 3)
                assert app.contents[0] == "from http"
                assert orjson.loads(app.contents[1])["id"] == "1"
                assert app.contents[2] == "from tcp"
                assert orjson.loads(app.pushes[2].fields["extFields"])["colour"] == "red"
    finally:
        await mesh.http.aclose()
        await run_sync(broker.stop)
