"""The guards of the HTTP API on a real broker: what costs the broker something, or shows something, asks for rights."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.http_api import ApiClient, everybody, serving

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
