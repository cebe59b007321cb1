"""A reader that is behind gets the latest figures, and those of each topic once."""

import anyio
import pytest

from vibemq.errors import InvalidPayload, InvalidQueueName
from vibemq.model.access import Principal
from vibemq.web.api.endpoints.streams import read_topic
from vibemq.web.api.services import Asker
from vibemq.web.api.streams.hub import EventTopic, SharedTopic, TopicReader

ASKER = Asker(Principal("user"), "host", "id")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
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


def test_topics_are_read_strictly() -> None:
    assert read_topic("queue:orders.eu") == EventTopic(
        "queue:orders.eu", "queue", "queue.info", (("groups_max", 100), ("queue", "orders.eu"))
    )
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
