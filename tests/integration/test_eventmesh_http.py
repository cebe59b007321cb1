"""EventMesh over HTTP, on a real broker and real sockets: what requests are answered."""

import asyncio
import re
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
import pytest

import vibemq
from tests.integration.certificates import Authority
from tests.integration.eventmesh_http import IDENTITY, Client, client, form, http_settings, raw, subscriber, url_of
from tests.waiting import WAIT_S, until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Permission, Tls, User
from vibemq.protocols.eventmesh.http.session import PIPELINED_BYTES_MAX
from vibemq.server.broker import Broker
from vibemq.server.commit.backpressure import ALONE_SHARE_BYTES
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

VECTORS = Path(__file__).parent.parent / "vectors" / "eventmesh-http.json"
ITEM = '[{"topic":"t","mode":"CLUSTERING","type":"ASYNC"}]'
INVALID_CODE = {"retCode": 2, "retMsg": "requestCode can't be null, or must be number"}


async def bodies(broker: Broker, queue: str, count: int) -> list[bytes]:
    """Of the messages that wait there."""
    async with vibemq.connect(broker.url) as mq:
        messages = await mq.fetch(queue, max=count, timeout=WAIT_S)
        for message in messages:
            await message.ack()
        return [message.payload for message in messages]


async def test_what_is_published_comes_to_the_url_in_order(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path)) as broker, subscriber() as app, client(broker) as mesh:
        assert (await mesh.subscribe("t", app.url()))["retCode"] == 0
        answer = await mesh.publish("t", "hällo", extFields='{"colour":"red"}')
        assert answer["retCode"] == 0, answer
        assert answer["retMsg"].startswith("successSendResult[topic=t, messageId=")
        await until(lambda: app.pushes)
        [push] = app.pushes
        assert list(push.fields) == ["content", "bizseqno", "bizSeqNo", "uniqueId", "randomNo", "topic", "extFields"]
        assert push.content == "hällo"
        assert push.fields["bizseqno"] == "1" * 30
        assert push.headers["code"] == "105"
        assert orjson.loads(push.fields["extFields"])["colour"] == "red"
        for number in range(50):
            await mesh.publish("t", str(number))
        await until(lambda: len(app.pushes) == 51)
        assert app.contents[1:] == [str(number) for number in range(50)]
        assert app.connections == 1, "kept alive"


