"""EventMesh over HTTP: pushes to the URLs of subscribers, and what becomes of subscriptions."""

import asyncio
import random
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.eventmesh_http import Answer, Push, Script, client, http_settings, subscriber, url_of
from tests.waiting import until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.eventmesh.http.push.registry import QUEUE
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


def status(code: int, *headers: str, body: bytes = b"") -> Answer:
    lines = "".join(f"{header}\r\n" for header in headers)
    return Answer(raw=f"HTTP/1.1 {code} X\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)


async def dead_letters(mq: vibemq.Client) -> list[dict[str, Any]]:
    letters: list[dict[str, Any]] = (await mq.admin("dlq.list", queue="t", limit=1_000))["letters"]
    return letters


async def test_what_answers_mean(tmp_path: Path) -> None:
    """One message for each answer; what a subscriber wants again comes again, and what failed is in the DLQ."""
    answers = {
        "ok0": Answer(b'{"retCode":0}'),
        "ok1": Answer(b'{"retCode":1,"x":2}'),
        "text": Answer(b'{"retCode":"0"}'),
        "204": status(204),
        "201": status(201, body=b'{"retCode":1}'),
        "again": Answer(b'{"retCode":2}'),
        "nobody": Answer(b'{"retCode":5}'),
        "500": status(500),
        "302": status(302, "location: http://127.0.0.1:1024/"),
        "429": status(429, "retry-after: 50"),
        "fail": Answer(b'{"retCode":3}'),
        "other": Answer(b'{"retCode":77}'),
        "list": Answer(b"[]"),
        "empty": Answer(b""),
        "garbage": Answer(b"<html>"),
        "410": status(410),
        "415": status(415),
    }
    done, again = {"ok0", "ok1", "text", "204", "201"}, {"again", "nobody", "500", "302", "429"}
    seen: list[str] = []

    def script(push: Push) -> Answer:
        seen.append(push.content)
        return answers[push.content] if seen.count(push.content) == 1 else Answer()

    async with (
        TimedBroker(settings=http_settings(tmp_path)) as broker,
        subscriber(script) as app,
        client(broker) as mesh,
        vibemq.connect(broker.url) as mq,
    ):
        await mesh.subscribe("t", app.url())
        for content in answers:
            await mesh.publish("t", content, bizseqno=content)
        await until(lambda: set(seen) == set(answers))

        async def came_again() -> bool:
            broker.advance(3)
            return all(seen.count(content) == 2 for content in again)

        await until(came_again)
        assert {content for content in seen if seen.count(content) > 1} == again
        letters = await dead_letters(mq)
        rejected = {letter["headers"]["bizseqno"]: letter for letter in letters}
        assert rejected.keys() == answers.keys() - done - again
        assert "retCode 3" in rejected["fail"]["error"]
        assert "not JSON" in rejected["garbage"]["error"]


async def test_who_never_takes_a_message_finds_it_in_the_dlq(tmp_path: Path) -> None:
    async with (
        TimedBroker(settings=http_settings(tmp_path)) as broker,
        subscriber(lambda push: Answer(b'{"retCode":2}')) as app,
        client(broker) as mesh,
        vibemq.connect(broker.url) as mq,
    ):
        await mesh.subscribe("t", app.url())
        await mesh.publish("t", "poison")

        async def dead() -> bool:
            broker.advance(10)
            return bool(await dead_letters(mq))

        await until(dead)
        assert app.contents == ["poison"] * 3, "max_attempts of the queue"
        [letter] = await dead_letters(mq)
        assert "retCode 2" in letter["error"]


async def test_two_urls_of_a_group_share_and_two_groups_get_all(tmp_path: Path) -> None:
    async with (
        Broker(settings=http_settings(tmp_path)) as broker,
        client(broker) as mesh,
        subscriber() as one,
        subscriber() as two,
        subscriber() as other,
    ):
        await mesh.subscribe("t", one.url())
        await mesh.subscribe("t", two.url())
        await mesh.subscribe("t", other.url(), group="h")
        for number in range(20):
            await mesh.publish("t", str(number))
        await until(lambda: len(one.pushes) + len(two.pushes) == 20 == len(other.pushes))
        assert one.pushes
        assert two.pushes
        assert sorted(one.contents + two.contents) == sorted(other.contents)
        await mesh.unsubscribe("t", one.url())
        before = len(one.pushes)
        for number in range(5):
            await mesh.publish("t", f"later {number}")
        await until(lambda: "later 4" in two.contents)
        assert len(one.pushes) == before


async def test_a_url_that_hangs_is_down_or_redirects_inward_delays_nobody_else(tmp_path: Path) -> None:
    async with (
        Broker(settings=http_settings(tmp_path, push_timeout_ms=60_000)) as broker,
        client(broker) as mesh,
        subscriber(lambda push: Answer(hang=True)) as hanging,
        subscriber() as good,
        subscriber() as hidden,
    ):
        inward = status(302, f"location: {hidden.url()}")
        async with subscriber(lambda push: inward) as redirecting:
            for number, url in enumerate([hanging.url(), "http://127.0.0.1:1025/", redirecting.url()]):
                await mesh.subscribe("t", url, group=f"bad{number}")
            await mesh.subscribe("t", good.url(), group="good")
            for number in range(30):
                await mesh.publish("t", str(number))
            await until(lambda: len(good.pushes) == 30)
            assert good.contents == [str(number) for number in range(30)]
            assert len(hanging.pushes) == 1, "one push is under way to a URL"
            assert not hidden.pushes


async def test_while_a_url_is_down_its_messages_wait_in_order(tmp_path: Path) -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    async with TimedBroker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:
        await mesh.subscribe("t", f"http://127.0.0.1:{bound.getsockname()[1]}/")
        for number in range(10):
            await mesh.publish("t", str(number))
        async with vibemq.connect(broker.url) as mq:

            async def waits() -> bool:
                info = await mq.queue_info("t")
                return info is not None and info.groups[0].in_flight == 0

            await until(waits)
        got: list[str] = []

        def script(push: Push) -> Answer:
            got.append(push.content)
            return Answer()

        async with subscriber(script, bound=bound):

            async def all_came() -> bool:
                broker.advance(2)
                return len(got) == 10

            await until(all_came)
        assert got == [str(number) for number in range(10)]


async def test_a_url_that_has_not_answered_for_long_rests_before_it_is_called_again(tmp_path: Path) -> None:
    async with TimedBroker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:

        def script(push: Push) -> Answer:
            if len(app.pushes) > 0:
                return Answer()
            # It has taken five seconds, and hangs up.
            broker.advance_unseen(5)
            return Answer(raw=b"")

        async with subscriber(script) as app:
            await mesh.subscribe("t", app.url())
            async with vibemq.connect(broker.url) as mq:
                await mq.publish_many("t", [b"1", b"2"])

                async def given_back() -> bool:
                    info = await mq.queue_info("t")
                    return bool(app.pushes) and info is not None and info.groups[0].in_flight == 0

                await until(given_back)
                broker.advance(1)
                for _ in range(20):
                    await mq.queue_info("t")
            assert app.contents == ["1"]
            await until(lambda: broker.advance(1) or len(app.pushes) == 3)
            assert app.contents[1:] == ["1", "2"]


async def test_another_url_of_the_group_takes_what_the_first_did_not(tmp_path: Path) -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    down = f"http://127.0.0.1:{bound.getsockname()[1]}/"
    async with TimedBroker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh, subscriber() as up:
        await mesh.subscribe("t", down)
        await mesh.subscribe("t", up.url())
        for number in range(10):
            await mesh.publish("t", str(number))

        async def all_came() -> bool:
            broker.advance(1)
            return len(up.pushes) == 10

        await until(all_came)
        bound.close()
        assert sorted(up.contents) == sorted(str(number) for number in range(10))


# -- subscriptions ----------------------------------------------------------------------------------------------------


async def test_subscriptions_outlive_the_broker_and_unsubscribed_ones_do_not(tmp_path: Path) -> None:
    settings = http_settings(tmp_path, provider="lmdb")
    async with subscriber() as app, subscriber() as left:
        for round_ in range(3):
            if not round_:
                async with Broker(settings=settings) as broker, client(broker) as mesh:
                    await mesh.subscribe("t", app.url())
                    await mesh.subscribe("t", left.url(), group="left")
                    await mesh.subscribe("t", app.url())
                    await mesh.unsubscribe("t", left.url(), group="left")
                continue
            async with Broker(settings=settings) as broker, client(broker) as mesh:
                await mesh.publish("t", str(round_))
                await until(lambda: len(app.pushes) == round_)  # noqa: B023  # called at once
                info = await subscriptions_of(broker)
                assert info.ready + info.in_flight == 1
        assert not left.pushes


async def test_only_who_has_sent_a_heartbeat_ends_without_one(tmp_path: Path) -> None:
    async with (
        TimedBroker(settings=http_settings(tmp_path)) as broker,
        client(broker) as mesh,
        subscriber() as silent,
        subscriber() as beating,
        subscriber() as quiet,
    ):
        for app, group in ((silent, "a"), (beating, "b"), (quiet, "c")):
            await mesh.subscribe("t", app.url(), group=group)
        await mesh.heartbeat("t", beating.url(), group="b")
        await mesh.heartbeat("t", quiet.url(), group="c")
        assert (await mesh.heartbeat("t", "http://127.0.0.1:1/", group="z"))["retCode"] == 0
        broker.advance(60)
        await mesh.heartbeat("t", beating.url(), group="b")
        # The quiet one has been quiet for 95 s; much more at once would be a machine that was suspended.
        broker.advance(35)

        async def one_left() -> bool:
            return (await subscriptions_of(broker)).in_flight == 2

        await until(one_left)
        await mesh.publish("t", "x")
        await until(lambda: silent.pushes and beating.pushes)
        assert not quiet.pushes


@pytest.mark.parametrize("topics", [5, pytest.param(100, marks=pytest.mark.long)])
async def test_many_subscriptions_are_there_again_after_a_restart(tmp_path: Path, topics: int) -> None:
    """Ten groups of ten URLs for each topic: up to 10,000. Each group gets each message once."""
    settings = http_settings(tmp_path, provider="lmdb")
    items = orjson.dumps(
        [{"topic": f"t{number}", "mode": "CLUSTERING", "type": "ASYNC"} for number in range(topics)]
    ).decode()
    async with subscriber() as app:
        async with Broker(settings=settings) as broker, client(broker) as mesh:
            for group in range(10):
                for number in range(10):
                    url = app.url(f"/{group}/{number}")
                    assert (await mesh.send(206, topic=items, url=url, consumerGroup=f"g{group}"))["retCode"] == 0
        async with Broker(settings=settings) as broker, client(broker) as mesh:
            for number in range(topics):
                assert (await mesh.publish(f"t{number}", f"m{number}"))["retCode"] == 0
            await until(lambda: len(app.pushes) >= 10 * topics)
            info = await subscriptions_of(broker)
            assert (info.ready, info.in_flight) == (0, 100 * topics)
    got = Counter((push.path.split("/")[1], push.content) for push in app.pushes)
    assert got == {(str(group), f"m{number}"): 1 for group in range(10) for number in range(topics)}


async def subscriptions_of(broker: Broker) -> QueueInfo:
    """The queue where they are kept."""
    async with vibemq.connect(broker.url) as mq:
        [found] = [info for info in await mq.list_queues() if info.name == QUEUE]
    return found


# -- with others ------------------------------------------------------------------------------------------------------


async def test_native_to_http_and_back(tmp_path: Path) -> None:
    async with (
        Broker(settings=http_settings(tmp_path)) as broker,
        subscriber() as app,
        client(broker) as mesh,
        vibemq.connect(broker.url) as mq,
    ):
        await mesh.subscribe("t", app.url())
        await mq.publish("t", {"a": 1}, headers={"colour": "blue", "ce-x": "y"})
        await mq.publish("t", b"\xff\x00")
        await until(lambda: len(app.pushes) == 2)
        assert orjson.loads(app.pushes[0].content) == {"a": 1}
        assert orjson.loads(app.pushes[0].fields["extFields"])["colour"] == "blue"
        assert orjson.loads(app.pushes[1].fields["extFields"])["eventmesh-encoding"] == "base64"


async def test_a_request_by_http_is_answered_by_a_url_and_by_a_native_client(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh, client(broker) as replier:
        tasks: list[asyncio.Task[dict[str, object]]] = []

        def script(push: Push) -> Answer:
            fields = push.fields
            reply = replier.send(
                301,
                origtopic=fields["topic"],
                bizseqno=fields["bizseqno"],
                uniqueid=fields["uniqueId"],
                content=f"reply to {push.content}",
                extFields=fields["extFields"],
                producergroup="p",
            )
            tasks.append(asyncio.ensure_future(reply))
            return Answer()

        async with subscriber(script) as app:
            await mesh.subscribe("ask", app.url(), kind="SYNC")
            answer = await mesh.send(101, topic="ask", content="q", ttl="60000", bizseqno="1", uniqueid="2")
            assert answer["retCode"] == 0, answer
            told = orjson.loads(answer["retMsg"])
            assert (told["topic"], told["body"]) == ("ask", "reply to q")
            assert "correlation99id" not in told["properties"]
            assert app.pushes[0].headers["code"] == "106"
            assert (await tasks[0])["retCode"] == 0
            late = await replier.send(
                301, origtopic="ask", content="late", extFields=app.pushes[0].fields["extFields"], producergroup="p"
            )
            assert late["retCode"] == 15
        async with vibemq.connect(broker.url) as mq:

            async def serve() -> None:
                async with mq.subscribe("native") as messages:
                    async for message in messages:
                        await message.reply(b"\xff\x00" if message.payload == b"binary" else b"native reply")
                        await message.ack()
                        if message.payload == b"binary":
                            return

            serving = asyncio.ensure_future(serve())
            answer = await mesh.send(101, topic="native", content="q", ttl="60000", bizseqno="1", uniqueid="2")
            assert orjson.loads(answer["retMsg"])["body"] == "native reply"
            answer = await mesh.send(101, topic="native", content="binary", ttl="60000", bizseqno="1", uniqueid="2")
            told = orjson.loads(answer["retMsg"])
            assert (told["body"], told["properties"]["eventmesh-encoding"]) == ("/wA=", "base64")
            await serving


async def test_a_request_that_nobody_answers(tmp_path: Path) -> None:
    async with TimedBroker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:
        asked = asyncio.ensure_future(mesh.send(101, topic="ask", content="q", ttl="3000", bizseqno="1", uniqueid="2"))
        await until(lambda: broker.waits)
        broker.advance(4)
        answer = await asked
        assert answer["retCode"] == 4
        assert answer["retMsg"].startswith("eventMesh waiting rr msg error")


async def test_the_guard_speaks_at_subscribe(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path, push_allowed_networks=())) as broker, client(broker) as mesh:
        for url in (
            "http://127.0.0.1:8080/",
            "http://[::1]/",
            "http://169.254.169.254/latest",
            "ftp://x/",
            url_of(broker),
        ):
            answer = await mesh.subscribe("t", url)
            assert answer["retCode"] == 7
            assert "not called" in answer["retMsg"]
        async with vibemq.connect(broker.url) as mq:
            assert await mq.queue_info("t") is None, "nothing was made for it"


# -- a ledger over subscribers that fail at random --------------------------------------------------------------------


async def test_nothing_is_lost_or_comes_again_after_its_ack_whatever_urls_do(tmp_path: Path) -> None:
    """Two groups of two URLs each, which answer, fail, hang up or answer garbage as dice say; the broker is
    restarted in between. Each group acknowledges each confirmed message once, or it is a dead letter of the group."""
    dice = random.Random(18)
    acked: Counter[tuple[str, str]] = Counter()

    def script_of(group: str) -> Script:
        def script(push: Push) -> Answer:
            roll = dice.random()
            if roll < 0.6:
                acked[group, push.content] += 1
                return Answer()
            if roll < 0.75:
                return Answer(b'{"retCode":2}')
            if roll < 0.85:
                return status(503)
            if roll < 0.95:
                return Answer(raw=b"")
            return Answer(b"garbage")

        return script

    settings = http_settings(tmp_path, provider="sqlite")
    confirmed: set[str] = set()
    groups = ("a", "b")
    async with (
        subscriber(script_of("a")) as a1,
        subscriber(script_of("a")) as a2,
        subscriber(script_of("b")) as b1,
        subscriber(script_of("b")) as b2,
    ):
        urls = {"a": (a1.url(), a2.url()), "b": (b1.url(), b2.url())}
        for part in range(2):
            async with TimedBroker(settings=settings) as broker, client(broker) as mesh:
                if not part:
                    for group in groups:
                        for url in urls[group]:
                            await mesh.subscribe("t", url, group=group)
                for number in range(60):
                    content = f"{part}-{number}"
                    assert (await mesh.publish("t", content, bizseqno=content))["retCode"] == 0
                    confirmed.add(content)
                    broker.advance(0.5)
                if part:
                    async with vibemq.connect(broker.url) as mq:
                        dead: set[tuple[str, str]] = set()

                        async def settled() -> bool:
                            broker.advance(5)  # called at once
                            letters = await dead_letters(mq)
                            dead.update((letter["group"], letter["headers"]["bizseqno"]) for letter in letters)  # noqa: B023
                            return len(dead | acked.keys()) == len(groups) * len(confirmed)  # noqa: B023

                        await until(settled)
    assert dead | acked.keys() == {(group, content) for group in groups for content in confirmed}
    assert not dead & acked.keys(), "no dead letter of what was acknowledged"
    assert max(acked.values()) == 1, "nothing comes again after its acknowledgement"


async def test_pushes_end_when_the_user_is_removed_and_others_go_on(tmp_path: Path) -> None:
    settings = http_settings(tmp_path, auth=Auth(superuser="root", superuser_password=SecretStr("secret")))
    async with (
        Broker(settings=settings) as broker,
        subscriber() as ours,
        subscriber() as theirs,
        client(broker, username="root", passwd="secret") as root,
        client(broker, username="ann", passwd="secret") as ann,
        vibemq.connect(broker.url.replace("://", "://root:secret@")) as mq,
    ):
        await mq.admin("user.add", user="ann", password_hash=hash_password("secret"))
        await mq.admin("user.grant", user="ann", queues="t", actions=["subscribe", "publish"])
        assert (await root.subscribe("t", ours.url(), group="root"))["retCode"] == 0
        assert (await ann.subscribe("t", theirs.url(), group="ann"))["retCode"] == 0
        await root.publish("t", "1")
        await until(lambda: ours.pushes and theirs.pushes)
        await mq.admin("user.remove", user="ann")
        await root.publish("t", "2")
        await until(lambda: len(ours.pushes) == 2)
        assert (await ann.publish("t", "3"))["retCode"] == 20
        assert theirs.contents == ["1"]


@pytest.mark.parametrize("other", [False, True])
async def test_pushes_go_on_as_soon_as_a_permission_has_come_back(tmp_path: Path, other: bool) -> None:
    """The broker's clock stands still: what asks again after a time would never ask."""
    settings = http_settings(tmp_path, auth=Auth(superuser="root", superuser_password=SecretStr("secret")))
    async with (
        TimedBroker(settings=settings) as broker,
        subscriber() as app,
        client(broker, username="root", passwd="secret") as root,
        client(broker, username="ann", passwd="secret") as ann,
        vibemq.connect(broker.url.replace("://", "://root:secret@")) as mq,
    ):
        may: dict[str, Any] = {"user": "ann", "queues": "t", "actions": ["subscribe"]}
        await mq.admin("user.add", user="ann", password_hash=hash_password("secret"))
        await mq.create_queue("t", mode="fan_out_with_ack", durability="transient")
        await mq.admin("user.grant", **may)
        assert (await ann.subscribe("t", app.url("/other"), group="ann"))["retCode"] == 0
        assert (await ann.subscribe("t", app.url(), group="ann"))["retCode"] == 0

        async def nobody_consumes() -> bool:
            return not any(group.consumers for group in (await mq.queue_info("t")).groups)

        await mq.admin("user.revoke", **may)
        await until(nobody_consumes)
        if other:
            # It is the group that asks again, whichever of its URLs it has done so for.
            assert (await ann.unsubscribe("t", app.url("/other"), group="ann"))["retCode"] == 0
        await root.publish("t", "1")
        await mq.admin("user.grant", **may)
        await until(lambda: app.contents == ["1"])


async def test_what_cannot_be_written_for_a_subscriber_is_dead_lettered_and_others_go_on(tmp_path: Path) -> None:
    """A native publisher may write any header, also those in which EventMesh's messages keep what they have exactly."""
    deep = "[" * 400 + "]" * 400
    async with (
        Broker(settings=http_settings(tmp_path)) as broker,
        subscriber() as app,
        client(broker) as mesh,
        vibemq.connect(broker.url) as mq,
    ):
        await mesh.subscribe("t", app.url())
        await mq.publish("t", "poison", headers={"eventmesh-properties": f'{{"a":{deep}}}'})
        await mq.publish("t", "sound")
        await until(lambda: len(app.pushes) == 1)
        assert "sound" in app.pushes[0].content
        (letter,) = await dead_letters(mq)
        assert "nests too deeply" in letter["error"]


@pytest.mark.parametrize(
    "kind", ["application/json", "application/cloudevents+json", "application/cloudevents-batch+json"]
)
async def test_what_nests_too_deeply_is_answered(tmp_path: Path, kind: str) -> None:
    deep = "[" * 300 + "]" * 300
    event = f'{{"specversion":"1.0","id":"1","source":"s","type":"t","data":{deep},"content":"c","topic":"t"}}'
    body = (f"[{event}]" if "batch" in kind else event).encode()
    async with Broker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:
        for path, headers in (("/", {"code": "104"}), ("/eventmesh/publish/t", {})):
            answer = await mesh.http.post(path, content=body, headers={"content-type": kind, **headers})
            # What is posted to a path is passed on as it came.
            passed_on = kind == "application/json" and path != "/"
            assert (answer.json()["retCode"] == 0) == passed_on, (path, answer.content)
        assert (await mesh.publish("t", "1"))["retCode"] == 0
