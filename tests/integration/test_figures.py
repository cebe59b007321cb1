"""The figures of operators from a real broker: what moves, what waits, who may see it, and what it costs the loop."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.test_server_broker import settings
from tests.waiting import until
from tests.watchdog import HOLD_S_MAX, longest_hold_s
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Permission, StorageChoice, User
from vibemq.errors import NotAuthorized
from vibemq.model.commands import CreateQueue
from vibemq.model.options import Durability, QueueOptions
from vibemq.operations.monitoring.history import BROKER_SERIES, QUEUE_SERIES, SUPERUSER_SERIES
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio

QUEUES = 10_000


def as_user(broker: Broker, user: str) -> str:
    return broker.url.replace("://", f"://{user}:pw@")


def users() -> Auth:
    hashed = SecretStr(hash_password("pw"))
    rule = Permission(queues="mine*", actions=("inspect", "publish"))
    return Auth(
        users={
            "root": User(password_hash=hashed, superuser=True),
            "ann": User(password_hash=hashed, permissions=(rule,)),
            "overseer": User(password_hash=hashed, permissions=(Permission(queues="*", actions=("inspect",)),)),
        }
    )


async def test_rates_and_states_follow_the_messages(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        overview: dict[str, Any] = {}
        row: dict[str, Any] = {}
        await mq.publish("jobs", b"x")

        async def moves() -> bool:
            """Both are asked for at once: a rate is that of the last seconds."""
            nonlocal overview, row
            await mq.publish("jobs", b"x")
            overview = await mq.admin("broker.overview")
            rows = (await mq.admin("queue.rows", name="jobs", state="no_consumer"))["queues"]
            row = rows[0] if rows else {"in_rate": 0}
            return bool(overview["rates"]["in"] > 0 and overview["latency"]["confirm_p99_ms"] and row["in_rate"] > 0)

        await until(moves)
        assert row["durability"] == "strong"
        assert row["ready"] > 0
        assert row["bytes"] > row["ready"]
        assert overview["state"] == "warning"
        assert [sentence["link"]["queue"] for sentence in overview["sentences"]] == ["jobs"]
        assert overview["oldest"]["queue"] == "jobs"
        assert [waiting["queue"] for waiting in overview["no_consumer"]] == ["jobs"]
        assert overview["connections"] == {"native": 1}
        assert overview["resources"]["memory"]["used"] > 0
        for number, message in enumerate(await mq.fetch("jobs", max=2, timeout=30)):
            await message.reject(f"order {number} is bad")

        async def died() -> bool:
            return bool((await mq.admin("broker.overview"))["totals"]["dead"] == 2)

        await until(died)
        [dead] = (await mq.admin("broker.overview"))["dead_recent"]
        [group] = (await mq.admin("dlq.groups", queue="jobs"))["groups"]
        assert dead == {"queue": "jobs", "fingerprint": group["fingerprint"], "count": 2}


async def test_users_are_told_of_their_queues_only(tmp_path: Path) -> None:
    async with Broker(settings=settings(tmp_path, auth=users())) as broker:
        async with vibemq.connect(as_user(broker, "root")) as root:
            for queue, count in (("mine", 2), ("yours", 5)):
                await root.create_queue(queue)
                await root.publish_many(queue, [b"x"] * count)
            [bad] = await root.fetch("yours", max=1, timeout=30)
            await bad.reject("no")

            async def both() -> bool:
                totals = (await root.admin("broker.overview"))["totals"]
                return bool((totals["ready"], totals["dead"]) == (6, 1))

            await until(both)
            whole = await root.admin("broker.overview")
        async with vibemq.connect(as_user(broker, "ann")) as ann:
            overview = await ann.admin("broker.overview")
            rows = (await ann.admin("queue.rows"))["queues"]
    assert "yours" in str(whole["dead_recent"])
    assert any("yours" in sentence["text"] for sentence in whole["sentences"])
    assert "yours" not in str(overview)
    assert (overview["died_recent"], overview["dead_recent"], overview["totals"]["dead"]) == (0, [], 0)
    assert [row["queue"] for row in rows] == ["mine"]
    assert overview["totals"] == {**overview["totals"], "queues": 1, "ready": 2}
    assert overview["rates"]["in"] < whole["rates"]["in"] or not whole["rates"]["in"]
    for part in ("latency", "resources", "connections", "jobs_running"):
        assert overview[part] is None
        assert whole[part] is not None


async def test_the_history_goes_on_after_a_restart_and_nobody_sees_that_of_others(tmp_path: Path) -> None:
    for starts in (1, 2):
        async with Broker(settings=settings(tmp_path, auth=users())) as broker:
            async with vibemq.connect(as_user(broker, "root")) as root:
                for queue in ("mine", "yours"):
                    await root.publish(queue, b"x")
                kept: dict[str, Any] = {}

                async def recorded(root: vibemq.Client = root, least: int = starts) -> bool:
                    nonlocal kept
                    # The one that is there from the start, or that the sampler takes when it looks next.
                    await broker._parts.history.take(await broker._parts.trail.reading())  # type: ignore[union-attr]
                    kept = await root.admin("history.get", queue="mine", series=["ready"])
                    return max((point or 0 for point in kept["series"]["ready"]), default=0) >= least

                await until(recorded)
                whole = await root.admin("history.get", range="48h")
            async with vibemq.connect(as_user(broker, "ann")) as ann:
                assert (await ann.admin("history.get", queue="mine"))["series"].keys() == set(QUEUE_SERIES)
                for foreign in ({"queue": "yours"}, {"queue": "missing"}, {}):
                    with pytest.raises(NotAuthorized):
                        await ann.admin("history.get", **foreign)
            async with vibemq.connect(as_user(broker, "overseer")) as overseer:
                seen = (await overseer.admin("history.get"))["series"]
                assert seen.keys() == set(BROKER_SERIES) - SUPERUSER_SERIES
                with pytest.raises(NotAuthorized, match="the series memory_bytes are for superusers"):
                    await overseer.admin("history.get", series=["in", "memory_bytes"])
    assert len(kept["restarts"]) == 2
    assert len(kept["series"]["ready"]) == 180
    assert (kept["step_ms"], whole["step_ms"]) == (5_000, 300_000)
    assert whole["series"].keys() == set(BROKER_SERIES)


async def test_a_history_that_cannot_be_read_does_not_keep_a_broker_from_starting(tmp_path: Path) -> None:
    (tmp_path / "history").write_bytes(b"rubbish" * 100)
    async with Broker(settings=settings(tmp_path)) as broker, vibemq.connect(broker.url) as mq:
        await mq.publish("jobs", b"x")
        assert (await mq.admin("history.get"))["restarts"]


# -- many queues ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def crowded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """A broker with very many queues, and a user who may see a half of them."""
    hashed = SecretStr(hash_password("pw"))
    rules = (Permission(queues="queue-*0", actions=("inspect",)), Permission(queues="queue-*1*", actions=("inspect",)))
    auth = Auth(
        users={"root": User(password_hash=hashed, superuser=True), "ann": User(password_hash=hashed, permissions=rules)}
    )
    folder = tmp_path_factory.mktemp("crowded")
    in_memory = settings(folder, auth=auth).model_copy(update={"storage": StorageChoice(provider="memory")})
    async with Broker(settings=in_memory) as broker:
        assert broker._parts is not None
        options = QueueOptions(durability=Durability.TRANSIENT)
        for first in range(0, QUEUES, 500):
            numbers = range(first, first + 500)
            commands = [CreateQueue(0, None, f"queue-{number * 7_919 % QUEUES:05}", options) for number in numbers]
            broker._parts.decider.decide(commands)
            await anyio.sleep(0)
        yield broker


@pytest.mark.parametrize("user", ["root", "ann"])
@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("broker.overview", {}),
        ("queue.rows", {"sort": "-ready"}),
        ("queue.rows", {"sort": "state", "name": "7"}),
        ("history.get", {"queue": "queue-00010", "range": "6h"}),
    ],
)
async def test_no_list_holds_the_loop(crowded: Broker, user: str, operation: str, arguments: dict[str, Any]) -> None:
    async with vibemq.connect(as_user(crowded, user)) as mq:

        async def forget(attempt: int) -> None:
            crowded.report.snapshots.attach(crowded.report.snapshots._observed)

        async def ask(_: None) -> None:
            assert await mq.admin(operation, **arguments)

        assert await longest_hold_s(ask, forget) <= HOLD_S_MAX
