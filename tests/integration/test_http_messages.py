"""Publishing, fetching and settling over HTTP, against a broker on a real socket."""

import asyncio
import base64
import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.integration.access import PASSWORD
from tests.integration.full_disk import FullDisk
from tests.integration.http_api import ApiClient, everybody, serving
from tests.waiting import until
from vibemq.config import Http, Listener, Settings
from vibemq.errors import QueueNotFound
from vibemq.model.commands import Pressure, SetPressure
from vibemq.model.options import Durability
from vibemq.model.records import MessagesAdded
from vibemq.testing.timed_broker import TimedBroker
from vibemq.web.api.endpoints.messages import deliveries
from vibemq.web.api.messages import session as peer_session

pytestmark = pytest.mark.anyio

BYTES = {"content-type": "application/octet-stream"}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with serving(tmp_path) as api:
        yield api


def timed(folder: Path, **more: Any) -> TimedBroker:
    return TimedBroker(
        settings=Settings(
            data_dir=folder,
            listeners=(Listener(port=0),),
            http=Http.model_validate({"port": 0, "requests_per_second": 0}),
            **more,
        )
    )


async def publish(api: ApiClient, queue: str = "q", body: bytes = b"x", **headers: str) -> Any:
    names = {f"VibeMQ-{name.replace('_', '-')}": value for name, value in headers.items()}
    return await api.done("POST", f"/queues/{queue}/messages", content=body, headers={**BYTES, **names})


async def fetch(api: ApiClient, queue: str = "q", **wanted: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.done("POST", f"/queues/{queue}/deliveries", json=wanted))["items"]
    return items


async def settle(api: ApiClient, *settlements: dict[str, Any], user: str = "") -> Any:
    return await api.done("POST", "/deliveries", user, json={"settlements": list(settlements)})


def info(api: ApiClient, queue: str = "q") -> Any:
    found = api.broker.queue_info(queue)
    assert found is not None
    return found


# -- publish ------------------------------------------------------------------------------------------------------


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
    head = await api.ask("HEAD", path)
    assert (head.content, head.headers["content-length"]) == (b"", str(len(body)))


async def test_a_message_is_its_bytes_and_its_headers(api: ApiClient) -> None:
    body = b'{"id": 9007199254740993, "a": 1, "a": 2}\xff\x00'
    shown = await publish(
        api,
        body=body,
        Message_Id="order-1",
        Content_Type="application/json",
        Priority="high",
        TTL_Ms="60000",
        Header_source="shop",
        Headers=json.dumps({"Größe": "10 µm"}),
    )
    assert shown == {"queue": "q", "sequence": 1, "id": "order-1", "duplicate": False, "warnings": []}
    (delivery,) = await fetch(api)
    assert base64.b64decode(delivery["payload_base64"]) == body
    assert delivery["headers"] == {
        "Größe": "10 µm",
        "source": "shop",
        "content-type": "application/json",
        "priority": "2",
    }
    assert (delivery["id"], delivery["attempts"], delivery["failed"], delivery["group"]) == ("order-1", 1, 0, None)
    async with vibemq.connect(api.broker.url) as mq:
        await publish(api, body=body)
        (message,) = await mq.fetch("q")
        assert message.payload == body


async def test_many_messages_as_json_and_as_lines(api: ApiClient) -> None:
    messages = [{"payload": f"m{n}", "id": f"id{n}"} for n in range(1_000)]
    shown = await api.done("POST", "/queues/q/messages", json={"messages": messages})
    assert (shown["confirmed"], shown["first_sequence"], shown["refused"]) == (1_000, 1, [])
    lines = b"\n".join(json.dumps(message).encode() for message in messages)
    shown = await api.done("POST", "/queues/q/messages", content=lines, headers=NDJSON)
    assert (shown["confirmed"], shown["first_sequence"]) == (1_000, 1_001)
    shown = await api.done(
        "POST", "/queues/bodies/messages?lines=bodies", content=b'{"n": 1}\r\n\n{"n": 2.50}\n', headers=NDJSON
    )
    assert shown["confirmed"] == 2
    assert [m["payload"] for m in await fetch(api, "bodies", max=5)] == ['{"n": 1}', '{"n": 2.50}']
    refused = await api.code("POST", "/queues/q/messages", content=lines + b'\n{"payload": ""}', headers=NDJSON)
    assert refused == (422, "INVALID_PAYLOAD")
    assert info(api).ready == 2_000


