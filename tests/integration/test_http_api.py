"""The HTTP API on a real broker: resources, pages, conditions, keys, and what is refused."""

import asyncio
import hashlib
import json
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.integration.access import PASSWORD, cheap_hash
from tests.integration.certificates import Authority, Signed
from tests.integration.http_api import ApiClient, everybody, serving
from vibemq.server.broker import Broker
from vibemq.web.api.contract import NDJSON

pytestmark = pytest.mark.anyio


async def test_two_brokers_in_one_loop_answer(tmp_path: Path) -> None:
    """A socket that is closed behind the loop's back leaves its number in the loop's tables."""
    for _ in range(2):
        async with serving(tmp_path / "one") as one:
            assert (await one.http.get("/livez")).status_code == 200
            async with serving(tmp_path / "two") as two:
                assert [(await each.http.get("/livez")).status_code for each in (one, two)] == [200, 200]


async def test_a_broker_without_the_api_has_none(tmp_path: Path) -> None:
    async with serving(tmp_path, api=False) as client:
        assert (await client.http.get("/api/v1/session")).status_code == 404
        assert (await client.http.get("/livez")).status_code == 200


def test_what_nobody_uses_is_not_imported() -> None:
    program = (
        "import asyncio, sys, tempfile, vibemq\n"
        "from vibemq.config import Http, Listener, Settings, StorageChoice\n"
        "async def main(**http):\n"
        "    settings = Settings(data_dir=tempfile.mkdtemp(), storage=StorageChoice(provider='memory'),\n"
        "        queue_defaults={'durability': 'transient'}, listeners=(Listener(port=0),),\n"
        "        http=Http(port=0, **http))\n"
        "    async with vibemq.Broker(settings=settings):\n"
        "        print(any(name.startswith(prefix) for name in sys.modules for prefix in ('vibemq.web.api',)),\n"
        "              any(name.startswith('vibemq.web') for name in sys.modules))\n"
        "asyncio.run(main(enabled=False))\n"
        "asyncio.run(main(api=False, console=False))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "False", "False", "True"]


def test_a_broker_without_http_imports_no_http_server() -> None:
    program = (
        "import sys, vibemq.server.broker\n"
        "print([name for name in ('uvicorn', 'h11', 'starlette', 'vibemq.web') if name in sys.modules])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize("provider", ["memory", "lmdb"])
def test_an_embedded_broker_makes_no_validator_and_looks_for_no_packages(provider: str, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys, vibemq\n"
        "async def main():\n"
        f"    async with vibemq.Broker({str(tmp_path)!r}, storage={provider!r}):\n"
        "        pass\n"
        "asyncio.run(main())\n"
        "print([name for name in ('pydantic.plugin._loader', 'importlib.metadata', 'pydantic_settings', 'tomllib',\n"
        "    'argparse', 'argon2', 'bcrypt', 'rich', 'typer', 'vibemq.client', 'vibemq.web',\n"
        "    'vibemq.protocols.omq') if name in sys.modules])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_client_imports_nothing_of_the_broker() -> None:
    program = (
        "import sys, vibemq\n"
        "print(sorted(name for name in sys.modules if name.startswith('vibemq')), 'asyncio' in sys.modules)\n"
        "vibemq.connect\n"
        "print([name for name in sys.modules if name.startswith(('rich', 'pydantic', 'vibemq.server',\n"
        "    'vibemq.auth', 'vibemq.model.commands', 'vibemq.model.effects', 'vibemq.model.records'))])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["['vibemq', 'vibemq._version'] False", "[]"]


async def test_a_certificate_is_read_again(tmp_path: Path) -> None:
    authority = Authority.made_in(tmp_path)
    first, second = authority.sign("first"), authority.sign("second")
    tls = {"certificate": tmp_path / "tls.pem", "key": tmp_path / "tls.key"}

    def use(signed: Signed) -> None:
        tls["certificate"].write_bytes(signed.certificate.read_bytes())
        tls["key"].write_bytes(signed.key.read_bytes())

    async def shown(api: ApiClient) -> str:
        assert api.broker.http_address is not None
        trust = ssl.create_default_context(cafile=authority.ca)
        _, writer = await asyncio.open_connection(*api.broker.http_address, ssl=trust, server_hostname="localhost")
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return dict(pair[0] for pair in certificate["subject"])["commonName"]

    use(first)
    async with serving(tmp_path / "data", tls={name: str(path) for name, path in tls.items()}) as api:
        assert await shown(api) == "first"
        use(second)
        assert (await api.broker.reload())["certificates"] == [str(path) for path in tls.values()]
        assert await shown(api) == "second"


# -- queues -----------------------------------------------------------------------------------------------------------


async def test_the_life_of_a_queue(api: ApiClient) -> None:
    made = await api.ask("PUT", "/queues/orders", json={"max_attempts": 5})
    assert (made.status_code, made.json()) == (201, {"queue": "orders"})
    assert (await api.ask("PUT", "/queues/orders", json={"max_attempts": 5})).status_code == 200
    assert await api.code("PUT", "/queues/orders", json={"max_attempts": 6}) == (409, "QUEUE_EXISTS")
    found = await api.get("/queues/orders")
    assert found.json()["options"]["max_attempts"] == 5
    assert found.json()["options"]["mode"] == "round_robin"
    changed = {"max_attempts": 7, "ack_timeout_ms": None}
    await api.done("PATCH", "/queues/orders", json=changed, headers={"If-Match": found.headers["etag"]})
    assert (await api.done("GET", "/queues/orders"))["options"]["max_attempts"] == 7
    tag = (await api.get("/queues/orders")).headers["etag"]
    for of_proxy in (f"W/{tag}", f'{tag[:-1]}-gzip"', f'W/{tag[:-1]}-br"'):
        # What a proxy makes of it that compresses the answer.
        await api.done("PATCH", "/queues/orders", json={"max_attempts": 7}, headers={"If-Match": of_proxy})
    several = await api.ask("PATCH", "/queues/orders", json={}, headers={"If-Match": f'"x", {tag}'})
    assert (several.status_code, "several tags" in several.json()["detail"]) == (422, True)
    for wrong in ('W/"0"', '"-gzip"', '""'):
        refused = await api.code("PATCH", "/queues/orders", json={"max_attempts": 8}, headers={"If-Match": wrong})
        assert refused == (412, "PRECONDITION_FAILED")
    async with vibemq.connect(api.broker.url) as mq:
        for _ in range(3):
            await mq.publish("orders", b"x")
    assert await api.done("POST", "/queues/orders/purge") == {"count": 3}
    await api.done("DELETE", "/queues/orders")
    assert await api.code("GET", "/queues/orders") == (404, "QUEUE_NOT_FOUND")
    assert (await api.ask("DELETE", "/queues/orders")).status_code == 200


@pytest.mark.parametrize("name", [".", "..", "...", "-x", "--yes", "a.b", "ค" * 256])
async def test_every_name_is_reached(api: ApiClient, name: str) -> None:
    path = f"/queues/~{name}" if not name.strip(".") else f"/queues/{name}"
    await api.done("PUT", path)
    assert (await api.done("GET", path))["queue"] == name
    assert [each["queue"] for each in (await api.done("GET", "/definitions"))["items"]] == [name]
    await api.done("POST", f"{path}/purge")
    await api.done("PATCH", path, json={"max_attempts": 9}, headers={"If-Match": "*"})
    await api.done("DELETE", path)
    assert api.broker.list_queues() == []


async def test_a_slash_or_a_control_character_makes_no_name(api: ApiClient) -> None:
    for name in ("a%2Fb", "a%00b", "a%0d%0aSet-Cookie:%20x=y", "%ff"):
        response = await api.ask("PUT", f"/queues/{name}")
        assert response.status_code in (400, 422)
        assert "set-cookie" not in response.headers
    assert api.broker.list_queues() == []


async def test_one_of_many_changes_wins(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q")
    tag = (await api.get("/queues/q")).headers["etag"]
    wanted = [
        api.ask("PATCH", "/queues/q", json={"max_attempts": number}, headers={"If-Match": tag})
        for number in range(10, 30)
    ]
    statuses = [response.status_code for response in await asyncio.gather(*wanted)]
    assert sorted(statuses) == [200] + [412] * 19
    late = await api.ask("PATCH", "/queues/q", json={"max_attempts": 99}, headers={"If-Match": tag})
    now = (await api.done("GET", "/queues/q"))["options"]["max_attempts"]
    assert late.json()["difference"] == {"max_attempts": {"current": now, "wanted": 99}}
    assert await api.code("PATCH", "/queues/q", json={"max_attempts": 1}) == (428, "PRECONDITION_REQUIRED")


async def test_a_fault_of_the_broker_ends_one_request_and_is_counted(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = api.broker._listeners.web
    assert web is not None
    assert web._api is not None

    async def faulty(exchange: object) -> None:
        raise RuntimeError("a bug of ours")

    with monkeypatch.context() as patch:
        patch.setattr(web._api.app, "_exchange", faulty)
        assert (await api.get("/session")).status_code == 500
    assert api.broker.report.metrics.errors == 1
    assert (await api.get("/session")).status_code == 200


async def test_null_gives_an_option_the_default_of_new_queues(api: ApiClient) -> None:
    assert (await api.done("GET", "/session"))["queue_defaults"]["durability"] == "transient"
    await api.done("PUT", "/queues/q", json={"max_attempts": 7})
    nothing = {"durability": None, "max_attempts": None, "message_ttl_ms": None}
    await api.done("PATCH", "/queues/q", json=nothing, headers={"If-Match": "*"})
    options = (await api.done("GET", "/queues/q"))["options"]
    assert (options["durability"], options["max_attempts"], options["message_ttl_ms"]) == ("transient", 3, None)


async def test_a_queue_that_was_made_anew_has_another_tag(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q")
    tag = (await api.get("/queues/q")).headers["etag"]
    await api.done("DELETE", "/queues/q")
    await api.done("PUT", "/queues/q")
    seen = {"If-Match": tag}
    refused = await api.code("PATCH", "/queues/q", json={"max_attempts": 9}, headers=seen)
    assert refused == (412, "PRECONDITION_FAILED")
    for tried in ({}, {"dry_run": True}, {"at_most": 0}):
        assert await api.code("DELETE", "/queues/q", params=tried, headers=seen) == (412, "PRECONDITION_FAILED")
    now = (await api.get("/queues/q")).headers["etag"]
    await api.done("DELETE", "/queues/q", headers={"If-Match": f"W/{now}"})
    assert await api.code("GET", "/queues/q") == (404, "QUEUE_NOT_FOUND")
    await api.done("DELETE", "/queues/q", headers=seen)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/queues/q"), ("POST", "/queues/q/purge"), ("POST", "/session")])
async def test_a_tag_that_would_be_passed_over_is_refused(api: ApiClient, method: str, path: str) -> None:
    await api.done("PUT", "/queues/q")
    refused = await api.ask(method, path, json={}, headers={"If-Match": '"x"'})
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_PAYLOAD")
    assert "takes no If-Match" in refused.json()["detail"]


async def test_more_than_was_shown_is_not_dropped(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        for _ in range(3):
            await mq.publish("q", b"x")
    for method, path, more in (
        ("POST", "/queues/q/purge", {"json": {"at_most": 2}}),
        ("DELETE", "/queues/q", {"params": {"at_most": 2}}),
    ):
        response = await api.ask(method, path, **more)
        assert (response.status_code, response.json()["count"]) == (412, 3)
    assert (await api.done("GET", "/queues/q"))["ready"] == 3
    assert await api.done("POST", "/queues/q/purge", json={"at_most": 3}) == {"count": 3}


async def test_a_deletion_counts_what_consumers_hold_and_a_purge_does_not(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        for _ in range(3):
            await mq.publish("q", b"x")
    await api.done("POST", "/queues/q/deliveries", json={"max": 2})
    refused = await api.ask("DELETE", "/queues/q", params={"at_most": 2})
    assert (refused.status_code, refused.json()["count"]) == (412, 3)
    assert await api.done("POST", "/queues/q/purge", json={"at_most": 1}) == {"count": 1}
    assert await api.code("DELETE", "/queues/q", params={"at_most": 1}) == (412, "PRECONDITION_FAILED")
    await api.done("DELETE", "/queues/q", params={"at_most": 2})


async def test_a_narrower_token_of_a_superuser_tells_what_it_may(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        wanted = {"label": "x", "permissions": [{"queues": "a.*", "actions": ["create", "purge"]}]}
        token = (await api.done("POST", "/users/root/tokens", "root", json=wanted))["token"]
        told = await api.done("GET", "/session", headers={"Authorization": f"Bearer {token}"})
    assert not told["superuser"]
    assert {"kind": "queue", "pattern": "*", "actions": ["*"]} in told["permissions"]
    assert [rule["pattern"] for rule in told["narrowed_to"]] == ["a.*"]


# -- lists ------------------------------------------------------------------------------------------------------------


async def test_all_users_come_in_pages(tmp_path: Path) -> None:
    auth = everybody()
    more = {f"u{number:04}": auth.users["none"] for number in range(1_001)}
    async with serving(tmp_path, auth=auth.model_copy(update={"users": more})) as api:
        first = await api.done("GET", "/users", "root")
        assert len(first["items"]) == 1_000
        rest = await api.done("GET", "/users", "root", params={"cursor": first["next"]})
        assert [one["user"] for one in rest["items"]] == ["u0999", "u1000"]
        assert rest["next"] is None


async def test_a_change_that_is_tried_makes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as client:
        tried = await client.ask("POST", "/users", "root", json={"user": "eve", "password": "pw", "dry_run": True})
        assert (tried.status_code, tried.json()) == (200, {"user": "eve", "dry_run": True})
        assert (await client.get("/users/eve", "root")).status_code == 404
        token = await client.ask("POST", "/users/root/tokens", "root", json={"dry_run": True})
        assert token.status_code == 200
        assert not {"token", "token_id"} & token.json().keys()
        gone = await client.ask("DELETE", "/users/eve", "root", params={"dry_run": "true"})
        assert gone.status_code == 404


async def test_of_many_groups_the_first_are_described(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"mode": "fan_out_with_ack"})
    for number in range(120):
        await api.done("POST", f"/queues/q/groups/g{number:03}/filter", json={"where": ""})
    assert len((await api.done("GET", "/queues/q"))["groups"]) == 100
    assert len((await api.done("GET", "/queues/q/groups"))["items"]) == 120


async def test_pages_lose_and_repeat_nothing(api: ApiClient) -> None:
    names = [f"q{number}" for number in range(7)]
    for name in names:
        await api.done("PUT", f"/queues/{name}")
    seen: list[str] = []
    response = await api.get("/definitions", params={"limit": 3})
    while True:
        seen += [each["queue"] for each in response.json()["items"]]
        if response.json()["next"] is None:
            break
        link = response.headers["link"]
        response = await api.get(f"/definitions{link[link.index('<') + 1 : link.index('>')]}")
    assert seen == names


async def test_a_list_that_is_known_is_not_sent_again(api: ApiClient) -> None:
    await api.done("PUT", "/queues/a")
    first = await api.get("/definitions")
    again = await api.get("/definitions", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    await api.done("PUT", "/queues/b")
    assert (await api.get("/definitions", headers={"If-None-Match": first.headers["etag"]})).status_code == 200


async def test_a_cursor_belongs_to_its_list_user_and_run(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        for number in range(3):
            await api.done("PUT", f"/queues/a.{number}", "root")
        cursor = (await api.done("GET", "/definitions?limit=1", "owner"))["next"]
        await api.done("GET", f"/definitions?limit=1&cursor={cursor}", "owner")
        refused = (422, "INVALID_PAYLOAD")
        assert await api.code("GET", f"/definitions?cursor={cursor}", "root") == refused
        assert await api.code("GET", f"/definitions?cursor={cursor[:-4]}AAAA", "owner") == refused
        assert await api.code("GET", f"/dead-letters?cursor={cursor}", "root") == refused
        assert await api.code("GET", f"/definitions?cursor={'A' * 5000}", "owner") == refused
    async with serving(tmp_path, auth=everybody()) as api:
        assert await api.code("GET", f"/definitions?limit=1&cursor={cursor}", "owner") == refused, "of an earlier run"


async def test_a_limited_user_sees_the_own_queues_only(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        for name in ("a.1", "b.1"):
            await api.done("PUT", f"/queues/{name}", "root")
        shown = await api.get("/definitions", "inspect")
        assert [each["queue"] for each in shown.json()["items"]] == ["a.1"]
        assert "b.1" not in shown.text
        assert (await api.done("GET", "/definitions", "none"))["items"] == []


# -- dead letters -----------------------------------------------------------------------------------------------------


async def reject(api: ApiClient, bodies: list[bytes]) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        for body in bodies:
            await mq.publish("q", body, headers={"kind": "x"})
        async with mq.subscribe("q", prefetch=1) as messages:
            for _ in bodies:
                message = await anext(messages)
                await message.reject("bad <b>total</b> 17")


async def test_dead_letters(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"dead_letter": True})
    await reject(api, [b"<script>1</script>", b"\xff\x00"])
    listed = (await api.done("GET", "/dead-letters", params={"header": "kind:x", "reason": "rejected"}))["items"]
    assert len(listed) == 2
    first, second = (letter["dead_id"] for letter in listed)
    letter = await api.done("GET", f"/dead-letters/{first}")
    assert (letter["payload"], letter["error"]) == ("<script>1</script>", "bad <b>total</b> 17")
    assert letter["dead_at"].endswith("Z")
    body = await api.get(f"/dead-letters/{second}/body")
    assert body.content == b"\xff\x00"
    assert body.headers["content-type"] == "application/octet-stream"
    assert body.headers["content-disposition"] == f'attachment; filename="letter-{second}.bin"'
    assert "sandbox" in body.headers["content-security-policy"]
    assert await api.done("POST", f"/dead-letters/{first}/replay") == {"count": 1}
    assert await api.code("POST", f"/dead-letters/{first}/replay") == (404, "MESSAGE_NOT_FOUND")
    assert await api.done("DELETE", f"/dead-letters/{second}") == {"count": 1}
    assert (await api.done("GET", "/dead-letters"))["items"] == []
    assert (await api.done("GET", "/queues/q"))["ready"] == 1


async def test_letters_are_exported_with_their_count(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"dead_letter": True})
    await reject(api, [b"%d" % number for number in range(7)])
    response = await api.get("/dead-letters/export", params={"queue": "q"})
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["payload"] for line in lines[:-1]] == [str(number) for number in range(7)]
    assert lines[-1] == {"count": 7, "damaged": 0}
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["content-disposition"] == 'attachment; filename="dead-letters.ndjson"'
    assert await api.code("GET", "/dead-letters/export?queue=missing") == (404, "QUEUE_NOT_FOUND")


async def test_hidden_bodies_are_in_no_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, show_bodies="none") as api:
        await api.done("PUT", "/queues/q", json={"dead_letter": True})
        await reject(api, [b"secret-body"])
        (letter,) = (await api.done("GET", "/dead-letters"))["items"]
        paths = ("", "/export", f"/{letter['dead_id']}", f"/{letter['dead_id']}/body", "/groups")
        for path in paths:
            text = (await api.get(f"/dead-letters{path}")).text
            assert "secret-body" not in text
            assert "total" not in text
        edit = {"headers": {"n": "1"}}
        told = await api.done("POST", f"/dead-letters/{letter['dead_id']}/edit", json=edit)
        assert {told["changes"][name] for name in ("sha256_before", "sha256_after")} == {None}


async def test_a_dry_run_does_not_tell_whether_a_hidden_body_was_guessed(tmp_path: Path) -> None:
    async with serving(tmp_path, show_bodies="none") as api:
        await api.done("PUT", "/queues/q", json={"dead_letter": True})
        await reject(api, [b"secret"])
        (letter,) = (await api.done("GET", "/dead-letters"))["items"]
        path = f"/dead-letters/{letter['dead_id']}/edit"
        for right, wrong in (
            ({"text": "secret"}, {"text": "s3cret"}),
            ({"headers": {"kind": "x", "content-type": "application/octet-stream"}}, {"headers": {"kind": "y"}}),
        ):
            told = [await api.done("POST", path, json={**guess, "dry_run": True}) for guess in (right, wrong)]
            assert told[0] == told[1]


async def test_filters_of_others_jobs_tell_nothing_that_is_hidden(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody(), show_bodies="superuser") as api:
        await api.done("POST", "/users", "root", json={"user": "new", "password_hash": cheap_hash()})
        await api.done("POST", "/users/new/permissions", "root", json={"queues": "*", "actions": ["*"]})
        searched = {"error": "S3CRET", "header": {"patient": "S3CRET"}}
        begun = await api.ask("POST", "/jobs", "root", json={"kind": "purge_dead", "filter": searched})
        assert "S3CRET" in begun.text
        for path in ("/jobs", f"/jobs/{begun.json()['job']}"):
            shown = await api.ask("GET", path, "new")
            assert (shown.status_code, "S3CRET" in shown.text) == (200, False), shown.text
            assert '"header":{"patient":null}' in shown.text


# -- users, groups, connections ---------------------------------------------------------------------------------------


async def test_users_that_the_broker_keeps(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        made = await api.ask("POST", "/users", "root", json={"user": "new", "password": "correct horse"})
        assert made.status_code == 201
        rule = {"queues": "a.*", "actions": ["inspect"]}
        assert (await api.done("POST", "/users/new/permissions", "root", json=rule))["queues"] == "a.*"
        assert (await api.done("GET", "/users/new", "root"))["permissions"] == [rule]
        told = await api.done("GET", "/users/new/access", "root", params={"action": "purge", "queues": "a.1"})
        assert told["allowed"] is False
        token = await api.ask("POST", "/users/new/tokens", "root", json={"user": "other", "label": "ci"})
        assert token.status_code == 422
        token = await api.ask("POST", "/users/new/tokens", "root", json={"label": "ci"})
        assert token.status_code == 201
        bearer = {"Authorization": f"Bearer {token.json()['token']}"}
        assert (await api.done("GET", "/session", headers=bearer))["user"] == "new"
        shown = await api.done("GET", "/users/new/tokens", "root")
        assert [each["label"] for each in shown["items"]] == ["ci"]
        assert token.json()["token"] not in str(shown)
        await api.done("DELETE", f"/users/new/tokens/{token.json()['token_id']}", "root")
        assert await api.code("GET", "/session", headers=bearer) == (401, "AUTH_FAILED")
        await api.done("DELETE", "/users/new/permissions", "root", params={"queues": "a.*"})
        await api.done("DELETE", "/users/new", "root")
        assert await api.code("GET", "/users/new", "root") == (404, "USER_NOT_FOUND")
        assert await api.code("DELETE", "/users/owner", "root") == (409, "FORBIDDEN")


async def test_groups(api: ApiClient) -> None:
    await api.done("PUT", "/queues/events", json={"mode": "broadcast"})
    async with vibemq.connect(api.broker.url) as mq:
        async with mq.subscribe("events", group="a/b"):
            names = [group["group"] for group in (await api.done("GET", "/queues/events/groups"))["items"]]
            assert "a/b" in names
            assert (await api.done("GET", "/queues/events/groups/a%2Fb"))["consumers"] == 1
        await api.done("POST", "/queues/events/groups/a%2Fb/seek", json={"start": "beginning"})
    await api.done("DELETE", "/queues/events/groups/a%2Fb")
    assert await api.code("GET", "/queues/events/groups/a%2Fb") == (404, "GROUP_NOT_FOUND")


async def test_connections_are_listed_and_closed(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"x")
        (shown,) = (await api.done("GET", "/connections"))["items"]
        assert await api.done("DELETE", f"/connections/{shown['connection_id']}") == {"closed": 1, "unsettled": 0}
    assert await api.code("DELETE", "/connections/nobody") == (404, "UNKNOWN_COMMAND")


async def test_a_connection_is_closed_by_its_user_and_by_nobody_who_may_not(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, auth=everybody()) as api,
        vibemq.connect(api.broker.url, username="owner", password=PASSWORD) as mine,
        vibemq.connect(api.broker.url, username="none", password=PASSWORD) as other,
    ):
        shown = (await api.done("GET", "/connections", "root"))["items"]
        theirs = next(row["connection_id"] for row in shown if row["user"] == "none")
        for path in (f"/connections/{theirs}", f"/connections/{theirs}?user=none", "/connections/nobody"):
            for user in ("owner", "inspect", "list", "delete"):
                assert await api.code("DELETE", path, user) == (403, "NOT_AUTHORIZED"), (path, user)
        # Among the own ones there is none of that id.
        code = await api.code("DELETE", f"/connections/{theirs}?user=owner", "owner")
        assert code == (404, "UNKNOWN_COMMAND")
        for mq in (mine, other):
            await mq.ping()
        assert (await api.done("DELETE", f"/connections/{theirs}?user=none", "none"))["closed"] == 1


# -- what the request may be ------------------------------------------------------------------------------------------


async def test_what_is_not_in_the_contract(api: ApiClient) -> None:
    assert await api.code("GET", "/nothing") == (404, "UNKNOWN_COMMAND")
    assert await api.code("GET", "") == (404, "UNKNOWN_COMMAND")
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        response = await api.ask(method, "/queues")
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
    head = await api.ask("HEAD", "/queues")
    assert (head.status_code, head.content) == (200, b"")
    for path in ("/api/queues", "/api/version", "/api"):
        for method in ("GET", "DELETE", "POST"):
            assert (await api.http.request(method, path)).status_code == 404


async def test_unknown_parameters_and_fields_are_refused(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q")
    for method, path, more in (
        ("GET", "/queues?sorted=name", {}),
        ("GET", "/definitions?sort=name", {}),
        ("GET", "/session?x=1", {}),
        ("DELETE", "/queues/q?force=true", {}),
        ("POST", "/queues/q/purge", {"json": {"all": True}}),
        ("POST", "/queues/q/purge?at_most=1", {}),
        ("POST", "/users", {"json": {"user": "x", "password": "pw", "admin": True}}),
        ("GET", "/dead-letters?limit=1&limit=2", {}),
    ):
        response = await api.ask(method, path, **more)
        assert response.status_code == 422, (path, response.text)
        assert response.json()["errors"][0]["pointer"]
    assert api.broker.queue_info("q") is not None


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"[" * 1_500 + b"]" * 1_500,
        b"[" * 16_000,
        b'{"a":"\\ud800"}',
        b"\xff",
        b'{"at_most":' + b"9" * 10_000 + b"}",
        b'{"at_most":1e999}',
        b"{" + b",".join(b'"k%d":1' % number for number in range(1_500)) + b"}",
        b'{"at_most":true}',
        b'{"at_most":1,"at_most":2}',
    ],
    ids=lambda body: str(body[:12]),
)
async def test_odd_bodies_are_refused(api: ApiClient, body: bytes) -> None:
    await api.done("PUT", "/queues/q")
    response = await api.ask("POST", "/queues/q/purge", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422), response.text
    assert response.json()["detail"]


DEEP = {size: b"[" * size + b"]" * size for size in (900, 8_000, 100_000)}
PLACES = {
    "/session": b'{"user":%b,"password":"x"}',
    "/queues/q/messages": b'{"messages":[{"payload":"x","headers":%b}]}',
    "/deliveries": b'{"settlements":%b}',
    "/definitions": b'{"queues":%b}',
    "/jobs": b'{"kind":"purge_dead","filter":{"header":%b}}',
    "/dead-letters/preview": b'{"filter":{"header":%b}}',
    "/dead-letters/1/edit": b'{"headers":%b}',
    "/queues/q/groups/g/quarantine": b'{"runs":%b}',
}


@pytest.mark.parametrize("path", PLACES)
async def test_odd_values_are_refused_wherever_they_may_stand(api: ApiClient, path: str) -> None:
    await api.done("PUT", "/queues/q")
    odd = (
        *DEEP.values(),
        b"9" * 10_000,
        b"-" + b"9" * 4_000 + b".5",
        b"1e400",
        b'{"\\ud800":"\\udfff"}',
        b'{"a":1,"a":2}',
    )
    for value in odd:
        headers = {"Content-Type": "application/json"}
        response = await api.ask("POST", path, content=PLACES[path] % value, headers=headers)
        assert 400 <= response.status_code < 500, (value[:20], response.text)
        assert response.json()["detail"]
    lines = b"\n".join(b'{"payload":"x","headers":%b}' % value for value in odd)
    response = await api.ask("POST", "/queues/q/messages", content=lines, headers={"Content-Type": NDJSON})
    assert response.status_code < 500, response.text
    assert (await api.done("GET", "/queues/q"))["ready"] == 0


async def test_what_is_published_comes_back_digit_for_digit(api: ApiClient) -> None:
    body = b'{"a":' + b"9" * 10_000 + b',"a":1.10,"b":"\\ud800","c":' + DEEP[100_000] + b"}"
    await api.done("POST", "/queues/q/messages", content=body, headers={"Content-Type": "application/octet-stream"})
    assert (await api.get("/queues/q/messages/1/body")).content == body
    assert (await api.done("GET", "/queues/q/messages/1?length=262144"))["payload"].encode() == body
    (taken,) = (await api.done("POST", "/queues/q/deliveries"))["items"]
    assert taken["payload"].encode() == body


async def test_a_body_is_bounded(api: ApiClient) -> None:
    async def in_parts() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * 65_536

    headers = {"Content-Type": "application/json"}
    big = await api.ask("POST", "/queues/q/purge", content=b" " * 1_100_000, headers=headers)
    assert big.status_code == 413
    assert await api.code("POST", "/queues/q/purge", content=in_parts(), headers=headers) == (413, "MESSAGE_TOO_LARGE")


# -- keys -------------------------------------------------------------------------------------------------------------


async def test_the_same_key_is_carried_out_once(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"x")
        key = {"Idempotency-Key": "k1"}
        assert await api.done("POST", "/queues/q/purge", headers=key) == {"count": 1}
        await mq.publish("q", b"y")
    again = await api.ask("POST", "/queues/q/purge", headers=key)
    assert (again.json(), again.headers["idempotent-replayed"]) == ({"count": 1}, "true")
    assert (await api.done("GET", "/queues/q"))["ready"] == 1
    conflict = await api.code("POST", "/queues/q/purge", headers=key, json={"at_most": 5})
    assert conflict == (422, "IDEMPOTENCY_CONFLICT")
    both = await asyncio.gather(
        *(api.ask("POST", "/queues/q/purge", headers={"Idempotency-Key": "k2"}) for _ in range(2))
    )
    assert {response.status_code for response in both} <= {200, 409}
    assert (await api.done("GET", "/queues/q"))["ready"] == 0


# -- audit ------------------------------------------------------------------------------------------------------------


async def test_every_change_leaves_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="vibemq.audit")

    def lines() -> list[dict[str, Any]]:
        found = [vars(record) for record in caplog.records if record.name == "vibemq.audit"]
        caplog.clear()
        return found

    async with serving(tmp_path, auth=everybody()) as api:
        await api.done("PUT", "/queues/a.q", "owner", json={"max_attempts": 4})
        await api.done("GET", "/queues/a.q", "owner")
        (line,) = lines()
        assert (line["operation"], line["user"], line["protocol"], line["outcome"]) == (
            "queue.create",
            "owner",
            "http",
            "done",
        )
        assert line["remote"] == "127.0.0.1"
        assert line["arguments"]["queue"] == "a.q"
        assert (await api.ask("DELETE", "/queues/b.q", "owner")).status_code == 403
        (line,) = lines()
        assert (line["event"], line["operation"], line["user"]) == ("access.denied", "queue.delete", "owner")
        assert (await api.ask("GET", "/session", headers={"Authorization": "Bearer wrong"})).status_code == 401
        (line,) = lines()
        assert (line["event"], line["protocol"]) == ("auth.failed", "http")


async def test_the_line_of_an_edit_has_the_hashes_of_both_bodies_and_nothing_of_them(
    api: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    await api.done("PUT", "/queues/q", json={"dead_letter": True})
    await reject(api, [b"old secret"])
    (letter,) = (await api.done("GET", "/dead-letters"))["items"]
    caplog.set_level(logging.INFO, logger="vibemq.audit")
    edit = {"text": "new secret", "headers": {"kind": "secret kind"}, "note": "by hand"}
    await api.done("POST", f"/dead-letters/{letter['dead_id']}/edit", json=edit)
    (line,) = [vars(record) for record in caplog.records if getattr(record, "operation", "") == "dlq.edit"]
    assert line["arguments"]["note"] == "by hand"
    assert line["arguments"]["changes"] == {
        "size_before": 10,
        "sha256_before": hashlib.sha256(b"old secret").hexdigest(),
        "size_after": 10,
        "sha256_after": hashlib.sha256(b"new secret").hexdigest(),
        "headers_changed": ["content-type", "kind"],
    }
    assert "secret" not in str(line)


# -- the API leaves the pages as they are -----------------------------------------------------------------------------


async def test_the_pages_are_as_ever(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data", storage="memory", http_port=0) as broker:
        client = ApiClient(broker)
        async with client.http as http:
            for path, body in (("/livez", b"ok\n"), ("/readyz", b"ready\n"), ("/startupz", b"started\n")):
                page = await http.get(path)
                assert (page.status_code, page.content) == (200, body)
                assert page.headers["content-type"] == "text/plain; charset=utf-8"
            assert (await http.get("/health/")).content.startswith(b'{\n  "is_healthy": true,\n')
            assert (await http.get("/metrics")).headers["content-type"] == "application/json"
            assert (await http.get("/metrics/prometheus")).text.startswith("# HELP")
            missing = await http.get("/queues/x")
            assert (missing.status_code, missing.json()["code"]) == (404, "QUEUE_NOT_FOUND")
            assert (await http.get("/nothing")).text == "Not Found"
            assert (await http.post("/livez")).text == "Method Not Allowed"
