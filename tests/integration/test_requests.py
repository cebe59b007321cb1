"""Requests and their replies, from one client to another."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.waiting import until
from vibemq.client import Client
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import (
    ConnectionLost,
    InvalidQueueName,
    LocalProtocolError,
    NoReply,
    NotConnected,
    QueueFull,
    RequesterGone,
    RequestFailed,
    VibeMQError,
)
from vibemq.model.options import Durability, Overflow

pytestmark = pytest.mark.anyio

LONG = 60
QUICK = ReconnectPolicy(initial_delay=0.01, max_delay=0.1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return "q-" + "".join(c if c.isalnum() else "-" for c in request.node.name)


@pytest.fixture
async def mq(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with vibemq.connect(broker.url) as client:
        yield client


async def echo(mq: Client, queue: str, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
    async with mq.subscribe(queue) as messages:
        task_status.started()
        async for message in messages:
            async with message.process():
                await message.reply(message.body, headers={"seen": message.headers.get("mine", "-")})


async def test_the_reply_is_what_the_consumer_said(mq: Client, queue: str) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(echo, mq, queue)
        response = await mq.request(queue, {"a": 1}, timeout=LONG, headers={"mine": "yes"})
        assert (response.json(), response.body, response.payload) == ({"a": 1}, {"a": 1}, b'{"a":1}')
        assert response.headers == {"seen": "yes"}
        assert (await mq.request(queue, b"\xff\x00", timeout=LONG, priority="high")).body == b"\xff\x00"
        assert (await mq.request(queue, None, timeout=LONG)).body is None
        await until(lambda: is_empty(mq, queue))
        tasks.cancel_scope.cancel()


async def is_empty(mq: Client, queue: str) -> bool:
    info = await mq.queue_info(queue)
    return info is not None and info.ready == info.in_flight == info.delayed == 0


async def test_nobody_replies(mq: Client, queue: str) -> None:
    await mq.create_queue(queue, dead_letter=False)
    began = anyio.current_time()
    # The client's own word, or the broker's where it comes first.
    words = "(may have been carried out|has expired, and nobody works on it)"
    with pytest.raises(NoReply, match=rf"request to queue '{queue}' within 0.2 s; it {words}"):
        await mq.request(queue, 1, timeout=0.2)
    assert anyio.current_time() - began >= 0.2
    await until(lambda: is_empty(mq, queue))


@pytest.mark.parametrize("how", ["reject", "attempts", "purge", "delete"])
async def test_who_hears_at_once_that_nobody_will_reply(mq: Client, queue: str, how: str) -> None:
    await mq.create_queue(queue, max_attempts=1)
    async with anyio.create_task_group() as tasks:

        async def end_it() -> None:
            if how in ("reject", "attempts"):
                async with mq.subscribe(queue) as messages:
                    message = await anext(messages)
                    message.reject("no such item") if how == "reject" else message.retry(reason="no such item")
                    await until(lambda: is_empty(mq, queue))
                return
            await until(lambda: waits(mq, queue))
            await (mq.purge_queue(queue) if how == "purge" else mq.delete_queue(queue))

        tasks.start_soon(end_it)
        words = {
            "reject": "a consumer rejected it: no such item",
            "attempts": "its attempts are used up: no such item",
            "purge": "it was removed",
            "delete": "the queue was deleted",
        }
        with pytest.raises(RequestFailed, match=words[how]):
            await mq.request(queue, 1, timeout=LONG)


async def waits(mq: Client, queue: str) -> bool:
    info = await mq.queue_info(queue)
    return info is not None and info.ready == 1


async def test_what_the_broker_refuses(mq: Client, queue: str) -> None:
    await mq.create_queue(queue, max_messages=1, overflow=Overflow.DROP_NEWEST)
    await mq.publish(queue, 1)
    with pytest.raises(QueueFull):
        await mq.request(queue, 2, timeout=LONG)
    with pytest.raises(InvalidQueueName):
        await mq.request("not a name", 2, timeout=LONG)
    for timeout in (0, -1, float("nan"), 5_000_000):
        with pytest.raises(LocalProtocolError, match="timeout is"):
            await mq.request(queue, 2, timeout=timeout)


async def test_a_late_reply_is_the_requesters_loss_and_no_failure_of_the_worker(mq: Client, queue: str) -> None:
    async with mq.subscribe(queue) as messages:
        with pytest.raises(NoReply):
            await mq.request(queue, 1, timeout=0.1)
        message = await anext(messages)
        with pytest.raises(RequesterGone, match="do not send the reply again"):
            await until_late(message)
        async with message.process():
            await message.reply("late")
            raise AssertionError("the block has ended")
        assert message.settled
        await until(lambda: is_empty(mq, queue))


async def until_late(message: vibemq.Message[Any]) -> None:
    """The broker may see the end of the requester's time a moment later than the requester."""
    for _ in range(2):
        await message.reply("late")


async def test_a_cancelled_request_is_taken_back(mq: Client, queue: str) -> None:
    await mq.create_queue(queue)
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            await mq.request(queue, 1, timeout=LONG)

        tasks.start_soon(ask)
        await until(lambda: waits(mq, queue))
        tasks.cancel_scope.cancel()
    await until(lambda: is_empty(mq, queue))
    info = await mq.queue_info(queue)
    assert info is not None
    assert info.dead == 0


async def test_who_works_on_a_cancelled_request_is_told(mq: Client, queue: str) -> None:
    async with mq.subscribe(queue) as messages:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await mq.request(queue, 1, timeout=LONG)

            tasks.start_soon(ask)
            message = await anext(messages)
            tasks.cancel_scope.cancel()
        with pytest.raises(RequesterGone):
            await message.reply("late")
        message.ack()


