"""Arguments of the HTTP API that would mean another thing than was written: refused, not passed over."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

import vibemq
from tests.integration.http_api import ApiClient, everybody, serving
from vibemq.errors import InvalidPayload
from vibemq.web.api.endpoints import ENDPOINTS

pytestmark = pytest.mark.anyio

MAXIMA = {
    "/queues": 500,
    "/cursors": 500,
    "/definitions": 100,
    "/queues/q/messages": 100,
    "/dead-letters": 1_000,
    "/jobs": 1_000,
    "/connections": 1_000,
}


@pytest.mark.parametrize("path", MAXIMA)
async def test_a_page_beyond_its_maximum_is_refused(api: ApiClient, path: str) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    most = MAXIMA[path]
    assert (await api.get(f"{path}?limit={most}")).status_code == 200
    for limit in (most + 1, 10**9):
        response = await api.get(f"{path}?limit={limit}")
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/limit")
        assert f"{most:,}" in response.json()["detail"]


def declared() -> list[tuple[str, str, str]]:
    """(method, path, parameter) of every parameter of a URL that an endpoint itself declares with some type."""
    return [
        (endpoint.method, endpoint.path, parameter.name)
        for endpoint in ENDPOINTS
        for parameter in endpoint.query or ()
        if "enum" in parameter.schema or parameter.schema.get("type") in ("boolean", "integer")
    ]


@pytest.mark.parametrize(("method", "path", "name"), declared())
async def test_a_parameter_that_fits_no_type_is_refused(api: ApiClient, method: str, path: str, name: str) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    path = path.format(queue="q", sequence="1", dead_id="1")
    response = await api.ask(method, f"{path}?{name}=no", content=b"x" if method == "POST" else None)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, f"/{name}"), response.text
    assert "'no'" in response.json()["detail"]


async def test_a_guard_that_is_null_is_none(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"x")
        for path, body in (("/queues/q/purge", {}), ("/jobs", {"kind": "purge_dead"})):
            response = await api.ask("POST", path, json={**body, "at_most": None})
            assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/at_most"), response.text
        response = await api.ask("POST", "/definitions", json={"queues": [{"queue": "new"}], "dry_run": None})
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/dry_run"), response.text
        assert await api.code("GET", "/queues/new") == (404, "QUEUE_NOT_FOUND")
        assert (await api.done("GET", "/queues/q"))["ready"] == 1
        assert await api.code("POST", "/queues/q/purge", json={"at_most": 0}) == (412, "PRECONDITION_FAILED")
        assert (await api.done("POST", "/queues/q/purge", json={"at_most": 1})) == {"count": 1}


@pytest.mark.parametrize(
    ("method", "path", "body", "remedy"),
    [
        ("POST", "/queues/q/purge?at_most=0", None, "it is a field of the body: give it there, as JSON"),
        ("POST", "/queues/q/purge?dry_run=true", None, "it is a field of the body: give it there, as JSON"),
        ("PUT", "/queues/new?max_attempts=5", None, "it is a field of the body: give it there, as JSON"),
        ("POST", "/queues/q/messages?ttl_ms=5", None, "it is the header VibeMQ-TTL-Ms of the request: give it there"),
        ("DELETE", "/dead-letters/1?dry_run=true", None, "without it the request is carried out, and not only tried"),
        ("POST", "/jobs", {"kind": "purge_dead", "key": "k"}, "it is the header Idempotency-Key of the request: give"),
        (
            "POST",
            "/jobs",
            {"kind": "purge_dead", "dry_run": True},
            "without it the request is carried out, and not only tried; POST /dead-letters/preview says what it would",
        ),
        ("POST", "/jobs", {"kind": "purge_dead", "filter": {"at_most": 0}}, "it stands beside filter: give it there"),
        ("DELETE", "/queues/q/groups/g?colour=red", None, "leave it out"),
        ("POST", "/broker/reload", {"colour": "red"}, "this request has none; leave it out"),
    ],
)
async def test_nobody_is_told_to_leave_out_what_belongs_elsewhere_or_guards_something(
    api: ApiClient, method: str, path: str, body: dict[str, Any] | None, remedy: str
) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"x")
        response = await api.ask(method, path, json=body)
        assert (response.status_code, response.json()["code"]) == (422, "INVALID_PAYLOAD"), response.text
        detail = response.json()["detail"]
        assert remedy in detail
        assert ("leave it out" in detail) == ("leave it out" in remedy)
        assert (await api.done("GET", "/queues/q"))["ready"] == 1


@pytest.mark.parametrize("limit", ["0", "x", "-1", "1.5"])
async def test_a_wrong_size_of_a_page_is_told_what_the_size_may_be(api: ApiClient, limit: str) -> None:
    response = await api.get(f"/queues?limit={limit}")
    assert response.status_code == 422
    assert response.json()["detail"] == f"limit must be a whole number from 1 to 500, not '{limit}'"


async def test_what_is_no_filter_does_not_mean_every_letter(api: ApiClient) -> None:
    for path, body in (("/dead-letters/preview", {}), ("/jobs", {"kind": "purge_dead"})):
        for nothing in (None, [None, None], "queue=q", 0, False):
            response = await api.ask("POST", path, json={**body, "filter": nothing})
            assert (response.status_code, response.json()["code"]) == (422, "INVALID_PAYLOAD"), (path, nothing)
    await api.done("POST", "/dead-letters/preview", json={"filter": {}})


async def test_null_is_refused_where_the_description_has_none(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    for method, path, body, field in (
        ("POST", "/connections/close", {"user": "ann", "mode": None}, "mode"),
        ("POST", "/jobs", {"kind": "replay", "note": None}, "note"),
        ("POST", "/dead-letters/preview", {"unknown": None}, "unknown"),
    ):
        response = await api.ask(method, path, json=body)
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, f"/{field}"), response.text
    job = {"kind": "replay", "filter": {}, "to": None, "rate": None, "limit": None, "canary": None}
    assert (await api.done("POST", "/jobs", json=job))["kind"] == "replay"


@pytest.mark.parametrize("rate", [1e-300, 0.05, -1])
async def test_a_rate_at_which_a_job_would_not_end_is_refused(api: ApiClient, rate: float) -> None:
    assert (await api.ask("POST", "/jobs", json={"kind": "replay", "rate": rate})).status_code == 422
    assert (await api.done("GET", "/jobs"))["items"] == []
    job = (await api.done("POST", "/jobs", json={"kind": "replay", "rate": 0.1}))["job"]
    assert (await api.ask("PATCH", f"/jobs/{job}", json={"rate": rate})).status_code == 422
    # Its time would be no number.
    assert (await api.ask("POST", "/dead-letters/preview", json={"filter": {}, "rate": rate})).status_code == 422
    await api.done("POST", "/dead-letters/preview", json={"filter": {}, "rate": 0.5})


async def test_a_port_of_the_host_is_a_number(api: ApiClient) -> None:
    response = await api.get("/queues", headers={"host": "localhost:abc"})
    assert response.status_code == 421


async def test_definitions_are_those_of_queues_that_may_be_inspected(tmp_path: Path) -> None:
    async with serving(tmp_path, auth=everybody()) as api:
        for queue in ("a.q", "b.q"):
            await api.done("PUT", f"/queues/{queue}", "root", json={"durability": "transient"})

        async def shown(user: str) -> list[Any]:
            return [queue["queue"] for queue in (await api.done("GET", "/definitions", user))["items"]]

        assert await shown("root") == ["a.q", "b.q"]
        assert await shown("inspect") == await shown("owner") == ["a.q"]
        for user in ("publish", "list", "none"):
            assert await shown(user) == []


@pytest.mark.parametrize("query", ["from_id=99999999999999999999", "ids=99999999999999999999", "error=%EF%BF%BD"])
async def test_a_cursor_beside_an_argument_that_is_impossible_is_refused(api: ApiClient, query: str) -> None:
    assert (await api.get(f"/dead-letters?{query}&cursor=abcd")).status_code == 422


async def test_the_default_of_what_is_no_option_is_refused(api: ApiClient) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    for name in ("__class__", "__init__", "colour"):
        response = await api.ask("PATCH", "/queues/q", headers={"If-Match": "*"}, json={name: None})
        assert (response.status_code, name in response.json()["detail"]) == (422, True), response.text


@pytest.mark.parametrize("wrong", ["nonsense", "9" * 23, "2026-11-26T00:00:00"])
async def test_what_is_no_instant_is_refused_by_name(api: ApiClient, wrong: str) -> None:
    for response in (
        await api.ask("GET", "/dead-letters", params={"since": wrong}),
        await api.ask("POST", "/dead-letters/preview", json={"filter": {"since": wrong}}),
        await api.ask("POST", "/jobs", json={"kind": "replay", "filter": {"since": wrong}}),
    ):
        assert (response.status_code, response.json()["errors"][0]["pointer"][-5:]) == (422, "since"), response.text
        assert response.json()["detail"].startswith("since must be an instant"), response.text


async def test_instants_are_written_alike_in_lists_previews_and_jobs(api: ApiClient) -> None:
    filters = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00+01:00"}
    assert (await api.ask("GET", "/dead-letters", params=filters)).status_code == 200
    await api.done("POST", "/dead-letters/preview", json={"filter": filters})
    job = await api.done("POST", "/jobs", json={"kind": "replay", "filter": filters})
    assert job["filter"]["since"] == "2026-01-01T00:00:00.000Z"
    assert job["filter"]["until"] == "2026-01-01T23:00:00.000Z"


async def test_a_zone_in_a_url_may_have_its_plus_as_it_is(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.create_queue("q", max_attempts=1)
        await mq.publish("q", b"x")
        [message] = await mq.fetch("q", timeout=60)
        await message.reject("bad")
    [letter] = (await api.done("GET", "/dead-letters"))["items"]
    at = datetime.fromisoformat(letter["dead_at"]).astimezone(timezone(timedelta(hours=5, minutes=30)))
    for ago, count in ((timedelta(), 1), (timedelta(milliseconds=-1), 0)):
        since = (at - ago).isoformat(timespec="milliseconds")
        assert "+05:30" in since
        assert len((await api.done("GET", f"/dead-letters?since={since}"))["items"]) == count


async def test_headers_of_messages_are_no_instants(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.create_queue("q", max_attempts=1)
        await mq.publish("q", b"x", headers={"until": "tomorrow", "since": "2026-11-26T00:00:00Z"})
        [message] = await mq.fetch("q", timeout=60)
        await message.reject("bad")
    found = await api.done("GET", "/dead-letters?header=until:tomorrow&header=since:2026-11-26T00:00:00Z")
    [letter] = found["items"]
    assert letter["headers"]["since"] == "2026-11-26T00:00:00Z"
    filters = {"header": {"until": "tomorrow", "since": "2026-11-26T00:00:00Z"}}
    assert (await api.done("POST", "/dead-letters/preview", json={"filter": filters}))["count"] == 1
    others = {"header": {"until": "2026-11-26T00:00:00Z"}}
    assert (await api.done("POST", "/jobs", json={"kind": "replay", "filter": others}))["filter"] == others
    edit = {"text": "y", "headers": {"until": "never", "since": "2026-11-27T00:00:00Z"}}
    await api.done("POST", f"/dead-letters/{letter['dead_id']}/edit", json=edit)
    async with vibemq.connect(api.broker.url) as mq:
        [message] = await mq.fetch("q", timeout=60)
    assert {name: message.headers[name] for name in ("since", "until")} == edit["headers"]


async def test_one_header_has_one_value_in_a_filter(api: ApiClient) -> None:
    response = await api.get("/dead-letters?header=a:b&header=a:c")
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/header")
    assert "'a' more than once" in response.json()["detail"]


async def test_a_part_of_a_filter_that_was_left_empty_does_not_mean_every_letter(api: ApiClient) -> None:
    for name in ("queue", "ids", "since", "header"):
        for path, body in (("/dead-letters/preview", {}), ("/jobs", {"kind": "purge_dead"})):
            response = await api.ask("POST", path, json={**body, "filter": {name: None}})
            assert (response.status_code, response.json()["code"]) == (422, "INVALID_PAYLOAD"), (path, name)
            assert f"{name} of" in response.json()["detail"]
    assert (await api.done("GET", "/jobs"))["items"] == []


async def test_letters_from_before_all_time_are_none(api: ApiClient) -> None:
    job = await api.done("POST", "/jobs", json={"kind": "replay", "filter": {"older_than_ms": 2**63 - 1}})
    while (job := await api.done("GET", f"/jobs/{job['job']}"))["state"] not in ("done", "failed"):
        await anyio.lowlevel.checkpoint()
    assert (job["state"], job["selected"]) == ("done", 0)


@pytest.mark.parametrize("body", [{"dry_run": True}, {"at_most": 0}, {}], ids=str)
async def test_a_deletion_with_a_body_is_refused(api: ApiClient, body: dict[str, Any]) -> None:
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    response = await api.ask("DELETE", "/queues/q", json=body)
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_PAYLOAD"), response.text
    assert "the parameters of DELETE stand in the query" in response.json()["detail"]
    assert (await api.get("/queues/q")).status_code == 200
    assert (await api.ask("DELETE", "/queues/q")).status_code == 200


@pytest.mark.parametrize("guard", ["dry_run", "at_most"])
async def test_nobody_is_told_to_leave_out_a_guard_at_the_native_door_either(api: ApiClient, guard: str) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        with pytest.raises(InvalidPayload, match="without it the request is carried out"):
            await mq.admin("transaction.forget", app="a", **{guard: 0})
        with pytest.raises(InvalidPayload, match=r"; dlq\.preview says what it would do"):
            await mq.admin("job.start", kind="purge_dead", dry_run=True)


@pytest.mark.parametrize("guard", ["dry_run", "at_most"])
async def test_a_guard_that_is_null_is_none_at_the_native_door_too(api: ApiClient, guard: str) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"x")
        for verb in ("queue.delete", "queue.purge", "queue.move"):
            with pytest.raises(InvalidPayload, match=f"argument {guard} of {verb} is null"):
                await mq.admin(verb, queue="q", **{guard: None}, **({"to": "q"} if verb == "queue.move" else {}))
        assert (await api.done("GET", "/queues/q"))["ready"] == 1


async def test_an_answer_of_the_native_door_says_that_it_was_a_dry_run(api: ApiClient) -> None:
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish("q", b"x")
        assert await mq.admin("queue.create", queue="new", dry_run=True) == {"dry_run": True}
        assert await mq.admin("queue.create", queue="q", dry_run=True) == {"dry_run": True}
        assert await mq.admin("queue.change", queue="q", changes={}, dry_run=True) == {"dry_run": True}
        assert await mq.admin("queue.purge", queue="q", dry_run=True) == {"count": 1, "dry_run": True}
        assert await mq.admin("queue.remove", queue="q", runs=[[1, 9]], dry_run=True) == {"count": 1, "dry_run": True}
        assert await mq.admin("queue.delete", queue="q", dry_run=True) == {"dry_run": True}
        assert await mq.admin("queue.delete", queue="none", dry_run=True) == {"dry_run": True}
        assert await mq.admin("queue.purge", queue="q") == {"count": 1}
