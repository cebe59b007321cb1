"""The HTTP API under attack: other sites, other names, stolen and guessed credentials, floods, odd bytes."""

import asyncio
import base64
import logging
import re
import socket
import ssl
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest

import vibemq
from tests.integration.access import PASSWORD, SINGLE, cheap_hash
from tests.integration.certificates import Authority
from tests.integration.http_api import API, ApiClient, everybody, serving
from tests.integration.test_http_streams import reading
from tests.waiting import until
from vibemq._version import __version__
from vibemq.auth import users as auth_users
from vibemq.auth.passwords import verify_password
from vibemq.config import Auth
from vibemq.errors import AuthFailed
from vibemq.server.access import guessing
from vibemq.web.api.contract import BASE
from vibemq.web.api.endpoints import ENDPOINTS
from vibemq.web.api.guardrails import bodies
from vibemq.web.api.guardrails.rates import TOGETHER
from vibemq.web.api.kinds import Kind
from vibemq.web.api.streams import stream as streams
from vibemq.web.limits import CONNECTIONS_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("security")]

SITE = {"Sec-Fetch-Site": "same-origin"}
CONSOLE = ("/console/", "/console/queues", f"/console/v/{__version__}/parts/frame.js")
UNREAD, STREAMS_MAX = 200, 32
"""Streams that are asked for, and how many there may be of all clients together."""


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[ApiClient]:
    """A broker with users."""
    async with serving(tmp_path, auth=everybody()) as client:
        yield client


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[ApiClient]:
    """A broker that lets everybody in."""
    async with serving(tmp_path) as client:
        yield client


async def log_in(api: ApiClient, user: str = "root", password: str = PASSWORD) -> str:
    """The cookie, which the client forgets."""
    response = await api.ask("POST", "/session", json={"user": user, "password": password}, headers=SITE)
    assert response.status_code == 200, response.text
    api.http.cookies.clear()
    return str(response.headers["set-cookie"].partition(";")[0])


async def raw(api: ApiClient, *lines: bytes, body: bytes = b"") -> bytes:
    """The answer to one request, byte for byte."""
    assert api.broker.http_address is not None
    reader, writer = await asyncio.open_connection(*api.broker.http_address)
    writer.write(b"\r\n".join((*lines, b"Connection: close", b"", body)))
    answer = await reader.read()
    writer.close()
    return answer


# -- other sites (spec 7.1-4, 5, 6) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"},
        {"Sec-Fetch-Site": "same-site", "Content-Type": "application/json"},
        {"Origin": "null", "Content-Type": "application/json"},
        {"Origin": "http://127.0.0.1:1", "Content-Type": "application/json"},
        {"Origin": "http://evil.example", "Content-Type": "text/plain"},
        {"Content-Type": "application/json"},
    ],
    ids=str,
)
async def test_no_page_of_another_site_changes_anything(guarded: ApiClient, headers: dict[str, str]) -> None:
    await guarded.done("PUT", "/queues/a.q", "root")
    cookie = {"Cookie": await log_in(guarded)}
    for method, path in (("DELETE", "/queues/a.q"), ("POST", "/queues/a.q/purge"), ("PUT", "/queues/a.new")):
        refused = await guarded.ask(method, path, content=b"{}", headers={**headers, **cookie})
        assert (refused.status_code, refused.json()["code"]) == (403, "CROSS_ORIGIN")
    assert [queue.name for queue in guarded.broker.list_queues()] == ["a.q"]
    own = {"Origin": str(guarded.http.base_url).rstrip("/"), **cookie}
    assert (await guarded.ask("PUT", "/queues/a.new", headers=own)).status_code == 201