HOSTILE = {
    b"not json": "INVALID_MESSAGE",
    b"[" * 100_000: "INVALID_MESSAGE",
    b'{"payload": "a", "payload": "b"}': "INVALID_MESSAGE",
    b'{"payload": NaN}': "INVALID_MESSAGE",
    b'{"payload": ' + b"1" * 10_000 + b"}": "INVALID_MESSAGE",
    b'{"payload": 9007199254740993}': "INVALID_PAYLOAD",
    b'{"payload": {"a": 1}}': "INVALID_PAYLOAD",
    b'{"payload": "\\ud800"}': "INVALID_PAYLOAD",
    b'{"payload": "a", "payload_base64": "YQ=="}': "INVALID_PAYLOAD",
    b'{"payload_base64": "%%"}': "INVALID_PAYLOAD",
    b'{"headers": {"a": 1}}': "INVALID_PAYLOAD",
    b'{"headers": {"": "a"}}': "INVALID_PAYLOAD",
    b'{"headers": []}': "INVALID_PAYLOAD",
    b'{"priority": 99}': "INVALID_PAYLOAD",
    b'{"priority": true}': "INVALID_PAYLOAD",
    b'{"ttl_ms": -1}': "INVALID_PAYLOAD",
    b'{"ttl_ms": 1.5}': "INVALID_PAYLOAD",
    b'{"deliver_at": "tomorrow"}': "INVALID_PAYLOAD",
    b'{"deliver_at": "2030-01-01T00:00:00Z", "delay_ms": 1}': "INVALID_PAYLOAD",
    b'{"unknown": 1}': "INVALID_PAYLOAD",
    b'"text"': "INVALID_PAYLOAD",
    b"\xff\xfe": "INVALID_MESSAGE",
    b'{"id": ""}': "INVALID_PAYLOAD",
    b'{"payload": "' + b"x" * 1_050_000 + b'"}': "MESSAGE_TOO_LARGE",
    b'{"payload": "' + b"x" * 1_500_000 + b'"}': "MESSAGE_TOO_LARGE",
}


async def test_a_bad_line_is_named_and_the_others_are_confirmed(api: ApiClient) -> None:
    lines = [b'{"payload": "first"}', *HOSTILE, b'{"payload": "last", "unknown": null}', b'{"payload": "last"}']
    shown = await api.done("POST", "/queues/q/messages", content=b"\n".join(lines), headers=NDJSON)
    assert (shown["confirmed"], shown["first_sequence"]) == (2, 1)
    expected = [(index, index + 1, code) for index, code in enumerate(HOSTILE.values(), 1)]
    expected.append((len(HOSTILE) + 1, len(HOSTILE) + 2, "INVALID_PAYLOAD"))
    assert [(one["index"], one["line"], one["code"]) for one in shown["refused"]] == expected
    assert all(one["detail"] for one in shown["refused"])
    assert [m["payload"] for m in await fetch(api, max=5)] == ["first", "last"]


async def test_a_batch_of_which_nothing_is_good_is_refused_whole(api: ApiClient) -> None:
    response = await api.ask("POST", "/queues/q/messages", json={"messages": [{"payload": 1}, {"x": 1}]})
    problem = response.json()
    assert (response.status_code, problem["code"], len(problem["refused"])) == (422, "INVALID_PAYLOAD", 2)
    assert api.broker.queue_info("q") is None


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"VibeMQ-Nonsense": "1"}, "INVALID_PAYLOAD"),
        ({"VibeMQ-TTL-Ms": "soon"}, "INVALID_PAYLOAD"),
        ({"VibeMQ-Priority": "urgent"}, "INVALID_PAYLOAD"),
        ({"VibeMQ-Headers": "{"}, "INVALID_PAYLOAD"),
        ({"VibeMQ-Headers": "[]"}, "INVALID_PAYLOAD"),
        ({"VibeMQ-Message-Id": b"\xff"}, "INVALID_PAYLOAD"),
        ({"VibeMQ-Dedup-Id": "a", "Idempotency-Key": "b"}, "INVALID_PAYLOAD"),
        ({"content-type": "text/plain"}, "UNSUPPORTED_MEDIA_TYPE"),
        ({"content-type": "application/json"}, "INVALID_MESSAGE"),
        ({"content-type": "application/x-ndjson", "VibeMQ-Priority": "1"}, "INVALID_PAYLOAD"),
    ],
)
async def test_headers_that_are_no_good(api: ApiClient, headers: dict[str, Any], code: str) -> None:
    response = await api.ask("POST", "/queues/q/messages", content=b"x", headers={**BYTES, **headers})
    assert response.json()["code"] == code
    assert api.broker.queue_info("q") is None