async def test_recorded_requests_of_the_java_client(tmp_path: Path) -> None:
    requests = [text.encode("latin-1") for text in orjson.loads(VECTORS.read_bytes())["requests"]]
    async with Broker(settings=http_settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        for request in requests:
            if b"code: 101" in request:
                continue
            if b"code: 206" in request:
                messages = await mq.fetch("TEST-TOPIC-HTTP-ASYNC", max=2, timeout=WAIT_S)
            answer = await raw(broker, request)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
            assert b'{"retCode":0,' in answer, answer
            code = request.partition(b"code: ")[2].split(b"\r\n")[0]
            assert b"\r\ncode: " + code + b"\r\n" in answer
            assert (b"eventmeshcluster: " in answer) == (code == b"104")
        assert [orjson.loads(message.payload) for message in messages] == [{"content": "testAsyncMessage"}] * 2
        assert messages[1].headers["ce-specversion"] == "1.0"


async def test_requests_in_pieces_and_several_in_one(tmp_path: Path) -> None:
    body = form(topic="t", content="x", producergroup="p")
    one = b"POST /any/path HTTP/1.1\r\nCode: 104\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    chunks = b"POST / HTTP/1.1\r\ncode: 104\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    async with Broker(settings=http_settings(tmp_path)) as broker:
        answer = await raw(broker, (one + chunks) * 20)
        assert answer.count(b'"retCode":0') == 40, answer
        assert len(await bodies(broker, "t", 40)) == 40


def posted(code: int, topic: str, content: str) -> bytes:
    body = form(topic=topic, content=content, ttl="600000", bizseqno="1", uniqueid="1", producergroup="p")
    return b"POST / HTTP/1.1\r\ncode: %d\r\ncontent-length: %d\r\n\r\n%s" % (code, len(body), body)


async def test_what_comes_behind_a_request_that_waits_stays_with_the_client_until_it_is_answered(
    tmp_path: Path,
) -> None:
    """Two that wait for a reply, and 20 MiB behind each: all are answered, in order."""
    behind = [posted(104, f"t{number % 7}", "x" * 60_000) for number in range(350)]
    stream = b"".join([posted(101, "ask", "1"), *behind, posted(101, "ask", "2"), *behind])
    async with (
        Broker(settings=http_settings(tmp_path)) as broker,
        vibemq.connect(broker.url) as mq,
        client(broker) as mesh,
        anyio.create_task_group() as tasks,
    ):
        answers: list[bytes] = []

        async def send() -> None:
            answers.append(await raw(broker, stream))

        tasks.start_soon(send)
        kept, table = 0, broker._running().connection_table
        for reply in ("1", "2"):
            [asked] = await mq.fetch("ask", timeout=WAIT_S)
            await until(lambda: [each for each in table if each.bytes_received > 400_000 and not each.is_read])
            # The broker has many turns for others meanwhile.
            for _ in range(20):
                await mesh.publish("other", "x")
            [waiting] = [each for each in table if not each.is_read]
            # And what a peer that is alone may send in one turn.
            assert waiting.bytes_received - kept <= PIPELINED_BYTES_MAX + 2 * ALONE_SHARE_BYTES
            kept = len(stream) // 2
            await asked.reply(reply)
            await asked.ack()
        await until(lambda: answers)
    told = [orjson.loads(part.partition(b"HTTP/1.1 ")[0]) for part in answers[0].split(b"\r\n\r\n")[1:]]
    assert [answer["retCode"] for answer in told] == [0] * len(told)
    once = ["ask", *(f"t{number % 7}" for number in range(350))]
    assert [re.findall(r"topic\W+(\w+)", answer["retMsg"])[0] for answer in told] == once * 2


async def test_a_client_that_is_not_read_and_goes_away_leaves_nothing(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        others = broker.connection_count
        port = int(url_of(broker).rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(posted(101, "ask", "1") + posted(104, "t", "x" * 60_000) * 200)
        [asked] = await mq.fetch("ask", timeout=WAIT_S)
        await until(lambda: [each for each in broker._running().connection_table if not each.is_read])
        # Its end is a reset.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await asked.reply("x")
        await asked.ack()
        await until(lambda: broker.connection_count == others)


ANSWERED: list[tuple[bytes, int, dict[str, Any] | None]] = [
    (b"DELETE / HTTP/1.1\r\n\r\n", 405, None),
    (b"PUT /eventmesh/publish/t HTTP/1.1\r\n\r\n", 405, None),
    (b"POST / HTTP/1.1\r\nversion: 3.0\r\ncode: 203\r\n\r\n", 400, None),
    (b"POST / HTTP/1.1\r\n\r\n", 400, INVALID_CODE),
    (b"POST / HTTP/1.1\r\ncode: abc\r\n\r\n", 400, INVALID_CODE),
    (b"POST / HTTP/1.1\r\ncode: 601\r\n\r\n", 400, INVALID_CODE),
    (b"POST / HTTP/1.1\r\ncode: 201\r\n\r\n", 400, INVALID_CODE),
    (b"POST / HTTP/1.1\r\ncode: 99999999999999999999\r\n\r\n", 400, INVALID_CODE),
    (b"GET /x?code=104&topic=t&content=c HTTP/1.1\r\n\r\n", 200, {"retCode": 0}),
    (b"GET /?code=206&topic=nope&url=u&consumerGroup=g HTTP/1.1\r\n\r\n", 500, {"retCode": 16}),
    (b"GET /?code=206&topic=%5B%5D&url=u&consumerGroup=g HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=206&topic=%5B1%5D&url=u&consumerGroup=g HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=206&url=u&consumerGroup=g HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (
        b"GET /?code=206&topic=%5B%22t%22%5D&url=http://localhost/&consumerGroup=g HTTP/1.1\r\n\r\n",
        200,
        {"retCode": 7},
    ),
    (
        b"GET /?code=207&topic=%5B%22t%22%5D&url=http://nobody/&consumerGroup=g HTTP/1.1\r\n\r\n",
        200,
        {"retCode": 0},
    ),
    (
        b"GET /?code=203&clientType=SUB&consumerGroup=g&heartbeatEntities=%5B3%5D HTTP/1.1\r\n\r\n",
        200,
        {"retCode": 7},
    ),
    (b"GET /?code=203&heartbeatEntities=%5B%5D&consumerGroup=g HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=104&topic=t HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=104&content=c HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=104&topic=a+b&content=c HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=104&topic=t&content=c&ttl=soon HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=104&topic=t&content=c&extFields=%5B HTTP/1.1\r\n\r\n", 500, {"retCode": 16}),
    (b"GET /?code=104&topic=t&content=c&extFields=%5B%5D HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=104&topic=t&content=%ff HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=104&topic=t&content=c HTTP/1.1\r\npid: x1\r\n\r\n", 200, {"retCode": 6}),
    (b"GET /?code=104&topic=t&content=c HTTP/1.1\r\nprotocoltype: openmessage\r\n\r\n", 200, {"retCode": 6}),
    (b"GET /?code=104&content=%7B%7D HTTP/1.1\r\nprotocoltype: cloudevents\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=301&origtopic=t&content=c HTTP/1.1\r\n\r\n", 200, {"retCode": 15}),
    (b"GET /?code=101&topic=t&content=c HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=102&contents=%7B%7D HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /?code=102&contents=%5B%7B%22topic%22:%22t%22%7D%5D HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (b"GET /eventmesh/bridge/publish HTTP/1.1\r\n\r\n", 200, {"retCode": 2}),
    (b"GET /?code=104&topic=t&content=x HTTP/1.1\r\nsec-fetch-site: cross-site\r\n\r\n", 403, {"retCode": 20}),
    (b"GET /eventmesh/topic/delete?topic=t HTTP/1.1\r\norigin: https://page.example\r\n\r\n", 403, {"retCode": 22}),
    (b"GET /eventmesh/topic/create HTTP/1.1\r\n\r\n", 200, {"retCode": 7}),
    (
        b"POST / HTTP/1.1\r\ncode: 104\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n[",
        200,
        {"retCode": 7},
    ),
]


async def test_each_request_is_answered(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path, push_allowed_networks=())) as broker:
        for request, status, answer in ANSWERED:
            head, _, body = (await raw(broker, request)).partition(b"\r\n\r\n")
            assert int(head.split()[1]) == status, (request, head)
            if answer is None:
                assert body == b"", request
            else:
                told = orjson.loads(body)
                assert {name: told[name] for name in answer} == answer, (request, told)
                assert told.get("retMsg"), request


NO_REQUESTS = [
    (b"POST / HTTP/1.1\r\ncode: 104\r\ncontent-length: 50\r\n\r\ntopic=t", 400),
    (b"POST / HTTP/1.1\r\ncontent-length: 9\r\ncontent-length: 8\r\n\r\ntopic=t12", 400),
    (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
    (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n", 501),
    (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\n", 400),
    (b"POST / HTTP/1.1\r\nx: " + b"y" * 40_000, 431),
    (b"POST / HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", 431),
    (b"POST / HTTP/1.1\r\nx : y\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n y\r\n\r\n", 400),
    (b"EventMesh0000\x00\x00\x00\x20\r\n\r\n", 400),
    (b"POST / HTTP/2.0\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
    (b"CONNECT example.org:443 HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\nx: y\n\n\r\n\r\n", 400),
]


async def test_what_is_no_request_ends_its_own_connection_only(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:
        await mesh.publish("t", "1")
        for data, status in NO_REQUESTS:
            answer = await raw(broker, data)
            assert answer.startswith(b"HTTP/1.1 %d " % status), (data, answer)
            assert b"connection: close" in answer, data
        assert (await mesh.publish("t", "2"))["retCode"] == 0
        assert await bodies(broker, "t", 2) == [b"1", b"2"]


async def test_over_tls(tmp_path: Path) -> None:
    authority = Authority.made_in(tmp_path)
    server = authority.sign("server")
    plain = http_settings(tmp_path)
    native, door = plain.listeners
    sealed = door.model_copy(update={"tls": Tls(certificate=server.certificate, key=server.key)})
    settings = plain.model_copy(update={"listeners": (native, sealed)})
    trust = ssl.create_default_context(cafile=str(authority.ca))
    async with Broker(settings=settings) as broker, subscriber() as app:
        url = url_of(broker).replace("http:", "https:")
        async with httpx.AsyncClient(base_url=url, verify=trust, timeout=60, trust_env=False) as http:
            mesh = Client(http)
            assert (await mesh.subscribe("t", app.url()))["retCode"] == 0
            content = "x" * 300_000
            assert (await mesh.publish("t", content))["retCode"] == 0
            await until(lambda: app.contents == [content])
        with pytest.raises((httpx.HTTPError, AssertionError)):
            async with client(broker) as unsealed:
                await unsealed.publish("t", "in the clear")
        assert app.contents == [content]


async def test_who_sends_slowly_or_nothing_is_hung_up_on(tmp_path: Path) -> None:
    settings = http_settings(tmp_path, request_timeout_ms=5_000)
    async with TimedBroker(settings=settings) as broker, client(broker) as mesh:
        await mesh.publish("t", "1")
        slow = b"POST / HTTP/1.1\r\ncode: 104\r\ncontent-length: 50\r\n\r\ntop"
        heard: list[bytes] = []

        async def listen() -> None:
            heard.append(await raw(broker, slow, end=False))

        async def hung_up() -> bool:
            broker.advance(6)
            return bool(heard)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await until(lambda: broker.connection_count >= 2)
            await until(hung_up)
        assert heard == [b""]
        assert (await mesh.publish("t", "2"))["retCode"] == 0


async def test_clients_of_the_first_age(tmp_path: Path) -> None:
    old = {"Region": "r", "Dcn": "D", "Sys": "S", "Version": "1.0"}
    async with Broker(settings=http_settings(tmp_path)) as broker, subscriber() as app, client(broker) as mesh:
        mesh.headers = dict(old)
        assert (await mesh.send(206, topic='["t"]', url=app.url()))["retCode"] == 0
        fields = {"bizSeqNo": "b" * 20, "uniqueId": "u" * 20, "producerGroup": "p", "ttl": "4000"}
        assert (await mesh.send(104, topic="t", content="x", **fields))["retCode"] == 0
        await until(lambda: app.pushes)
        assert app.pushes[0].fields["bizSeqNo"] == "b" * 20
        async with vibemq.connect(broker.url) as mq:
            info = await mq.queue_info("t")
            assert info is not None
            assert [group.name for group in info.groups] == ["S-D"]


async def test_batches(tmp_path: Path) -> None:
    contents = [{"bizSeqNo": "1", "topic": f"t{n % 2}", "msg": f"m{n}", "tag": "", "ttl": "60000"} for n in range(6)]
    async with Broker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:
        text = orjson.dumps(contents).decode()
        assert (await mesh.send(102, batchId="1", size="6", producerGroup="p", contents=text))["retCode"] == 0
        assert (await mesh.send(102, batchId="1", size="7", producerGroup="p", contents=text))["retCode"] == 7
        v2 = await mesh.send(107, bizseqno="1", topic="t0", msg="v2", tag="", ttl="60000", producergroup="p")
        assert (v2["retCode"], v2["retMsg"]) == (0, "success")
        assert await bodies(broker, "t0", 9) == [b"m0", b"m2", b"m4", b"v2"]
        assert await bodies(broker, "t1", 9) == [b"m1", b"m3", b"m5"]


async def test_cloudevents_in_the_body(tmp_path: Path) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "y", "subject": "t", "data": {"a": 1}}
    async with Broker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:
        structured = {"content-type": "application/cloudevents+json; charset=utf-8"}
        batch = {"content-type": "application/cloudevents-batch+json"}
        binary = {
            "ce-specversion": "1.0",
            "ce-id": "9",
            "ce-source": "/s",
            "ce-type": "y",
            "content-type": "text/plain",
        }
        posts: list[tuple[str, dict[str, str], bytes]] = [
            ("/", structured, orjson.dumps(event)),
            ("/", batch, orjson.dumps([event, event])),
            ("/eventmesh/publish/t", structured, orjson.dumps(event)),
            ("/eventmesh/publish/t", binary, b"plain"),
        ]
        for path, headers, body in posts:
            answer = await mesh.http.post(path, headers=headers, content=body)
            assert answer.json()["retCode"] == 0, answer.text
        assert await bodies(broker, "t", 9) == [b'{"a":1}'] * 4 + [b"plain"]
        bad = await mesh.http.post("/", headers=structured, content=b"{")
        assert bad.json()["retCode"] == 7


async def test_endpoints_by_their_path(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path)) as broker, subscriber() as app, client(broker) as mesh:
        item = orjson.loads(ITEM)
        posts: list[tuple[str, Any, dict[str, Any]]] = [
            ("topic/create", {"topic": "t"}, {"retMessage": "success", "retCode": 0}),
            ("topic/create", {"topic": "t"}, {"retMessage": "success", "retCode": 0}),
            (
                "subscribe/local",
                {"url": app.url(), "consumerGroup": "g", "topic": item},
                {"retCode": 0, "retMsg": "success"},
            ),
        ]
        for path, body, expected in posts:
            assert (await mesh.http.post(f"/eventmesh/{path}", json=body)).json() == expected
        answer = (await mesh.http.post("/eventmesh/publish/t", json={"a": "b"}, headers={"protocoltype": "x"})).json()
        assert answer["retCode"] == 0
        assert answer["retMsg"].startswith("successSendResult[topic=t")
        await mesh.http.post("/eventmesh/publish/t", data={"c": "d"})
        await until(lambda: len(app.pushes) == 2)
        assert app.contents == ['{"a":"b"}', '{"c":"d"}']
        for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
            refused = await mesh.http.post("/eventmesh/publish/t", content=b'{"e":1}', headers={"content-type": kind})
            assert refused.json()["retCode"] == 7, "what is no form becomes no JSON object"
        query = await mesh.http.get("/eventmesh/subscrition/query")
        assert query.json() == {"localTopicSet": ["t"], "subsrciption": []}
        gone = {"url": app.url(), "consumerGroup": "g", "topic": ["t"]}
        assert (await mesh.http.post("/eventmesh/unsubscribe/local", json=gone)).json()["retCode"] == 0
        assert (await mesh.http.post("/eventmesh/topic/delete", json={"topic": "t"})).json()["retCode"] == 0
        async with vibemq.connect(broker.url) as mq:
            assert await mq.queue_info("t") is None


async def test_too_large_a_message_is_refused_and_the_largest_is_taken(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path)) as broker, client(broker) as mesh:
        refused = await mesh.publish("t", "x" * 1_048_577)
        assert refused["retCode"] == 8
        assert refused["retMsg"].startswith("Event size exceeds the limit: ")
        assert (await mesh.publish("t", "x" * 1_000_000))["retCode"] == 0
        assert (await mesh.publish("t", "ü" * 65_536))["retCode"] == 0


# -- who may ----------------------------------------------------------------------------------------------------------


def auth() -> Auth:
    def user(*actions: str) -> User:
        if not actions:
            return User(password_hash=hash_password("pass"))
        allowed = (Permission(queues="t", actions=actions),)
        return User(password_hash=hash_password("pass"), permissions=allowed)

    return Auth(users={"writer": user("publish", "create"), "reader": user("subscribe"), "nobody": user()})


async def test_logins_and_permissions_are_those_of_every_door(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path, auth=auth())) as broker, subscriber() as app:
        async with client(broker) as stranger, client(broker, username="writer", passwd="wrong") as wrong:
            for mesh in (stranger, wrong):
                assert (await mesh.publish("t", "x"))["retCode"] == 20
                assert (await mesh.subscribe("t", app.url()))["retCode"] == 20
        async with client(broker, username="writer", passwd="pass") as writer:
            assert (await writer.publish("t", "1"))["retCode"] == 0
            assert (await writer.publish("other", "1"))["retCode"] == 20
            assert (await writer.subscribe("t", app.url()))["retCode"] == 20
            # Another user on the same connection.
            writer.headers = {**IDENTITY, "username": "reader", "passwd": "pass"}
            assert (await writer.publish("t", "2"))["retCode"] == 20
            assert (await writer.subscribe("t", app.url()))["retCode"] == 0
            basic = await writer.http.post("/eventmesh/publish/t", json={}, auth=("writer", "pass"))
            assert basic.json()["retCode"] == 0
            denied = await writer.http.post("/eventmesh/publish/t", json={}, auth=("nobody", "pass"))
            assert denied.json()["retCode"] == 22
        await until(lambda: app.contents == ["1", "{}"])


@pytest.mark.parametrize("create_topics", [True, False])
async def test_who_may_not_subscribe_is_not_told_which_topics_there_are(tmp_path: Path, create_topics: bool) -> None:
    url = "http://127.0.0.1:8088/"
    async with Broker(settings=http_settings(tmp_path, auth=auth(), create_topics=create_topics)) as broker:
        async with client(broker, username="reader", passwd="pass") as reader:
            # Who may subscribe is told why it cannot.
            refused = await reader.subscribe("t", url)
            assert ("permission 'create'" if create_topics else "does not exist") in refused["retMsg"]
        async with client(broker, username="writer", passwd="pass") as writer:
            created = await writer.http.post("/eventmesh/topic/create", json={"topic": "t"}, auth=("writer", "pass"))
            assert created.json()["retCode"] == 0
        async with client(broker, username="nobody", passwd="pass") as nobody:
            there, missing = [(await nobody.subscribe(topic, url)) for topic in ("t", "missing")]
        assert there["retCode"] == missing["retCode"] == 20
        assert missing["retMsg"].replace("missing", "t") == there["retMsg"]
