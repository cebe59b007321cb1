"""The audit file of a running broker: every protocol's changes, logins and logouts, and a disk that takes nothing."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

import vibemq
import vibemq.sync
from tests.integration.test_eventmesh_tcp import MeshBroker
from tests.integration.test_server_broker import settings
from tests.interop.eventmesh import MeshWire
from tests.interop.omq import OmqWire
from tests.waiting import until, wait_until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Http, Permission, User
from vibemq.errors import AuthFailed, Blocked, InvalidOptions, MessageNotFound, NotAuthorized
from vibemq.server.broker import Broker


def users() -> Auth:
    hashed = SecretStr(hash_password("pw"))
    everything = Permission(queues="*", actions=("*",))
    return Auth(
        users={
            "root": User(password_hash=hashed, superuser=True),
            "ann": User(password_hash=hashed, permissions=(everything,)),
        }
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MeshBroker]:
    with MeshBroker(tmp_path, users()) as broker:
        yield broker


def as_user(url: str, user: str, password: str = "pw") -> str:
    return url.replace("://", f"://{user}:{password}@")


class Place:
    """Where a request comes from."""

    connection_id, host, protocol = "r1", "192.0.2.1", "http"


def records(broker: MeshBroker, **chosen: Any) -> list[dict[str, Any]]:
    with vibemq.sync.connect(as_user(broker.url, "root")) as root:
        return list(root.admin("audit.list", order="oldest", limit=1_000, **chosen)["records"])


def told(broker: MeshBroker, **chosen: Any) -> list[tuple[str, str, str]]:
    return [(r["protocol"], r["operation"], r["outcome"]) for r in records(broker, **chosen)]


def test_who_came_in_and_what_changed_by_every_door(broker: MeshBroker, tmp_path: Path) -> None:
    with vibemq.sync.connect(as_user(broker.url, "ann")) as ann:
        ann.create_queue("jobs")
        ann.create_queue("jobs")
        ann.publish_many("jobs", [b"x"] * 3)
        ann.admin("queue.purge", queue="jobs")
    with pytest.raises(AuthFailed), vibemq.sync.connect(as_user(broker.url, "ann", "wrong")):
        pass
    with OmqWire(broker.omq_port, name="ann:pw") as omq:
        omq.subscribe("jobs", "From_current")
    mesh = MeshWire(broker.port, "em13")
    assert mesh.hello("readers", "sub", username="ann", password="pw").code == 0
    assert mesh.subscribe("made-by-mesh").code == 0
    mesh.socket.close()
    wait_until(lambda: ("eventmesh", "logout", "done") in told(broker, user="ann"))
    wait_until(lambda: ("omq", "logout", "done") in told(broker, user="ann"))
    found = told(broker, user="ann")
    assert [one for one in found if one[0] == "native"] == [
        ("native", "login", "done"),
        ("native", "queue.create", "done"),
        ("native", "queue.purge", "done"),
        ("native", "logout", "done"),
        ("native", "login", "refused"),
    ]
    assert [one for one in found if one[0] == "omq"] == [("omq", "login", "done"), ("omq", "logout", "done")]
    assert [one for one in found if one[0] == "eventmesh"] == [
        ("eventmesh", "login", "done"),
        ("eventmesh", "queue.create", "done"),
        ("eventmesh", "logout", "done"),
    ]
    [purge] = records(broker, operation="queue.purge")
    assert purge["count"] == 3
    assert purge["resource"] == "jobs"
    assert {record["address"] for record in records(broker)} == {"127.0.0.1"}
    assert {record["user"] for record in records(broker, queue="made-by-mesh")} == {"ann"}
    [file] = (tmp_path / "data" / "audit").glob("audit-*.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"pw" not in file.read_bytes()


@pytest.mark.anyio
async def test_what_the_web_server_does_until_its_end_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = settings(tmp_path).model_copy(update={"http": Http(port=0)})
    async with Broker(settings=served) as broker:
        assert broker._parts is not None
        assert broker._listeners.web is not None
        audit, close = broker._parts.audit, broker._listeners.web.close

        def close_late() -> None:
            audit.login_failed(Place(), "late", "wrong password")
            close()

        monkeypatch.setattr(broker._listeners.web, "close", close_late)
    [file] = (tmp_path / "audit").glob("audit-*.jsonl")
    assert b'"user": "late"' in file.read_bytes()


NOTHING = [
    ("connections.close", {"connection_id": "nobody"}),
    ("connections.close", {"user": "nobody"}),
    ("connections.redirect", {"user": "nobody", "host": "broker.example", "port": 1}),
    ("message.remove", {"queue": "jobs", "sequences": [99]}),
    ("message.remove", {"queue": "jobs", "sequences": [1], "dry_run": True}),
    ("queue.remove", {"queue": "jobs", "runs": [[99, 99]]}),
    ("queue.purge", {"queue": "empty"}),
    ("dlq.purge", {"ids": [99]}),
    ("dlq.replay", {"ids": [99]}),
    ("dlq.purge", {"queue": "jobs"}),
    ("dead.redrive", {"queue": "jobs", "ids": [99]}),
    ("transaction.forget", {"app": "unknown"}),
]


@pytest.mark.anyio
async def test_what_did_nothing_is_no_record(tmp_path: Path) -> None:
    async with Broker(settings=settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("jobs")
        await mq.create_queue("empty")
        await mq.publish("jobs", b"x")
        for operation, arguments in NOTHING:
            await mq.admin(operation, **arguments)
        await mq.admin("message.remove", queue="jobs", sequences=[1])
        found = (await mq.admin("audit.list", order="oldest"))["records"]
    changes = [record["operation"] for record in found if record["event"] == "access.changed"]
    assert changes == ["queue.create", "queue.create", "message.remove"]


@pytest.mark.anyio
async def test_who_may_not_have_a_job_done_is_denied_and_a_token_that_is_gone_has_a_user(tmp_path: Path) -> None:
    may_look = User(
        password_hash=SecretStr(hash_password("pw")), permissions=(Permission(queues="*", actions=("inspect",)),)
    )
    auth = Auth(users={**users().users, "bob": may_look})
    async with Broker(settings=settings(tmp_path).model_copy(update={"auth": auth})) as broker:
        async with vibemq.connect(as_user(broker.url, "bob")) as bob:
            with pytest.raises(NotAuthorized):
                await bob.admin("job.start", kind="purge_dead", filter={"queue": "jobs"})
        async with vibemq.connect(as_user(broker.url, "root")) as root:
            await root.admin("user.add", user="carl", password="long enough")
            token = await root.admin("token.create", user="carl")
            await root.admin("token.revoke", token_id=token["token_id"])
            await root.admin("user.revoke", user="carl", queues="ci.*")
            denied = (await root.admin("audit.list", outcome="refused"))["records"]
            found = (await root.admin("audit.list", user="root", order="oldest"))["records"]
    assert [(r["event"], r["user"], r["operation"]) for r in denied] == [("access.denied", "bob", "job.start")]
    assert denied[0]["arguments"]["kind"] == "purge_dead"
    changes = [(r["operation"], r["resource"]) for r in found if r["event"] == "access.changed"]
    assert changes == [("user.add", "carl"), ("token.create", "carl"), ("token.revoke", "carl")]


@pytest.mark.anyio
async def test_a_file_that_cannot_be_written_alarms_and_strict_refuses_what_frees_no_space(tmp_path: Path) -> None:
    blocked = tmp_path / "audit"
    blocked.write_text("")
    strict = settings(tmp_path).model_copy(update={"audit_strict": True})
    async with Broker(settings=strict) as broker, vibemq.connect(broker.url) as mq:
        await until(lambda: broker.status.audit_trouble)
        assert any("audit file" in alarm for alarm in broker.health()["alarms"])
        assert broker.report.is_ready()
        await mq.publish("jobs", b"x")
        with pytest.raises(Blocked, match="audit_strict"):
            await mq.admin("queue.create", queue="other")
        with pytest.raises(Blocked, match="audit_strict"):
            await mq.admin("connections.close", connection_id="none")
        assert (await mq.admin("queue.purge", queue="jobs"))["count"] == 1
        sentences = (await mq.admin("broker.overview"))["sentences"]
        assert any("audit file" in sentence["text"] and sentence["remedy"] for sentence in sentences)
        os.unlink(blocked)
        await until(lambda: not broker.status.audit_trouble)
        await mq.admin("queue.create", queue="other")

        async def written() -> bool:
            page = await mq.admin("audit.list", operation="queue", order="oldest")
            return [r["operation"] for r in page["records"]] == ["queue.purge", "queue.create"]

        await until(written)


@pytest.mark.anyio
async def test_who_has_read_bodies_is_written_down_if_that_is_set(tmp_path: Path) -> None:
    given = settings(tmp_path).model_copy(update={"audit_reads": True, "http": Http(port=0)})
    async with Broker(settings=given) as broker, vibemq.connect(broker.url) as mq:
        await mq.publish_many("jobs", [b"x"] * 2)
        (message,) = await mq.fetch("jobs", max=1)
        await message.reject("no")
        await until(lambda: (info := broker.queue_info("jobs")) is not None and info.dead == 1)
        await mq.admin("message.show", queue="jobs", sequence=2)
        await mq.admin("dlq.list", queue="jobs")
        await mq.admin("queue.peek", queue="jobs", state="ready")
        with pytest.raises(MessageNotFound):
            await mq.admin("dlq.show", dead_id=99)
        assert broker.http_address is not None
        origin = "http://{}:{}".format(*broker.http_address)
        async with httpx.AsyncClient(base_url=f"{origin}/api/v1", trust_env=False) as web:
            for path in ("/queues/jobs/messages/2/body", "/dead-letters/1/body", "/dead-letters/export"):
                assert (await web.get(path)).status_code == 200
        found = (await mq.admin("audit.list", order="oldest"))["records"]
    reads = [record for record in found if record["event"] == "access.read"]
    assert [(record["protocol"], record["operation"], record["resource"]) for record in reads] == [
        ("native", "message.show", "jobs"),
        ("http", "message.show", "jobs"),
        ("http", "dlq.show", 1),
        ("http", "dlq.list", None),
    ]
    assert all(record["outcome"] == "done" for record in reads)


@pytest.mark.anyio
async def test_without_strict_changes_go_on(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("")
    async with Broker(settings=settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        await until(lambda: broker.status.audit_trouble)
        await mq.admin("queue.create", queue="jobs")


@pytest.mark.anyio
async def test_an_embedded_broker_keeps_no_file_unless_it_is_asked_to(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("jobs")
        with pytest.raises(InvalidOptions, match="keeps no audit file"):
            await mq.admin("audit.list")
    assert not (tmp_path / "data" / "audit").exists()