async def test_a_body_of_the_largest_size(api: ApiClient) -> None:
    most = 1_048_576 - 64
    await publish(api, body=b"\xff" * most)
    assert len(base64.b64decode((await fetch(api))[0]["payload_base64"])) == most
    assert await api.code("POST", "/queues/q/messages", content=b"x" * 1_048_577, headers=BYTES) == (
        413,
        "MESSAGE_TOO_LARGE",
    )
    assert await api.code("POST", "/queues/q/messages", content=b"x" * 8_388_609, headers=BYTES) == (
        413,
        "MESSAGE_TOO_LARGE",
    )


async def test_refusals_of_a_full_queue(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"max_messages": 2, "durability": "transient"})
    lines = b"\n".join(b'{"payload": "%d"}' % n for n in range(4))
    shown = await api.done("POST", "/queues/q/messages", content=lines, headers={**NDJSON, "Idempotency-Key": "k"})
    assert shown["confirmed"] == 2
    assert [(one["index"], one["line"], one["code"]) for one in shown["refused"]] == [
        (2, 3, "QUEUE_FULL"),
        (3, 4, "QUEUE_FULL"),
    ]
    assert await api.code("POST", "/queues/q/messages", content=b"x", headers={**BYTES, "Idempotency-Key": "one"}) == (
        409,
        "QUEUE_FULL",
    )
    for delivery in await fetch(api, max=2):
        await settle(api, {"lease": delivery["lease"], "verb": "ack"})
    again = await api.done("POST", "/queues/q/messages", content=lines, headers={**NDJSON, "Idempotency-Key": "k"})
    assert again["refused"] == [], "a refusal that passes is not kept, and what was confirmed is not taken twice"
    assert again["duplicates"] == [{"index": 0, "sequence": 1}, {"index": 1, "sequence": 2}]
    assert info(api).ready == 2


@pytest.mark.parametrize("count", [3, 1_000])
async def test_what_was_confirmed_beside_refusals_is_not_published_again(api: ApiClient, count: int) -> None:
    """In a queue without a dedup window, which does not know it."""
    await api.done("PUT", "/queues/q", json={"max_messages": 2, "durability": "transient", "dedup_window_ms": 0})
    lines = b"\n".join(b'{"payload": "%d"}' % n for n in range(count))
    keyed = {**NDJSON, "Idempotency-Key": "k"}
    first = await api.done("POST", "/queues/q/messages", content=lines, headers=keyed)
    assert (first["confirmed"], len(first["refused"])) == (2, count - 2)
    for delivery in await fetch(api, max=2):
        await settle(api, {"lease": delivery["lease"], "verb": "ack"})
    again = await api.ask("POST", "/queues/q/messages", content=lines, headers=keyed)
    assert (again.headers.get("idempotent-replayed"), again.json()) == ("true", first)
    assert info(api).ready == 0


async def test_a_key_is_carried_out_once(api: ApiClient) -> None:
    keyed = {**BYTES, "Idempotency-Key": "order-7"}
    first = await api.ask("POST", "/queues/q/messages", content=b"x", headers=keyed)
    again = await api.ask("POST", "/queues/q/messages", content=b"x", headers=keyed)
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert await api.code("POST", "/queues/q/messages", content=b"y", headers=keyed) == (422, "IDEMPOTENCY_CONFLICT")
    assert info(api).ready == 1
    answers = await asyncio.gather(
        *(
            api.ask("POST", "/queues/q/messages", content=b"x", headers={**BYTES, "Idempotency-Key": "p"})
            for _ in range(5)
        )
    )
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert info(api).ready == 2


