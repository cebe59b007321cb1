"""Fetching and settling over HTTP, against a broker on a real socket."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.integration.access import PASSWORD
from tests.integration.http_api import ApiClient, everybody, serving
from tests.integration.http_messages import BYTES, fetch, info, publish, settle, timed
from tests.waiting import until
from vibemq.errors import QueueNotFound
from vibemq.model.options import Durability
from vibemq.web.api.endpoints.messages import deliveries
from vibemq.web.api.messages import session as peer_session

pytestmark = pytest.mark.anyio


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