async def test_the_first_of_two_replies_counts(mq: Client, queue: str) -> None:
    async with mq.subscribe(queue) as messages, anyio.create_task_group() as tasks:

        async def reply_twice() -> None:
            message = await anext(messages)
            await message.reply("first")
            with pytest.raises(RequesterGone):
                await message.reply("second")
            message.ack()

        tasks.start_soon(reply_twice)
        assert (await mq.request(queue, 1, timeout=LONG)).body == "first"


async def test_a_message_that_is_no_request(mq: Client, queue: str) -> None:
    await mq.publish(queue, 1)
    [message] = await mq.fetch(queue)
    with pytest.raises(LocalProtocolError, match="has no header 'reply-to', so nobody waits for a reply"):
        await message.reply(1)
    message.ack()


async def test_a_lost_connection_is_told_at_once(broker: BrokerProcess, mq: Client, queue: str) -> None:
    async with vibemq.connect(broker.url, name="asks", reconnect=QUICK) as asking, anyio.create_task_group() as tasks:

        async def cut() -> None:
            await until(lambda: waits(mq, queue))
            [ours] = [known for known in await mq.admin("connections.list") if known["name"] == "asks"]
            await mq.admin("connections.close", connection_id=ours["connection_id"])

        await mq.create_queue(queue)
        tasks.start_soon(cut)
        with pytest.raises(ConnectionLost, match="may have been carried out"):
            await asking.request(queue, 1, timeout=LONG)
        [message] = await mq.fetch(queue)
        with pytest.raises(RequesterGone):
            await message.reply(1)
        message.ack()
        # It is not sent again.
        await until(lambda: asking.is_connected)
        await asking.ping()
        assert await is_empty(mq, queue)


async def test_a_closed_client_waits_for_nothing(broker: BrokerProcess, mq: Client, queue: str) -> None:
    await mq.create_queue(queue)
    errors: list[VibeMQError] = []
    async with anyio.create_task_group() as tasks, vibemq.connect(broker.url) as asking:

        async def ask() -> None:
            try:
                await asking.request(queue, 1, timeout=LONG)
            except VibeMQError as error:
                errors.append(error)

        tasks.start_soon(ask)
        await until(lambda: waits(mq, queue))
    assert isinstance(errors[0], (NotConnected, ConnectionLost))


async def test_a_killed_broker_is_told_at_once_and_what_comes_later_to_its_responder(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        async with (
            vibemq.connect(broker.url, reconnect=QUICK) as asking,
            vibemq.connect(broker.url, reconnect=QUICK) as working,
        ):
            await working.create_queue("strong", durability=Durability.STRONG, lost_connection="release")
            async with anyio.create_task_group() as tasks, working.subscribe("strong") as messages:

                async def restart() -> None:
                    await anext(messages)
                    await anyio.to_thread.run_sync(broker.kill)
                    await anyio.to_thread.run_sync(broker.wait)
                    await anyio.to_thread.run_sync(broker.start)

                tasks.start_soon(restart)
                with pytest.raises(ConnectionLost, match="may have been carried out"):
                    await asking.request("strong", 1, timeout=LONG)
                with anyio.fail_after(LONG):
                    message = await anext(messages)
                with pytest.raises(RequesterGone):
                    await message.reply("nobody knows this address any more")
    finally:
        broker.kill()
        broker.wait()


RESPONDER = """
import sys, anyio, vibemq

async def main():
    async with vibemq.connect(sys.argv[1]) as mq, mq.subscribe("work", prefetch=100) as messages:
        print("ready", flush=True)
        async for message in messages:
            async with message.process():
                await message.reply(message.body)

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number_at_once", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_very_many_at_a_time_and_a_responder_that_is_killed(
    tmp_path: Path, anyio_backend: str, number_at_once: int
) -> None:
    ends: Counter[str] = Counter()
    async with vibemq.Broker(data_dir=tmp_path) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("work", durability=Durability.TRANSIENT, dead_letter=False)
        responders = [
            subprocess.Popen([sys.executable, "-c", RESPONDER, broker.url], stdout=subprocess.PIPE) for _ in range(2)
        ]
        try:
            for responder in responders:
                assert responder.stdout is not None
                assert await anyio.to_thread.run_sync(responder.stdout.readline) == b"ready\n"

            async def ask(number: int) -> None:
                began = anyio.current_time()
                try:
                    assert (await mq.request("work", number, timeout=LONG)).body == number
                    ends["reply"] += 1
                except VibeMQError as error:
                    ends[type(error).__name__] += 1
                assert anyio.current_time() - began < LONG + 5
                if sum(ends.values()) == number_at_once // 5:
                    responders[0].kill()

            async with anyio.create_task_group() as tasks:
                for number in range(number_at_once):
                    tasks.start_soon(ask, number)
        finally:
            for responder in responders:
                responder.kill()
                responder.wait()
                assert responder.stdout is not None
                responder.stdout.close()
        assert sum(ends.values()) == number_at_once
        assert ends["reply"] >= 0.9 * number_at_once, ends
        assert len(mq._link.replies) == 0


def test_the_blocking_client_asks_and_replies(broker: BrokerProcess) -> None:
    with vibemq.sync.connect(broker.url) as mq:
        mq.create_queue("blocking")

        def work() -> None:
            with mq.subscribe("blocking") as messages:
                for message in messages:
                    with message.process():
                        message.reply({"twice": 2 * message.json()})
                    if message.json() == 2:
                        return

        worker = threading.Thread(target=work)
        worker.start()
        assert [mq.request("blocking", number, timeout=LONG).json()["twice"] for number in (1, 2)] == [2, 4]
        worker.join(LONG)
        with pytest.raises(NoReply):
            mq.request("blocking", 3, timeout=0.1)
