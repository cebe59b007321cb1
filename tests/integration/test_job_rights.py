"""Who may start and see a job, and that a job never does more than its maker may."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.access import PASSWORD, cheap_hash
from tests.integration.jobs import Guarded, guarded, job_users, reached, started
from tests.integration.test_operations import dead
from tests.integration.test_server_broker import settings
from vibemq.config import Auth, User
from vibemq.errors import (
    JobNotFound,
    NotAuthorized,
)
from vibemq.server.broker import Broker
from vibemq.server.clock import TimeSource
from vibemq.server.jobs.exporting import LetterExport
from vibemq.server.jobs.worker import JobWorker

pytestmark = pytest.mark.anyio
__all__ = ["guarded", "started"]


async def test_a_job_needs_what_its_work_needs(guarded: Guarded) -> None:
    _, login = guarded
    async with login("worker") as worker, login("looker") as looker, login("other") as other:
        for given in ({}, {"filter": {"queue": "b"}}, {"filter": {"queue": "a"}, "to": "b"}):
            with pytest.raises(NotAuthorized):
                await worker.admin("job.start", kind="replay", **given)
        with pytest.raises(NotAuthorized):
            await looker.admin("job.start", kind="purge_dead", filter={"queue": "a"})
        job = await worker.admin("job.start", kind="replay", filter={"queue": "a"}, rate=1)
        assert [each["job"] for each in (await looker.admin("job.list"))["jobs"]] == [job["job"]]
        with pytest.raises(NotAuthorized):
            await looker.admin("job.change", job=job["job"], state="paused")
        assert (await other.admin("job.list"))["jobs"] == []
        for verb, more in (("job.show", {}), ("job.change", {"state": "paused"})):
            with pytest.raises(JobNotFound):
                await other.admin(verb, job=job["job"], **more)
        assert (await worker.admin("job.change", job=job["job"], state="cancelled"))["state"] == "cancelled"


async def test_a_job_is_shown_to_those_who_may_look_into_every_queue_that_it_names(guarded: Guarded) -> None:
    _, login = guarded
    async with login("root") as root, login("looker") as looker, login("worker") as worker:
        shown, *others = [
            (await root.admin("job.start", kind="replay", rate=1, **given))["job"]
            for given in ({"filter": {"queue": "a"}}, {"filter": {"queue": "a"}, "to": "b"}, {})
        ]
        for user in (looker, worker):
            assert [job["job"] for job in (await user.admin("job.list"))["jobs"]] == [shown]
            assert (await user.admin("job.show", job=shown))["job"] == shown
            for number in others:
                for verb, more in (("job.show", {}), ("job.change", {"state": "paused"}), ("job.result", {})):
                    with pytest.raises(JobNotFound):
                        await user.admin(verb, job=number, **more)


async def test_a_job_ends_with_the_rights_of_its_maker(guarded: Guarded) -> None:
    broker, login = guarded
    async with login("root") as root:
        await root.admin("user.add", user="temp", password="a password")
        await root.admin("user.grant", user="temp", queues="a", actions=["purge", "publish"])
        async with vibemq.connect(broker.url, username="temp", password="a password") as temp:
            token = await temp.admin("token.create", user="temp", label="job", expires_ms=60_000)
        async with vibemq.connect(broker.url, token=token["token"]) as temp:
            number = (await temp.admin("job.start", kind="replay", filter={"queue": "a"}, rate=1))["job"]
        await reached(root, number, "running", done=1)
        await root.admin("user.revoke", user="temp", queues="a", actions=["publish"])
        job = await reached(root, number, "held")
        assert "does not have the permission 'publish'" in job["why"]
        await root.admin("user.grant", user="temp", queues="a", actions=["purge", "publish"])
        await root.admin("job.change", job=number, state="running")
        await root.admin("token.revoke", user="temp", token_id=token["token_id"])
        assert "access token" in (await reached(root, number, "held"))["why"]


@pytest.mark.parametrize("kind", ["replay", "purge_dead", "export_dead"])
async def test_no_step_begins_after_a_revocation_was_answered(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Also one that has been prepared: the rights go after the last thing that a step waits for."""
    broker, login = guarded
    of, name = (LetterExport, "add") if kind == "export_dead" else (JobWorker, "_command")
    prepare: Callable[..., Awaitable[Any]] = getattr(of, name)
    prepared: list[Any] = []
    async with login("root") as root:
        await root.admin("user.add", user="temp", password="a password")
        await root.admin("user.grant", user="temp", queues="a", actions=["*"])

        async def revoked(*arguments: Any) -> Any:
            prepared.append(await prepare(*arguments))
            await root.admin("user.revoke", user="temp", queues="a")
            return prepared[-1]

        monkeypatch.setattr(of, name, revoked)
        async with vibemq.connect(broker.url, username="temp", password="a password") as temp:
            number = (await temp.admin("job.start", kind=kind, filter={"queue": "a"}))["job"]
        job = await reached(root, number, "held")
        assert len(prepared) == 1
        assert (job["done"], "user 'temp' does not have the permission" in job["why"]) == (0, True)
        info = await root.queue_info("a")
        assert info is not None
        assert (info.ready, info.dead) == (0, 20)
        monkeypatch.undo()
        await root.admin("user.grant", user="temp", queues="a", actions=["*"])
        await root.admin("job.change", job=number, state="running")
        assert (await reached(root, number, "done"))["done"] == 20


