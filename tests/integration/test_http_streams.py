"""Looking at messages, and live streams, over HTTP against a broker on a real socket."""

import asyncio
import base64
import gzip
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import brotli
import pytest

import vibemq
from tests.integration.certificates import Authority
from tests.integration.http_api import API, ApiClient, everybody, serving
from tests.integration.http_messages import BYTES, NDJSON, fetch, info, publish
from tests.waiting import until
from vibemq.operations.reading import bodies, decoding
from vibemq.server.commit.message_memory import MemoryShare
from vibemq.server.net import large_turns
from vibemq.web.api.endpoints.messages import queue_messages
from vibemq.web.api.sessions import WebSessions
from vibemq.web.api.streams import hub as hubs
from vibemq.web.api.streams import stream as streams
from vibemq.web.api.streams import tail as tails
from vibemq.web.limits import Send

pytestmark = pytest.mark.anyio


class Events:
    """What has come of a stream so far."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.raw = b""
        self.ended = False

    def of(self, kind: str) -> list[Any]:
        return [data for event, data in self.seen if event == kind]

    def feed(self, data: bytes) -> None:
        self.raw += data
        *whole, self.raw = self.raw.split(b"\n\n")
        for one in whole:
            lines = dict(line.split(b": ", 1) for line in one.split(b"\n"))
            if b"event" in lines:
                self.seen.append((lines[b"event"].decode(), json.loads(lines[b"data"])))


@asynccontextmanager
async def reading(api: ApiClient, path: str, user: str = "", **more: Any) -> AsyncIterator[Events]:
    events = Events()
    auth = (user, "pw") if user else None
    async with api.http.stream("GET", API + path, auth=auth, **more) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")

        async def read() -> None:
            async for data in response.aiter_bytes():
                events.feed(data)
            events.ended = True

        task = asyncio.ensure_future(read())
        try:
            yield events
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


# -- looking ------------------------------------------------------------------------------------------------------


async def test_pages_of_messages(api: ApiClient) -> None:
    for n in range(5):
        await publish(api, body=f"m{n}".encode())
    await fetch(api, max=2)
    await until(lambda: info(api).consumers == 0)
    before = info(api)
    first = await api.done("GET", "/queues/q/messages?limit=2")
    assert [m["payload"] for m in first["items"]] == ["m2", "m3"]
    rest = await api.done("GET", f"/queues/q/messages?limit=2&cursor={first['next']}")
    assert [m["payload"] for m in rest["items"]] == ["m4"]
    assert rest["next"] is None
    held = await api.done("GET", "/queues/q/messages?state=in_flight")
    assert [m["payload"] for m in held["items"]] == ["m0", "m1"]
    holder = held["items"][0]["holders"][0]
    assert (holder["client"], holder["protocol"], holder["attempts"]) == ("HTTP API", "http", 1)
    assert holder["deadline_at"].endswith("Z")
    assert info(api) == before
    for query in ("state=gone", "limit=101", "limit=0", "preview_bytes=4097", "from=-1", "x=1", "cursor=abc"):
        response = await api.get(f"/queues/q/messages?{query}")
        assert response.status_code == 422, (query, response.text)
    assert await api.code("GET", "/queues/none/messages") == (404, "QUEUE_NOT_FOUND")


async def test_bodies_are_files_that_nothing_runs_in(api: ApiClient) -> None:
    body = b"<script>alert(1)</script>\x00\xff"
    await publish(api, body=body, Message_Id='x"\\r\\n../../etc', Content_Type="text/html")
    whole = await api.get("/queues/q/messages/1/body")
    assert whole.content == body
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"] == 'attachment; filename="message-1.bin"'
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in whole.headers["content-security-policy"]
    part = await api.get("/queues/q/messages/1/body", headers={"range": "bytes=1-6"})
    assert (part.status_code, part.content) == (206, b"script")
    assert part.headers["content-range"] == f"bytes 1-6/{len(body)}"
    for wanted, found in (("bytes=-2", body[-2:]), ("bytes=20-", body[20:]), ("bytes=0-999", body)):
        assert (await api.get("/queues/q/messages/1/body", headers={"range": wanted})).content == found
    for passed in ("bytes=5-1", "lines=0-1", "bytes=", "bytes=-", "bytes=0-1,3-4", f"bytes=0-{'9' * 40}x"):
        response = await api.get("/queues/q/messages/1/body", headers={"range": passed})
        assert (response.status_code, response.content) == (200, body), passed
    again = {"range": "bytes=5-", "if-range": '"of the body that was there"'}
    assert (await api.get("/queues/q/messages/1/body", headers=again)).content == body
    all_of_it = await api.get("/queues/q/messages/1/body", headers={"range": f"bytes=0-{'9' * 40}"})
    assert (all_of_it.status_code, all_of_it.content) == (206, body)
    for wanted in ("bytes=99-", f"bytes={'9' * 40}-", "bytes=-0"):
        response = await api.get("/queues/q/messages/1/body", headers={"range": wanted})
        assert (response.status_code, response.headers["content-range"]) == (416, f"bytes */{len(body)}"), wanted
    shown = await api.done("GET", "/queues/q/messages/1?digest=true&length=4")
    assert (shown["payload"], shown["truncated"], shown["state"]) == ("<scr", True, "ready")


async def test_large_downloads_count_as_memory_for_large_messages(api: ApiClient) -> None:
    path, body = "/queues/q/messages/1/body", bytes(2 << 20)
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", body)
    memory = api.broker._running().connection_table.large_turns.outgoing
    held = memory.take("a consumer", 1 << 40, print)
    assert held is not None
    refused = await api.get(path)
    assert (refused.status_code, refused.json()["code"]) == (503, "BLOCKED")
    assert refused.headers["retry-after"]
    assert memory.waiting == 0
    held.release()
    assert (await api.get(path)).content == body
    await until(lambda: not memory.bytes_held)


async def test_a_download_that_is_too_slow_for_those_who_wait_is_ended_with_a_line_in_the_log(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(large_turns, "TURN_S", 0.0)
    monkeypatch.setattr(large_turns, "DOWNLOAD_PATIENCE_S", 0.0)
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", bytes(16 << 20))
    table = api.broker._running().connection_table
    memory = table.large_turns.outgoing
    reader, writer = await asyncio.open_connection(*api.broker.http_address)
    path = "/api/v1/queues/q/messages/1/body"
    monkeypatch.setattr(queue_messages, "BYTES_PER_S_MIN", 1 << 40)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readline()
    granted: list[MemoryShare] = []
    memory.take("a consumer", 1 << 40, granted.append)
    with caplog.at_level("INFO", "vibemq.http"):
        await until(lambda: (table.sweep(), granted)[1])
    [line] = [record for record in caplog.records if record.name == "vibemq.http"]
    told = line.getMessage()
    assert told.startswith(f"download of {path} by anonymous ended: ")
    assert "B were left" in told
    assert "(limits.message_memory_bytes)" in told
    writer.transport.abort()


async def test_packed_bodies_and_bombs(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_on_the_loop = set[bool]()

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            opened_on_the_loop.add(threading.current_thread() is threading.main_thread())
            return work(*arguments)

        return noted

    monkeypatch.setattr(bodies, "decoded", noting(decoding.decoded))
    monkeypatch.setattr(bodies, "decoded_whole", noting(decoding.decoded_whole))
    await publish(api, body=gzip.compress(b"hello " * 1_000))
    for bomb, how in ((gzip.compress(bytes(64 << 20)), "gzip"), (brotli.compress(bytes(64 << 20), quality=5), "br")):
        await publish(api, body=bomb)
        sequence = info(api).ready
        path = f"/queues/q/messages/{sequence}"
        assert await api.code("GET", f"{path}/body?decode={how}") == (413, "MESSAGE_TOO_LARGE")
        shown = await api.done("GET", f"{path}?decode={how}&length=8")
        assert (shown["payload"], shown["truncated"]) == ("\0" * 8, True)
    assert (await api.get("/queues/q/messages/1/body?decode=gzip")).content == b"hello " * 1_000
    assert await api.code("GET", "/queues/q/messages/1/body?decode=br") == (422, "INVALID_PAYLOAD")
    assert opened_on_the_loop == {False}


async def test_one_message_is_removed(api: ApiClient) -> None:
    await publish(api)
    await api.done("DELETE", "/queues/q/messages/1")
    assert await api.code("DELETE", "/queues/q/messages/1") == (404, "MESSAGE_NOT_FOUND")
    assert await api.code("GET", "/queues/q/messages/1") == (404, "MESSAGE_NOT_FOUND")
    assert await api.code("GET", "/queues/q/messages/x") == (422, "INVALID_PAYLOAD")
    assert await api.code("GET", "/queues/q/messages/x/body") == (422, "INVALID_PAYLOAD")


@pytest.mark.parametrize("who", ["superuser", "none"])
async def test_what_is_in_messages_can_be_hidden(tmp_path: Path, who: str) -> None:
    secret = "Geheimnis"
    async with serving(tmp_path, auth=everybody(), show_bodies=who) as api:
        headers = {**BYTES, "VibeMQ-Header-note": secret}
        for _ in range(2):
            await api.done("POST", "/queues/a.q/messages", "owner", content=secret.encode(), headers=headers)
        async with reading(api, "/queues/a.q/tail", "owner") as events:
            await api.done("POST", "/queues/a.q/messages", "owner", content=secret.encode(), headers=headers)
            await until(lambda: events.of("messages"))
        assert secret not in json.dumps(events.seen)
        assert "note" in json.dumps(events.seen), "names of headers are shown"
        (held,) = (await api.done("POST", "/queues/a.q/deliveries", "owner"))["items"]
        assert held["payload"] == secret, "consumers get their messages"
        wish = {"lease": held["lease"], "verb": "reject", "reason": secret}
        await api.done("POST", "/deliveries", "owner", json={"settlements": [wish]})
        dead = (await api.done("GET", "/dead-letters?queue=a.q", "owner"))["items"][0]["dead_id"]
        paths = (
            "/queues/a.q/messages",
            "/queues/a.q/messages/2",
            f"/dead-letters/{dead}?queue=a.q",
            "/dead-letters?queue=a.q",
        )
        for path in paths:
            response = await api.get(path, "owner")
            assert response.status_code == 200, response.text
            assert secret not in response.text
            assert base64.b64encode(secret.encode()).decode()[:8] not in response.text
            assert (secret in (await api.get(path, "root")).text) == (who == "superuser")
        body = await api.get("/queues/a.q/messages/2/body", "owner")
        assert (body.status_code, secret in body.text) == (403, False)


# -- tail ---------------------------------------------------------------------------------------------------------


async def test_a_tail_shows_what_is_published(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    await publish(api, body=b"before")
    before = info(api)
    async with reading(api, "/queues/q/tail") as events:
        await until(lambda: api.broker._running().committer.taps)
        await publish(api, body=b"after", Message_Id="m")
        await until(lambda: events.of("messages"))
        (shown,) = events.of("messages")[0]["messages"]
        assert (shown["payload"], shown["id"], shown["sequence"]) == ("after", "m", 2)
        assert events.of("messages")[0]["skipped"] == 0
        now = info(api)
        assert [group.name for group in now.groups] == [group.name for group in before.groups]
        assert (now.consumers, now.in_flight, now.counters["delivered"]) == (0, 0, 0)
        await api.done("DELETE", "/queues/q")
        await until(lambda: events.of("bye"))
        assert events.of("bye") == [{"reason": "the queue was deleted"}]
        await until(lambda: events.ended)
    await until(lambda: not api.broker._running().committer.taps)


async def test_a_tail_of_a_fast_queue_leaves_out_and_says_how_many(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    async with reading(api, "/queues/q/tail?sample=10&preview_bytes=3") as events:
        await until(lambda: api.broker._running().committer.taps)
        async with vibemq.connect(api.broker.url) as mq:
            for start in range(0, 5_000, 500):
                await mq.publish_many("q", [f"{n:06d}" for n in range(start, start + 500)])

        def told() -> int:
            return sum(len(data["messages"]) + data["skipped"] for data in events.of("messages"))

        await until(lambda: told() == 5_000)
    frames = events.of("messages")
    assert all(len(data["messages"]) <= 2 for data in frames)
    sequences = [m["sequence"] for data in frames for m in data["messages"]]
    assert sequences == sorted(sequences)
    assert all(m["truncated"] and m["size"] == 3 for data in frames for m in data["messages"])


async def test_a_tail_is_bounded_in_bytes(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    wide = {f"h{n}": "\x01" * 4_000 for n in range(50)}
    async with reading(api, "/queues/q/tail?preview_bytes=4096") as events:
        await until(lambda: api.broker._running().committer.taps)
        for _ in range(4):
            lines = json.dumps({"payload": "x" * 10_000, "headers": wide}).encode()
            await api.done("POST", "/queues/q/messages", content=lines, headers=NDJSON)
        await until(lambda: sum(len(d["messages"]) + d["skipped"] for d in events.of("messages")) == 4)
    assert all(len(json.dumps(data)) <= 2 * tails.BYTES_PER_SECOND // 5 for data in events.of("messages"))
    assert events.of("messages")[0]["messages"][0]["headers"] is None


async def test_tails_that_may_not_be(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
        assert await api.code("GET", "/queues/a.q/tail") == (401, "AUTH_REQUIRED")
        for queue in ("a.q", "a.none", "b.q"):
            assert await api.code("GET", f"/queues/{queue}/tail", "none") == (403, "NOT_AUTHORIZED")
        assert await api.code("GET", "/queues/a.none/tail", "owner") == (404, "QUEUE_NOT_FOUND")
        for query in ("sample=0", "sample=51", "sample=x", "preview_bytes=5000"):
            assert await api.code("GET", f"/queues/a.q/tail?{query}", "owner") == (422, "INVALID_PAYLOAD")
        assert not api.broker._running().committer.taps


# -- events -------------------------------------------------------------------------------------------------------


async def test_topics_are_told_each_second_and_shared(api: ApiClient) -> None:
    await publish(api)
    asked: list[str] = []
    hub = api.broker._listeners.web._api.state.hub  # type: ignore[union-attr]
    calls = hub._services.operations
    ask = calls.ask

    async def counted(asker: Any, operation: str, arguments: Any) -> Any:
        asked.append(operation)
        return await ask(asker, operation, arguments)

    calls.ask = counted  # type: ignore[method-assign]
    path = "/events?topic=queue:q&topic=overview&topic=queues%3Flimit%3D5&topic=alarms&topic=connections"
    without_connections = path.removesuffix("&topic=connections")
    async with reading(api, path) as one, reading(api, without_connections) as two:
        await until(lambda: all(one.of(kind) for kind in ("queue", "overview", "queues", "alarms", "connections")))
        assert one.of("queue")[0]["data"]["ready"] == 1
        assert one.of("queue")[0]["topic"] == "queue:q"
        await until(lambda: one.of("overview")[-1]["data"]["totals"]["ready"] == 1)
        await until(lambda: [row["queue"] for row in one.of("queues")[-1]["data"]["queues"]] == ["q"])
        await until(lambda: two.of("queue"))
        assert hub.subjects == 5
        await publish(api)
        asked.clear()
        await until(lambda: any(data["data"]["ready"] == 2 for data in one.of("queue")))
        await until(lambda: any(data["data"]["ready"] == 2 for data in two.of("queue")))
        # That of connections is of one reader.
        assert asked.count("queue.info") <= asked.count("connections.list") + 1, "both are told the same"
    await until(lambda: hub.subjects == 0)
    await until(lambda: not hub._watched)


async def test_each_sees_what_it_may(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        for queue in ("a.q", "b.secret"):
            await api.done("PUT", f"/queues/{queue}", "root", json={"durability": "transient"})
        path = "/events?topic=overview&topic=queues"
        async with reading(api, path, "root") as root, reading(api, path, "inspect") as other:
            await until(lambda: "b.secret" in json.dumps(root.of("queues")))
            await until(lambda: "a.q" in json.dumps(other.of("queues")))
            assert "b.secret" not in json.dumps(other.seen)
        for topic in ("queue:b.secret", "queue:b.none", "connections"):
            assert await api.code("GET", f"/events?topic={topic}", "inspect") == (403, "NOT_AUTHORIZED")
        for topic in ("", "nothing", "queue", "queue:", "overview:x", "overview?x=1", "queues?limit=0", "queue:a/b"):
            response = await api.get("/events", "root", params={"topic": topic})
            assert response.status_code == 422, (topic, response.text)
        assert (await api.get("/events", "root")).status_code == 422


async def test_a_missing_queue_is_told_and_comes_later(api: ApiClient) -> None:
    async with reading(api, "/events?topic=queue:q") as events:
        await until(lambda: events.of("queue"))
        assert events.of("queue")[0]["error"]["code"] == "QUEUE_NOT_FOUND"
        await publish(api)
        await until(lambda: any("data" in told for told in events.of("queue")))


async def test_a_stream_ends_with_its_session(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        login = await api.http.post(API + "/session", json={"user": "root", "password": "pw"})
        assert login.is_success
        async with reading(api, "/events?topic=overview") as events:
            await until(lambda: events.of("overview"))
            origin = {"sec-fetch-site": "same-origin"}
            assert (await api.http.delete(API + "/session", headers=origin)).is_success
            await until(lambda: events.ended)
        assert events.of("bye") == [{"reason": "logged out"}]


async def test_a_stream_that_is_read_keeps_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    touch = WebSessions.touch

    def noted(sessions: WebSessions, digest: str, now_s: float) -> None:
        used.append(digest)
        touch(sessions, digest, now_s)

    monkeypatch.setattr(streams, "LOOK_S", 0.01)
    async with serving(tmp_path, auth=everybody()) as api:
        await api.http.post(API + "/session", json={"user": "root", "password": "pw"})
        async with reading(api, "/events?topic=overview"):
            monkeypatch.setattr(WebSessions, "touch", noted)
            await until(lambda: len(used) > 2)
        assert len(set(used)) == 1


async def test_a_stream_ends_with_the_right_to_it(tmp_path: Path) -> None:
    auth = everybody()
    async with serving(tmp_path, auth=auth) as api:
        await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
        async with reading(api, "/queues/a.q/tail", "owner") as events:
            users = {name: user for name, user in auth.users.items() if name != "owner"}
            await api.broker.replace_users(auth.model_copy(update={"users": users}))
            await until(lambda: events.ended)
        assert events.of("bye")


async def test_streams_end_when_permissions_change(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
        await api.done("POST", "/users", "root", json={"user": "eve", "password": "pw", "superuser": False})
        rights = {"queues": "a.*", "actions": ["inspect", "subscribe", "publish"]}
        await api.done("POST", "/users/eve/permissions", "root", json=rights)
        paths = ("/events?topic=queue:a.q", "/events?topic=overview", "/queues/a.q/tail")
        async with (
            reading(api, paths[0], "eve") as one,
            reading(api, paths[1], "eve") as two,
            reading(api, paths[2], "eve") as three,
            reading(api, paths[0], "inspect") as other,
        ):
            await until(lambda: one.of("queue") and two.of("overview") and other.of("queue"))
            rights = {"queues": "a.*", "actions": ["inspect", "subscribe"]}
            await api.done("POST", "/users/eve/permissions", "root", json=rights)
            await until(lambda: one.ended and two.ended and three.ended)
            for events in (one, two, three):
                assert "permissions have changed" in events.of("bye")[0]["reason"]
            assert not other.ended, "those of others are as they were"


async def test_a_stream_is_told_nothing_that_was_asked_for_with_other_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier stream of the same user is still open, and figures are asked for once an hour."""
    monkeypatch.setattr(streams, "LOOK_S", 3_600.0)
    monkeypatch.setattr(hubs, "PERIOD_S", 3_600.0)
    async with serving(tmp_path, auth=everybody()) as api:
        await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
        await api.done("POST", "/users", "root", json={"user": "eve", "password": "pw", "superuser": False})
        rights = {"queues": "a.q", "actions": ["inspect"]}
        path = "/events?topic=queue:a.q&topic=overview"
        for number in range(2):
            await api.done("POST", "/users/eve/permissions", "root", json=rights)
            async with reading(api, path, "eve") as before:
                await until(lambda: before.of("queue"))
                assert "data" in before.of("queue")[0], number
                assert (await api.ask("DELETE", "/users/eve/permissions?queues=a.q", "root")).is_success
                async with reading(api, path, "eve") as after:
                    await until(lambda: after.of("queue"))
                    assert after.of("queue")[0]["error"]["code"] == "NOT_AUTHORIZED"