async def test_a_form_is_no_json(opened: ApiClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        response = await opened.ask("POST", "/queues/q/purge", content=b"{}", headers={"Content-Type": kind})
        assert response.status_code == 415


async def test_an_open_broker_answers_to_its_own_names_only(opened: ApiClient) -> None:
    host = f"Host: evil.example:{(opened.broker.http_address or ('', 0))[1]}".encode()
    for endpoint in ENDPOINTS:
        path = f"{BASE}{endpoint.path}".replace("{", "").replace("}", "").encode()
        answer = await raw(opened, endpoint.method.encode() + b" " + path + b" HTTP/1.1", host)
        assert answer.startswith(b"HTTP/1.1 421 "), path
    for page in (b"/", b"/console", b"/console/", b"/console/queues", b"/health/", b"/metrics", b"/queues/q", b"/x"):
        assert (await raw(opened, b"GET " + page + b" HTTP/1.1", host)).startswith(b"HTTP/1.1 421 "), page
    get = b"GET /api/v1/session HTTP/1.1"
    assert (await raw(opened, get, b"Host: localhost@evil.example")).startswith(b"HTTP/1.1 421 ")
    assert (await raw(opened, b"GET /api/v1/session HTTP/1.0")).startswith(b"HTTP/1.1 421 ")
    assert (await raw(opened, get, b"Host: localhost", b"Host: evil.example")).startswith(b"HTTP/1.1 400 ")
    assert (await raw(opened, get, b"Host: localhost:1")).startswith(b"HTTP/1.1 200 ")
    for probe in (b"/livez", b"/readyz", b"/startupz"):
        assert (await raw(opened, b"GET " + probe + b" HTTP/1.1", host)).startswith(b"HTTP/1.1 200 ")


async def test_with_users_any_name_will_do_unless_the_settings_narrow_it(tmp_path: Path) -> None:
    get, host = b"GET /api/v1/session HTTP/1.1", b"Host: mq.example"
    async with serving(tmp_path / "any", auth=everybody()) as api:
        assert (await raw(api, get, host)).startswith(b"HTTP/1.1 401 ")
        # As behind a proxy: from the root on, the console is reached without a setting.
        for page, status in ((b"/", b"303"), (b"/console", b"303"), (b"/console/", b"200")):
            assert (await raw(api, b"GET " + page + b" HTTP/1.1", host)).split()[1] == status, page
    async with serving(tmp_path / "named", auth=everybody(), allowed_hosts=["other.example"]) as api:
        assert (await raw(api, get, host)).startswith(b"HTTP/1.1 421 ")


async def test_beyond_this_machine_an_open_broker_has_no_api(tmp_path: Path) -> None:
    async with serving(tmp_path / "closed", host="0.0.0.0") as api:
        for endpoint in ENDPOINTS:
            response = await api.ask(endpoint.method, endpoint.path.replace("{", "").replace("}", ""))
            assert (response.status_code, response.json()["code"]) == (403, "OPEN_BROKER")
            assert "auth.superuser" in response.json()["detail"]
        for page in CONSOLE:
            closed = await api.http.get(page)
            assert (closed.status_code, "auth.superuser" in closed.text) == (403, True), page
        for page in ("/livez", "/metrics", "/health/"):
            assert (await api.http.get(page)).status_code == 200
    async with serving(tmp_path / "open", host="0.0.0.0", allow_unauthenticated=True) as api:
        assert (await api.get("/session")).status_code == 200
        for page in CONSOLE:
            assert (await api.http.get(page)).status_code == 200, page


async def test_a_token_of_the_pages_opens_the_api_of_a_broker_without_users(tmp_path: Path) -> None:
    async with serving(tmp_path, host="0.0.0.0", token="page-token") as api:
        assert await api.code("GET", "/session") == (401, "AUTH_REQUIRED")
        assert await api.code("GET", "/session", headers={"Authorization": "Bearer wrong"}) == (401, "AUTH_FAILED")
        told = await api.done("GET", "/session", headers={"Authorization": "Bearer page-token"})
        assert (told["authenticated"], told["superuser"]) == (True, True)


# -- sessions (7.1-7, 8, 9) -------------------------------------------------------------------------------------------


async def test_a_session_from_its_login_to_its_end(guarded: ApiClient) -> None:
    planted = "vibemq_session=" + "0" * 64
    response = await guarded.ask(
        "POST", "/session", json={"user": "owner", "password": PASSWORD}, headers={**SITE, "Cookie": planted}
    )
    guarded.http.cookies.clear()
    cookie = SimpleCookie(response.headers["set-cookie"])["vibemq_session"]
    assert cookie.value != "0" * 64
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Strict", "", "")
    assert response.json()["user"] == "owner"
    mine = {"Cookie": f"vibemq_session={cookie.value}"}
    assert (await guarded.done("GET", "/session", headers=mine))["user"] == "owner"
    assert await guarded.code("GET", "/session", headers={"Cookie": planted}) == (401, "AUTH_REQUIRED")
    out = await guarded.ask("DELETE", "/session", headers={**mine, **SITE})
    assert out.status_code == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert await guarded.code("GET", "/session", headers=mine) == (401, "AUTH_REQUIRED")


async def test_a_cookie_is_no_second_chance(guarded: ApiClient) -> None:
    headers = {"Cookie": await log_in(guarded), "Authorization": "Bearer vmq_wrong"}
    assert await guarded.code("GET", "/session", headers=headers) == (401, "AUTH_FAILED")


async def test_log_out_everywhere(guarded: ApiClient) -> None:
    cookies = [await log_in(guarded, "owner") for _ in range(3)]
    others = await log_in(guarded, "none")
    out = await guarded.ask("DELETE", "/session?everywhere=true", headers={"Cookie": cookies[0], **SITE})
    assert out.status_code == 204
    for cookie in cookies:
        assert (await guarded.get("/session", headers={"Cookie": cookie})).status_code == 401
    assert (await guarded.get("/session", headers={"Cookie": others})).status_code == 200


async def test_a_session_ends_with_what_it_logged_in_with(guarded: ApiClient) -> None:
    for name in ("gone", "changed"):
        await guarded.done("POST", "/users", "root", json={"user": name, "password": "correct horse"})
    cookies = {name: {"Cookie": await log_in(guarded, name, "correct horse")} for name in ("gone", "changed")}
    basic = httpx.BasicAuth("gone", "correct horse")
    assert (await guarded.http.get(f"{API}/session", auth=basic)).status_code == 200
    await guarded.done("DELETE", "/users/gone", "root")
    await guarded.done("PUT", "/users/changed/password", "root", json={"password": "battery staple"})
    for cookie in cookies.values():
        assert (await guarded.get("/session", headers=cookie)).status_code == 401
    # A password that was right a moment ago is not remembered beyond its user.
    assert (await guarded.http.get(f"{API}/session", auth=basic)).status_code == 401


ENDS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "token revoked": ("token", "DELETE", "/users/ada/tokens/TOKEN_ID", {}),
    "password changed": ("basic", "PUT", "/users/ada/password", {"json": {"password": "battery staple"}}),
    "user removed": ("basic", "DELETE", "/users/ada", {}),
    "logged out": ("cookie", "DELETE", "/session", {"everywhere": "true"}),
}


