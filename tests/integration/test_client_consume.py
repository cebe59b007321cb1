"""Consuming through the client against a broker in memory, on asyncio and trio."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import get_ident
from typing import Any
from unittest.mock import AsyncMock

import anyio
import pytest
from pydantic import BaseModel, ValidationError

import vibemq
from tests.integration.fake_broker import FakeBroker, broker_and_client, give_little_time
from tests.waiting import until
from vibemq.client.link import ClientLink
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import InvalidOptions, LocalProtocolError, NotConnected, QueueExists, QueueNotFound, RequesterGone
from vibemq.protocols.native.codec.wire import CommandType

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def settled(broker: FakeBroker, queue: str, left: int = 0) -> None:
    """Wait until so many messages of the queue are unsettled."""
    await until(lambda: broker.unsettled(queue) == left)


async def test_messages_come_in_order_and_acks_travel_as_runs() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(1_000))
        bodies = []
        async with mq.subscribe("orders", prefetch=500) as messages:
            async for message in messages:
                bodies.append(message.body)
                await message.ack()
                if len(bodies) == 1_000:
                    break
            await settled(broker, "orders")
        assert bodies == list(range(1_000))
        assert broker.frames.count(CommandType.SETTLE) <= 40


async def test_a_message_shows_what_was_published() -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish("orders", {"id": 7}, id="m", headers={"a": "b"}, priority="high")
        async with mq.subscribe("orders") as messages:
            message = await messages.__anext__()
        assert (message.id, message.queue, message.sequence) == ("m", "orders", 1)
        assert (message.payload, message.json(), message.body) == (b'{"id":7}', {"id": 7}, {"id": 7})
        assert (message.headers, message.priority) == ({"a": "b", "priority": "2"}, "2")
        assert (message.attempt, message.redelivered, message.published_at) == (1, False, 1_000)


async def test_process_settles_by_how_the_block_ends() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish("orders", "x")
        async with mq.subscribe("orders", prefetch=1) as messages:
            message = await anext(messages)
            with pytest.raises(ZeroDivisionError):
                async with message.process(retry_delay=0):
                    _ = 1 / 0
            message = await anext(messages)
            assert (message.attempt, message.redelivered) == (2, True)
            with anyio.CancelScope() as scope:
                async with message.process():
                    scope.cancel()
                    await anyio.sleep_forever()
            message = await anext(messages)
            assert message.attempt == 3
            async with message.process(reject_on=(ValueError,), suppress=True):
                raise ValueError("poison")
            await settled(broker, "orders")
        assert broker.queue("orders").rejected == {1: "ValueError: poison"}


@pytest.mark.parametrize("kinds", [ValueError, (KeyError, ValueError)])
async def test_a_group_of_exceptions_is_what_all_of_them_are(kinds: Any) -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish("orders", "x")
        async with mq.subscribe("orders", prefetch=1) as messages:
            mixed = ExceptionGroup("of tasks", [ValueError("poison"), OSError("passing")])
            async with (await anext(messages)).process(retry_delay=0, reject_on=kinds, suppress=True):
                raise mixed
            message = await anext(messages)
            assert message.attempt == 2
            async with message.process(reject_on=kinds, suppress=True):
                raise ExceptionGroup("of tasks", [ValueError("a"), ExceptionGroup("within", [ValueError("b")])])
            await settled(broker, "orders")
            assert "of tasks" in broker.queue("orders").rejected[1]
            await mq.publish("orders", "y")
            async with (await anext(messages)).process():
                raise ExceptionGroup("of tasks", [RequesterGone("late")])
            await settled(broker, "orders")
            assert list(broker.queue("orders").rejected) == [1]


async def test_messages_are_settled_by_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(4))
        async with mq.subscribe("orders", ack_timeout=30) as messages:
            [first, second, third, fourth] = await messages.next_batch()
            mark_it, threads = messages._link.mark, set[int]()

            def mark(*arguments: Any, **options: Any) -> None:
                threads.add(get_ident())
                mark_it(*arguments, **options)

            monkeypatch.setattr(messages._link, "mark", mark)

            def work() -> None:
                with first.process():
                    pass
                second.reject("of the test")
                third.extend(60)
                fourth.ack()

            await anyio.to_thread.run_sync(work)
            await settled(broker, "orders", 1)
            assert (broker.queue("orders").rejected, len(broker.extended)) == ({2: "of the test"}, 1)
            assert threads == {get_ident()}


def test_messages_are_settled_in_a_loop_that_another_thread_runs_than_opened_the_client() -> None:
    loop = asyncio.new_event_loop()
    opened, handed = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with broker_and_client() as (broker, mq):
            opened.set()
            await handed.wait()
            await mq.publish_many("orders", range(3))
            async with mq.subscribe("orders", ack_timeout=30) as messages:
                [first, second, third] = await messages.next_batch()
                first.extend(60)
                first.reject("of the test")
                second.ack()
                await asyncio.to_thread(third.ack)
                await settled(broker, "orders")
            assert (broker.queue("orders").rejected, len(broker.extended)) == ({1: "of the test"}, 1)

    task = loop.create_task(work())
    loop.run_until_complete(opened.wait())
    handed.set()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(loop.run_until_complete, task).result()
    loop.close()


async def test_a_second_verb_has_no_effect() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish("orders", "x")
        async with mq.subscribe("orders") as messages:
            async with (await anext(messages)).process() as message:
                await message.reject("by hand")
            await settled(broker, "orders")
        assert broker.queue("orders").rejected == {1: "by hand"}


async def test_batches_are_settled_whole() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", [b"%d" % n for n in range(2_000)])
        payloads: list[bytes] = []
        async with mq.subscribe("orders", prefetch=1_000) as messages:
            async for batch in messages.batches():
                payloads += batch.payloads()
                batch.ack_all()
                if len(payloads) == 2_000:
                    break
            await settled(broker, "orders")
        assert payloads == [b"%d" % n for n in range(2_000)]


async def test_ack_all_leaves_what_was_settled_by_hand() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(5))
        async with mq.subscribe("orders") as messages:
            batch = await messages.next_batch()
            batch[2].reject("bad")
            batch.ack_all()
            assert all(message.settled for message in batch)
            await settled(broker, "orders")
        assert list(broker.queue("orders").rejected) == [3]


async def test_leaving_gives_back_what_is_unsettled() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(10))
        async with mq.subscribe("orders") as messages:
            first = await anext(messages)
            await first.ack()
            await anext(messages)
        await mq.ping()
        assert broker.unsettled("orders") == 9
        assert list(broker.queue("orders").ready) == list(range(2, 11))
        assert first.stale
        async with mq.subscribe("orders") as messages:
            assert (await anext(messages)).sequence == 2


async def test_consuming_survives_restarts_and_nothing_is_lost_or_stuck() -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        seen: Counter[Any] = Counter()
        moments = {count: anyio.Event() for count in range(40, 280, 40)}
        async with mq.subscribe("orders", prefetch=20) as messages:

            async def produce() -> None:
                for number in range(300):
                    await until(lambda: number < len(seen) + 50)  # noqa: B023  # it is awaited here
                    await mq.publish("orders", number)

            async def restart() -> None:
                for moment in moments.values():
                    await moment.wait()
                    await broker.stop()
                    await until(lambda: not mq.is_connected)
                    await broker.start(tasks)

            tasks.start_soon(produce)
            tasks.start_soon(restart)
            async for message in messages:
                assert not message.stale
                seen[message.body] += 1
                await message.ack()
                if len(seen) in moments:
                    moments[len(seen)].set()
                if len(seen) == 300:
                    await mq.ping()
                    if broker.unsettled("orders") == 0:
                        break
            assert sorted(seen) == list(range(300))
            await until(lambda: mq.reconnects == len(moments))
        tasks.cancel_scope.cancel()


async def test_messages_of_a_lost_connection_are_stale() -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        await mq.publish_many("orders", range(3))
        async with mq.subscribe("orders") as messages:
            old = await anext(messages)
            assert not old.stale
            await broker.stop()
            await broker.start(tasks)
            new = await anext(messages)
            assert (old.sequence, new.sequence, new.attempt) == (1, 1, 2)
            assert old.stale
            await old.ack()
            assert messages.stats.stale_settlements == 1
            assert messages.stats.interruptions == 1
            await new.ack()
            await settled(broker, "orders", 2)
        tasks.cancel_scope.cancel()


async def test_a_black_hole_is_left_for_a_live_connection() -> None:
    async with broker_and_client(keep_alive=0.2) as (broker, mq), mq.subscribe("orders") as messages:
        give_little_time(mq, 0.5)
        broker.silent = True
        await until(lambda: broker.accepted >= 2)
        broker.silent = False
        await mq.publish("orders", "after")
        assert (await anext(messages)).body == "after"


async def test_a_handler_may_publish() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("in", range(20))
        async with mq.subscribe("in", prefetch=5) as messages:
            async for message in messages:
                async with message.process():
                    receipt = await mq.publish("out", message.body)
                if receipt.sequence == 20:
                    break
            await settled(broker, "in")
        assert broker.unsettled("out") == 20


async def test_prefetch_bounds_what_is_held() -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish_many("orders", range(1_000))
        async with mq.subscribe("orders", prefetch=10) as messages:
            await anext(messages)
            await mq.ping()
            assert messages.held == 10


async def test_fetch_takes_what_is_there() -> None:
    async with broker_and_client() as (broker, mq):
        assert await mq.fetch("orders", max=3, timeout=0.05) == []
        assert await mq.fetch("orders", max=3, timeout=0) == []
        await mq.publish_many("orders", range(5))
        first = await mq.fetch("orders", max=3, timeout=60)
        assert [message.body for message in first] == [0, 1, 2]
        rest = await mq.fetch("orders", max=10, timeout=60)
        assert [message.body for message in rest] == [3, 4]
        for message in [*first, *rest]:
            await message.ack()
        await settled(broker, "orders")


async def test_fetch_waits_for_the_first_message() -> None:
    async with broker_and_client() as (_, mq), anyio.create_task_group() as tasks:
        found: list[Any] = []

        async def fetch() -> None:
            found.extend(await mq.fetch("orders", max=10, timeout=60))

        tasks.start_soon(fetch)
        await anyio.wait_all_tasks_blocked()
        await mq.publish("orders", "x")
        await until(lambda: found)
        assert [message.body for message in found] == ["x"]


async def test_a_cancelled_iteration_skips_no_message() -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish_many("orders", range(200))
        async with mq.subscribe("orders", ack_timeout=0) as messages:
            seen = [(await anext(messages)).body]
            for _ in range(4):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    while len(seen) < 200:
                        seen.append((await anext(messages)).body)
            assert seen == list(range(200))


async def test_a_cancelled_fetch_loses_nothing() -> None:
    async with broker_and_client() as (broker, mq):
        for _ in range(20):
            with anyio.move_on_after(0.001):
                for message in await mq.fetch("orders", max=10, timeout=60):
                    await message.release()
            await mq.publish("orders", "x")
        await mq.ping()
        await mq.ping()
        messages = await mq.fetch("orders", max=20, timeout=60)
        assert len(messages) == len(broker.queue("orders").rows)
        for message in messages:
            await message.release()


async def test_a_subscription_that_the_broker_ends_raises() -> None:
    async with broker_and_client() as (_, mq):
        async with mq.subscribe("orders") as messages:
            await mq.create_queue("orders")
            await mq.delete_queue("orders")
            with pytest.raises(QueueNotFound, match="deleted"):
                await anext(messages)
        with pytest.raises(QueueNotFound, match="no such queue") as caught:
            await mq.subscribe("missing").start()
        assert caught.value.queue == "missing"


async def test_closing_the_client_ends_iterations() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish("orders", "x")
        messages = mq.subscribe("orders")
        await messages.start()

        async def consume() -> list[Any]:
            return [message.ack() async for message in messages]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            await settled(broker, "orders")
            await mq.close()
        with pytest.raises(NotConnected, match="closed"):
            await mq.ping()


async def test_typed_messages() -> None:
    class Order(BaseModel):
        id: int

    async with broker_and_client() as (_, mq):
        await mq.publish("orders", Order(id=3))
        await mq.publish("orders", {"id": "no number"})
        async with mq.subscribe("orders", model=Order) as messages:
            assert (await anext(messages)).typed == Order(id=3)
            wrong = await anext(messages)
            with pytest.raises(ValidationError):
                _ = wrong.typed


async def test_auto_extend_keeps_what_is_held() -> None:
    async with broker_and_client(keep_alive=0.2) as (broker, mq):
        await mq.publish_many("orders", range(3))
        async with mq.subscribe("orders", ack_timeout=0.3, auto_extend=True) as messages:
            message = await anext(messages)
            await until(lambda: broker.extended)
            await message.extend(9)
            await until(lambda: broker.extended[-1].runs == [(2, 3)])
        told = [(frame.runs, frame.ack_timeout_ms) for frame in broker.extended]
        own = told.index(([(1, 1)], 9_000))
        assert all(frame == ([(1, 3)], 300) for frame in told[:own])
        assert all(frame == ([(2, 3)], 300) for frame in told[own + 1 :])


NO_DURATIONS = [-1.5, -0.0001, float("nan"), float("inf")]


@pytest.mark.parametrize("seconds", NO_DURATIONS)
async def test_a_verb_with_a_time_that_is_none_is_refused_and_leaves_the_message_as_it_is(seconds: float) -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish("orders", 1)
        async with mq.subscribe("orders") as messages:
            message = await anext(messages)
            with pytest.raises(LocalProtocolError, match=r"ack_timeout is .* must be (0 .no limit. or more|at most)"):
                message.extend(seconds)
            with pytest.raises(LocalProtocolError, match=r"delay is .* it must be (0 .at once. or more|at most)"):
                message.retry(seconds)
            with pytest.raises(LocalProtocolError, match=r"retry_delay is .* it must be"):
                message.process(retry_delay=seconds)
            assert not message.settled
            await message.ack()
            await mq.publish("orders", 2)
            batch = await messages.next_batch()
            with pytest.raises(LocalProtocolError, match=r"delay is .* it must be"):
                batch.retry_all(seconds)
            await batch.ack_all()
            await settled(broker, "orders")
        assert broker.extended == []


@pytest.mark.parametrize("seconds", NO_DURATIONS)
async def test_an_ack_timeout_that_is_no_time_is_refused(seconds: float) -> None:
    async with broker_and_client() as (_, mq):
        with pytest.raises(LocalProtocolError, match=r"ack_timeout is .* it must be"):
            mq.subscribe("orders", ack_timeout=seconds)
        with pytest.raises(InvalidOptions, match=r"queue option ack_timeout is .* s; it must be 0 to"):
            await mq.create_queue("orders", ack_timeout=seconds)


@pytest.mark.parametrize("auto_extend", [False, True])
async def test_an_ack_timeout_may_be_a_timedelta(auto_extend: bool) -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish_many("orders", range(2))
        async with mq.subscribe("orders", ack_timeout=timedelta(minutes=1), auto_extend=auto_extend) as messages:
            message = await anext(messages)
            await message.extend(timedelta(minutes=2))
            assert not message.lost
            await message.retry(timedelta(minutes=3))
        [message] = await mq.fetch("orders", ack_timeout=timedelta(minutes=1))
        assert not message.lost
        assert mq.reconnects == 0


async def test_an_ack_timeout_of_a_queue_above_0_is_not_no_limit() -> None:
    async with broker_and_client() as (_, mq):
        await mq.create_queue("orders", ack_timeout=0.0001)
        info = await mq.queue_info("orders")
        assert info is not None
        assert info.options.ack_timeout_ms == 1


async def test_waiting_for_no_number_of_seconds_is_refused() -> None:
    async with broker_and_client() as (_, mq):
        with pytest.raises(LocalProtocolError, match="timeout is nan s; it must be a number"):
            await mq.fetch("orders", timeout=float("nan"))
        async with mq.subscribe("orders") as messages:
            with pytest.raises(LocalProtocolError, match="timeout is nan s; it must be a number"):
                await messages.next_batch_or_none(float("nan"))
            assert await messages.next_batch_or_none(-1) is None


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_without_time_to_wait_there_is_what_has_come(auto_ack: bool) -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish_many("orders", range(3))
        async with mq.subscribe("orders", auto_ack=auto_ack) as messages:
            await until(lambda: messages.buffered == 3)
            batch = await messages.next_batch_or_none(0)
            assert batch is not None
            assert [(message.body, message.settled) for message in batch] == [(n, auto_ack) for n in range(3)]
            assert await messages.next_batch_or_none(0) is None


async def test_queue_verbs() -> None:
    async with broker_and_client() as (_, mq):
        await mq.create_queue("orders", durability="weak", ack_timeout=5, max_attempts=7)
        info = await mq.queue_info("orders")
        assert info is not None
        assert (info.options.ack_timeout_ms, info.options.max_attempts) == (5_000, 7)
        assert await mq.queue_info("nothing") is None
        assert [queue.name for queue in await mq.list_queues()] == ["orders"]
        await mq.publish_many("orders", range(4))
        assert await mq.purge_queue("orders") == 4
        with pytest.raises(QueueExists):
            await mq.create_queue("orders", must_match=True)


async def test_declare_compares_with_what_is_there() -> None:
    async with broker_and_client() as (_, mq):
        assert await mq.declare("orders", max_attempts=5) == []
        found = await mq.declare("orders", max_attempts=5, message_ttl=60, on_conflict="ignore")
        assert [(d.option, d.severity) for d in found] == [("message_ttl_ms", "soft")]
        with pytest.raises(QueueExists, match="message_ttl_ms"):
            await mq.declare("orders", message_ttl=60, on_conflict="fail")
        with pytest.raises(LocalProtocolError, match="on_conflict is 'overide'; it must be one of ignore, fail, over"):
            await mq.declare("orders", message_ttl=60, on_conflict="overide")  # type: ignore[arg-type]
        await mq.declare("orders", max_attempts=6, on_conflict="fail")
        await mq.declare("orders", message_ttl=60, on_conflict="override")
        info = await mq.queue_info("orders")
        assert info is not None
        assert info.options.message_ttl_ms == 60_000


async def test_queues_of_the_address_are_created() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        async with vibemq.connect(f"host=127.0.0.1;port={broker.port};queues=a,b;name=me;username=u;password=p") as mq:
            assert [queue.name for queue in await mq.list_queues()] == ["a", "b"]
        assert broker.connects[0]["authUsername"] == "u"
        tasks.cancel_scope.cancel()


async def test_compression_is_agreed_only_when_offered() -> None:
    async with broker_and_client(compression="auto") as (broker, mq):
        assert broker.connects[0]["supported-compression"] == "brotli,gzip"
        await mq.publish("orders", "x" * 5_000)
        assert (await mq.fetch("orders"))[0].body == "x" * 5_000


async def test_a_subscription_that_was_not_entered_says_so_at_once() -> None:
    async with broker_and_client() as (_, mq):
        with anyio.fail_after(60):
            with pytest.raises(LocalProtocolError, match=r"async with mq.subscribe"):
                await anext(aiter(mq.subscribe("orders")))
            with pytest.raises(LocalProtocolError, match=r"async with mq.subscribe"):
                await anext(aiter(mq.subscribe("orders").batches()))


async def test_a_subscription_begins_once() -> None:
    """A second time would consume what nobody sees."""
    async with broker_and_client() as (broker, mq):
        with anyio.fail_after(60):
            messages = mq.subscribe("orders")
            async with messages:
                with pytest.raises(LocalProtocolError, match="has begun already; make another one"):
                    await messages.start()
                await mq.publish("orders", 1)
                await (await anext(messages)).ack()
            subscribed = broker.frames.count(CommandType.SUBSCRIBE)
            with pytest.raises(LocalProtocolError, match=r"has ended; make another one with subscribe\('orders'"):
                async with messages:
                    pass
            assert broker.frames.count(CommandType.SUBSCRIBE) == subscribed


async def test_a_subscription_that_found_no_connection_may_begin_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_and_client() as (_, mq):
        messages = mq.subscribe("orders")
        for raised in (NotConnected("no connection within 30 s"), KeyboardInterrupt()):
            with monkeypatch.context() as patched:
                patched.setattr(ClientLink, "connected", AsyncMock(side_effect=raised))
                with pytest.raises(type(raised)):
                    await messages.start()
        await mq.publish("orders", 1)
        with anyio.fail_after(60):
            async with messages:
                assert (await anext(messages)).body == 1


async def test_the_beginning_of_a_subscription_waits_no_longer_for_a_connection_than_requests() -> None:
    """Also when the connection is lost behind the Subscribe, which nobody has answered."""
    policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.02, offline_timeout=0.05)
    async with broker_and_client(reconnect=policy) as (broker, mq), anyio.create_task_group() as tasks:
        broker.mute = True
        messages = mq.subscribe("orders")

        async def stop_when_asked() -> None:
            await until(lambda: CommandType.SUBSCRIBE in broker.frames)
            await broker.stop()

        tasks.start_soon(stop_when_asked)
        with anyio.fail_after(60), pytest.raises(NotConnected):
            await messages.start()


async def test_an_exception_is_a_reason_and_nothing_else_but_text_is() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(4))
        async with mq.subscribe("orders") as messages:
            batch = await messages.next_batch()
            first, *_ = batch
            for refused in (first.reject, lambda reason: first.retry(reason=reason), batch.reject_all):
                with pytest.raises(LocalProtocolError, match="a reason is text or an exception, not 7"):
                    refused(7)
            assert not any(message.settled for message in batch)
            await first.reject(ValueError("no such order"))
            await batch.reject_all(KeyError("x" * 5_000))
            await settled(broker, "orders")
        rejected = set(broker.queues["orders"].rejected.values())
        assert rejected == {"ValueError: no such order", f"KeyError: '{'x' * 5_000}"[:1_000]}


@pytest.mark.parametrize(("queue", "group"), [("orders", "g" * 70_000), ("q" * 70_000, None)])
async def test_what_fits_into_no_frame_is_refused_and_not_asked_for_again(queue: str, group: str | None) -> None:
    """Also on the connections that come."""
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            with pytest.raises(LocalProtocolError, match="70,000 bytes does not fit"):
                await mq.subscribe(queue, group=group).start()
            await broker.stop()
            await until(lambda: not mq.is_connected)
            waiting = mq.subscribe(queue, group=group)
            await broker.start(tasks)
            with pytest.raises(LocalProtocolError, match="70,000 bytes does not fit"):
                await waiting.start()
            assert (await mq.publish("orders", 1)).sequence == 1
        tasks.cancel_scope.cancel()


async def test_a_name_that_is_no_text_is_refused() -> None:
    async with broker_and_client() as (_, mq):
        with pytest.raises(LocalProtocolError, match=r"group is '\\ud800'; it must be text that has a UTF-8 form"):
            mq.subscribe("orders", group="\ud800")
