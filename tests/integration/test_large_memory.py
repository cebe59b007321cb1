"""The broker's memory for large messages comes back, whatever becomes of those who wait for it or hold it."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from tests.integration.fake_broker import give_little_time
from tests.waiting import until
from vibemq.config import Http, Limits, Listener, Settings
from vibemq.errors import RequestTimeout
from vibemq.model.stored import Slice
from vibemq.server.assembly import Assembly
from vibemq.server.commit.message_memory import MessageMemory
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

LARGE = 2 << 20


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TimedBroker]:
    settings = Settings(
        data_dir=tmp_path / "data",
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        limits=Limits(message_memory_bytes=6 << 20),
    )
    async with TimedBroker(settings=settings) as broker:
        yield broker


def parts_of(broker: vibemq.Broker) -> Assembly:
    assert broker._parts is not None
    return broker._parts


def outgoing(broker: vibemq.Broker) -> MessageMemory:
    memory = parts_of(broker).store.memory
    assert memory is not None
    return memory


class SlowReads:
    """Large rows are read when the test says so."""

    def __init__(self, broker: vibemq.Broker) -> None:
        store = parts_of(broker).store
        self._rows = store.large_rows
        self._go = threading.Event()
        self.begun = threading.Event()
        store.large_rows = self

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        self.begun.set()
        assert self._go.wait(60)
        return self._rows.read(queue_id, first, last, max_bytes)

    def go_on(self) -> None:
        self._go.set()


Ending = Callable[[TimedBroker, vibemq.Client, vibemq.Subscription[Any]], Awaitable[object]]


async def deleted(broker: TimedBroker, mq: vibemq.Client, messages: vibemq.Subscription[Any]) -> None:
    await mq.delete_queue("q")


async def unsubscribed(broker: TimedBroker, mq: vibemq.Client, messages: vibemq.Subscription[Any]) -> None:
    messages.leave(release=True)


async def disconnected(broker: TimedBroker, mq: vibemq.Client, messages: vibemq.Subscription[Any]) -> None:
    for connection in parts_of(broker).connection_table:
        if connection.session.client_name == "reader":
            connection.drop("the test wants it so")


async def expired(broker: TimedBroker, mq: vibemq.Client, messages: vibemq.Subscription[Any]) -> None:
    broker.advance(7_200)


async def lease_lost(broker: TimedBroker, mq: vibemq.Client, messages: vibemq.Subscription[Any]) -> None:
    broker.advance(40)


WHILE_IT_WAITS: list[Ending] = [deleted, unsubscribed, disconnected, expired, lease_lost]
WHILE_IT_IS_READ: list[Ending] = [deleted, disconnected]
CASES = [
    *((ending, "waits") for ending in WHILE_IT_WAITS),
    *((ending, "is read") for ending in WHILE_IT_IS_READ),
]


@pytest.mark.parametrize(("ending", "stage"), CASES, ids=[f"{stage}-{ending.__name__}" for ending, stage in CASES])
async def test_what_was_granted_comes_back(broker: TimedBroker, ending: Ending, stage: str) -> None:
    memory = outgoing(broker)
    async with vibemq.connect(broker.url) as mq, vibemq.connect(broker.url, name="reader") as reader:
        await mq.create_queue("q", message_ttl_ms=3_600_000)
        await mq.publish("q", bytes(LARGE))
        held = memory.take("the test", 1 << 40, print) if stage == "waits" else None
        slow = SlowReads(broker)
        async with reader.subscribe("q") as messages:
            await until((lambda: memory.waiting) if held is not None else slow.begun.is_set)
            await ending(broker, mq, messages)
            if held is not None:
                held.release()
            slow.go_on()
            if ending not in (disconnected, lease_lost):
                # Whoever gets its message holds the memory until its socket has taken it.
                await until(lambda: not memory.bytes_held)
                assert not memory.waiting
        await until(lambda: not memory.bytes_held)
        # With connections that live on.
        await mq.publish("others", bytes(LARGE))
        with anyio.fail_after(60):
            [message] = await mq.fetch("others", timeout=50)
        assert len(message.body) == LARGE
        await until(lambda: not memory.bytes_held)


async def test_a_fetch_that_is_cut_gives_back_what_comes_late(broker: TimedBroker) -> None:
    memory = outgoing(broker)
    async with vibemq.connect(broker.url) as mq:
        await mq.publish("q", bytes(LARGE))
        slow = SlowReads(broker)
        patient = mq._link.settings.command_timeout
        give_little_time(mq, 0.3)
        with pytest.raises(RequestTimeout):
            await mq.fetch("q", timeout=0)
        give_little_time(mq, patient)
        await until(slow.begun.is_set)
        slow.go_on()
        with anyio.fail_after(60):
            [message] = await mq.fetch("q", timeout=50)
        assert (len(message.payload), message.attempt, message.failures) == (LARGE, 2, 0)
        assert mq.reconnects == 0
    await until(lambda: not memory.bytes_held)