@pytest.mark.parametrize("request_line", [b"POST /api/v1/queues/a.q/messages", b"PUT /api/v1/queues/a.new"])
@pytest.mark.parametrize(("login", "method", "change", "more"), ENDS.values(), ids=ENDS)
async def test_a_login_that_ends_while_the_body_comes_has_nothing_done(
    guarded: ApiClient, login: str, method: str, change: str, more: dict[str, Any], request_line: bytes
) -> None:
    await guarded.done("PUT", "/queues/a.q", "root")
    await guarded.done("POST", "/users", "root", json={"user": "ada", "password": "correct horse"})
    rule = {"queues": "a.*", "actions": ["publish", "create"]}
    await guarded.done("POST", "/users/ada/permissions", "root", json=rule)
    made = await guarded.done("POST", "/users/ada/tokens", "root", json={})
    cookie = await log_in(guarded, "ada", "correct horse")
    brought = {
        "token": f"Authorization: Bearer {made['token']}",
        "basic": "Authorization: Basic " + base64.b64encode(b"ada:correct horse").decode(),
        "cookie": f"Cookie: {cookie}\r\nSec-Fetch-Site: same-origin",
    }[login]
    assert guarded.broker.http_address is not None
    reader, writer = await asyncio.open_connection(*guarded.broker.http_address)
    writer.write(request_line + b" HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n")
    writer.write(brought.encode() + b"\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 "), "the login has counted"
    if login == "cookie":
        await guarded.done(method, change, params=more, headers={"Cookie": cookie, **SITE})
    else:
        await guarded.done(method, change.replace("TOKEN_ID", made["token_id"]), "root", **more)
    body = b'{"messages": [{"payload": "x"}]}' if b"messages" in request_line else b"{}"
    writer.write(body.ljust(40))
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert guarded.broker.queue_info("a.new") is None
    info = guarded.broker.queue_info("a.q")
    assert info is not None
    assert info.ready == 0


