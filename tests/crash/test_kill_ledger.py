"""kill -9 at random moments under concurrent publish and consume: nothing that was confirmed is ever lost.

The short form runs with every test run; KILL_CYCLES sets the number of kills per policy. The proof's `kill-9` is the
long form.
"""

import os
import random
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess, Ledger
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import VibeMQError

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CYCLES = int(os.environ.get("KILL_CYCLES", "3"))
SQLITE_CYCLES = max(1, CYCLES // 3)
DRAIN_TIMEOUT_S = 60
MESSAGES_PER_CYCLE = 100
PATIENT = ReconnectPolicy(initial_delay=0.02, max_delay=0.2, first_connect=True)


async def publish_until(stop: anyio.Event, url: str, queue: str, ledger: Ledger) -> None:
    """Publish small batches; whatever the client reports as accepted goes into the ledger."""
    number = 0
    async with vibemq.connect(url, reconnect=PATIENT) as mq:
        while not stop.is_set():
            ids = [f"{queue}-{number + i}" for i in range(50)]
            number += len(ids)
            report = await mq.publish_many(queue, [{"id": text, "fill": "x" * 200} for text in ids])
            ledger.confirmed.update(text for index, text in enumerate(ids) if index not in report.refused)


async def consume_until(stop: anyio.Event, url: str, queue: str, ledger: Ledger) -> None:
    async with (
        vibemq.connect(url, reconnect=PATIENT) as mq,
        mq.subscribe(queue, prefetch=200) as subscription,
    ):
        async for batch in subscription.batches():
            ledger.received.update(message.json()["id"] for message in batch)
            batch.ack_all()
            if stop.is_set():
                return


async def kill_again_and_again(broker: BrokerProcess, cycles: int, rng: random.Random, ledger: Ledger) -> None:
    """Kill whenever some more messages have been confirmed and received; how many is chance."""
    for cycle in range(cycles + 1):
        confirmed = len(ledger.confirmed) + MESSAGES_PER_CYCLE + rng.randrange(200)
        received = len(ledger.received) + rng.randrange(MESSAGES_PER_CYCLE)
        with anyio.fail_after(DRAIN_TIMEOUT_S):
            while len(ledger.confirmed) < confirmed or len(ledger.received) < received:
                await anyio.sleep(rng.uniform(0, 0.01))
        if cycle < cycles:
            broker.kill()
            await anyio.to_thread.run_sync(broker.start)


async def drain(url: str, queue: str, ledger: Ledger) -> None:
    """Take everything that is left, until nothing waits and nothing is in flight."""
    async with vibemq.connect(url, reconnect=PATIENT) as mq:
        with anyio.fail_after(DRAIN_TIMEOUT_S):
            while True:
                for message in await mq.fetch(queue, max=1000, timeout=0.3):
                    ledger.received[message.json()["id"]] += 1
                    message.ack()
                info = await mq.queue_info(queue)
                assert info is not None
                if info.ready == info.in_flight == info.delayed == 0:
                    assert info.dead == 0
                    return


@pytest.mark.parametrize(
    ("provider", "durability", "cycles"),
    [("lmdb", "strong", CYCLES), ("lmdb", "weak", CYCLES), ("sqlite", "strong", SQLITE_CYCLES)],
)
async def test_no_confirmed_message_is_lost(tmp_path: Path, provider: str, durability: str, cycles: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    broker = BrokerProcess(tmp_path / "data", provider=provider)
    broker.start()
    ledger = Ledger()
    queue = f"orders-{durability}"
    stop_publishing, stop_consuming = anyio.Event(), anyio.Event()
    try:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue(queue, durability=durability, max_attempts=1000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_until, stop_publishing, broker.url, queue, ledger)
            async with anyio.create_task_group() as consumers:
                for _ in range(2):
                    consumers.start_soon(consume_until, stop_consuming, broker.url, queue, ledger)
                await kill_again_and_again(broker, cycles, random.Random(seed), ledger)
                stop_publishing.set()
                stop_consuming.set()
                consumers.cancel_scope.cancel()
        await drain(broker.url, queue, ledger)
    finally:
        broker.stop()
    assert len(ledger.confirmed) > MESSAGES_PER_CYCLE * cycles, "too little was published to prove anything"
    assert ledger.lost == set(), f"lost {len(ledger.lost)} of {len(ledger.confirmed)} with seed {seed}"


async def test_a_stopped_broker_says_why_it_refuses(tmp_path: Path) -> None:
    """With no reconnection allowed, a killed broker is an error, never a silent wait."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    async with vibemq.connect(broker.url, reconnect=ReconnectPolicy(max_attempts=0)) as mq:
        await mq.create_queue("q")
        broker.kill()
        with pytest.raises(VibeMQError):
            await mq.publish("q", {"id": 1})
