"""The guards of the HTTP API on a real broker: what costs the broker something, or shows something, asks for rights."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.access import PASSWORD
from tests.integration.http_api import ApiClient, everybody, serving
from vibemq.web.api.contract import Exchange
from vibemq.web.api.endpoints import dead_letters as letters

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with serving(tmp_path, auth=everybody()) as client:
        yield client


# -- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "most"), [("/session", 8_192), ("/queues/a.q/purge", 16_384), ("/deliveries", 262_144)]
)
async def test_bodies_are_small_and_have_few_values(api: ApiClient, path: str, most: int) -> None:
    user = "" if path == "/session" else "owner"
    full = b'{"a":["' + b"x" * most + b'"]}'
    assert await api.code("POST", path, user, content=full, headers=JSON) == (413, "MESSAGE_TOO_LARGE")
    full = b'{"a":[' + b"[]," * (most // 3 - 4) + b"[]]}"
    status, code = await api.code("POST", path, user, content=full, headers=JSON)
    assert (status, code) == (400, "INVALID_MESSAGE")


async def test_many_values_are_no_messages(api: ApiClient) -> None:
    body = b'{"messages":[' + b"{}," * 60_000 + b"{}]}"
    response = await api.ask("POST", "/queues/a.q/messages", "owner", content=body, headers=JSON)
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_MESSAGE")
    assert "more than 12,000 values" in response.json()["detail"]


@pytest.mark.parametrize("path", ["/queues/a.q/purge", "/queues/a.q/messages", "/queues/a.q/deliveries", "/users"])
async def test_who_has_no_right_has_no_body_read(api: ApiClient, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="vibemq.audit")
    refusal = await api.code("POST", path, "none", content=b"no JSON", headers=JSON)
    assert refusal == (403, "NOT_AUTHORIZED")
    denied = [record for record in caplog.records if getattr(record, "event", "") == "access.denied"]
    assert len(denied) == (path in ("/queues/a.q/purge", "/users")), "as of every operation that changes something"


# -- keys -------------------------------------------------------------------------------------------------------------


async def test_who_may_not_publish_has_no_answer_kept(api: ApiClient) -> None:
    key = {"Idempotency-Key": "k"}
    for _ in range(2):
        response = await api.ask("POST", "/queues/a.q/messages", "none", content=b"x\n" * 9, headers=LINES | key)
        assert response.status_code == 403
        assert "idempotent-replayed" not in response.headers


async def test_an_answer_is_kept_for_those_who_may_still_ask_for_it(api: ApiClient) -> None:
    await api.done("PUT", "/queues/a.q", "owner", json={})
    rule = [{"queues": "a.other", "actions": ["purge"]}, {"queues": "a.q", "actions": ["inspect"]}]
    wanted = {"label": "narrow", "permissions": rule}
    narrow = (await api.done("POST", "/users/owner/tokens", "owner", json=wanted))["token"]
    wide = (await api.done("POST", "/users/owner/tokens", "owner", json={"label": "wide"}))["token"]
    key = {"Idempotency-Key": "k"}
    await api.done("POST", "/queues/a.q/purge", "owner", headers=key)
    assert (await api.ask("POST", "/queues/a.q/purge", "owner", headers=key)).headers["idempotent-replayed"] == "true"
    refused = await api.ask("POST", "/queues/a.q/purge", headers=key | {"Authorization": f"Bearer {narrow}"})
    assert (refused.status_code, refused.json()["code"]) == (403, "NOT_AUTHORIZED")
    other = await api.ask("POST", "/queues/a.q/purge", headers=key | {"Authorization": f"Bearer {wide}"})
    assert (other.status_code, "idempotent-replayed" in other.headers) == (200, False)


# -- what is in messages ----------------------------------------------------------------------------------------------


async def dead_letters(api: ApiClient, count: int) -> None:
    await api.done("PUT", "/queues/a.q", "owner", json={"dead_letter": True})
    for number in range(count):
        headers = {"Content-Type": "application/octet-stream", "VibeMQ-Header-note": "hush"}
        await api.done("POST", "/queues/a.q/messages", "owner", content=b"body %d" % number, headers=headers)
    held = (await api.done("POST", "/queues/a.q/deliveries", "owner", json={"max": count}))["items"]
    rejected = [{"lease": one["lease"], "verb": "reject", "reason": "card 4711"} for one in held]
    await api.done("POST", "/deliveries", "owner", json={"settlements": rejected})


async def test_what_is_hidden_cannot_be_searched_for(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody(), show_bodies="superuser") as api:
        await dead_letters(api, 1)
        queries = ("error=card", "header=note:hush")
        for query in queries:
            for path in ("/dead-letters", "/dead-letters/export"):
                response = await api.get(f"{path}?queue=a.q&{query}", "owner")
                assert (response.status_code, response.json()["code"]) == (403, "NOT_AUTHORIZED")
                assert "http.show_bodies" in response.json()["detail"]
                assert (await api.get(f"{path}?queue=a.q&{query}", "root")).is_success
        for chosen in ({"error": "card"}, {"header": {"note": "hush"}}):
            question = {"filter": {"queue": "a.q", **chosen}}
            for path, body in (
                ("/dead-letters/preview", question),
                ("/dead-letters/preview", question["filter"]),
                ("/jobs", {"kind": "purge_dead", **question}),
            ):
                assert await api.code("POST", path, "owner", json=body) == (403, "NOT_AUTHORIZED"), (path, body)
        assert (await api.get("/dead-letters?queue=a.q&reason=rejected", "owner")).is_success
        assert (await api.ask("POST", "/dead-letters/preview", "owner", json={"filter": {"queue": "a.q"}})).is_success


@pytest.mark.parametrize("ended", ["session", "right", "bodies"])
async def test_an_export_ends_with_what_allowed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    auth = everybody()
    async with serving(tmp_path, auth=auth) as api:
        await dead_letters(api, 3)
        assert (await api.ask("POST", "/session", json={"user": "owner", "password": PASSWORD})).is_success
        page = letters._page

        async def one_page(exchange: Exchange, after: int) -> Any:
            if after:
                exchange.state.show_bodies = "none" if ended == "bodies" else "all"
                if ended == "session":
                    exchange.state.sessions.end_all_of("owner")
                if ended == "right":
                    users = auth.users | {"owner": auth.users["none"].model_copy()}
                    kept = auth.users["owner"].password_hash
                    users["owner"] = users["owner"].model_copy(update={"password_hash": kept})
                    await api.broker.replace_users(auth.model_copy(update={"users": users}))
            return await page(exchange, after)

        monkeypatch.setattr(letters, "EXPORT_PAGE", 1)
        monkeypatch.setattr(letters, "_page", one_page)
        answer = await api.get("/dead-letters/export?queue=a.q", headers={"sec-fetch-site": "same-origin"})
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert lines[0]["payload"] == "body 0"
        if ended == "bodies":
            assert [line["payload"] for line in lines[1:-1]] == [None, None]
        else:
            code = "AUTH_REQUIRED" if ended == "session" else "NOT_AUTHORIZED"
            assert [line.get("error", {}).get("code") for line in lines[1:]] == [code]
