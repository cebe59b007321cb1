"""Queues taken from a list of definitions, and the list of the backups that a broker has written."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import vibemq
from tests.integration.http_api import ApiClient, everybody, serving
from vibemq.errors import InvalidPayload
from vibemq.operations.transfer import backups
from vibemq.operations.transfer.backups import BackupLog
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with serving(tmp_path, auth=everybody()) as client:
        yield client


async def test_definitions_of_one_broker_are_made_on_another(api: ApiClient, tmp_path: Path) -> None:
    for queue, options in (
        ("a", {"max_attempts": 3, "mode": "broadcast"}),
        ("b", {"message_ttl_ms": 5_000, "mode": "fan_out_with_ack"}),
        ("..", {}),
    ):
        await api.done("PUT", f"/queues/{'~' if queue == '..' else ''}{queue}", "root", json=options)
    listed = (await api.done("GET", "/definitions", "root"))["items"]
    wanted = {"queues": [{"queue": one["queue"], "options": one["options"]} for one in listed]}
    assert len(wanted["queues"]) >= 3
    async with serving(tmp_path / "other", auth=everybody()) as other:
        await other.done("PUT", "/queues/b", "root", json={"message_ttl_ms": 7_000})
        told = await other.done("POST", "/definitions", "root", json={**wanted, "dry_run": True})
        assert {one["queue"] for one in (await other.done("GET", "/definitions", "root"))["items"]} == {"b"}
        assert await other.done("POST", "/definitions", "root", json=wanted) == {**told, "dry_run": False}
        assert {"a", ".."} <= set(told["created"])
        [different] = told["different"]
        assert different == {
            "queue": "b",
            "options": {
                "message_ttl_ms": {"current": 7_000, "wanted": 5_000},
                "mode": {"current": "round_robin", "wanted": "fan_out_with_ack"},
            },
        }
        again = await other.done("POST", "/definitions", "root", json=wanted)
        assert (again["created"], sorted(again["unchanged"])) == ([], sorted(told["created"]))
        there = {one["queue"]: one["options"] for one in (await other.done("GET", "/definitions", "root"))["items"]}
        assert there["a"] == next(one["options"] for one in listed if one["queue"] == "a")
        assert await other.code("POST", "/definitions", "owner", json=wanted) == (403, "NOT_AUTHORIZED")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"queue": "b", "options": {"max_attempt": 1}}, "unknown queue option"),
        ({"queue": "a", "options": {}}, "twice"),
        ({"queue": "b", "options": {"message_ttl_ms": "long"}}, "message_ttl_ms"),
        ({"queue": "b", "options": {"exclusive": True}}, "exclusive"),
    ],
)
async def test_one_definition_that_cannot_be_read_creates_none(
    tmp_path: Path, wrong: dict[str, object], why: str
) -> None:
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        with pytest.raises(InvalidPayload, match=why):
            await mq.admin("definitions.import", queues=[{"queue": "a"}, wrong])
        assert await mq.admin("queue.list") == []


async def test_backups_are_listed_with_what_has_become_of_them(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        assert await mq.admin("backup.list") == {"backups": []}
        await mq.publish("q", b"x" * 1_000)
        for name in ("one", "two"):
            broker.advance(60)
            await mq.admin("storage.backup", target=str(tmp_path / name))
        shutil.rmtree(tmp_path / "one")
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        second, first = (await mq.admin("backup.list"))["backups"]
        assert (second["target"], second["is_there"]) == (str(tmp_path / "two"), True)
        assert (first["target"], first["is_there"]) == (str(tmp_path / "one"), False)
        assert second["at"] - first["at"] >= 60_000
        assert second["size_bytes"] > 1_000
        assert second["user"] == "anonymous"
    assert (tmp_path / "data" / backups.NAME).stat().st_mode & 0o777 == 0o600


def test_the_list_is_bounded_and_outlives_a_damaged_line(tmp_path: Path) -> None:
    log = BackupLog(tmp_path)
    for number in range(backups.KEPT + 5):
        log.add({"at": number, "target": "/nowhere"})
    with (tmp_path / backups.NAME).open("ab") as file:
        file.write(b'["x"]\n{"at": ')
    found = log.latest_first()
    assert [one["at"] for one in found] == list(range(backups.KEPT + 4, 4, -1))
    assert BackupLog(None).latest_first() == []
