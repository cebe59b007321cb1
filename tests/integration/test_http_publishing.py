"""Publishing over HTTP, against a broker on a real socket."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.integration.full_disk import FullDisk
from tests.integration.http_api import ApiClient
from tests.integration.http_messages import BYTES, NDJSON, fetch, info, publish, settle, timed
from vibemq.model.commands import Pressure, SetPressure
from vibemq.model.records import MessagesAdded

pytestmark = pytest.mark.anyio


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
