"""A client that is told of lost connections and leases, on asyncio and trio."""

import asyncio
import contextlib
import gc
import socket
import threading
import weakref
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

import vibemq
from tests.integration.fake_broker import broker_and_client, give_little_time
from tests.waiting import until
from vibemq.client import ConnectionChange
from vibemq.client.connecting.connection import PATIENCE
from vibemq.client.connecting.supervisor import Supervisor
from vibemq.errors import ConnectionLost, LocalProtocolError
from vibemq.protocols.native.codec.wire import CommandType

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_subscription_that_is_not_restored_ends_with_its_connection() -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        await mq.publish_many("orders", range(3))
        async with mq.subscribe("orders", restore=False) as messages:
            message = await anext(messages)
            await broker.stop()
            with pytest.raises(ConnectionLost, match=r"of 'orders'; the broker .* leave out restore=False"):
                await anext(messages)
            assert (message.lost, message.stale, messages.connected) == (True, True, False)
            await broker.start(tasks)
            await mq.publish("orders", "publishes go on")
            assert not any(session.consumers for session in broker.sessions)
            with pytest.raises(ConnectionLost):
                await messages.next_batch()
        async with mq.subscribe("orders") as again:
            assert [(await anext(again)).body for _ in range(4)] == [0, 1, 2, "publishes go on"]
        tasks.cancel_scope.cancel()