async def test_a_key_survives_a_restart_within_the_window(tmp_path: Path) -> None:
    keyed, lines = {"Idempotency-Key": "order-7"}, b'{"payload": "a"}\n{"payload": "b"}'
    for turn in range(2):
        async with timed(tmp_path) as broker:
            api = ApiClient(broker)
            async with api.http:
                one = await api.ask("POST", "/queues/q/messages", content=b"x", headers={**BYTES, **keyed})
                assert (one.json()["sequence"], one.json()["duplicate"]) == (1, bool(turn))
                assert (one.json()["id"] is None) == bool(turn), "an id that no message has"
                many = await api.ask(
                    "POST", "/queues/many/messages", content=lines, headers={**NDJSON, "Idempotency-Key": "many"}
                )
                assert [d["index"] for d in many.json()["duplicates"]] == ([0, 1] if turn else [])
                for answer in (one, many):
                    assert ("idempotent-replayed" in answer.headers) is bool(turn)
                assert (info(api).ready, info(api, "many").ready) == (1, 2)
                await api.done("PUT", "/queues/open", json={"dedup_window_ms": 0})
                shown = await api.done(
                    "POST", "/queues/open/messages", content=b"x", headers={**BYTES, "Idempotency-Key": "open"}
                )
                assert "no dedup window" in shown["warnings"][0]
                assert "after an hour or after a restart" in shown["warnings"][0]
                assert info(api, "open").ready == 1 + turn, "that is what the warning says"


async def test_delays_and_instants(tmp_path: Path) -> None:
    async with timed(tmp_path) as broker:
        api = ApiClient(broker)
        async with api.http:
            await publish(api, body=b"a", Delay_Ms="5000")
            await publish(api, body=b"b", Deliver_At="2100-01-01T00:00:00Z")
            await publish(api, body=b"c", TTL_Ms="1000")
            assert info(api).delayed == 2
            page = await api.get("/queues/q/messages?state=delayed")
            assert page.json()["items"][1]["due_at"] == "2100-01-01T00:00:00.000Z"
            broker.advance(6)
            await broker.time_has_moved()
            assert [m["payload"] for m in await fetch(api, max=5)] == ["a"]


# -- fetch and settle ---------------------------------------------------------------------------------------------


async def test_every_verb(tmp_path: Path) -> None:
    async with timed(tmp_path) as broker:
        api = ApiClient(broker)
        async with api.http:
            for verb in ("ack", "retry", "release", "reject", "extend"):
                await publish(api, body=verb.encode())
            held = {m["payload"]: m for m in await fetch(api, max=10)}
            assert len(held) == 5
            assert info(api).in_flight == 5
            leases = {verb: {"lease": held[verb]["lease"], "verb": verb} for verb in held}
            leases["retry"]["delay_ms"] = 1_000
            leases["reject"]["reason"] = "no such order"
            leases["extend"]["ack_timeout_ms"] = 120_000
            shown = await settle(api, *leases.values())
            assert all(result["done"] for result in shown["results"])
            now = info(api)
            assert (now.in_flight, now.ready, now.delayed, now.dead) == (1, 1, 1, 1)
            letters = await api.done("GET", "/dead-letters?queue=q")
            assert letters["items"][0]["error"] == "no such order"
            broker.advance(60)
            await broker.time_has_moved()
            assert info(api).in_flight == 1, "the extended one is held on"
            again = await settle(api, {"lease": held["extend"]["lease"], "verb": "ack"})
            assert again == {"results": [{"done": True}]}
            back = {m["payload"]: m for m in await fetch(api, max=10)}
            assert (back["release"]["failed"], back["retry"]["failed"]) == (0, 1)


async def test_a_message_that_comes_back_is_seen_in_a_queue_of_several_groups_too(tmp_path: Path) -> None:
    async with timed(tmp_path) as broker:
        api = ApiClient(broker)
        async with api.http:
            await publish(api)
            for back_after_s in (20, 600):
                (first,) = await fetch(api, ack_timeout_ms=5_000)
                for _ in range(2):
                    # Its lease ends, and then its backoff.
                    broker.advance(back_after_s)
                    await broker.time_has_moved()
            async with vibemq.connect(broker.url) as mq:
                await mq.admin("group.join", queue="q", group="reports", start="latest")
            assert len(info(api).groups) == 2
            assert (await api.done("GET", "/queues/q/messages/1"))["attempts"] == 2
            for query in ("state=ready", f"message_id={first['id']}"):
                (shown,) = (await api.done("GET", f"/queues/q/messages?{query}"))["items"]
                assert shown["attempts"] == 2, query
            (line,) = await mq_export(broker.url)
            assert line["attempts"] == 2


async def mq_export(url: str) -> list[dict[str, Any]]:
    async with vibemq.connect(url) as mq:
        return list((await mq.admin("queue.export", queue="q"))["messages"])


