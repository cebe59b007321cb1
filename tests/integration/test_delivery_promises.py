"""Delivery as a user meets it: a late subscriber, a dying consumer, groups that are slow or restart."""

import asyncio
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

import vibemq
from tests import waiting
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

HOLDER = """
import sys, anyio, vibemq
async def main():
    async with vibemq.connect(sys.argv[1]) as mq, mq.subscribe("q", prefetch=10) as messages:
        seen = 0
        async for message in messages:
            seen += 1
            if seen == 10:
                print("holding", flush=True)
                await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TimedBroker]:
    async with TimedBroker(data_dir=tmp_path / "data") as running:
        yield running


async def test_a_subscriber_that_comes_late_gets_the_whole_backlog_in_order(broker: vibemq.Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish_many("q", [{"n": n} for n in range(5_000)])
    seen: list[int] = []
    async with vibemq.connect(broker.url) as mq, mq.subscribe("q", prefetch=700) as subscription:
        with anyio.fail_after(60):
            async for batch in subscription.batches():
                seen += [message.json()["n"] for message in batch]
                batch.ack_all()
                if len(seen) >= 5_000:
                    break
    assert seen == list(range(5_000))


async def test_without_acks_a_slow_reader_loses_nothing_that_was_not_written(broker: TimedBroker) -> None:
    count = 2_000
    frames = (
        encode_body(CommandType.CONNECT, "c", "", b"", {"supported-extensions": "batch/1,settle/1"}),
        encode_body(CommandType.SUBSCRIBE, "s", "q", b"", {"prefetch": str(count), "group": "g"}),
    )
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 12)
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", mode="fan-out-without-ack")
        writer.write(b"".join(struct.pack("!IB", len(body), 0) + body for body in frames))
        await until(broker, lambda info: info.consumers == 1)
        for _ in range(count // 100):
            await mq.publish_many("q", [b"x" * 10_000] * 100)
        # It reads nothing, and time passes.
        await until(broker, lambda info: info.counters["delivered"] > 0)
        broker.advance(3_600)
        await until(broker, lambda info: info.counters["settled"] > 0)
        writer.transport.abort()
        await until(broker, lambda info: info.consumers == 0)
        await until(broker, lambda info: info.in_flight == 0)
        info = broker.queue_info("q")
        assert info is not None
        left = count - info.counters["settled"]
        assert left > 100
        got = 0
        with anyio.fail_after(60):
            async with mq.subscribe("q", group="g", prefetch=500) as messages:
                async for batch in messages.batches():
                    got += len(batch)
                    if got >= left:
                        break
    assert got == left


async def until(broker: vibemq.Broker, true: Callable[[QueueInfo], bool]) -> None:
    await waiting.until(lambda: (info := broker.queue_info("q")) is not None and true(info))


async def test_what_a_killed_consumer_held_goes_to_another_at_once_and_in_order(broker: vibemq.Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish_many("q", [{"n": n} for n in range(30)])
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, broker.url], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert await anyio.to_thread.run_sync(holder.stdout.readline) == "holding\n"
        holder.kill()
        holder.wait()
        holder.stdout.close()
        got: list[tuple[int, int]] = []
        # The broker's time stands still, so no ack timeout passes: the lost connection itself frees the messages.
        with anyio.fail_after(60):
            while (info := await mq.queue_info("q")) is not None and info.in_flight:
                await anyio.sleep(0)
            while len(got) < 30:
                for message in await mq.fetch("q", max=30, timeout=5):
                    got.append((message.json()["n"], message.attempt))
                    message.ack()
    assert got == [(n, 2 if n < 10 else 1) for n in range(30)]


async def test_three_groups_each_get_all_though_one_is_slow_and_one_restarts(broker: vibemq.Broker) -> None:
    count = 600
    seen: dict[str, list[int]] = {"quick": [], "slow": [], "restarted": []}

    async def consume(group: str, *, until: int, prefetch: int, pauses: int = 0) -> None:
        async with vibemq.connect(broker.url) as mq, mq.subscribe("q", group=group, prefetch=prefetch) as messages:
            async for message in messages:
                seen[group].append(message.json()["n"])
                message.ack()
                for _ in range(pauses):
                    await anyio.sleep(0)
                if len(set(seen[group])) >= until:
                    return

    async def consume_in_two_lives() -> None:
        await consume("restarted", until=100, prefetch=50)
        await consume("restarted", until=count, prefetch=50)

    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", mode="fan-out-with-ack")
        for group in seen:
            await mq.fetch("q", max=1, timeout=0, group=group)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: consume("quick", until=count, prefetch=200))
                tasks.start_soon(lambda: consume("slow", until=count, prefetch=5, pauses=20))
                tasks.start_soon(consume_in_two_lives)
                for start in range(0, count, 100):
                    await mq.publish_many("q", [{"n": n} for n in range(start, start + 100)])
        info = await mq.queue_info("q")
    assert seen["quick"] == list(range(count))
    assert seen["slow"] == list(range(count))
    assert sorted(set(seen["restarted"])) == list(range(count))
    assert info is not None
    assert info.ready == info.in_flight == info.delayed == 0


async def test_totals_do_not_fall_when_a_queue_is_deleted(broker: vibemq.Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish_many("q", [{"n": n} for n in range(7)])
        await mq.delete_queue("q")
        published = 0
        while not published:
            # Of a picture that may be older than the messages, if only by a second.
            published = (await mq.admin("broker.metrics"))["total_messages_published"]
    assert published == 7
