"""The guards of the HTTP API on a real broker: what costs the broker something, or shows something, asks for rights."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from tests.integration.access import PASSWORD
from tests.integration.http_api import API, ApiClient, everybody, serving
from vibemq.config import Auth
from vibemq.errors import ShuttingDown
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.server.api.calls import ApiCalls
from vibemq.web.api.contract import Exchange
from vibemq.web.api.endpoints import dead_letters as letters
from vibemq.web.api.endpoints.messages import deliveries
from vibemq.web.api.errors import Problem
from vibemq.web.api.messages import peers
from vibemq.web.api.messages.session import FetchedBatch
from vibemq.web.api.services import Asker
from vibemq.web.api.streams.stream import until_gone

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}
LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def auth() -> Auth:
    return everybody()


# -- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "most"), [("/session", 8_192), ("/queues/a.q/purge", 16_384), ("/deliveries", 1_048_576)]
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
    assert "more than 30,000 values" in response.json()["detail"]


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


async def dead_letters(api: ApiClient, count: int, queue: str = "a.q") -> None:
    await api.done("PUT", f"/queues/{queue}", "owner", json={"dead_letter": True})
    for number in range(count):
        headers = {"Content-Type": "application/octet-stream", "VibeMQ-Header-note": "hush"}
        await api.done("POST", f"/queues/{queue}/messages", "owner", content=b"body %d" % number, headers=headers)
    held = (await api.done("POST", f"/queues/{queue}/deliveries", "owner", json={"max": count}))["items"]
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
        response = await api.get("/queues/a.q/messages?header=note:hush", "owner")
        assert (response.status_code, response.json()["code"]) == (403, "NOT_AUTHORIZED")
        await api.done("GET", "/queues/a.q/messages?message_id=x", "owner")
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


@pytest.mark.parametrize("taken", [True, False])
async def test_an_export_writes_no_letter_of_a_page_behind_the_end_of_a_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    auth = everybody()
    async with serving(tmp_path, auth=auth) as api:
        await dead_letters(api, 4)
        lines_of = letters._lines

        def two_lines(exchange: Exchange, some: list[dict[str, Any]]) -> bytes:
            if some[0]["dead_id"] == 2:
                rules = () if taken else (*exchange.services.accounts.policy._rules["owner"],) * 2
                exchange.services.accounts.policy._rules["owner"] = rules
            return lines_of(exchange, some)

        monkeypatch.setattr(letters, "ITEMS_PER_TURN", 1)
        monkeypatch.setattr(letters, "_lines", two_lines)
        answer = await api.get("/dead-letters/export?queue=a.q", "owner")
        lines = [json.loads(line) for line in answer.text.splitlines()]
        if taken:
            assert [line.get("payload") for line in lines] == ["body 0", "body 1", None]
            assert (lines[-1]["error"]["code"], lines[-1]["count"]) == ("NOT_AUTHORIZED", 2)
        else:
            assert [line.get("payload") for line in lines[:-1]] == [f"body {n}" for n in range(4)]
            assert lines[-1] == {"count": 4, "damaged": 0}


@pytest.mark.parametrize("changed", ["taken", "given", "taken and given again"])
async def test_an_export_of_all_queues_is_not_whole_when_rights_change_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        for queue in ("a.q", "a.r", "a.q"):
            await dead_letters(api, 2, queue)
        page = letters._page
        rules = api.broker._running().accounts.policy._rules
        before = rules["owner"]
        one = (Rule(ResourceKind.QUEUE, "a.q", frozenset(("inspect",))),)

        async def pages(exchange: Exchange, after: int) -> Any:
            if after == 2:
                rules["owner"] = (*before, *one) if changed == "given" else one
            if after >= 4 and changed == "taken and given again":
                rules["owner"] = before
            return await page(exchange, after)

        monkeypatch.setattr(letters, "EXPORT_PAGE", 1)
        monkeypatch.setattr(letters, "_page", pages)
        answer = await api.get("/dead-letters/export", "owner")
        *told, last = [json.loads(line) for line in answer.text.splitlines()]
        assert [line["queue"] for line in told if line["queue"] == "a.q"] == ["a.q"] * 4
        assert (last["error"]["code"], last["count"]) == ("NOT_AUTHORIZED", len(told))


# -- logins -----------------------------------------------------------------------------------------------------------


async def test_another_token_of_the_settings_lets_nobody_in_that_had_the_one_before(tmp_path: Path) -> None:
    async with serving(tmp_path, token="the-first-token") as api:
        old = {"Authorization": "Bearer the-first-token"}
        basic = httpx.BasicAuth("any", "the-first-token")
        code = (await api.done("POST", "/session/codes", headers=old))["code"]
        assert (await api.http.get(API + "/session", auth=basic)).is_success
        async with api.http.stream("GET", API + "/events?topic=overview", headers=old) as stream:
            web = api.broker._listeners.web
            assert web is not None
            web.configure(api.broker.settings.http.model_copy(update={"token": SecretStr("the-second-token")}))
            told = b"".join([part async for part in stream.aiter_bytes()])
        assert b"http.token was changed" in told
        assert (await api.http.get(API + "/session", auth=basic)).status_code == 401
        assert await api.code("POST", "/session", json={"code": code}) == (401, "AUTH_FAILED")
        assert (await api.get("/session", headers={"Authorization": "Bearer the-second-token"})).is_success


@pytest.mark.parametrize("guess", ["bearer", "basic", "login", "code", "metrics", "health"])
async def test_guesses_wait_longer_and_longer_and_are_written_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, guess: str
) -> None:
    caplog.set_level("INFO", logger="vibemq.audit")
    async with serving(tmp_path, token="the-token") as api:
        parts = api.broker._parts
        assert parts is not None
        monkeypatch.setattr(parts.authenticator, "_monotonic", lambda: 1_000.0)
        code = (await api.done("POST", "/session/codes", headers={"Authorization": "Bearer the-token"}))["code"]
        asks = {
            "bearer": lambda secret: api.get("/session", headers={"Authorization": f"Bearer {secret}"}),
            "basic": lambda secret: api.http.get(API + "/session", auth=("any", secret)),
            "login": lambda secret: api.ask("POST", "/session", json={"token": secret}),
            "code": lambda secret: api.ask("POST", "/session", json={"code": secret}),
            "metrics": lambda secret: api.http.get("/metrics", headers={"Authorization": f"Bearer {secret}"}),
            "health": lambda secret: api.http.get("/health/", headers={"Authorization": f"Bearer {secret}"}),
        }
        answers = [await asks[guess](f"wrong {number}") for number in range(7)]
        assert {answer.status_code for answer in answers} == {401}
        assert [int(answer.headers.get("retry-after", 0)) >= 1 for answer in answers] == [False] * 5 + [True] * 2
        right = await asks[guess](code if guess == "code" else "the-token")
        assert right.status_code in (200, 201), "who has the secret does not wait for those who guess from there"
        failed = [record for record in caplog.records if getattr(record, "event", "") == "auth.failed"]
        assert len(failed) == 7
        assert parts.authenticator._metrics.auth_failures == 7


async def test_guesses_at_the_pages_count_by_the_address_behind_a_proxy_and_without_the_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, token="the-token", api=False, trusted_proxies=["127.0.0.1"]) as api:
        parts = api.broker._parts
        assert parts is not None
        monkeypatch.setattr(parts.authenticator, "_monotonic", lambda: 1_000.0)
        for host, waits in (("1.2.3.4", True), ("5.6.7.8", False)):
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": host}
            for _ in range(7 if waits else 1):
                answer = await api.http.get("/metrics/prometheus", headers=headers)
            assert (answer.status_code, "retry-after" in answer.headers) == (401, waits)
            assert answer.headers["www-authenticate"] == "Bearer"
        for _ in range(7):
            assert (await api.http.get("/metrics")).status_code == 401
        assert parts.authenticator._metrics.auth_failures == 8, "who brings no token guesses none"


async def test_a_login_is_written_down_under_the_id_of_its_answer(
    api: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="vibemq.audit")
    answer = await api.ask("POST", "/session", json={"user": "owner", "password": PASSWORD})
    (begun,) = (record for record in caplog.records if getattr(record, "event", "") == "session.begun")
    assert begun.conn_id == answer.headers["x-request-id"]  # type: ignore[attr-defined]


async def test_an_access_token_ends_no_sessions_but_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        site = {"sec-fetch-site": "same-origin"}
        token = (await api.done("POST", "/users/owner/tokens", "owner", json={"label": "t"}))["token"]
        address = str(api.http.base_url)
        async with httpx.AsyncClient(base_url=address) as first, httpx.AsyncClient(base_url=address) as second:
            await first.post(API + "/session", json={"user": "owner", "password": PASSWORD})
            await second.post(API + "/session", json={"token": token})
            everywhere = "/session?everywhere=true"
            bearer = {"Authorization": f"Bearer {token}"}
            assert await api.code("DELETE", everywhere, headers=bearer) == (403, "NOT_AUTHORIZED")
            assert (await second.delete(API + everywhere, headers=site)).status_code == 204
            assert (await second.get(API + "/session", headers=site)).status_code == 401
            assert (await first.get(API + "/session", headers=site)).is_success
            assert (await api.ask("DELETE", everywhere, "owner")).status_code == 204
            assert (await first.get(API + "/session", headers=site)).status_code == 401


# -- sessions of the engine -------------------------------------------------------------------------------------------


async def test_who_has_no_right_has_no_session_of_the_engine(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.HttpPeers, "of", lambda self, principal, host: pytest.fail("it was made"))
    metrics = api.broker._running().authenticator._metrics
    for path in ("/queues/a.q/messages", "/queues/a.q/deliveries"):
        before = metrics.not_authorized
        assert await api.code("POST", path, "none", content=b"{}", headers=JSON) == (403, "NOT_AUTHORIZED")
        assert metrics.not_authorized == before + 1


async def test_the_tokens_of_one_user_take_no_session_of_others(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "SESSIONS_OF_USER_MAX", 2)
    await api.done("PUT", "/queues/a.q", "owner", json={})
    for _ in range(2):
        await api.done("POST", "/queues/a.q/messages", "owner", content=b"x", headers=BYTES)
    bearers = []
    for number in range(3):
        made = await api.done("POST", "/users/owner/tokens", "owner", json={"label": str(number)})
        bearers.append({"Authorization": f"Bearer {made['token']}"})
    for bearer in bearers[:2]:
        held = await api.done("POST", "/queues/a.q/deliveries", json={}, headers=bearer)
        assert len(held["items"]) == 1, "a session that holds nothing makes room for another one of its user"
    refused = await api.ask("POST", "/queues/a.q/deliveries", json={}, headers=bearers[2])
    assert (refused.status_code, refused.json()["code"]) == (503, "CONNECTION_LIMIT")
    assert "user 'owner'" in refused.json()["detail"]
    assert (await api.ask("POST", "/queues/a.q/messages", "root", content=b"x", headers=BYTES)).is_success


@pytest.mark.parametrize("login", ["password", "token", "session"])
async def test_a_new_superuser_publishes_everywhere_at_once(api: ApiClient, login: str) -> None:
    """And settles what it has fetched before."""
    await api.done("PUT", "/queues/b.q", "root")
    await api.done("POST", "/users", "root", json={"user": "ada", "password": PASSWORD})
    rule = {"queues": "a.*", "actions": ["publish", "subscribe", "create"]}
    await api.done("POST", "/users/ada/permissions", "root", json=rule)
    token = (await api.done("POST", "/users/ada/tokens", "ada", json={}))["token"]
    as_ada: dict[str, Any] = {"auth": ("ada", token if login == "token" else PASSWORD)}
    await api.http.post(f"{API}/queues/a.q/messages", content=b"x", headers=BYTES, **as_ada)
    (held,) = (await api.http.post(f"{API}/queues/a.q/deliveries", **as_ada)).json()["items"]
    refused = await api.http.post(f"{API}/queues/b.q/messages", content=b"x", headers=BYTES, **as_ada)
    assert refused.status_code == 403
    await api.done("PATCH", "/users/ada", "root", json={"superuser": True})
    if login == "session":
        site = {"Sec-Fetch-Site": "same-origin"}
        await api.done("POST", "/session", json={"user": "ada", "password": PASSWORD}, headers=site)
        as_ada = {"headers": site}
    headers = {**as_ada.pop("headers", {}), **BYTES}
    published = await api.http.post(f"{API}/queues/b.q/messages", content=b"x", headers=headers, **as_ada)
    assert published.status_code == 200, published.text
    done = {"settlements": [{"lease": held["lease"], "verb": "ack"}]}
    settled = await api.http.post(f"{API}/deliveries", json=done, headers={**headers, **JSON}, **as_ada)
    assert settled.json() == {"results": [{"done": True}]}


async def test_a_fetch_that_is_cancelled_says_so() -> None:
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def fetching() -> FetchedBatch:
        fetched: FetchedBatch = await asyncio.get_running_loop().create_future()
        return fetched

    async def fetch() -> FetchedBatch:
        return await deliveries._fetched(fetching(), asyncio.ensure_future(until_gone(receive)))

    task = asyncio.ensure_future(fetch())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    task = asyncio.ensure_future(fetch())
    gone.set()
    with pytest.raises(Problem, match="the client has gone"):
        await task


async def test_who_waits_for_an_operation_of_a_broker_that_stops_is_not_cancelled(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = api.broker._parts
    assert parts is not None
    begun = asyncio.Event()

    async def forever(place: object, call: object) -> object:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(parts.runner, "carried_out", forever)
    calls = ApiCalls(parts.runner, parts.local_session, parts.command_audit, parts.background_tasks)
    asker = Asker(Principal("root", superuser=True), "127.0.0.1", "r")
    waiting = asyncio.ensure_future(calls.ask(asker, "queue.list", {}))
    await begun.wait()
    await api.broker.stop()
    with pytest.raises(ShuttingDown):
        await waiting


# -- strangers --------------------------------------------------------------------------------------------------------


async def test_what_strangers_send_is_named_as_what_strangers_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`StrangersFilter` lets a few such lines through; uvicorn's own would pass it."""
    caplog.set_level(logging.INFO)
    async with serving(tmp_path) as api:
        assert api.broker.http_address is not None
        upgrade = {"Connection": "keep-alive, upgrade", "Upgrade": "h2c"}
        assert (await api.http.get("/livez", headers=upgrade)).status_code == 200
        reader, writer = await asyncio.open_connection(*api.broker.http_address)
        writer.write(b"BAD\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
    (told,) = (record.__dict__ for record in caplog.records if getattr(record, "event", "") == "conn.broken")
    assert (told["levelname"], told["remote"]) == ("INFO", "127.0.0.1")