async def test_a_message_that_travels_for_longer_than_a_dead_connection_is_borne_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ping waits behind it; what the other system takes is a sign of life. The client's time is the test's own."""
    monkeypatch.setattr(Supervisor, "_tick", lambda supervisor: anyio.sleep_forever())
    passes, passed = anyio.Semaphore(0), 0

    async def relay(near: SocketStream) -> None:
        async def forth() -> None:
            nonlocal passed
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    data = await near.receive(80_000)
                    await far.send(data)
                    if len(data) > 1_000:
                        passed += 1
                        await passes.acquire()

        async def back() -> None:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await near.send(await far.receive())

        async with near, await anyio.connect_tcp("127.0.0.1", broker.port) as far, anyio.create_task_group() as both:
            both.start_soon(forth)
            both.start_soon(back)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, broker_and_client() as (broker, _), anyio.create_task_group() as tasks:
        listener.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        tasks.start_soon(listener.serve, relay)
        port = listener.extra(SocketAttribute.local_port)
        async with vibemq.connect(f"vibemq://127.0.0.1:{port}") as mq, anyio.create_task_group() as publishing:
            receipts: list[Any] = []

            async def publish() -> None:
                receipts.append(await mq.publish("orders", bytes(1_000_000)))

            publishing.start_soon(publish)
            begun = now = anyio.current_time()
            connection = mq._supervisor._connection
            assert connection is not None
            while not receipts:
                before = passed
                await until(lambda before=before: passed > before or receipts)
                now += 2
                connection.tick(now)
                passes.release()
            assert now - begun > 2 * PATIENCE * mq.settings.command_timeout
            assert (receipts[0].sequence, mq.reconnects) == (1, 0)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("code", "connections"), [("QUEUE_EXCLUSIVE", 1), ("RATE_LIMITED", 3)])
async def test_a_queue_that_cannot_be_created_anew_yet_is_created_a_little_later(code: str, connections: int) -> None:
    """While the broker has not noticed that the old connection is gone, the queue is that connection's, and goes with
    it. The new connection stays: another one would send again what is unconfirmed."""
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        await mq.create_queue("replies", exclusive=True, max_attempts=7)
        async with mq.subscribe("replies") as messages:
            await broker.stop()
            broker.queues.clear()
            broker.refuse_creations.extend([(code, "not yet")] * 2)
            await broker.start(tasks)
            await until(lambda: mq.reconnects == connections and messages.connected and not broker.refuse_creations)
            await mq.ping()
            assert broker.queues["replies"].options.max_attempts == 7
        tasks.cancel_scope.cancel()


async def test_a_queue_that_is_not_created_anew_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        await mq.create_queue("replies", exclusive=True)
        await broker.stop()
        broker.refuse_creations.append(("NOT_AUTHORIZED", "you may not create 'replies'"))
        await broker.start(tasks)
        await until(lambda: not broker.refuse_creations)
        await mq.ping()
        assert mq.reconnects == 1
        assert "queue 'replies' cannot be created anew after the connection was lost: you may not" in caplog.text
        tasks.cancel_scope.cancel()


async def test_only_what_is_exclusive_or_subscribed_is_created_anew() -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        await mq.create_queue("exclusive", exclusive=True)
        for queue in ("subscribed", "left"):
            await mq.create_queue(queue, expires=3_600)
        async with mq.subscribe("left"):
            pass
        async with mq.subscribe("subscribed") as messages:
            await broker.stop()
            broker.queues.clear()
            await broker.start(tasks)
            await until(lambda: mq.reconnects and messages.connected)
            await mq.ping()
            assert sorted(broker.queues) == ["exclusive", "subscribed"]
        tasks.cancel_scope.cancel()


async def test_changes_of_the_connection_are_told() -> None:
    told: list[ConnectionChange] = []
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        remove = mq.on_connection_change(told.append)
        mq.on_connection_change(lambda change: 1 / 0)
        await broker.stop()
        await until(lambda: told)
        assert (told[0].connected, told[0].final) == (False, False)
        assert told[0].reason
        await broker.start(tasks)
        await until(lambda: len(told) > 1)
        assert told[1] == (True, "", False)
        assert mq.is_connected
        await mq.close()
        assert [change.connected for change in told[2:]] == [False, False]
        assert told[-1] == (False, "this client is closed; make another with vibemq.connect", True)
        remove()
        tasks.cancel_scope.cancel()


async def test_the_first_connection_is_told_to_whoever_asked_before() -> None:
    told: list[ConnectionChange] = []
    async with broker_and_client() as (broker, _):
        mq = vibemq.connect(f"vibemq://127.0.0.1:{broker.port}")
        mq.on_connection_change(told.append)
        async with mq:
            assert told == [(True, "", False)]


async def test_a_policy_that_gives_up_is_told_as_the_end() -> None:
    told: list[ConnectionChange] = []
    policy = vibemq.ReconnectPolicy(max_attempts=0)
    async with broker_and_client(reconnect=policy) as (broker, mq):
        mq.on_connection_change(told.append)
        await broker.stop()
        await until(lambda: told and told[-1].final)
        assert "gave up" in told[-1].reason


async def test_connections_that_are_made_and_soon_lost_are_no_failed_attempts() -> None:
    policy = vibemq.ReconnectPolicy(initial_delay=0, max_delay=0.01, max_attempts=2)
    async with broker_and_client(reconnect=policy) as (broker, mq):
        for number in range(6):
            assert mq.reconnects == number
            await mq.ping()
            await broker.goodbye("of the test")
            await until(lambda number=number: mq.reconnects > number)  # type: ignore[misc]
        assert (await mq.publish("orders", 1)).sequence == 1


async def test_a_process_that_stood_still_asks_the_broker_before_it_gives_up_what_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client's time is the test's own."""
    monkeypatch.setattr(Supervisor, "_tick", lambda supervisor: anyio.sleep_forever())
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        receipts: list[Any] = []

        async def publish(queue: str) -> None:
            receipts.append(await mq.publish(queue, 1))

        broker.mute = True
        tasks.start_soon(publish, "orders")
        await until(lambda: mq._link.outbox._sent)
        connection = mq._supervisor._connection
        assert connection is not None
        patience, now = PATIENCE * mq.settings.command_timeout, anyio.current_time() + 300
        pings = broker.frames.count(CommandType.PING)
        connection.tick(now)
        await until(lambda: broker.frames.count(CommandType.PING) > pings)
        assert not receipts
        broker.silent, broker.mute = True, False
        for later in (0.7, 1.3, 1.8):
            connection.tick(now + later * patience)
        broker.silent = False
        await until(lambda: receipts)
        assert (receipts[0].duplicate, mq.reconnects) == (False, 1)


async def test_a_loop_that_is_always_late_gives_a_dead_connection_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "_tick", lambda supervisor: anyio.sleep_forever())
    async with broker_and_client() as (broker, mq):
        connection = mq._supervisor._connection
        assert connection is not None
        broker.silent, now = True, anyio.current_time()
        for late in (300, 600):
            connection.tick(now + late)
        broker.silent = False
        await until(lambda: mq.reconnects)


