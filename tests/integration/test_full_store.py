"""A store without room refuses what needs the disk, and nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from tests.waiting import until
from vibemq.errors import StorageFull
from vibemq.model.records import MessagesAdded, Record
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio

ROUNDS = 20


@pytest.fixture(params=["lmdb", "sqlite"])
def storage(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def fill(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the store of a running broker refuse messages, as it does when its disk has no room for more."""

    def refuse(records: Sequence[Record]) -> None:
        if any(type(record) is MessagesAdded for record in records):
            raise StorageFull("the disk is full")

    provider: Any = broker._running().store.provider
    monkeypatch.setattr(provider._ballast, "refuse_messages", refuse)


@pytest.mark.parametrize("connections", [1, 2])
async def test_a_confirmed_transient_message_outlives_the_refusal_of_a_strong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, connections: int
) -> None:
    """Both come in one turn of the loop, so that both are in one append."""
    confirmed: list[str] = []
    refused: list[str] = []
    got: list[str] = []
    async with Broker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("t", durability="transient")
        await mq.create_queue("q")
        fill(broker, monkeypatch)

        async def publish(client: vibemq.Client, queue: str, body: str) -> None:
            try:
                await client.publish(queue, body)
                confirmed.append(body)
            except StorageFull:
                refused.append(body)

        async with vibemq.connect(broker.url) as second:
            others = second if connections == 2 else mq
            for number in range(ROUNDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(publish, mq, "q", f"strong {number}")
                    tasks.start_soon(publish, others, "t", f"before {number}")
                    tasks.start_soon(publish, mq, "q", f"more {number}")
                    tasks.start_soon(publish, others, "t", f"behind {number}")
            assert len(confirmed) == len(refused) == 2 * ROUNDS
            info = await mq.queue_info("t")
            assert info is not None
            assert info.ready == 2 * ROUNDS
            with anyio.fail_after(60):
                async with mq.subscribe("t") as messages:
                    while len(got) < len(confirmed):
                        message = await anext(messages)
                        got.append(message.body)
                        await message.ack()
    assert sorted(got) == sorted(confirmed)


async def test_a_full_store_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Transient messages that are taken beside say nothing of its disk."""
    async with Broker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("t", durability="transient")
        await mq.create_queue("q")
        with monkeypatch.context() as full:
            fill(broker, full)
            for number in range(ROUNDS):
                await mq.publish("t", f"transient {number}")
                with pytest.raises(StorageFull):
                    await mq.publish("q", f"strong {number}")
        await mq.publish("t", "room for more")
        assert [message for message in caplog.messages if "room" in message] == [
            "the store is full, messages are refused until it has room: the disk is full"
        ]
        await mq.publish("q", "room again")
    assert "the store has room for messages again" in caplog.messages


async def test_commands_beside_refused_messages_are_answered_with_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    refused: list[str] = []
    async with Broker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        for number in range(ROUNDS):
            await mq.create_queue(f"deleted-{number}")
            await mq.create_queue(f"purged-{number}")
            await mq.publish(f"purged-{number}", b"x")
        await mq.create_queue("ids", dedup_window_ms=60_000)
        await mq.publish("ids", b"x", dedup_id="known")
        fill(broker, monkeypatch)

        async def publish(body: str) -> None:
            with pytest.raises(StorageFull):
                await mq.publish("q", body)
            refused.append(body)

        async with vibemq.connect(broker.url) as other:

            async def subscribe(queue: str) -> None:
                async with other.subscribe(queue, prefetch=1):
                    pass

            async def publish_again() -> None:
                assert (await other.publish("ids", b"x", dedup_id="known")).duplicate

            for number in range(ROUNDS):
                with anyio.fail_after(60):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(publish, f"before {number}")
                        tasks.start_soon(other.create_queue, f"created-{number}")
                        tasks.start_soon(other.delete_queue, f"deleted-{number}")
                        tasks.start_soon(other.purge_queue, f"purged-{number}")
                        tasks.start_soon(subscribe, "q")
                        tasks.start_soon(publish_again)
                        tasks.start_soon(publish, f"behind {number}")
        assert len(refused) == 2 * ROUNDS
    async with Broker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        found = {info.name: info.ready for info in await mq.list_queues()}
    wanted = {f"created-{number}": 0 for number in range(ROUNDS)} | {f"purged-{number}": 0 for number in range(ROUNDS)}
    assert found == wanted | {"q": 0, "ids": 1}


async def test_a_job_that_waits_for_room_says_why_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    """What became of a single step concerns nobody: it is repeated."""
    async with Broker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish("q", b"x")
        [message] = await mq.fetch("q")
        await message.reject("no stock")
        job: dict[str, Any] = {}
        with monkeypatch.context() as full:
            fill(broker, full)
            number = (await mq.admin("job.start", kind="replay", filter={"queue": "q"}))["job"]

            async def is_told() -> bool:
                job.update(await mq.admin("job.show", job=number))
                return bool(job["why"])

            await until(is_told)
            assert job["why"] == "the disk is full: the disk is full"