async def test_a_script_that_dies_lets_its_time_run_out(tmp_path: Path) -> None:
    async with timed(tmp_path) as broker:
        api = ApiClient(broker)
        async with api.http:
            await publish(api)
            (first,) = await fetch(api, ack_timeout_ms=5_000)
            assert await fetch(api) == []
            broker.advance(4)
            await broker.time_has_moved()
            assert info(api).in_flight == 1
            broker.advance(2)
            await broker.time_has_moved()
            assert (info(api).in_flight, info(api).delayed) == (0, 1), "a failed attempt, which has its backoff"
            gone = await api.ask(
                "POST", "/deliveries", json={"settlements": [{"lease": first["lease"], "verb": "ack"}]}
            )
            assert (gone.status_code, gone.json()["code"]) == (410, "LEASE_GONE")
            broker.advance(10)
            await broker.time_has_moved()
            (second,) = await fetch(api)
            assert (second["sequence"], second["attempts"]) == (1, 2)
            late = await api.done(
                "POST",
                "/deliveries",
                json={
                    "settlements": [
                        {"lease": first["lease"], "verb": "ack"},
                        {"lease": second["lease"], "verb": "ack"},
                    ]
                },
            )
            assert [result.get("code") for result in late["results"]] == ["LEASE_GONE", None]


async def test_a_lease_is_worth_nothing_to_others_nor_after_a_restart(tmp_path: Path) -> None:
    auth = everybody()
    users = ["root", *auth.users]
    async with serving(tmp_path / "a", auth=auth) as api:
        owner = "root"
        await api.done("POST", "/queues/q/messages", owner, content=b"x", headers=BYTES)
        (delivery,) = (await api.done("POST", "/queues/q/deliveries", owner))["items"]
        lease = delivery["lease"]
        for user in users:
            if user == owner:
                continue
            code = await api.code("POST", "/deliveries", user, json={"settlements": [{"lease": lease, "verb": "ack"}]})
            assert code == (403, "NOT_AUTHORIZED"), user
        for changed in ("", "A", lease[:-1], lease + "A", lease[:30] + "x" + lease[31:], "=" * len(lease), "é"):
            code = await api.code(
                "POST", "/deliveries", owner, json={"settlements": [{"lease": changed, "verb": "ack"}]}
            )
            assert code == (422, "INVALID_PAYLOAD"), changed
    async with serving(tmp_path / "b", auth=auth) as api:
        code = await api.code("POST", "/deliveries", owner, json={"settlements": [{"lease": lease, "verb": "ack"}]})
        assert code == (410, "LEASE_GONE")


@pytest.mark.parametrize(
    "settlement",
    [
        {"verb": "ack"},
        {"lease": 1, "verb": "ack"},
        {"lease": "x", "verb": "burn"},
        {"lease": "x", "verb": "ack", "reason": "no"},
        {"lease": "x", "verb": "retry", "delay_ms": -1},
        {"lease": "x", "verb": "reject", "reason": "x" * 5_000},
        {"lease": "x", "verb": "extend", "ack_timeout_ms": 0},
        "ack",
    ],
)
async def test_settlements_that_are_no_good(api: ApiClient, settlement: Any) -> None:
    assert await api.code("POST", "/deliveries", json={"settlements": [settlement]}) == (422, "INVALID_PAYLOAD")