async def test_a_message_is_lost_when_its_time_is_over_or_it_came_again() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(3))
        now = [100.0]
        async with mq.subscribe("orders", ack_timeout=30) as messages:
            messages._clock = lambda: now[0]
            first, second, third = [await anext(messages) for _ in range(3)]
            for message in (first, second, third):
                message._delivery.deadline = 130.0
            assert [message.lost for message in (first, second, third)] == [False] * 3
            await second.extend(60)
            now[0] = 130.0
            assert [message.lost for message in (first, second, third)] == [True, False, True]
            assert not first.stale
            await third.ack()
            assert not third.lost
            await first.extend(0)
            assert not first.lost
            # The broker hands it out again, whatever it is that this client does not know.
            [session] = broker.sessions
            [consumer] = session.consumers.values()
            broker.queue("orders").hand_outs[1] += 1
            await session._deliver(consumer, [1])
            again = await anext(messages)
            assert (again.sequence, again.attempt, again.failures) == (1, 2, None)
            assert (first.lost, again.lost, first.failures) == (True, False, 0)
            await again.ack()
            await until(lambda: not messages._held.newest)


async def test_without_a_known_timeout_a_message_is_not_lost() -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish("orders", 1)
        async with mq.subscribe("orders") as messages:
            message = await anext(messages)
            messages._clock = lambda: 1e12
            assert not message.lost


async def test_what_the_program_is_given_is_acknowledged() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(10))
        async with mq.subscribe("orders", auto_ack=True) as messages:
            message = await anext(messages)
            assert (message.body, message.settled, message.lost) == (0, True, False)
            await message.reject("too late")
            assert (await anext(messages)).body == 1
        # What it was not given is in the queue.
        await until(lambda: broker.unsettled("orders") == 8)
        async with mq.subscribe("orders", auto_ack=True) as messages:
            batch = await messages.next_batch()
            assert [message.body for message in batch] == list(range(2, 10))
            assert all(message.settled for message in batch)
            await until(lambda: broker.unsettled("orders") == 0)
        assert broker.queue("orders").rejected == {}


async def test_another_event_loop_is_refused() -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish("orders", 1)
        subscription = mq.subscribe("orders")
        refused: list[str] = []

        async def use() -> None:
            for call in (
                lambda: mq.publish("orders", 2),
                lambda: mq.publish("orders", 2, wait=False),
                lambda: mq.publish_many("orders", [2]),
                mq.ping,
                subscription.start,
                subscription.next_batch,
            ):
                try:
                    await call()  # type: ignore[operator]
                except LocalProtocolError as error:
                    refused.append(str(error))

        thread = threading.Thread(target=lambda: asyncio.run(use()))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert len(refused) == 6
        assert "open one in each loop" in refused[0]
        assert mq.unconfirmed == 0


async def test_a_closed_client_says_what_to_write() -> None:
    async with broker_and_client() as (_, mq):
        pass
    calls: list[Any] = [mq.ping, lambda: mq.publish("orders", 1), lambda: mq.fetch("orders"), mq.list_queues]
    for call in calls:
        with pytest.raises(vibemq.errors.NotConnected, match=r"closed; make another with vibemq.connect"):
            await call()


async def test_a_fetch_that_cannot_know_what_waits_is_an_error() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish("orders", 1)
        give_little_time(mq, 0.05)
        broker.mute = True
        with pytest.raises(vibemq.errors.RequestTimeout, match=r"not answered within 0\.05 s.*'orders' is not known"):
            await mq.fetch("orders", timeout=0)
        await broker.stop()
        await until(lambda: not mq.is_connected)
        for timeout in (0, 0.01):
            with pytest.raises(vibemq.errors.NotConnected, match="what waits in queue 'orders' is not known"):
                await mq.fetch("orders", timeout=timeout)


async def test_what_was_fetched_and_is_left_to_its_ack_timeout_leaves_nothing_in_the_client() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(20))
        kept = (await mq.fetch("orders", timeout=60))[0]
        weak = [weakref.ref((await mq.fetch("orders", timeout=60))[0]._delivery.settler) for _ in range(19)]
        await until(lambda: not mq._link.subscriptions)
        gc.collect()
        assert not any(reference() for reference in weak)
        assert not kept.stale
        await broker.stop()
        await until(lambda: kept.stale)


async def test_a_fetch_whose_connection_is_lost_while_it_waits_is_an_error() -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:

        async def stop_when_asked() -> None:
            await until(lambda: CommandType.SUBSCRIBE in broker.frames)
            await broker.stop()

        tasks.start_soon(stop_when_asked)
        with pytest.raises(vibemq.errors.NotConnected, match="what waits in queue 'orders' is not known"):
            await mq.fetch("orders", timeout=0.2)
