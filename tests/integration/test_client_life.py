"""A client's life outside a block: opened by one task, used by others, closed by another one; on asyncio and trio."""

import asyncio
from dataclasses import replace
from typing import Any

import anyio
import pytest

import vibemq
from tests.integration.fake_broker import QUICK, FakeBroker
from tests.waiting import until
from vibemq.client import ConnectionChange, ReconnectPolicy
from vibemq.errors import NotConnected, PublishFailed
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


async def finished(*work: Any) -> None:
    """Each in a task of its own, one after the other."""
    for function in work:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(function)


async def test_one_task_opens_it_and_another_one_closes_it() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", reconnect=QUICK)
        with pytest.raises(NotConnected, match="open"):
            await mq.publish("orders", 0)

        async def use() -> None:
            assert (await mq.publish("orders", 1)).sequence == 1

        await finished(mq.open, use, mq.close)
        assert not mq.is_connected
        await mq.close()
        with pytest.raises(NotConnected, match="closed"):
            await mq.publish("orders", 2)
        with pytest.raises(NotConnected, match="opened once"):
            await mq.open()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_shutdown_that_cancels_all_tasks_leaves_no_client_that_hangs() -> None:
    async with Broker(port=0, storage="memory") as broker:
        mq = vibemq.connect(broker.url)
        await mq.open()
        await mq.publish("orders", 1)
        changes: list[ConnectionChange] = []
        mq.on_connection_change(changes.append)
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "vibemq client")
        task.cancel()
        await asyncio.wait([task])
        for call in (mq.publish, mq.request):
            with pytest.raises(NotConnected, match="cancelled from outside"):
                await call("orders", 2)
        assert not mq.is_connected
        assert changes[-1].final
        await mq.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_shutdown_that_cancels_all_tasks_while_a_client_begins_to_open() -> None:
    mq = vibemq.connect("vibemq://127.0.0.1:1", reconnect=ReconnectPolicy(first_connect=True))
    opening = asyncio.create_task(mq.open())
    await asyncio.sleep(0)
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "vibemq client")
    # It has not had its first step.
    task.cancel()
    await asyncio.wait([opening], timeout=60)
    with pytest.raises(NotConnected, match="cancelled from outside"):
        opening.result()
    await mq.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_what_was_not_confirmed_when_the_task_of_a_client_was_cancelled_is_told_by_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker(port=0, storage="memory") as broker:
        mq = vibemq.connect(broker.url)
        await mq.open()
        await mq.publish("orders", 1, wait=False)
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "vibemq client")
        task.cancel()
        await asyncio.wait([task])
        # A program that has ended without close() is told by the log alone.
        assert "1 messages of publish(wait=False) are not confirmed: the client's own task" in caplog.text
        with pytest.raises(PublishFailed, match="cancelled from outside"):
            await mq.close()
        await mq.close()


async def test_closing_between_two_connections_waits_for_the_next_one_and_the_confirms() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", reconnect=QUICK)
        await mq.open()
        subscription = mq.subscribe("orders")
        await subscription.start()
        await broker.stop()
        await until(lambda: not mq.is_connected)
        await mq.publish("orders", 1, wait=False)
        tasks.start_soon(mq.close)
        await anyio.wait_all_tasks_blocked()
        await broker.start(tasks)
        await until(lambda: not mq.is_connected and broker.unsettled("orders") == 1)
        assert CommandType.SUBSCRIBE not in broker.frames[broker.frames.index(CommandType.SUBSCRIBE) + 1 :]
        with pytest.raises(NotConnected, match="closed"):
            await mq.publish("orders", 2)
        tasks.cancel_scope.cancel()


async def test_closing_waits_no_longer_for_a_connection_than_offline_timeout() -> None:
    broker = FakeBroker()
    policy = replace(QUICK, offline_timeout=0.05)
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", reconnect=policy)
        await mq.open()
        await broker.stop()
        await until(lambda: not mq.is_connected)
        await mq.publish("orders", 1, wait=False)
        with anyio.fail_after(60), pytest.raises(PublishFailed):
            await mq.close()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("away", [False, True])
async def test_closing_takes_no_longer_than_command_timeout(away: bool) -> None:
    """Nothing else ends the wait here: neither the connection, nor `offline_timeout`, nor a caller that has gone."""
    broker = FakeBroker()
    policy = replace(QUICK, offline_timeout=600.0)
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", reconnect=policy, command_timeout=1.0)
        await mq.open()
        broker.silent = True
        if away:
            await broker.stop()
            await until(lambda: not mq.is_connected)
        async with anyio.create_task_group() as cancelled:
            cancelled.start_soon(mq.publish, "orders", 0)
            await until(lambda: mq.unconfirmed == 1)
            cancelled.cancel_scope.cancel()
        await mq.publish("orders", 1, wait=False)
        with anyio.fail_after(60), pytest.raises(PublishFailed):
            await mq.close()
        tasks.cancel_scope.cancel()


async def test_a_close_that_is_cancelled_has_closed_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that waits for the broker's answer, or asks for one later, waits for ever."""
    broker = FakeBroker()
    failed: list[NotConnected] = []

    async def publish() -> None:
        with pytest.raises(NotConnected, match="closed") as raised:
            await mq.publish("orders", 1)
        failed.append(raised.value)

    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", reconnect=QUICK, command_timeout=600.0)
        await mq.open()
        broker.silent = True
        with anyio.fail_after(60):
            async with anyio.create_task_group() as publishing:
                publishing.start_soon(publish)
                await until(lambda: mq.unconfirmed == 1)
                await mq.publish("orders", 2, wait=False)
                async with anyio.create_task_group() as closing:
                    closing.start_soon(mq.close)
                    await anyio.wait_all_tasks_blocked()
                    assert not failed
                    closing.cancel_scope.cancel()
            assert failed
            assert not mq.is_connected
            with pytest.raises(NotConnected, match="closed"):
                await mq.publish("orders", 3)
            with pytest.raises(NotConnected, match="closed"):
                await mq.fetch("orders", timeout=1)
            await mq.close()
        assert "1 message" in caplog.text, "what was published without waiting has failed, and the log says so"
        tasks.cancel_scope.cancel()


async def test_what_is_published_is_confirmed_before_the_end() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", reconnect=QUICK)
        await mq.open()
        out = mq.publisher("orders")
        for number in range(100):
            await out.send(number)
        await finished(mq.close)
        assert broker.unsettled("orders") == 100
        tasks.cancel_scope.cancel()


async def test_nobody_listens() -> None:
    mq = vibemq.connect("vibemq://127.0.0.1:1")
    with pytest.raises(NotConnected, match="cannot connect"):
        await mq.open()
    await mq.close()


async def test_a_task_that_is_cancelled_while_it_opens_leaves_nothing_behind() -> None:
    broker = FakeBroker()
    broker.silent = True
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}")
        async with anyio.create_task_group() as opening:
            opening.start_soon(mq.open)
            await anyio.wait_all_tasks_blocked()
            opening.cancel_scope.cancel()
        with pytest.raises(NotConnected, match="closed"):
            await mq.ping()
        tasks.cancel_scope.cancel()


async def test_a_failure_nobody_foresaw_is_told_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        raise RuntimeError("of the test")

    mq = vibemq.connect("vibemq://127.0.0.1:1")
    monkeypatch.setattr("vibemq.client.connecting.supervisor.Supervisor.live", lambda self: live())
    with pytest.raises(NotConnected, match=r"unforeseen way: RuntimeError\('of the test'\)"):
        await mq.open()