async def test_whoever_changes_the_own_password_stays(guarded: ApiClient) -> None:
    await guarded.done("POST", "/users", "root", json={"user": "ada", "password": "correct horse"})
    mine, other = [{"Cookie": await log_in(guarded, "ada", "correct horse")} for _ in range(2)]
    headers = {**mine, **SITE}
    await guarded.done("PUT", "/users/ada/password", json={"password": "battery staple"}, headers=headers)
    assert (await guarded.get("/session", headers=mine)).status_code == 200
    assert (await guarded.get("/session", headers=other)).status_code == 401


@pytest.mark.parametrize("by", ["itself", "an administrator who keeps connections"])
async def test_an_old_password_opens_nothing_once_it_was_changed(guarded: ApiClient, by: str) -> None:
    """Also for the requests of a client whose password was right a moment ago: each is a login of its own."""
    await guarded.done("POST", "/users", "root", json={"user": "ada", "password": "leaked one"})
    old = httpx.BasicAuth("ada", "leaked one")
    assert (await guarded.http.get(f"{API}/session", auth=old)).status_code == 200
    if by == "itself":
        changed = await guarded.http.put(f"{API}/users/ada/password", auth=old, json={"password": "battery staple"})
    else:
        wanted = {"password": "battery staple", "keep_connections": True}
        changed = await guarded.ask("PUT", "/users/ada/password", "root", json=wanted)
    assert changed.is_success
    for method, path, body in (
        ("GET", "/session", None),
        ("POST", "/users/ada/tokens", {"label": "mine"}),
        ("POST", "/session/codes", {}),
        ("PUT", "/users/ada/password", {"password": "leaked one"}),
    ):
        assert (await guarded.http.request(method, API + path, auth=old, json=body)).status_code == 401, path
    new = httpx.BasicAuth("ada", "battery staple")
    assert (await guarded.http.get(f"{API}/session", auth=new)).status_code == 200


async def test_a_stream_with_a_leaked_password_ends_when_the_user_changes_it(guarded: ApiClient) -> None:
    """Also one of a moment ago, when the broker still remembers that the password was right."""
    await guarded.done("POST", "/users", "root", json={"user": "ada", "password": PASSWORD})
    rule = {"queues": "a.*", "actions": ["create", "inspect", "subscribe"]}
    await guarded.done("POST", "/users/ada/permissions", "root", json=rule)
    await guarded.done("PUT", "/queues/a.q", "ada")
    code = (await guarded.done("POST", "/session/codes", "ada", json={}))["code"]
    begun = await guarded.ask("POST", "/session", json={"code": code}, headers=SITE)
    cookie = {"Cookie": begun.headers["set-cookie"].partition(";")[0]}
    guarded.http.cookies.clear()
    assert (await guarded.get("/session", headers=cookie)).status_code == 200
    async with (
        reading(guarded, "/queues/a.q/tail", "ada") as tail,
        reading(guarded, "/events?topic=queue:a.q", "ada") as events,
    ):
        await guarded.done("PUT", "/users/ada/password", "ada", json={"password": "battery staple"})
        await until(lambda: tail.ended and events.ended)
    assert "password of user 'ada' was changed" in tail.of("bye")[0]["reason"]
    assert (await guarded.get("/session", headers=cookie)).status_code == 401


