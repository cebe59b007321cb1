"""A reader that is behind gets the latest figures, and those of each topic once."""

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from vibemq.errors import InvalidPayload, InvalidQueueName
from vibemq.model.access import Principal
from vibemq.web.api.endpoints.streams import read_topic
from vibemq.web.api.services import ApiServices, Asker
from vibemq.web.api.streams.hub import EventHub, EventTopic, SharedTopic, TopicReader

ASKER = Asker(Principal("user"), "host", "id")


@pytest.mark.anyio
async def test_the_latest_frame_counts() -> None:
    one, two = (SharedTopic(EventTopic(text, text, "op")) for text in ("one", "two"))
    one.frame = b"first"
    reader = TopicReader(None, ASKER, [one, two])  # type: ignore[arg-type]
    assert await reader.take(60) == b"first"
    for frame in (b"a", b"b", b"c"):
        reader.put(one.topic, frame)
    reader.put(two.topic, b"x")
    assert await reader.take(60) == b"cx"
    assert await reader.take(0) == b""
    assert list(one.readers) == [reader]
    await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_nobody_waits_for_the_figures_that_another_user_wants() -> None:
    answered = anyio.Event()

    class Operations:
        async def ask(self, asker: Asker, operation: str, arguments: dict[str, Any]) -> Any:
            if asker is not ASKER:
                await answered.wait()
            return SimpleNamespace(result={"asked": asker.principal.name})

    policy = SimpleNamespace(is_superuser=lambda principal: False, rights_of=lambda principal: None)
    async with anyio.create_task_group() as tasks:
        services = SimpleNamespace(
            operations=Operations(),
            accounts=SimpleNamespace(policy=policy),
            peers=SimpleNamespace(begin=tasks.start_soon),
        )
        hub = EventHub(cast(ApiServices, services))
        topics = [EventTopic(str(number), "overview", "broker.overview") for number in range(3)]
        slow = hub.open(Asker(Principal("greedy"), "host", "id"), topics)
        await anyio.lowlevel.checkpoint()
        quick = hub.open(ASKER, topics[:1])
        assert b'"user"' in await quick.take(60)
        assert (hub.subjects, await slow.take(0)) == (4, b"")
        answered.set()
        assert b'"greedy"' in await slow.take(60)
        quick.close()
        assert hub.subjects == 3
        slow.close()
    assert hub.subjects == 0


@pytest.mark.anyio
async def test_a_fault_of_one_topic_is_told_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    class Operations:
        async def ask(self, asker: Asker, operation: str, arguments: dict[str, Any]) -> Any:
            if operation == "job.list":
                raise ZeroDivisionError
            return SimpleNamespace(result={"state": "ok"})

    policy = SimpleNamespace(is_superuser=lambda principal: False, rights_of=lambda principal: None)
    async with anyio.create_task_group() as tasks:
        services = SimpleNamespace(
            operations=Operations(),
            accounts=SimpleNamespace(policy=policy),
            peers=SimpleNamespace(begin=tasks.start_soon),
        )
        hub = EventHub(cast(ApiServices, services))
        reader = hub.open(ASKER, [read_topic("jobs"), read_topic("overview")])
        told = b""
        while b"overview" not in told:
            told += await reader.take(60)
        assert b'{"topic":"jobs","error":{"code":"SERVER_ERROR","detail":"the broker could not' in told
        assert caplog.messages == ["the figures of jobs could not be made"]
        reader.close()


def test_topics_are_read_strictly() -> None:
    assert read_topic("queue:orders.eu") == EventTopic(
        "queue:orders.eu", "queue", "queue.info", (("groups_max", 100), ("queue", "orders.eu"))
    )
    assert dict(read_topic("queue:what?").arguments)["queue"] == "what?"
    listed = read_topic("queues?sort=-ready&limit=5")
    assert dict(listed.arguments) == {"sort": "-ready", "limit": 5}
    for text in (
        "",
        "queues?limit=101",
        "queues?limit=x",
        "queues?limit=0000000015000",
        "queues?limit=000000001" + "9" * 5_000,
        "overview?x=1",
        "jobs:1",
        "queue",
        "x" * 5_000,
        "queues?" + "a=1&" * 20,
    ):
        with pytest.raises((InvalidPayload, InvalidQueueName)):
            read_topic(text)
