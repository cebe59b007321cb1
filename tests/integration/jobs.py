"""Brokers with dead letters for jobs, and steps that tests of jobs share."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.access import PASSWORD, cheap_hash
from tests.integration.test_operations import dead
from tests.integration.test_server_broker import settings
from tests.waiting import until
from vibemq.config import Auth, Permission, User
from vibemq.server.broker import Broker
from vibemq.testing.timed_broker import TimedBroker

Started = tuple[TimedBroker, vibemq.Client]
Guarded = tuple[Broker, Callable[[str], Any]]


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Started]:
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        yield broker, mq


async def job_of(mq: vibemq.Client, number: str) -> dict[str, Any]:
    job: dict[str, Any] = await mq.admin("job.show", job=number)
    return job


async def reached(mq: vibemq.Client, number: str, state: str, why: str = "", **figures: Any) -> dict[str, Any]:
    """The job when it is in that state, for that reason, and has these figures."""
    job: dict[str, Any] = {}

    async def has_come() -> bool:
        job.update(await job_of(mq, number))
        as_wanted = job["state"] == state and why in job["why"]
        assert as_wanted or job["state"] not in ("done", "failed", "cancelled"), job
        return as_wanted and all(job[name] == value for name, value in figures.items())

    await until(has_come)
    return job


async def take(mq: vibemq.Client, queue: str, count: int) -> list[vibemq.Message]:
    found: list[vibemq.Message] = []
    while len(found) < count:
        found += await mq.fetch(queue, max=count - len(found), timeout=30)
    return found


def job_users() -> Auth:
    hashed = SecretStr(cheap_hash(PASSWORD))

    def rules(*given: tuple[str, tuple[Any, ...]]) -> User:
        return User(password_hash=hashed, permissions=tuple(Permission(queues=q, actions=a) for q, a in given))

    return Auth(
        users={
            "root": User(password_hash=hashed, superuser=True),
            "looker": rules(("a", ("inspect",))),
            "worker": rules(("a", ("inspect", "purge", "publish"))),
            "other": rules(("b", ("inspect", "purge", "publish"))),
        }
    )


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with Broker(settings=settings(tmp_path, auth=job_users())) as broker:
        async with vibemq.connect(broker.url, username="root", password=PASSWORD) as mq:
            for queue in ("a", "b"):
                await dead(mq, broker, queue, 20)
        yield broker, lambda name: vibemq.connect(broker.url, username=name, password=PASSWORD)
