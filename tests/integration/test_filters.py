"""Groups with a filter, through the operations, the command line and every kind of store."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

import vibemq
from tests.crash.ledger import BrokerProcess
from vibemq.cli.admin.main import app
from vibemq.client import Client
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.client.subscription import Subscription
from vibemq.errors import InvalidSelector
from vibemq.model.commands import CreateQueue
from vibemq.model.options import DeliveryMode, Durability, QueueOptions
from vibemq.model.selector import Selector
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

EU = 'region == "eu"'
QUICK = ReconnectPolicy(initial_delay=0.01, max_delay=0.1)


async def publish(mq: Client, queue: str, numbers: range) -> None:
    for number in numbers:
        await mq.publish(queue, number, headers={"region": "eu" if number % 3 else "us"})


async def waiting(mq: Client, queue: str, counts: dict[str, int]) -> list[dict[str, Any]]:
    """When so many messages wait in each group: what is shown of the groups."""
    with anyio.fail_after(30):
        while True:
            groups = (await mq.admin("group.list", queue=queue))["groups"]
            if {group["group"]: group["backlog_messages"] + group["in_flight"] for group in groups} == counts:
                return list(groups)
            await mq.ping()


async def taken(messages: Subscription[Any], count: int) -> list[int]:
    found: list[int] = []
    with anyio.fail_after(30):
        while len(found) < count:
            for message in await messages.next_batch():
                found.append(message.json())
                message.ack()
    return found


@pytest.mark.parametrize("durability", [Durability.STRONG, Durability.ASYNC, Durability.TRANSIENT])
@pytest.mark.parametrize("storage", ["sqlite", "lmdb"])
async def test_what_does_not_match_leaves_the_group_and_nothing_else_does(
    tmp_path: Path, storage: str, durability: Durability
) -> None:
    async with TimedBroker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("orders", mode=DeliveryMode.FAN_OUT_WITH_ACK, durability=durability)
        made = await mq.admin("group.filter", queue="orders", group="eu", where=EU)
        assert (made["where"], made["durable"]) == (EU, True)
        await mq.admin("group.filter", queue="orders", group="all", where="")
        await mq.publish_many("orders", range(200), headers={"region": "eu"})
        await publish(mq, "orders", range(12))
        await mq.publish_many("orders", range(200), headers={"region": "us"})
        groups = await waiting(mq, "orders", {"eu": 208, "all": 412})
        assert [group["where"] for group in sorted(groups, key=lambda group: group["group"])] == ["", EU]
        async with mq.subscribe("orders", group="eu") as messages:
            assert await taken(messages, 208) == [*range(200), 1, 2, 4, 5, 7, 8, 10, 11]
        with pytest.raises(InvalidSelector, match="character 8"):
            await mq.admin("group.filter", queue="orders", group="eu", where="region = 1")


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
async def test_filters_survive_the_death_of_the_broker(tmp_path: Path, provider: str) -> None:
    broker = BrokerProcess(tmp_path / "data", provider=provider)
    await anyio.to_thread.run_sync(broker.start)
    try:
        async with vibemq.connect(broker.url, reconnect=QUICK) as mq:
            await mq.create_queue("orders", mode=DeliveryMode.FAN_OUT_WITH_ACK)
            await mq.admin("group.filter", queue="orders", group="eu", where=EU)
            await mq.admin("group.filter", queue="orders", group="us", where='region == "us"')
            published = 0
            for _ in range(4):
                # Killed while some have been looked at, and some have not.
                await mq.publish_many("orders", range(published, published + 300), headers={"region": "eu"})
                await publish(mq, "orders", range(published + 300, published + 306))
                published += 306
                await anyio.to_thread.run_sync(broker.kill)
                await anyio.to_thread.run_sync(broker.start)
            expected = {number for start in range(0, published, 306) for number in range(start, start + 300)}
            late = {number for start in range(300, published, 306) for number in range(start, start + 6)}
            expected |= {number for number in late if number % 3}
            await waiting(mq, "orders", {"eu": len(expected), "us": published - len(expected)})
            async with mq.subscribe("orders", group="eu") as messages:
                assert set(await taken(messages, len(expected))) == expected
            await mq.admin("group.filter", queue="orders", group="us", where="exists(nothing)")
            await waiting(mq, "orders", {"eu": 0, "us": 0})
    finally:
        broker.stop()


async def test_a_queue_is_made_with_groups_and_their_filters(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data", storage="lmdb") as broker, vibemq.connect(broker.url) as mq:
        options = QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK)
        filters = {"eu": Selector.parse(EU), "all": None}
        local = broker._running().local_session
        await local.ask(lambda s, t: CreateQueue(s, t, "orders", options, groups=list(filters), filters=filters))
        await publish(mq, "orders", range(6))
        await waiting(mq, "orders", {"eu": 4, "all": 6})


def _admin(url: str, *arguments: str) -> Any:
    result = CliRunner().invoke(app, ["group", *arguments, "--url", url])
    assert result.exit_code == 0, result.output
    return result.output


async def test_the_command_line_sets_and_shows_filters(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data", storage="memory") as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("orders", mode=DeliveryMode.FAN_OUT_WITH_ACK, durability=Durability.TRANSIENT)

        async def admin(*arguments: str) -> Any:
            return await anyio.to_thread.run_sync(lambda: _admin(broker.url, *arguments))

        made = await admin("filter", "orders", "eu", "--where", EU, "--json")
        assert json.loads(made)["where"] == EU
        assert EU in await admin("ls", "orders")
        assert "every message" in await admin("filter", "orders", "eu", "--none")
        assert "filter" not in await admin("ls", "orders")
        with pytest.raises(AssertionError, match="--none"):
            await admin("filter", "orders", "eu")
