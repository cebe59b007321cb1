"""What waits while connections are made, and lost before they achieve anything: not for ever."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.receipts import receipt
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.client.subscription import Subscription
from vibemq.errors import ConnectionLost, RequestTimeout, VibeMQError
from vibemq.model.rows import pack_row
from vibemq.protocols.native.codec.extensions import PublishManyAck
from vibemq.protocols.native.codec.wire import CommandType

pytestmark = pytest.mark.anyio

LIFE_S = 8.0
"""Of each connection. The first loss is at 8 s; the one at 80 s is the first that is more than 60 and 10 s later."""


class BadLine:
    """A client whose connections are made at once, and lost after a while. The time is that of the test."""

    def __init__(self, settings: ClientSettings | None = None) -> None:
        self.now = 0.0
        self.link = ClientLink(settings or ClientSettings(), now=0.0)
        self.connect()

    def connect(self) -> None:
        self.link.online(ClientProtocol(self.link.settings), self.now)
        self.link.data_to_send(self.now)

    def lose_until(self, end: float) -> Iterator[float]:
        """Each loss up to then, and the connection after it."""
        while self.now + LIFE_S <= end:
            self.now += LIFE_S
            self.link.tick(self.now)
            self.link.offline(self.now, "silent")
            yield self.now
            self.link.tick(self.now)
            self.connect()

    def put(self) -> PublishBatch:
        batch, _ = self.link.outbox.add("q", pack_row("m", b""), None, own_dedup=False)
        self.link.data_to_send(self.now)
        return batch

    def confirm(self, batch: PublishBatch) -> None:
        self.link.receive(PublishManyAck(batch.id, "q", 1, 1, {}, {}))


async def test_a_publish_that_every_connection_loses_fails_in_the_end() -> None:
    line = BadLine()
    batch = line.put()
    for _ in line.lose_until(72.0):
        assert not batch.done.is_set()
    list(line.lose_until(80.0))
    why = r"no answer to a publish within 70\.0 s, although connections .* were made: .*silent.*may or may not"
    with pytest.raises(RequestTimeout, match=why):
        receipt(batch, 0)
    assert line.link.outbox.messages == 0
    later = line.put()
    line.confirm(later)
    assert receipt(later, 0).sequence == 1


async def test_a_publish_behind_it_has_its_own_time() -> None:
    line = BadLine()
    first = line.put()
    list(line.lose_until(40.0))
    second = line.put()
    list(line.lose_until(80.0))
    assert (first.done.is_set(), second.done.is_set()) == (True, False)
    line.confirm(second)
    assert receipt(second, 0).sequence == 1


async def test_as_long_as_some_are_confirmed_the_others_wait() -> None:
    line = BadLine()
    waiting = line.put()
    for now in line.lose_until(800.0):
        line.connect()
        if now % (6 * LIFE_S) == 0:
            line.confirm(line.put())
        line.link.offline(now, "silent")
    assert not waiting.done.is_set()


async def test_what_could_not_be_answered_does_not_count() -> None:
    line = BadLine()
    batch = line.put()
    for now in line.lose_until(800.0):
        line.connect()
        line.link.postpone(LIFE_S - 1, now)
        line.link.offline(now, "silent")
        if now < 70 * LIFE_S:
            assert not batch.done.is_set()
    assert batch.done.is_set()


async def test_without_an_offline_timeout_there_is_no_end() -> None:
    line = BadLine(ClientSettings(reconnect=ReconnectPolicy(offline_timeout=None)))
    batch = line.put()
    list(line.lose_until(8_000.0))
    assert not batch.done.is_set()


async def ask(link: ClientLink) -> None:
    await link.requests.request(CommandType.PING, what="a look", idempotent=True)


async def subscribe(link: ClientLink) -> None:
    subscription: Subscription[Any] = Subscription(link, SubscribeOptions(queue="q"), None)
    await subscription.start()


@pytest.mark.parametrize(
    ("wait", "error", "why"),
    [
        (ask, ConnectionLost, "before the answer to a look: silent"),
        (subscribe, RequestTimeout, r"no answer to the subscription of 'q' within 70\.0 s, .*silent"),
    ],
)
async def test_what_is_asked_again_on_each_connection_is_not_asked_for_ever(
    wait: Callable[[ClientLink], Awaitable[None]], error: type[VibeMQError], why: str
) -> None:
    line, raised = BadLine(), list[VibeMQError]()

    async def work() -> None:
        try:
            await wait(line.link)
        except VibeMQError as exc:
            raised.append(exc)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        for _ in line.lose_until(72.0):
            await anyio.wait_all_tasks_blocked()
            assert raised == []
        await anyio.wait_all_tasks_blocked()
        list(line.lose_until(80.0))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    with pytest.raises(error, match=why):
        raise raised[0]
    assert line.link.subscriptions == {}
