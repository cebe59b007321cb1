"""Queues taken from a list of definitions, and the list of the backups that a broker has written."""

import asyncio
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson
import pytest

import vibemq
from tests.integration.access import PASSWORD
from tests.integration.full_disk import FullDisk
from tests.integration.http_api import ApiClient, everybody, serving
from tests.waiting import until
from vibemq.cli.admin.main import app as admin_app
from vibemq.cli.admin.transfer import definitions_command
from vibemq.cli.entry import run_app
from vibemq.cli.exits import ExitCode
from vibemq.config import Auth, Http, Listener, Settings
from vibemq.errors import InvalidPayload, StorageFull
from vibemq.model.options import QueueOptions, is_own_queue
from vibemq.model.records import QueueCreated
from vibemq.operations.arguments import read
from vibemq.operations.transfer.definitions import READ_PER_TURN, Definitions, DefinitionsArguments
from vibemq.server.around import backup_log as backups
from vibemq.server.around.backup_log import BackupLog
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio


@pytest.fixture
def auth() -> Auth:
    return everybody()


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


async def test_what_may_not_be_created_is_found_before_the_first_is(tmp_path: Path) -> None:
    wanted = [{"queue": "a", "options": {"durability": 0}}, {"queue": "b", "options": {"durability": 1}}]
    async with TimedBroker(tmp_path / "data", storage="memory") as broker, vibemq.connect(broker.url) as mq:
        for dry_run in (True, False):
            with pytest.raises(InvalidPayload, match=r"durability \w+ is not possible.*nothing was created"):
                await mq.admin("definitions.import", queues=wanted, dry_run=dry_run)
        assert await mq.admin("queue.list") == []
        for wrong, why in ((7, "must be an object"), ({}, "queue of definitions.import is missing")):
            with pytest.raises(InvalidPayload, match=f"number 1: .*{why}"):
                await mq.admin("definitions.import", queues=[wanted[0], wrong])


@pytest.mark.parametrize(
    ("cut", "why"),
    [(False, "queue 'q4' was not: no space left"), (True, "of the next request, from 'q4' on, nobody knows")],
)
async def test_an_import_of_several_requests_tells_what_it_has_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], cut: bool, why: str
) -> None:
    """The first creation of the third request is refused, or the connection ends in it."""
    monkeypatch.setattr(definitions_command, "BATCH_QUEUES", 2)
    file = tmp_path / "queues.json"
    file.write_bytes(orjson.dumps({"queues": [{"queue": f"q{number}"} for number in range(6)]}))
    async with TimedBroker(tmp_path / "data") as broker:
        parts, loop = broker._parts, asyncio.get_running_loop()
        append = parts.store.provider.append  # type: ignore[union-attr]

        def lose() -> None:
            for connection in list(parts.connection_table):  # type: ignore[union-attr]
                connection.drop("cut by a test")

        def full(records: Any, *more: Any) -> Any:
            if any(isinstance(record, QueueCreated) and record.name == "q4" for record in records):
                if cut:
                    loop.call_soon_threadsafe(lose)
                raise StorageFull("no space left")
            return append(records, *more)

        monkeypatch.setattr(parts.store.provider, "append", full)  # type: ignore[union-attr]
        words = ["definitions", "import", str(file), "--url", broker.url]
        code = await anyio.to_thread.run_sync(run_app, admin_app, "vibemq-admin", words)
        said = capfd.readouterr().err
        assert code == ExitCode.PARTLY, said
        assert f"4 queues created; {why}" in said
        assert "import the file again" in said
        async with vibemq.connect(broker.url) as mq:
            names = {one["name"] for one in await mq.admin("queue.list")}
            assert names - {"q4"} == {"q0", "q1", "q2", "q3"}


async def test_the_audit_log_names_every_queue_that_was_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"q{number:02}" for number in range(45)]
    async with TimedBroker(tmp_path / "data", http_port=0) as broker, vibemq.connect(broker.url) as mq:
        disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, QueueCreated) and record.name == "q44")
        told = await mq.admin("definitions.import", queues=[{"queue": name} for name in names])
        assert disk.refused
        assert told["created"] == names[:44]
        assert (told["failed"]["queue"], told["failed"]["code"]) == ("q44", "STORAGE_FULL")
        lines: list[dict[str, Any]] = []

        async def has_lines() -> bool:
            lines[:] = (await mq.admin("audit.list", operation="definitions.import"))["records"]
            return len(lines) == 3

        await until(has_lines)
    assert [name for line in reversed(lines) for name in line["arguments"]["created"]] == names[:44]
    assert [line["count"] for line in reversed(lines)] == [20, 20, 4]
    assert all(line["arguments"]["failed"]["queue"] == "q44" for line in lines)


async def test_definitions_have_no_queues_that_could_not_be_created(tmp_path: Path) -> None:
    listeners = (Listener(port=0), Listener(protocol="eventmesh-http", port=0))
    guarded = Settings(
        data_dir=tmp_path / "data", listeners=listeners, auth=everybody(), http=Http.model_validate({"port": 0})
    )
    async with Broker(settings=guarded) as broker:
        api = ApiClient(broker)
        async with api.http, vibemq.connect(broker.url, username="root", password=PASSWORD) as mq:
            await api.done("PUT", "/queues/a", "root", json={})
            await mq.create_queue("mine", exclusive=True)
            assert any(is_own_queue(queue["name"]) for queue in await mq.admin("queue.list"))
            listed = (await api.done("GET", "/definitions", "root"))["items"]
            assert [one["queue"] for one in listed] == ["a"]
            wanted = {"queues": [{"queue": one["queue"], "options": one["options"]} for one in listed]}
            assert (await api.done("POST", "/definitions", "root", json=wanted))["unchanged"] == ["a"]


async def test_very_many_definitions_are_read_by_turns() -> None:
    class Known:
        """An engine with all queues."""

        def options_of(self, name: str) -> tuple[str, QueueOptions]:
            turns.append(ticks[0])
            return "", QueueOptions()

    async def tick() -> None:
        while True:
            ticks[0] += 1
            await asyncio.sleep(0)

    ticks, turns = [0], list[int]()
    wanted = read(DefinitionsArguments, "definitions.import", {"queues": [{"queue": f"q{n}"} for n in range(400)]})
    ticking = asyncio.create_task(tick())
    told = await Definitions(Known(), None, QueueOptions()).apply(None, wanted)  # type: ignore[arg-type]
    ticking.cancel()
    assert len(told["unchanged"]) == 400
    assert max(Counter(turns).values()) <= READ_PER_TURN


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


def test_backups_that_end_together_are_all_in_the_list(tmp_path: Path) -> None:
    log = BackupLog(tmp_path)

    def add(first: int) -> None:
        for number in range(first, first + 20):
            log.add({"at": number, "target": "/nowhere"})

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(add, (0, 100, 200)))
    assert len(log.latest_first()) == 60


def test_the_list_is_bounded_and_outlives_a_damaged_line(tmp_path: Path) -> None:
    log = BackupLog(tmp_path)
    for number in range(backups.KEPT + 5):
        log.add({"at": number, "target": "/nowhere"})
    with (tmp_path / backups.NAME).open("ab") as file:
        file.write(b'["x"]\n{"at": ')
    found = log.latest_first()
    assert [one["at"] for one in found] == list(range(backups.KEPT + 4, 4, -1))
    assert BackupLog(None).latest_first() == []
