"""kill -9 at random moments while messages with delays are published, fall due and are consumed.

KILL_CYCLES sets the number of kills.
"""

import os
import random
import time
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess, Ledger
from vibemq.client.reconnect import ReconnectPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CYCLES = int(os.environ.get("KILL_CYCLES", "4"))
DRAIN_TIMEOUT_S = 60
PATIENT = ReconnectPolicy(initial_delay=0.02, max_delay=0.2, first_connect=True)
EARLY_S = 0.05
"""The broker's clock may be so much ahead of the wall clock."""


class Delays:
    """What was confirmed, and what came before its time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ledger = Ledger()
        self.early: list[str] = []

    async def publish(self, stop: anyio.Event, url: str) -> None:
        number = 0
        async with vibemq.connect(url, reconnect=PATIENT) as mq:
            while not stop.is_set():
                now = time.time()
                dues = {
                    f"{number + i}": now + self.random.choice([0, 0.1, self.random.random() * 3]) for i in range(50)
                }
                number += len(dues)
                rows = [vibemq.Outgoing({"id": i, "due": due}, deliver_at=due) for i, due in dues.items()]
                report = await mq.publish_many("later", rows)
                self.ledger.confirmed.update(i for index, i in enumerate(dues) if index not in report.refused)

    def take(self, body: dict[str, object]) -> None:
        name, due = body["id"], body["due"]
        assert isinstance(name, str)
        assert isinstance(due, float)
        self.ledger.received[name] += 1
        if time.time() < due - EARLY_S:
            self.early.append(name)

    async def consume(self, url: str) -> None:
        async with vibemq.connect(url, reconnect=PATIENT) as mq, mq.subscribe("later", prefetch=100) as subscription:
            async for batch in subscription.batches():
                for message in batch:
                    self.take(message.json())
                batch.ack_all()

    async def drain(self, url: str) -> None:
        async with vibemq.connect(url, reconnect=PATIENT) as mq:
            with anyio.fail_after(DRAIN_TIMEOUT_S):
                while True:
                    for message in await mq.fetch("later", max=1_000, timeout=0.3):
                        self.take(message.json())
                        message.ack()
                    info = await mq.queue_info("later")
                    assert info is not None
                    if info.ready == info.in_flight == info.delayed == info.dead == 0:
                        return


async def test_no_delayed_message_is_lost_or_comes_early(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    delays = Delays(seed)
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    stop = anyio.Event()
    try:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("later", max_attempts=1_000)
        async with anyio.create_task_group() as publishing:
            publishing.start_soon(delays.publish, stop, broker.url)
            async with anyio.create_task_group() as consuming:
                consuming.start_soon(delays.consume, broker.url)
                for _ in range(CYCLES):
                    wanted = len(delays.ledger.confirmed) + delays.random.randrange(300)
                    with anyio.fail_after(DRAIN_TIMEOUT_S):
                        while len(delays.ledger.confirmed) < wanted:
                            await anyio.sleep(delays.random.uniform(0, 0.01))
                    broker.kill()
                    await anyio.to_thread.run_sync(broker.start)
                stop.set()
                consuming.cancel_scope.cancel()
        await delays.drain(broker.url)
    finally:
        broker.stop()
    print(f"{len(delays.ledger.confirmed)} confirmed, {sum(delays.ledger.received.values())} received")
    assert delays.ledger.lost == set()
    assert delays.early == []


async def all_delayed(mq: vibemq.Client) -> tuple[str, list[int]]:
    """A queue whose messages were all published before the first of them fell due: what is published later than it is
    due comes behind what has fallen due by then. On a slow machine that takes a second try."""
    for lead_ms in (500, 2_000, 8_000, 32_000):
        queue, first_ms, dues = f"later-{lead_ms}", int(time.time() * 1_000) + lead_ms, random.Random(1)
        due_ms = [first_ms + dues.randrange(1_000) for _ in range(3_000)]
        await mq.create_queue(queue)
        await mq.publish_many(queue, [vibemq.Outgoing(due, deliver_at=due / 1_000) for due in due_ms])
        if time.time() * 1_000 < first_ms:
            return queue, due_ms
    raise AssertionError("3,000 messages could not be published within half a minute")


async def test_what_has_fallen_due_is_in_the_same_order_after_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        async with vibemq.connect(broker.url) as mq:
            queue, due_ms = await all_delayed(mq)
            with anyio.fail_after(DRAIN_TIMEOUT_S):
                while (info := await mq.queue_info(queue)) is not None and info.ready < len(due_ms):
                    await anyio.sleep(0.05)
            await mq.publish(queue, 0)
        broker.kill()
        broker.start()
        taken: list[tuple[int, int]] = []
        async with vibemq.connect(broker.url) as mq, mq.subscribe(queue, prefetch=500) as subscription:
            with anyio.fail_after(DRAIN_TIMEOUT_S):
                async for message in subscription:
                    taken.append((message.json(), message.sequence))
                    message.ack()
                    if len(taken) > len(due_ms):
                        break
    finally:
        broker.stop()
    assert taken == [*sorted(zip(due_ms, range(1, len(due_ms) + 1), strict=True)), (0, len(due_ms) + 1)]