async def test_behind_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    authority = Authority.made_in(tmp_path)
    signed = authority.sign("server")
    tls = {"certificate": str(signed.certificate), "key": str(signed.key)}
    trust = ssl.create_default_context(cafile=authority.ca)
    async with (
        serving(tmp_path / "data", auth=everybody(), tls=tls) as plain,
        ApiClient(plain.broker, "https", verify=trust).http as http,
    ):
        told = {"user": "root", "password": PASSWORD}
        response = await http.post(f"{API}/session", json=told, headers=SITE)
        assert response.headers["set-cookie"].startswith("__Secure-vibemq_session=")
        assert response.headers["set-cookie"].endswith("; Secure")
        assert response.headers["strict-transport-security"] == "max-age=31536000"
        assert (await http.get("/livez")).headers["strict-transport-security"]


async def test_only_a_trusted_proxy_makes_it_secure(tmp_path: Path) -> None:
    forwarded = {**SITE, "X-Forwarded-Proto": "https", "X-Forwarded-For": "1.2.3.4"}
    for trusted, name in ((["127.0.0.1"], "__Secure-vibemq_session"), ([], "vibemq_session")):
        async with serving(tmp_path / name, auth=everybody(), trusted_proxies=trusted) as api:
            told = {"user": "root", "password": PASSWORD}
            response = await api.ask("POST", "/session", json=told, headers=forwarded)
            assert response.headers["set-cookie"].startswith(f"{name}=")


# -- guessing (7.1-10, 11) --------------------------------------------------------------------------------------------


