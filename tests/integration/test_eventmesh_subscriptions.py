"""EventMesh over HTTP: what is asked of the part that all subscribers share is always answered."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.eventmesh_http import Answer, Client, client, http_settings, subscriber
from tests.waiting import until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Limits, Settings
from vibemq.errors import ConfigInvalid
from vibemq.model.commands import DeleteQueue
from vibemq.model.rows import pack_row
from vibemq.protocols.eventmesh.http.push import registry
from vibemq.protocols.eventmesh.http.push.registry import QUEUE, SubscriptionRegistry
from vibemq.server.broker import Broker
from vibemq.server.net import plugin_services
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


async def ask(mesh: Client, verb: str, topics: Sequence[str], url: str, group: str = "g") -> int:
    body = {"url": url, "consumerGroup": group, "topic": [{"topic": topic, "mode": "CLUSTERING"} for topic in topics]}
    answer = await mesh.http.post(
        f"/eventmesh/{verb}/local",
        content=orjson.dumps(body),
        headers={**mesh.headers, "content-type": "application/json"},
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


async def test_the_limit_of_a_connection_is_not_that_of_all_subscriptions(tmp_path: Path) -> None:
    """When the broker starts, each of them asks for its messages."""
    limits = Limits(messages_per_client_per_second=5)
    settings = http_settings(tmp_path).model_copy(update={"limits": limits})
    async with Broker(settings=settings) as broker, subscriber() as app, client(broker) as mesh:
        assert await ask(mesh, "subscribe", [f"t{number}" for number in range(30)], app.url()) == 0
        await mesh.publish("t29", "here")
        await until(lambda: app.contents == ["here"])


def with_another_door(settings: Settings, **options: object) -> Settings:
    native, door = settings.listeners
    other = door.model_copy(update={"settings": {**door.settings, **options}})
    return settings.model_copy(update={"listeners": (native, door, other)})


async def test_listeners_share_the_subscriptions(tmp_path: Path) -> None:
    """What is subscribed at one of them is unsubscribed at the other, and all that is left outlives the broker."""
    settings = with_another_door(http_settings(tmp_path, provider="sqlite"))
    topics = [f"t{number}" for number in range(4)]

    async def ask_at(broker: Broker, place: int, verb: str, topic: str, url: str) -> None:
        door = [each for each in broker.listening if each.protocol == "eventmesh-http"][place]
        async with client(broker) as mesh:
            mesh.http.base_url = f"http://127.0.0.1:{door.port}"
            assert await ask(mesh, verb, [topic], url) == 0

    async with subscriber() as app:
        async with Broker(settings=settings) as broker:
            for number, topic in enumerate(topics):
                await ask_at(broker, number % 2, "subscribe", topic, app.url())
            await ask_at(broker, 1, "unsubscribe", topics[0], app.url())
        async with Broker(settings=settings) as broker, client(broker) as mesh:
            for topic in topics:
                await mesh.publish(topic, topic)
            await until(lambda: sorted(app.contents) == topics[1:])


async def test_listeners_that_share_the_subscriptions_have_the_same_settings(tmp_path: Path) -> None:
    settings = with_another_door(http_settings(tmp_path), subscriptions_max=5)
    with pytest.raises(ConfigInvalid, match="eventmesh-http listeners have different settings"):
        async with Broker(settings=settings):
            raise AssertionError("it does not start")


async def test_a_broker_that_had_nothing_to_do_for_an_hour_takes_a_subscription(tmp_path: Path) -> None:
    async with (
        TimedBroker(settings=http_settings(tmp_path)) as broker,
        subscriber() as app,
        client(broker) as mesh,
    ):
        broker.advance_unseen(3_600)
        asked = asyncio.create_task(ask(mesh, "subscribe", ["t"], app.url()))
        # Timers are looked at all the time, as they are where time passes.
        await until(lambda: broker.advance(0) or asked.done())
        assert await asked == 0
        await mesh.publish("t", "here")
        await until(lambda: app.contents == ["here"])


async def test_when_the_shared_part_fails_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = SubscriptionRegistry._take

    def broken(registry: SubscriptionRegistry, sequence: int, row: bytes, published_at: int) -> None:
        if b'"fault"' in bytes(row):
            monkeypatch.setattr(SubscriptionRegistry, "_take", take)
            raise RecursionError("injected")
        take(registry, sequence, row, published_at)

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


async def test_urls_that_hang_do_not_hold_up_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_services, "GRACE_S", 0.1)
    settings = http_settings(tmp_path, push_timeout_ms=60_000)
    async with subscriber(lambda push: Answer(hang=True)) as app:
        async with Broker(settings=settings.model_copy(update={"drain_timeout_ms": 120_000})) as broker:
            async with client(broker) as mesh:
                for number in range(60):
                    await ask(mesh, "subscribe", ["t"], app.url(f"/{number}"), group=f"g{number}")
                await mesh.publish("t", "x")
                await until(lambda: app.pushes)
            begun = len(app.pushes)
            async with asyncio.timeout(40):
                await broker.stop()
        assert begun <= len(app.pushes) <= 8, "those that wait for a slot do not begin"


async def test_a_changed_password_silences_nobody(tmp_path: Path) -> None:
    settings = http_settings(tmp_path, auth=Auth(superuser="root", superuser_password=SecretStr("secret")))
    async with (
        TimedBroker(settings=settings) as broker,
        subscriber() as app,
        client(broker, username="ann", passwd="first") as ann,
        vibemq.connect(broker.url.replace("://", "://root:secret@")) as mq,
    ):
        await mq.admin("user.add", user="ann", password_hash=hash_password("first"))
        await mq.admin("user.grant", user="ann", queues="t", actions=["subscribe", "publish", "create"])
        assert await ask(ann, "subscribe", ["t"], app.url()) == 0
        await mq.admin("user.password", user="ann", password="another password")
        ann.headers["passwd"] = "another password"
        assert (await ann.publish("t", "x"))["retCode"] == 0
        await until(lambda: app.contents == ["x"])


async def test_when_the_queue_of_subscriptions_is_deleted_they_are_kept_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registries: list[SubscriptionRegistry] = []
    start = SubscriptionRegistry.start

    def started(registry: SubscriptionRegistry) -> None:
        registries.append(registry)
        start(registry)

    monkeypatch.setattr(SubscriptionRegistry, "start", started)
    settings = http_settings(tmp_path, provider="lmdb")
    async with subscriber() as app:
        async with Broker(settings=settings) as broker, client(broker) as mesh:
            for topic in ("again", "quiet"):
                assert await ask(mesh, "subscribe", [topic], app.url()) == 0
            session = registries[0]._session
            session.ask(DeleteQueue(session.number, None, QUEUE))
            await until(lambda: len(registries) == 2)
            assert await ask(mesh, "subscribe", ["again"], app.url()) == 0
            await until(lambda: len(registries[0]._held) == 2)
        async with Broker(settings=settings) as broker, client(broker) as mesh:
            for topic in ("again", "quiet"):
                await mesh.publish(topic, topic)
            await until(lambda: sorted(app.contents) == ["again", "quiet"])


ANOTHER_SECRET = "a whole other secret"


async def give_ann(mq: vibemq.Client, password: str) -> None:
    await mq.admin("user.add", user="ann", password_hash=hash_password(password))
    await mq.admin("user.grant", user="ann", queues="t", actions=["subscribe"])


async def kept(mq: vibemq.Client) -> int:
    """How many subscriptions are kept."""
    return sum(info.ready + info.in_flight for info in await mq.list_queues() if info.name == QUEUE)


async def test_who_is_given_the_name_of_a_removed_user_does_not_get_its_subscriptions(tmp_path: Path) -> None:
    settings = http_settings(tmp_path, auth=Auth(superuser="root", superuser_password=SecretStr("secret")))
    async with (
        TimedBroker(settings=settings) as broker,
        subscriber() as theirs,
        subscriber() as ours,
        client(broker, username="root", passwd="secret") as root,
        client(broker, username="ann", passwd="first") as ann,
        client(broker, username="ann", passwd=ANOTHER_SECRET) as other,
        vibemq.connect(broker.url.replace("://", "://root:secret@")) as mq,
    ):
        await mq.create_queue("t", mode="fan_out_with_ack", durability="transient")
        await give_ann(mq, "first")
        assert await ask(ann, "subscribe", ["t"], theirs.url()) == 0
        await mq.admin("user.remove", user="ann")

        async def nobody_consumes() -> bool:
            return not any(group.consumers for group in (await mq.queue_info("t")).groups)

        await until(nobody_consumes)
        broker.advance(1)
        await give_ann(mq, ANOTHER_SECRET)
        assert await ask(other, "subscribe", ["t"], ours.url()) == 0
        broker.advance(60)
        for number in range(6):
            await root.publish("t", str(number))
        await until(lambda: len(ours.contents) + len(theirs.contents) == 6)
        assert theirs.contents == []

        async def theirs_are_forgotten() -> bool:
            return await kept(mq) == 1

        await until(theirs_are_forgotten)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("then", ["the same user", "another user", "no authentication"])
async def test_after_a_restart_subscriptions_are_those_of_the_same_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, then: str
) -> None:
    """Version 1 of what is kept did not say when the user was made; the message itself says when it was subscribed."""
    auth = Auth(superuser="root", superuser_password=SecretStr("secret"))
    settings = http_settings(tmp_path, auth=auth, provider="sqlite")
    without = settings.model_copy(update={"listeners": settings.listeners[:1]})
    monkeypatch.setattr(registry, "to_row", row_of_version_1 if version == 1 else registry.to_row)
    async with subscriber() as app:
        async with (
            TimedBroker(settings=settings) as broker,
            client(broker, username="ann", passwd="first") as ann,
            vibemq.connect(broker.url.replace("://", "://root:secret@")) as mq,
        ):
            await mq.create_queue("t", mode="fan_out_with_ack")
            await give_ann(mq, "first")
            broker.advance(1)
            assert await ask(ann, "subscribe", ["t"], app.url()) == 0
        async with (
            TimedBroker(settings=without) as broker,
            vibemq.connect(broker.url.replace("://", "://root:secret@")) as mq,
        ):
            broker.advance(100)
            if then != "the same user":
                await mq.admin("user.remove", user="ann")
            if then == "another user":
                await give_ann(mq, ANOTHER_SECRET)
            await mq.publish("t", b"x")
        if then == "no authentication":
            # It acts for everybody alike.
            settings, login = settings.model_copy(update={"auth": Auth()}), ""
        else:
            login = "root:secret@"
        async with (
            TimedBroker(settings=settings) as broker,
            vibemq.connect(broker.url.replace("://", f"://{login}")) as mq,
        ):
            broker.advance(200)

            async def decided() -> bool:
                return bool(app.contents) or not await kept(mq)

            await until(decided)
            assert app.contents == ([] if then == "another user" else ["x"])


def row_of_version_1(kept: registry.KeptSubscription, record_id: str) -> bytes:
    fields = asdict(kept.key) | {"version": 1, "sync": kept.sync, "beating": kept.beating}
    del fields["since"]
    return pack_row(record_id, orjson.dumps(fields))


async def test_a_heartbeat_beside_the_end_of_a_subscription_keeps_nothing_of_it(tmp_path: Path) -> None:
    """The first heartbeat has the subscription kept anew: what is on its way when it ends goes as well."""
    settings = http_settings(tmp_path, provider="lmdb")
    topics = [f"t{number}" for number in range(8)]
    async with Broker(settings=settings) as broker, subscriber() as app, client(broker) as mesh:
        url = app.url()
        assert await ask(mesh, "subscribe", topics, url) == 0
        async with vibemq.connect(broker.url) as mq:
            for topic in topics:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(mesh.heartbeat(topic, url))
                    ended = tasks.create_task(mesh.unsubscribe(topic, url))
                assert ended.result()["retCode"] == 0
            # Whoever was told that it has ended is not called again, also after a kill.
            assert await kept(mq) == 0
            assert await ask(mesh, "subscribe", topics[:1], url) == 0
            await mesh.publish("t0", "again")
            await until(lambda: app.contents == ["again"])


async def test_the_session_of_a_user_without_subscriptions_ends_and_what_is_subscribed_later_is_served(
    tmp_path: Path,
) -> None:
    async with (
        TimedBroker(settings=http_settings(tmp_path)) as broker,
        subscriber() as app,
        client(broker) as mesh,
    ):
        table = broker._running().connection_table
        assert await ask(mesh, "subscribe", ["t"], app.url()) == 0
        await mesh.publish("t", "before")
        await until(lambda: app.contents == ["before"])
        own_and_user = len(table.without_socket)
        assert await ask(mesh, "unsubscribe", ["t"], app.url()) == 0
        await mesh.publish("t", "between")
        await until(lambda: broker.advance(1) or len(table.without_socket) == own_and_user - 1)
        assert await ask(mesh, "subscribe", ["t"], app.url()) == 0
        await mesh.publish("t", "after")
        await until(lambda: app.contents == ["before", "between", "after"])
        assert len(table.without_socket) == own_and_user