async def test_superusers_are_told_nothing_as_somebody_sees_it_who_is_none_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose stream came first, and is still open."""
    monkeypatch.setattr(streams, "LOOK_S", 3_600.0)
    async with serving(tmp_path, auth=everybody()) as api:
        await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
        await api.done("POST", "/users", "root", json={"user": "eve", "password": "pw", "superuser": True})
        path = "/events?topic=queue:a.q&topic=overview"
        async with reading(api, path, "eve") as eve, reading(api, path, "root") as root:
            await until(lambda: eve.of("queue") and root.of("overview"))
            await until(lambda: root.of("overview")[-1]["data"]["totals"]["queues"] == 1)
            known = len(root.of("overview"))
            await api.done("PATCH", "/users/eve", "root", json={"superuser": False})
            await api.done("POST", "/queues/a.q/messages", "root", content=b"x", headers=BYTES)
            await until(lambda: len(root.of("queue")) > 1)
            assert [told["data"]["ready"] for told in root.of("queue")] == [0, 1]
            assert all(told["data"]["totals"]["queues"] == 1 for told in root.of("overview")[known:])
            await until(lambda: eve.ended)
            assert len(eve.of("queue")) == 1


async def test_a_topic_without_a_right_has_an_error_beside_the_others(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        for queue in ("a.q", "b.secret"):
            await api.done("PUT", f"/queues/{queue}", "root", json={"durability": "transient"})
        path = "/events?topic=queue:b.secret&topic=queue:a.q&topic=connections"
        async with reading(api, path, "inspect") as events:
            await until(lambda: len(events.of("queue")) >= 2 and events.of("connections"))
            told = {event["topic"]: event for event in (*events.of("queue"), *events.of("connections"))}
            assert told["queue:a.q"]["data"]["name"] == "a.q"
            for topic in ("queue:b.secret", "connections"):
                assert told[topic]["error"]["code"] == "NOT_AUTHORIZED"
                assert "data" not in told[topic]


async def test_a_name_that_no_queue_can_have_takes_no_stream_from_the_others(api: ApiClient) -> None:
    async with reading(api, "/events?topic=queue:%3Cb%3E&topic=overview") as events:
        await until(lambda: events.of("overview") and events.of("queue"))
        assert events.of("queue")[0]["error"]["code"] == "INVALID_QUEUE"
    assert await api.code("GET", "/events?topic=queue:%3Cb%3E") == (422, "INVALID_QUEUE")


async def test_streams_end_with_the_broker_and_say_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        async with reading(api, "/events?topic=overview") as events:
            await until(lambda: events.of("overview"))
            stopping = asyncio.ensure_future(_stopped(api))
            await until(lambda: events.ended)
            await stopping
        assert events.of("bye") == [{"reason": "the broker is stopping"}]


async def _stopped(api: ApiClient) -> None:
    await api.broker.stop()


async def test_a_silent_stream_has_a_heartbeat(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(streams, "LOOK_S", 0.02)
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    seen = b""
    async with api.http.stream("GET", API + "/queues/q/tail") as response:
        async for data in response.aiter_bytes():
            seen += data
            if b": still here" in seen:
                break
    assert seen.startswith(b"retry: 2000\n\n")


async def test_a_reader_that_reads_nothing_is_cut_off(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "UNREAD_S", 0.5)
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(streams, "LOOK_S", 0.01)
    monkeypatch.setattr(streams, "HEARTBEAT", b": " + b"x" * 262_144 + b"\n\n")
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    host, port = api.broker.http_address or ("", 0)
    _, writer = await asyncio.open_connection(host, port, limit=1_024)
    writer.write(b"GET /api/v1/queues/q/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await until(lambda: api.broker._running().committer.taps)
    await until(lambda: not api.broker._running().committer.taps)
    writer.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the platform has no such option")
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_nothing_is_made_for_a_reader_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_tls: bool
) -> None:
    """What the kernel, and TLS, would take for it are some MiB."""
    written: list[int] = []
    write = streams.EventStream._write

    async def noted(self: streams.EventStream, send: Send, data: bytes, extend: Callable[[float], None]) -> None:
        written.append(len(data))
        if len(written) == 2:
            monkeypatch.setattr(streams, "UNREAD_S", 0.5)
        await write(self, send, data, extend)

    monkeypatch.setattr(streams.EventStream, "_write", noted)
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(streams, "LOOK_S", 0.01)
    monkeypatch.setattr(streams, "HEARTBEAT", b": " + b"x" * 32_768 + b"\n\n")
    http, context = {}, None
    if with_tls:
        authority = Authority.made_in(tmp_path)
        signed = authority.sign("server")
        http = {"tls": {"certificate": str(signed.certificate), "key": str(signed.key)}}
        context = ssl.create_default_context(cafile=str(authority.ca))
    async with serving(tmp_path / "data", **http) as api:
        hub = api.broker._listeners.web._api.state.hub  # type: ignore[union-attr]

        def ask() -> socket.socket:
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.connect(api.broker.http_address or ("", 0))
            if context is not None:
                peer = context.wrap_socket(peer, server_hostname="localhost")
            peer.sendall(b"GET /api/v1/events?topic=overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return peer

        with await asyncio.to_thread(ask):
            await until(lambda: len(written) > 1)
            await until(lambda: hub.subjects == 0)
    assert sum(written) < 500_000


async def test_streams_are_limited(tmp_path: Path) -> None:
    async with serving(tmp_path, streams_max=4) as api:
        path = "/events?topic=overview"
        async with reading(api, path), reading(api, path):
            assert await api.code("GET", path) == (429, "RATE_LIMITED")
        await until(lambda: api.broker._listeners.web._api.state.hub.subjects == 0)  # type: ignore[union-attr]
        async with reading(api, path) as events:
            await until(lambda: events.of("overview"))