async def test_guesses_count_whatever_the_door(guarded: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # The wait is the longest at once: it is not over when the test is slow.
    monkeypatch.setattr(guessing, "FREE", -5)
    wrong = {"user": "owner", "password": "wrong"}
    answers = [await guarded.ask("POST", "/session", json=wrong) for _ in range(12)]
    assert {answer.status_code for answer in answers} == {401}
    assert int(answers[-1].headers["retry-after"]) >= 1
    with pytest.raises(AuthFailed, match="too many failed attempts"):
        async with vibemq.connect(guarded.broker.url, username="owner", password="wrong"):
            """It has to wait here, too."""
    late = await guarded.ask("POST", "/session", json={"user": "owner", "password": PASSWORD})
    assert "too many failed attempts" in late.json()["detail"]


async def test_users_cannot_be_told_from_nobody(guarded: ApiClient) -> None:
    answers = []
    for name in ("owner", "nobody"):
        response = await guarded.ask("POST", "/session", json={"user": name, "password": "wrong"})
        answers.append((response.status_code, re.sub(r'"instance":"\w+"', "", response.text), sorted(response.headers)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("logins", [100, pytest.param(1_000, marks=pytest.mark.long)])
async def test_many_logins_keep_nobody_waiting(
    guarded: ApiClient, monkeypatch: pytest.MonkeyPatch, logins: int
) -> None:
    """All come at once, and no check of a password ends before everybody else has been served."""
    checking, together, beside_the_loop, may_end = set[int](), set[int](), set[bool](), threading.Event()
    answers, turned_away, connections = list[int](), asyncio.Event(), asyncio.Semaphore(100)
    check = verify_password

    def held_up(password: str, stored: str) -> bool:
        checking.add(threading.get_ident())
        together.add(len(checking))
        beside_the_loop.add(threading.current_thread() is not threading.main_thread())
        may_end.wait()
        checking.discard(threading.get_ident())
        return check(password, stored)

    async def guess(http: httpx.AsyncClient, number: int) -> None:
        async with connections:
            answer = await http.post(f"{API}/session", json={"user": f"u{number}", "password": "x"})
        answers.append(answer.status_code)
        if len(answers) == logins - TOGETHER[Kind.LOGIN].of_client:
            turned_away.set()

    await guarded.done("PUT", "/queues/a.q", "root")
    await guarded.done("GET", "/session", "owner")
    async with (
        vibemq.connect(guarded.broker.url, username="owner", password=PASSWORD) as mq,
        ApiClient(guarded.broker).http as flooding,
        asyncio.TaskGroup() as tasks,
    ):
        monkeypatch.setattr(auth_users, "verify_password", held_up)
        for number in range(logins):
            tasks.create_task(guess(flooding, number))
        try:
            await turned_away.wait()
            await until(lambda: len(checking) == 2)
            assert set(answers) == {429}
            assert (await guarded.http.get("/livez")).status_code == 200
            assert (await guarded.get("/queues/a.q", "owner")).status_code == 200
            await mq.publish("a.q", b"x")
            [message] = await mq.fetch("a.q")
            await message.ack()
            assert len(answers) == logins - TOGETHER[Kind.LOGIN].of_client
        finally:
            may_end.set()
    assert set(answers) == {429, 401}
    assert (max(together), beside_the_loop) == (2, {True})


# -- answers (7.1-14, 15, 16, 25) -------------------------------------------------------------------------------------


async def test_headers_of_every_answer(guarded: ApiClient) -> None:
    answers = [
        await guarded.get("/session", "root"),
        await guarded.get("/session"),
        await guarded.get("/nothing", "root"),
        await guarded.ask("POST", "/session", content=b"{"),
        await guarded.http.get("/livez"),
        await guarded.http.get("/nothing"),
    ]
    for answer in answers:
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"unsafe|data:|blob:|\*", policy)
        assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize(
    "evil", ["%0d%0aX-Evil:%20yes", "%0aX-Evil:%20yes", "a%00b", "%22;x=%22", "%2e%2e%2f" * 9, "x" * 1_000]
)
async def test_no_header_is_injected(opened: ApiClient, evil: str) -> None:
    paths = (
        *(f"/queues/{evil}", f"/queues?cursor={evil}", f"/queues/{evil}/messages/1/body", f"/dead-letters/{evil}"),
        *(f"/dead-letters/{evil}/body", f"/jobs/{evil}/result", f"/users/{evil}", f"/queues/q/groups/{evil}"),
    )
    for path in paths:
        for method in ("GET", "PUT", "DELETE"):
            response = await opened.ask(method, path, headers={"X-Request-Id": "mine"})
            assert response.status_code < 500, (method, path)
            assert "x-evil" not in response.headers
            assert response.headers.get("x-request-id") != "mine"
            told = response.headers.get("location", "") + response.headers.get("content-disposition", "")
            assert re.fullmatch(r"[-\w./~]*", told), told


async def test_no_secret_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    canaries = ("canary-super", "canary-shared", "canary-page", "canary-new", "canary-wrong")
    auth = Auth.model_validate(
        {
            "superuser": "root",
            "superuser_password": canaries[0],
            "token": canaries[1],
            "users": {"ada": {"password_hash": cheap_hash()}},
        }
    )
    told: list[str] = []
    async with serving(tmp_path, auth=auth, token=canaries[2]) as api:

        async def note(method: str, path: str, **more: Any) -> None:
            response = await api.http.request(method, f"{API}{path}", **more)
            told.append(response.text + str(response.headers))

        root = httpx.BasicAuth("root", canaries[0])
        shared = {"Authorization": f"Bearer {canaries[1]}"}
        await note("POST", "/session", json={"user": "root", "password": canaries[0]})
        await note("POST", "/session", json={"user": "root", "password": canaries[4]})
        await note("POST", "/session", json={"token": canaries[4], "more": canaries[4]})
        await note("POST", "/users", auth=root, json={"user": "new", "password": canaries[3]})
        await note("PUT", "/users/new/password", auth=root, json={"password": canaries[3], "keep_connections": 1})
        for endpoint in ENDPOINTS:
            if endpoint.method == "GET" and not endpoint.names:
                await note("GET", endpoint.path, headers=shared)
        await note("GET", "/users/ada", auth=root)
    everything = "\n".join(told) + "\n".join(str(vars(record)) for record in caplog.records)
    for secret in (*canaries, cheap_hash()):
        assert secret not in everything


# -- bytes and floods (7.1-27, 28, 29) --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        (b"POST /api/v1/session HTTP/1.1", b"Host: x", b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        (b"POST /api/v1/session HTTP/1.1", b"Host: x", b"Content-Length: 2", b"Content-Length: 3"),
        (b"GET /api/v1/session HTTP/1.1", b"Host: x", b"X: a\r\n b\0"),
        (b"GET /api/v1/session HTTP/1.1", b"Host: x", b"X: " + b"x" * 17_000),
        (b"GET /api/v1/session?" + b"x" * 17_000 + b" HTTP/1.1", b"Host: x"),
        (b"GET /api/v1/session?" + b"x" * 9_000 + b" HTTP/1.1", b"Host: x"),
    ],
    ids=["length and chunks", "two lengths", "folded", "long header", "too long a URL", "long URL"],
)
async def test_ambiguous_requests_end_the_connection(guarded: ApiClient, lines: tuple[bytes, ...]) -> None:
    answer = await raw(guarded, *lines, body=b"{}GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert re.match(rb"HTTP/1.1 4\d\d ", answer)
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_body_that_comes_too_slowly_ends_with_its_connection(
    guarded: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bodies.read_body.__kwdefaults__, "timeout_s", 0.5)
    assert guarded.broker.http_address is not None
    reader, writer = await asyncio.open_connection(*guarded.broker.http_address)
    login = base64.b64encode(f"root:{PASSWORD}".encode())
    writer.write(b"PUT /api/v1/queues/q HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + login)
    writer.write(b"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    assert (await guarded.get("/queues", "root")).status_code == 200
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"REQUEST_TIMEOUT" in answer
    writer.close()
    assert guarded.broker.queue_info("q") is None


async def test_silent_and_half_requests_keep_nobody_out(guarded: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do streams that nobody reads, and together they take little memory."""
    monkeypatch.setattr(streams, "HEARTBEAT", b": " + b"x" * 65_536 + b"\n\n")
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(streams, "LOOK_S", 0.01)
    monkeypatch.setattr(streams, "UNREAD_S", 3_600.0)
    web = guarded.broker._listeners.web
    assert web is not None
    # What the system holds for a connection, which is not the broker's memory, is soon full.
    web._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    await guarded.done("PUT", "/queues/a.q", "root")
    logins = [base64.b64encode(f"{user}:{PASSWORD}".encode()) for user in ("root", "owner", "none", *SINGLE)]
    stream = b"GET /api/v1/events?topic=overview HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %b\r\n\r\n"
    half = b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"

    def unread() -> int:
        return sum(one.transport.get_write_buffer_size() > 0 for one in list(web.pool._open))

    async with vibemq.connect(guarded.broker.url, username="owner", password=PASSWORD) as mq:
        tracemalloc.start()
        try:
            with ExitStack() as stack:
                await flood(stack, guarded, [stream % logins[number % len(logins)] for number in range(UNREAD)])
                await until(lambda: unread() > STREAMS_MAX // 2)
                await flood(stack, guarded, [b"", half] * CONNECTIONS_MAX)
                async with ApiClient(guarded.broker).http as http:
                    assert (await http.get("/livez")).status_code == 200
                    answer = await http.get(f"{API}/session", auth=("root", PASSWORD))
                    assert answer.status_code == 200
                await mq.publish("a.q", b"x")
                assert len(web.pool) <= CONNECTIONS_MAX
                assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()


async def flood(stack: ExitStack, api: ApiClient, said: list[bytes]) -> None:
    """Connections that say this and read nothing, from many addresses: each may have a few streams."""
    assert api.broker.http_address is not None
    for number, text in enumerate(said):
        peer = stack.enter_context(socket.socket())
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        peer.bind((f"127.0.0.{2 + number % 50}", 0))
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, api.broker.http_address)
        with suppress(ConnectionError):
            # It may have made room for others.
            peer.send(text)


async def test_who_asks_too_often_waits_and_nobody_else_does(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody(), requests_per_second=1) as api:
        answers = [await api.get("/session", "owner") for _ in range(12)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert refused[0].json()["code"] == "RATE_LIMITED"
        assert (await api.get("/session", "none")).status_code == 200
        for page in ("/livez", "/readyz", "/metrics", "/health/") * 5:
            assert (await api.http.get(page)).status_code == 200


async def test_the_api_of_a_broker_that_stops_takes_no_changes(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        api.broker.status.draining = True
        assert await api.code("PUT", "/queues/q") == (503, "SHUTTING_DOWN")
        assert (await api.get("/session")).status_code == 200
        api.broker.status.draining = False