async def test_a_new_user_of_the_same_name_has_no_job_of_the_old_one(
    guarded: Guarded,
) -> None:
    broker, login = guarded
    async with login("root") as root:

        async def make() -> None:
            await root.admin("user.add", user="temp", password="a password")
            await root.admin("user.grant", user="temp", queues="a", actions=["purge", "publish"])

        await make()
        async with vibemq.connect(broker.url, username="temp", password="a password") as temp:
            number = (await temp.admin("job.start", kind="replay", filter={"queue": "a"}, rate=1))["job"]
        await reached(root, number, "running", done=1)
        await root.admin("job.change", job=number, state="paused")
        await root.admin("user.remove", user="temp")
        await make()
        async with vibemq.connect(broker.url, username="temp", password="a password") as temp:
            assert (await temp.admin("job.list"))["jobs"] == []
            for verb, more in (("job.show", {}), ("job.change", {"state": "cancelled"})):
                with pytest.raises(JobNotFound):
                    await temp.admin(verb, job=number, **more)
        await root.admin("job.change", job=number, state="running")
        assert "user 'temp' does not exist any more" in (await reached(root, number, "held"))["why"]


async def test_who_has_gone_before_a_restart_has_no_job_after_it(tmp_path: Path) -> None:
    users = job_users()
    async with Broker(settings=settings(tmp_path, auth=users)) as broker:
        async with vibemq.connect(broker.url, username="root", password=PASSWORD) as mq:
            await dead(mq, broker, "a", 20)
        async with vibemq.connect(broker.url, username="worker", password=PASSWORD) as mq:
            number = (await mq.admin("job.start", kind="replay", filter={"queue": "a"}, rate=1))["job"]
    fewer = Auth(users={name: user for name, user in users.users.items() if name != "worker"})
    async with (
        Broker(settings=settings(tmp_path, auth=fewer)) as broker,
        vibemq.connect(broker.url, username="root", password=PASSWORD) as mq,
    ):
        assert "user 'worker' does not exist any more" in (await reached(mq, number, "held"))["why"]


class AYearAhead(TimeSource):
    def wall_s(self) -> float:
        return super().wall_s() + 365 * 86_400


async def test_a_user_that_was_made_under_a_clock_that_was_ahead_has_jobs(tmp_path: Path) -> None:
    users = job_users()
    async with (
        Broker(settings=settings(tmp_path, auth=users), time_source=AYearAhead()) as broker,
        vibemq.connect(broker.url, username="root", password=PASSWORD) as root,
    ):
        await dead(root, broker, "a", 20)
        await root.admin("user.add", user="temp", password=PASSWORD)
        await root.admin("user.grant", user="temp", queues="a", actions=["inspect", "purge", "publish"])
    async with (
        Broker(settings=settings(tmp_path, auth=users)) as broker,
        vibemq.connect(broker.url, username="temp", password=PASSWORD) as temp,
    ):
        number = (await temp.admin("job.start", kind="replay", filter={"queue": "a"}))["job"]
        assert (await reached(temp, number, "done"))["done"] == 20


async def test_a_user_of_the_settings_has_no_job_of_a_stored_one_of_the_same_name(tmp_path: Path) -> None:
    hashed = SecretStr(cheap_hash(PASSWORD))
    only_root = Auth(users={"root": User(password_hash=hashed, superuser=True)})
    both = Auth(users={**only_root.users, "temp": User(password_hash=hashed, permissions=())})
    async with Broker(settings=settings(tmp_path, auth=only_root)) as broker:
        async with vibemq.connect(broker.url, username="root", password=PASSWORD) as root:
            await dead(root, broker, "a", 20)
            await root.admin("user.add", user="temp", password=PASSWORD)
            await root.admin("user.grant", user="temp", queues="a", actions=["inspect", "purge", "publish"])
        async with vibemq.connect(broker.url, username="temp", password=PASSWORD) as temp:
            number = (await temp.admin("job.start", kind="replay", filter={"queue": "a"}, rate=1, key="k"))["job"]
            await reached(temp, number, "running", done=1)
    async with Broker(settings=settings(tmp_path, auth=both)) as broker:
        async with vibemq.connect(broker.url, username="root", password=PASSWORD) as root:
            assert "user 'temp' does not exist any more" in (await reached(root, number, "held"))["why"]
        async with vibemq.connect(broker.url, username="temp", password=PASSWORD) as temp:
            assert (await temp.admin("job.list"))["jobs"] == []
            with pytest.raises(JobNotFound):
                await temp.admin("job.change", job=number, state="cancelled")
    # The stored user is there again, and has its job.
    async with (
        Broker(settings=settings(tmp_path, auth=only_root)) as broker,
        vibemq.connect(broker.url, username="temp", password=PASSWORD) as temp,
    ):
        assert [job["job"] for job in (await temp.admin("job.list"))["jobs"]] == [number]
