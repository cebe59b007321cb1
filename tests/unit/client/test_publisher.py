"""A stream of publishes, whose batches are confirmed by hand."""

from itertools import count

import anyio
import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.publisher import REFUSALS_KEPT, Publisher, Publishing
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.errors import PublishRefused, QueueFull, VibeMQError

pytestmark = pytest.mark.anyio


def full() -> VibeMQError:
    return QueueFull("q", "max_messages")


class Stream(Publisher):
    def __init__(self) -> None:
        self.link = ClientLink(ClientSettings(), now=0.0)
        self._ids = count(1)
        super().__init__(Publishing(self.link), "q", dedup=False)

    async def send_all(self, number: int) -> PublishBatch:
        """Send so many in one batch, which is on its way then."""
        for _ in range(number):
            await self.send(b"x")
        [batch] = self.link.outbox.take(0.0, 10**9, lambda: str(next(self._ids)))
        assert isinstance(batch, PublishBatch)
        return batch


async def test_a_flush_tells_of_what_was_sent_before_it() -> None:
    stream, told = Stream(), []

    async def flush() -> None:
        told.append(await stream.flush())

    async with anyio.create_task_group() as tasks:
        first = await stream.send_all(3)
        tasks.start_soon(flush)
        await anyio.wait_all_tasks_blocked()
        second = await stream.send_all(2)
        first.confirm(1, {}, {})
        await anyio.wait_all_tasks_blocked()
        assert (told, stream.unconfirmed) == ([3], 2)
        second.confirm(0, {1: full}, {})
        with pytest.raises(PublishRefused, match="refused 1 of 2 messages; message 1: ") as refused:
            await stream.flush()
        assert (refused.value.accepted, list(refused.value.refused)) == (1, [1])
    assert await stream.flush() == 0


async def test_a_flush_that_is_cancelled_leaves_the_count_to_the_next_one() -> None:
    stream = Stream()
    batch = await stream.send_all(2)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await stream.flush()
    batch.confirm(1, {}, {})
    assert await stream.flush() == 2


async def test_a_stream_that_is_never_flushed_keeps_no_error_for_each_refusal() -> None:
    stream = Stream()
    for _ in range(4):
        batch = await stream.send_all(1_000)
        batch.confirm(1, dict.fromkeys(range(0, 1_000, 2), full), {})
    with pytest.raises(PublishRefused, match=r"refused 2,000 of 4,000 messages; message 0: ") as refused:
        await stream.flush()
    assert len(refused.value.refused) == REFUSALS_KEPT
    assert (refused.value.more, refused.value.accepted) == (2_000 - REFUSALS_KEPT, 2_000)
    batch = await stream.send_all(1)
    batch.confirm(1, {}, {})
    assert await stream.flush() == 1
