"""Idempotency keys of each POST that changes something: carried out once, or refused."""

import asyncio
import threading
from pathlib import Path

import pytest
from starlette.responses import Response

from tests.integration.access import PASSWORD, cheap_hash
from tests.integration.full_disk import FullDisk
from tests.integration.http_api import ApiClient, everybody, serving
from tests.waiting import until
from vibemq.config import Auth
from vibemq.errors import ShuttingDown
from vibemq.model.records import Dropped, MessagesAdded
from vibemq.web.api import app
from vibemq.web.api.app import HttpApi
from vibemq.web.api.contract import Exchange
from vibemq.web.api.endpoints import ENDPOINTS
from vibemq.web.api.idempotency import digest_of

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def auth() -> Auth:
    return everybody()


@pytest.mark.parametrize("path", [row.path for row in ENDPOINTS if row.keyless])
async def test_a_key_that_would_be_ignored_is_refused(api: ApiClient, path: str) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    at = path.format(queue="a.q", user="root")
    response = await api.ask("POST", at, "" if path == "/session" else "root", headers=KEY)
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_PAYLOAD"), response.text
    assert "takes no Idempotency-Key, because" in response.json()["detail"]
    assert (await api.done("GET", "/tokens", "root"))["items"] == []


async def test_a_job_is_started_once_and_said_so_once(api: ApiClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vibemq.audit")
    first = await api.ask("POST", "/jobs", "root", headers=KEY, json={"kind": "purge_dead"})
    assert (first.status_code, "idempotent-replayed" in first.headers) == (201, False), first.text
    for _ in range(2):
        again = await api.ask("POST", "/jobs", "root", headers=KEY, json={"kind": "purge_dead"})
        assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
        assert again.json()["job"] == first.json()["job"]
        assert again.headers["location"] == first.headers["location"]
        assert set(again.json()) == set(first.json())
    other = {"kind": "purge_dead", "limit": 1}
    assert await api.code("POST", "/jobs", "root", headers=KEY, json=other) == (422, "IDEMPOTENCY_CONFLICT")
    records = [vars(record) for record in caplog.records if record.name == "vibemq.audit"]
    assert [record["outcome"] for record in records if record.get("operation") == "job.start"] == ["done", "failed"]


async def test_a_refusal_that_passes_is_not_the_answer_to_the_next_attempt(api: ApiClient) -> None:
    purge = ("POST", "/queues/later/purge", "root")
    assert await api.code(*purge, headers=KEY, json={}) == (404, "QUEUE_NOT_FOUND")
    await api.done("PUT", "/queues/later", "root", json={"durability": "transient", "max_messages": 1})
    assert await api.done(*purge, headers=KEY, json={}) == {"count": 0}


async def test_a_letter_goes_back_with_the_key_for_which_there_was_no_room(api: ApiClient) -> None:
    queue, one = "/queues/full", {"Content-Type": "application/octet-stream"}
    options = {"durability": "transient", "max_messages": 1, "max_attempts": 1, "overflow": "drop_oldest"}
    await api.done("PUT", queue, "root", json=options)
    await api.done("POST", f"{queue}/messages", "root", content=b"a", headers=one)
    (delivery,) = (await api.done("POST", f"{queue}/deliveries", "root", json={}))["items"]
    settled = {"settlements": [{"lease": delivery["lease"], "verb": "reject"}]}
    await api.done("POST", "/deliveries", "root", json=settled)
    await api.done("POST", f"{queue}/messages", "root", content=b"b", headers=one)
    (letter,) = (await api.done("GET", "/dead-letters", "root"))["items"]
    replay = ("POST", f"/dead-letters/{letter['dead_id']}/replay", "root")
    assert await api.code(*replay, headers=KEY, json={}) == (409, "QUEUE_FULL")
    await api.done("POST", f"{queue}/purge", "root", json={})
    for replayed in (False, True):
        answer = await api.ask(*replay, headers=KEY, json={})
        assert (answer.status_code, "idempotent-replayed" in answer.headers) == (200, replayed), answer.text


async def test_what_a_full_disk_may_have_carried_out_is_not_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, auth=everybody(), durable=True) as api:
        one = {"Content-Type": "application/octet-stream"}
        message = ("POST", "/queues/a.q/messages", "root")
        await api.done(*message, content=b"a", headers=one)
        disk = FullDisk(api.broker, monkeypatch, lambda record: isinstance(record, Dropped | MessagesAdded))
        purge = ("POST", "/queues/a.q/purge", "root")
        assert await api.code(*purge, headers=KEY, json={}) == (507, "STORAGE_FULL")
        assert await api.code(*message, content=b"b", headers={**one, **KEY}) == (507, "STORAGE_FULL")
        disk.is_full = False
        again = await api.ask(*purge, headers=KEY, json={})
        assert (again.status_code, again.headers["idempotent-replayed"]) == (507, "true")

        async def has_room() -> bool:
            return (await api.ask(*message, content=b"b", headers={**one, **KEY})).is_success

        await until(has_room)
        assert (await api.done("GET", "/queues/a.q", "root"))["ready"] == 1, "what was not stored is published"
        assert await api.done(*purge, headers={"Idempotency-Key": "another"}, json={}) == {"count": 1}