async def test_a_fetch_waits_and_is_woken(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    waiting = asyncio.ensure_future(fetch(api, max=10, wait_ms=20_000))
    await until(lambda: info(api).consumers == 1)
    await publish(api, body=b"now")
    assert [m["payload"] for m in await waiting] == ["now"]
    await until(lambda: info(api).consumers == 0)


async def test_a_fetch_whose_time_is_over_answers_nothing(tmp_path: Path) -> None:
    async with timed(tmp_path) as broker:
        api = ApiClient(broker)
        async with api.http:
            await api.done("PUT", "/queues/q", json={})
            waiting = asyncio.ensure_future(fetch(api, max=10, wait_ms=20_000))
            await until(lambda: info(api).consumers == 1)
            broker.advance(21)
            await broker.time_has_moved()
            assert await waiting == []
            await until(lambda: info(api).consumers == 0)
            await publish(api)
            assert len(await fetch(api)) == 1


async def test_nobody_starves(api: ApiClient) -> None:
    """Fetches that wait longest are served; one that wants much does not get all."""
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    greedy = asyncio.ensure_future(fetch(api, max=100, wait_ms=20_000))
    await until(lambda: info(api).consumers == 1)
    modest = asyncio.ensure_future(fetch(api, max=1, wait_ms=20_000))
    await until(lambda: info(api).consumers == 2)
    await publish(api, body=b"a")
    await publish(api, body=b"b")
    assert len(await greedy) + len(await modest) == 2


async def test_what_comes_for_a_client_that_has_gone_goes_to_others(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    host, port = api.broker.http_address or ("", 0)
    reader, writer = await asyncio.open_connection(host, port)
    body = b'{"wait_ms": 20000}'
    writer.write(
        b"POST /api/v1/queues/q/deliveries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    await until(lambda: info(api).consumers == 1)
    writer.close()
    await until(lambda: info(api).consumers == 0)
    await publish(api)
    (delivery,) = await fetch(api)
    assert (delivery["attempts"], delivery["failed"]) == (1, 0)
    assert reader is not None


async def test_groups_of_a_fan_out_queue(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"mode": "fan_out_with_ack", "durability": "transient"})
    assert await api.code("POST", "/queues/q/deliveries", json={}) == (422, "INVALID_OPTIONS")
    assert await fetch(api, group="a") == []
    assert await fetch(api, group="b") == []
    await publish(api)
    (one,), (two,) = await fetch(api, group="a"), await fetch(api, group="b")
    assert (one["group"], two["group"], one["sequence"]) == ("a", "b", two["sequence"])
    await settle(api, {"lease": one["lease"], "verb": "ack"}, {"lease": two["lease"], "verb": "ack"})
    assert info(api).in_flight == 0


async def test_a_fetch_creates_a_missing_queue_as_a_native_one_does(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        assert (await api.done("POST", "/queues/a.1/deliveries", "owner", json={}))["items"] == []
        assert info(api, "a.1").options.durability is Durability.TRANSIENT, "as queue_defaults say"
        for user, status, code in (("subscribe", 404, "QUEUE_NOT_FOUND"), ("create", 403, "NOT_AUTHORIZED")):
            assert await api.code("POST", "/queues/a.2/deliveries", user, json={}) == (status, code)
        assert api.broker.queue_info("a.2") is None
        async with vibemq.connect(api.broker.url, username="subscribe", password=PASSWORD) as mq:
            with pytest.raises(QueueNotFound):
                await mq.fetch("a.2")
        assert (await api.done("POST", "/queues/a.1/deliveries", "subscribe", json={}))["items"] == []


async def test_a_fetch_creates_nothing_without_auto_create(tmp_path: Path) -> None:
    async with timed(tmp_path, auto_create=False) as broker:
        api = ApiClient(broker)
        async with api.http:
            assert await api.code("POST", "/queues/none/deliveries", json={}) == (404, "QUEUE_NOT_FOUND")


async def test_a_fetch_waits_for_a_queue_that_it_has_created(api: ApiClient) -> None:
    waiting = asyncio.ensure_future(fetch(api, wait_ms=20_000))
    await until(lambda: api.broker.queue_info("q") is not None)
    await publish(api)
    assert len(await waiting) == 1


async def test_fetches_that_are_no_good(api: ApiClient) -> None:
    await publish(api)
    for wanted in ({"max": 0}, {"max": 101}, {"wait_ms": 20_001}, {"ack_timeout_ms": 0}, {"group": ""}, {"x": 1}):
        assert await api.code("POST", "/queues/q/deliveries", json=wanted) == (422, "INVALID_PAYLOAD"), wanted
    assert (await api.get("/queues/q/deliveries")).status_code == 405, "a link never consumes"


async def test_what_one_user_holds_is_bounded(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_session, "HELD_MAX", 5)
    for _ in range(8):
        await publish(api)
    held = await fetch(api, max=4)
    assert await api.code("POST", "/queues/q/deliveries", json={"max": 2}) == (429, "RATE_LIMITED")
    assert len(await fetch(api, max=1)) == 1
    await settle(api, *({"lease": m["lease"], "verb": "ack"} for m in held))
    assert len(await fetch(api, max=3)) == 3


async def test_what_a_client_that_goes_while_the_answer_is_made_was_given_goes_to_others(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(api)
    leaves, made = asyncio.Event(), deliveries._items

    async def until_it_leaves(receive: object) -> None:
        await leaves.wait()

    async def items(*given: Any) -> Any:
        leaves.set()
        await asyncio.sleep(0)
        return await made(*given)

    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "until_gone", until_it_leaves)
        patch.setattr(deliveries, "_items", items)
        assert await api.code("POST", "/queues/q/deliveries", json={}) == (408, "REQUEST_TIMEOUT")
    [delivery] = await fetch(api, wait_ms=20_000)
    assert delivery["failed"] == 0


@pytest.mark.parametrize("gone", ["/queues/q", "/queues/q/groups/g"])
async def test_what_was_taken_away_is_not_held(api: ApiClient, monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    monkeypatch.setattr(peer_session, "HELD_MAX", 5)
    await publish(api, "other")
    await api.done("PUT", "/queues/q", json={"mode": "fan_out_with_ack", "durability": "transient"})
    assert await fetch(api, group="g") == []
    for _ in range(5):
        await publish(api)
    assert len(await fetch(api, group="g", max=3, ack_timeout_ms=43_200_000)) == 3
    assert len(await fetch(api, group="g", max=2, ack_timeout_ms=43_200_000)) == 2
    assert await api.code("POST", "/queues/other/deliveries") == (429, "RATE_LIMITED")
    await api.done("DELETE", gone)
    assert len(await fetch(api, "other", max=1)) == 1


@pytest.mark.parametrize("size", [1, 20_000], ids=["small", "above 16 KiB"])
async def test_who_waits_for_room_keeps_nobody_from_settling(api: ApiClient, size: int) -> None:
    await api.done("PUT", "/queues/q", json={"max_messages": 1, "overflow": "block_publisher"})
    await publish(api)
    (held,) = await fetch(api)
    await publish(api)
    made = api.broker._running() and api.broker._listeners.web._api  # type: ignore[union-attr]
    assert made is not None
    made.app._bodies._shares.room = 320_000
    waiting = [asyncio.ensure_future(publish(api, body=b"x" * size)) for _ in range(8)]
    await until(lambda: made.app.rates._running.total() == 8)
    body = json.dumps({"settlements": [{"lease": held["lease"], "verb": "ack"}]}).ljust(size)
    settled = await api.ask("POST", "/deliveries", content=body, headers={"content-type": "application/json"})
    assert (settled.status_code, settled.json()) == (200, {"results": [{"done": True}]})
    tag = (await api.get("/queues/q")).headers["etag"]
    await api.done("PATCH", "/queues/q", json={"max_messages": 100}, headers={"If-Match": tag})
    assert sorted(shown["sequence"] for shown in await asyncio.gather(*waiting)) == list(range(3, 11))


async def test_sessions_end_when_they_are_idle(tmp_path: Path) -> None:
    async with timed(tmp_path) as broker:
        api = ApiClient(broker)
        table = broker._running().connection_table
        async with api.http:
            await publish(api)
            (delivery,) = await fetch(api, ack_timeout_ms=300_000)
            broker.advance(100)
            await broker.time_has_moved()
            assert len(table.without_socket) == 1, "it holds a message"
            await settle(api, {"lease": delivery["lease"], "verb": "release"})
            broker.advance(61)
            await broker.time_has_moved()
            await until(lambda: not table.without_socket)
            assert len(await fetch(api)) == 1


async def test_a_deleted_queue_ends_what_was_fetched(api: ApiClient) -> None:
    await publish(api)
    (delivery,) = await fetch(api)
    waiting = asyncio.ensure_future(api.code("POST", "/queues/q/deliveries", json={"wait_ms": 20_000}))
    await until(lambda: info(api).consumers == 1)
    await api.done("DELETE", "/queues/q")
    assert await waiting == (404, "QUEUE_NOT_FOUND")
    code = await api.code("POST", "/deliveries", json={"settlements": [{"lease": delivery["lease"], "verb": "ack"}]})
    assert code == (410, "LEASE_GONE")


# -- trouble ------------------------------------------------------------------------------------------------------


async def test_pressure_is_told_with_a_sentence(api: ApiClient) -> None:
    await publish(api)
    decide = api.broker._running().decider.decide
    decide([SetPressure(Pressure.BLOCKING, "memory is short")])
    keyed = {**BYTES, "Idempotency-Key": "k"}
    response = await api.ask("POST", "/queues/q/messages", content=b"x", headers=keyed)
    assert (response.status_code, response.json()["code"], response.headers["retry-after"]) == (503, "BLOCKED", "1")
    assert "memory is short" in response.json()["detail"]
    assert len(await fetch(api)) == 1, "consuming makes room"
    decide([SetPressure(Pressure.NONE, "")])
    assert (await api.ask("POST", "/queues/q/messages", content=b"x", headers=keyed)).status_code == 200


async def test_a_full_disk_is_told_and_nothing_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with timed(tmp_path) as broker:
        api = ApiClient(broker)
        async with api.http:
            await api.done("PUT", "/queues/q", json={})
            disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, MessagesAdded))
            keyed = {**BYTES, "Idempotency-Key": "k"}
            response = await api.ask("POST", "/queues/q/messages", content=b"x", headers=keyed)
            assert (response.status_code, response.json()["code"]) == (507, "STORAGE_FULL")
            assert "free some" in response.json()["detail"]
            disk.is_full = False
            shown = await api.done("POST", "/queues/q/messages", content=b"x", headers=keyed)
            assert not shown["duplicate"], "what was refused was not published"
            assert info(api).ready == 1


async def test_a_stop_answers_who_waits(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.done("PUT", "/queues/q", json={"durability": "transient"})
        waiting = asyncio.ensure_future(api.code("POST", "/queues/q/deliveries", json={"wait_ms": 20_000}))
        await until(lambda: info(api).consumers == 1)
        await api.broker.stop()
        assert await waiting == (503, "SHUTTING_DOWN")


async def test_a_message_whose_body_fits_into_no_answer_becomes_a_dead_letter(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"x" * (2 << 20))
        await mq.publish("q", b"small")
    [delivery] = await fetch(api, max=1, wait_ms=20_000)
    assert delivery["payload"] == "small"
    [letter] = (await api.done("GET", "/dead-letters?queue=q"))["items"]
    assert letter["reason"] == "rejected"
    assert "too large for HTTP" in letter["error"]


async def test_a_message_whose_body_fits_into_no_answer_stays_where_no_letters_are_kept(api: ApiClient) -> None:
    """To turn it down would be to drop it, and others can have it."""
    await api.done("PUT", "/queues/q", json={"dead_letter": False})
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"small")
        await mq.publish("q", b"x" * (2 << 20))
        await mq.publish("q", b"behind")
        [small] = await fetch(api, max=3, wait_ms=20_000)
        assert small["payload"] == "small"
        for _ in range(3):
            refusal = await api.ask("POST", "/queues/q/deliveries", json={"max": 3})
            assert (refusal.status_code, refusal.json()["code"]) == (413, "MESSAGE_TOO_LARGE")
            assert "message 2 of queue 'q'" in refusal.json()["detail"]
        async with mq.subscribe("q") as subscription:
            large = await anext(aiter(subscription))
            assert len(large.payload) == 2 << 20
            await large.ack()
    [behind] = await fetch(api, wait_ms=20_000)
    assert behind["payload"] == "behind"


async def test_few_are_handed_out_at_a_time_where_that_settles_them(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"mode": "fan_out_without_ack"})
    assert await fetch(api, group="g") == []
    for _ in range(7):
        await publish(api)
    assert [len(await fetch(api, group="g", max=100)) for _ in range(3)] == [5, 2, 0]


@pytest.mark.parametrize("dedup_window_ms", [0, 60_000])
async def test_a_publish_that_waits_for_too_long_is_answered_and_its_key_tells_what_became_of_it(
    api: ApiClient, dedup_window_ms: int
) -> None:
    """Whether the queue knows the key or not: while the first request is under way the second is not carried out."""
    web = api.broker._listeners.web
    assert web is not None
    assert web._api is not None
    endpoint = web._api.app.contract._paths["/queues/{queue}/messages"]["POST"]
    options = {"max_messages": 1, "overflow": "block_publisher", "dedup_window_ms": dedup_window_ms}
    await api.done("PUT", "/queues/q", json=options)
    await publish(api)
    keyed = {**BYTES, "Idempotency-Key": "k"}
    object.__setattr__(endpoint, "timeout_s", 0.1)
    try:
        late = await api.ask("POST", "/queues/q/messages", content=b"y", headers=keyed)
    finally:
        object.__setattr__(endpoint, "timeout_s", 30.0)
    assert (late.status_code, late.json()["code"]) == (504, "TIMEOUT")
    busy = await api.code("POST", "/queues/q/messages", content=b"y", headers=keyed)
    assert busy == (409, "IDEMPOTENCY_BUSY")
    [first] = await fetch(api, wait_ms=20_000)
    await api.done("POST", "/deliveries", json={"settlements": [{"lease": first["lease"], "verb": "ack"}]})
    [second] = await fetch(api, wait_ms=20_000)
    again = await api.ask("POST", "/queues/q/messages", content=b"y", headers=keyed)
    assert (second["payload"], again.json()["sequence"], info(api).ready) == ("y", second["sequence"], 0)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