async def test_what_ended_with_a_fault_is_not_carried_out_again(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})

    async def broken(*_: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(HttpApi, "_carry_out", broken)
    first = await api.code("POST", "/queues/a.q/purge", "root", headers=KEY, json={})
    monkeypatch.undo()
    again = await api.ask("POST", "/queues/a.q/purge", "root", headers=KEY, json={})
    assert first[0] == again.status_code == 500
    assert "may have been carried out" in again.json()["detail"]
    caplog.clear()


async def test_a_user_made_anew_does_not_get_the_answers_of_the_earlier_one(api: ApiClient) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    rule = {"queues": "a.*", "actions": ["purge"]}
    for _ in range(2):
        await api.done("POST", "/users", "root", json={"user": "new", "password_hash": cheap_hash()})
        await api.done("POST", "/users/new/permissions", "root", json=rule)
        for replayed in (False, True):
            answer = await api.ask("POST", "/queues/a.q/purge", "new", headers=KEY, json={})
            assert (answer.status_code, "idempotent-replayed" in answer.headers) == (200, replayed), answer.text
        await api.done("DELETE", "/users/new", "root")


async def test_a_large_body_is_compared_beside_the_event_loop(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    aside: list[bool] = []

    def digested(asked: bytes, body: bytes) -> bytes:
        aside.append(threading.current_thread() is not threading.main_thread())
        return digest_of(asked, body)

    monkeypatch.setattr(app, "digest_of", digested)
    content = {**KEY, "Content-Type": "application/octet-stream"}
    for size in (1_000, 1_000_000):
        path, headers = "/queues/a.q/messages", {**content, "Idempotency-Key": str(size)}
        answers = [await api.ask("POST", path, "root", headers=headers, content=b"x" * size) for _ in range(2)]
        assert ["idempotent-replayed" in answer.headers for answer in answers] == [False, True], answers[0].text
        other = await api.ask("POST", path, "root", headers=headers, content=b"y" * size)
        assert other.json()["code"] == "IDEMPOTENCY_CONFLICT"
    assert aside == [*[False] * 3, *[True] * 3]


@pytest.mark.parametrize(
    "other",
    [
        {"VibeMQ-Header-A": "2"},
        {"VibeMQ-Header-A": "1", "VibeMQ-Delay-Ms": "60000"},
        {"VibeMQ-Header-A": "1", "Content-Type": "application/x-ndjson"},
        {},
    ],
)
async def test_what_a_message_has_in_headers_is_a_part_of_the_request(api: ApiClient, other: dict[str, str]) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    first = {**KEY, "Content-Type": "application/octet-stream", "VibeMQ-Header-A": "1"}
    path, body = "/queues/a.q/messages", b'{"text": "x"}'
    for replayed in (False, True):
        answer = await api.ask("POST", path, "root", headers={**first, "User-Agent": str(replayed)}, content=body)
        assert (answer.status_code, "idempotent-replayed" in answer.headers) == (200, replayed), answer.text
    headers = {**KEY, "Content-Type": "application/octet-stream", **other}
    assert await api.code("POST", path, "root", headers=headers, content=body) == (422, "IDEMPOTENCY_CONFLICT")
    assert (await api.done("GET", "/queues/a.q", "root"))["ready"] == 1


async def test_published_messages_of_others_with_the_same_key_are_no_duplicates(api: ApiClient) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    rule = {"queues": "a.*", "actions": ["publish"]}
    binary = {**KEY, "Content-Type": "application/octet-stream"}
    lines = {"Idempotency-Key": "lines", "Content-Type": "application/x-ndjson"}
    for count, user in enumerate(("first", "second"), 1):
        await api.done("POST", "/users", "root", json={"user": user, "password_hash": cheap_hash()})
        await api.done("POST", f"/users/{user}/permissions", "root", json=rule)
        for _ in range(2):
            shown = await api.done("POST", "/queues/a.q/messages", user, content=user.encode(), headers=binary)
            assert shown["duplicate"] is False
        await api.done("POST", "/queues/a.q/messages", user, content=b'{"payload": "x"}', headers=lines)
        assert (await api.done("GET", "/queues/a.q", "root"))["ready"] == 2 * count


async def test_a_dry_run_uses_up_no_key(api: ApiClient) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    await api.done("POST", "/queues/a.q/messages", "root", json={"messages": [{"payload": "a"}]})
    for body, answer in (({"dry_run": True}, {"count": 1, "dry_run": True}), ({}, {"count": 1})):
        response = await api.ask("POST", "/queues/a.q/purge", "root", headers=KEY, json=body)
        assert (response.status_code, response.json()) == (200, answer), response.text


async def test_a_dry_run_neither_holds_its_key_nor_is_held_up_by_it(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    await api.done("POST", "/queues/a.q/messages", "root", json={"messages": [{"payload": "a"}]})
    purge = ("POST", "/queues/a.q/purge", "root")
    carry_out, begun, goes_on = HttpApi._carry_out, asyncio.Event(), asyncio.Event()

    async def held_up(self: HttpApi, exchange: Exchange) -> Response:
        if exchange.body.get("dry_run"):
            begun.set()
            await goes_on.wait()
        return await carry_out(self, exchange)

    monkeypatch.setattr(HttpApi, "_carry_out", held_up)
    trial = asyncio.create_task(api.ask(*purge, headers=KEY, json={"dry_run": True}))
    await begun.wait()
    first = await api.ask(*purge, headers=KEY, json={})
    assert (first.status_code, first.json()) == (200, {"count": 1}), first.text
    goes_on.set()
    for tried in (await trial, await api.ask(*purge, headers=KEY, json={"dry_run": True})):
        assert (tried.status_code, tried.json()) == (200, {"count": 0, "dry_run": True}), tried.text
        assert "idempotent-replayed" not in tried.headers
    again = await api.ask(*purge, headers=KEY, json={})
    assert (again.headers["idempotent-replayed"], again.json()) == ("true", {"count": 1})


async def test_of_a_request_whose_session_has_ended_meanwhile_the_key_is_not_used_again(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been carried out, and the second one would be, too."""
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})

    async def ended(self: HttpApi, exchange: Exchange) -> Response:
        raise ShuttingDown("the user was changed; whether the request was carried out is not known")

    purge = ("POST", "/queues/a.q/purge", "root")
    with monkeypatch.context() as patched:
        patched.setattr(HttpApi, "_carry_out", ended)
        assert await api.code(*purge, headers=KEY, json={}) == (503, "SHUTTING_DOWN")
    again = await api.ask(*purge, headers=KEY, json={})
    assert (again.status_code, again.json()["code"]) == (500, "SERVER_ERROR")
    assert "use another key" in again.json()["detail"]


async def test_a_dry_run_of_a_backup_uses_up_no_key(tmp_path: Path) -> None:
    body = {"target": str(tmp_path / "copy")}
    async with serving(tmp_path / "data", auth=everybody(), durable=True) as api:
        for said, status, answer in (({"dry_run": True}, 200, {"dry_run": True}), ({}, 201, {})):
            response = await api.ask("POST", "/broker/backups", "root", headers=KEY, json={**body, **said})
            assert (response.status_code, response.json()) == (status, answer), response.text
    assert (tmp_path / "copy").is_dir()


async def test_a_backup_of_nothing_is_refused_as_its_dry_run_is_and_leaves_no_folder(
    api: ApiClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("backups")
    for said in ({"dry_run": True}, {}):
        body = {"target": str(folder / "copy"), **said}
        refused = await api.ask("POST", "/broker/backups", "root", headers=KEY, json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_OPTIONS"), said
        assert "nothing to back up" in refused.json()["detail"]
        assert list(folder.iterdir()) == []
    # The broker goes on all the same.
    assert (await api.get("/queues", "root")).status_code == 200


async def test_a_message_is_removed_or_only_looked_for(api: ApiClient) -> None:
    await api.done("PUT", "/queues/a.q", "root", json={"durability": "transient"})
    await api.done("POST", "/queues/a.q/messages", "root", json={"messages": [{"payload": "a"}]})
    for query, answer in (("?dry_run=true", {"dry_run": True}), ("", {})):
        assert await api.done("DELETE", f"/queues/a.q/messages/1{query}", "root") == answer
    assert await api.code("DELETE", "/queues/a.q/messages/1?dry_run=true", "root") == (404, "MESSAGE_NOT_FOUND")


async def test_a_message_whose_publish_was_interrupted_is_published_by_the_same_key_where_the_queue_knows_it(
    api: ApiClient,
) -> None:
    options = {"max_messages": 1, "overflow": "block_publisher", "dedup_window_ms": 60_000}
    await api.done("PUT", "/queues/a.q", "root", json=options)
    await api.done("POST", "/queues/a.q/messages", "root", json={"messages": [{"payload": "first"}]})
    await api.done("POST", "/users", "root", json={"user": "w", "password_hash": cheap_hash()})
    await api.done("POST", "/users/w/permissions", "root", json={"queues": "a.*", "actions": ["publish"]})
    headers = {**KEY, "Content-Type": "application/octet-stream"}
    publish = ("POST", "/queues/a.q/messages", "w")
    waiting = asyncio.create_task(api.ask(*publish, content=b"second", headers=headers))
    await until(lambda: bool(api.broker._running().engine._state.parking))
    await api.done("PUT", "/users/w/password", "root", json={"password": PASSWORD})
    interrupted = await waiting
    assert (interrupted.status_code, interrupted.json()["code"]) == (503, "SHUTTING_DOWN"), interrupted.text
    await api.done("POST", "/queues/a.q/purge", "root", json={})
    published = await api.ask(*publish, content=b"second", headers=headers)
    assert published.status_code == 200, published.text
    assert (await api.done("GET", "/queues/a.q", "root"))["ready"] == 1
