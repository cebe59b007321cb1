"""The main job: publish all, consume all, lose the broker on the way, count.

publishers ──> queue `flights` (strong) ──> consumers ──> delays per carrier
                    │        ↑ kill -9 when half is published, started again on its port
                    └─ rejected: no departure ──> DLQ ──> replay ──> queue `flights.cancelled`
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio

from vibemq.cli.admin.dlq import pages
from vibemq.cli.child import BrokerProcess
from vibemq.cli.exits import CommandFailed
from vibemq.cli.progress import Tracker
from vibemq.client import Client
from vibemq.demos.flights import audit, flights
from vibemq.demos.flights.ledger import Ledger
from vibemq.demos.flights.view import View

QUEUE = "flights"
CANCELLED_QUEUE = "flights.cancelled"
CONSUMERS = 2
PUBLISHERS = 3
CHUNK_ROWS = 2_000
PREFETCH = 4_000
STALL_S = 30.0
"""Nothing new for so long, with the broker up: what is missing now is lost."""
VIEW_INTERVAL_S = 0.2
SETTLE_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Recovery:
    """One kill -9 and what came after, in seconds from the kill."""

    published_before: int = 0
    consumed_before: int = 0
    ready: float = 0.0
    first_confirm: float = 0.0
    first_delivery: float = 0.0


@dataclass(slots=True)
class JobResult:
    rows: int
    publish_seconds: float = 0.0
    consume_seconds: float = 0.0
    start_seconds: float = 0.0
    recovery: Recovery = field(default_factory=Recovery)
    dead_by_reason: dict[str, int] = field(default_factory=dict)
    left_in_queue: int = 0
    published_twice: int = 0
    replayed: int = 0
    cancelled_ready: int = 0
    dead_after_replay: int = 0
    total_seconds: float = 0.0


class Job:
    """One run on one broker. `ledger` and `result` are filled as it goes."""

    def __init__(self, broker: BrokerProcess, frame: Any) -> None:
        self.broker = broker
        self.ledger = Ledger(len(frame), time.monotonic)
        self.result = JobResult(len(frame))
        self._chunks: Iterator[list[dict[str, Any]]] = flights.chunks(frame, CHUNK_ROWS)
        self._half = anyio.Event()
        self._broker_back = anyio.Event()
        self._killed_at = 0.0

    async def flow(self, view: View) -> None:
        """Publish and consume everything, the kill included."""
        began = time.monotonic()
        async with self.broker.client("demo-publisher") as mq:
            await mq.create_queue(QUEUE, durability="strong", max_attempts=5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._show, view)
            for number in range(CONSUMERS):
                tasks.start_soon(self._consume, number)
            tasks.start_soon(self._kill_and_restart, view)
            await self._publish_all()
            self.result.publish_seconds = time.monotonic() - began
            await self._broker_back.wait()
            await self._consumed()
            self.result.consume_seconds = self.ledger.last_delivery_at - self.ledger.first_delivery_at
            view.update(self.ledger)
            # Consumers are asked to leave only when their last settlements have arrived.
            await self._settled()
            tasks.cancel_scope.cancel()

    async def close_books(self) -> None:
        """What the broker says it has: the other half of the ledger."""
        async with self.broker.client("demo-auditor") as mq:
            info = await _info(mq, QUEUE)
            self.result.left_in_queue = audit.left_in(info)
            self.result.published_twice = max(0, info["next_sequence"] - 1 - self.ledger.published)
            self.result.dead_by_reason = await audit.dead_by_reason(mq, QUEUE)

    async def replay(self, progress: Tracker) -> None:
        """The dead ones go into a queue of their own."""
        async with self.broker.client("demo-replayer") as mq:
            await mq.create_queue(CANCELLED_QUEUE, durability="strong")
            plan = await pages.chosen(mq, {"queue": QUEUE}, None)
            self.result.replayed = await pages.Replay(mq, plan, to=CANCELLED_QUEUE).run(progress)
            self.result.cancelled_ready = (await _info(mq, CANCELLED_QUEUE))["ready"]
            self.result.dead_after_replay = (await _info(mq, QUEUE))["dead"]

    async def _publish_all(self) -> None:
        async with self.broker.client("demo-publisher") as mq, anyio.create_task_group() as tasks:
            for _ in range(PUBLISHERS):
                tasks.start_soon(self._publish, mq)

    async def _publish(self, mq: Client) -> None:
        for rows in self._chunks:
            # A dedup id of the client's making per row: what is sent again after the crash is not doubled.
            report = await mq.publish_many(QUEUE, rows, dedup=True, return_refused=True)
            self.ledger.confirm(rows[0][flights.ROW], len(rows), len(report.refused))
            self._note_first_confirm()
            if 2 * self.ledger.published >= self.ledger.rows:
                self._half.set()

    async def _consume(self, number: int) -> None:
        async with (
            self.broker.client(f"demo-consumer-{number}") as mq,
            mq.subscribe(QUEUE, prefetch=PREFETCH) as subscription,
        ):
            async for batch in subscription.batches():
                self.ledger.process(batch)
                self._note_first_delivery()

    async def _kill_and_restart(self, view: View) -> None:
        await self._half.wait()
        recovery = self.result.recovery
        recovery.published_before, recovery.consumed_before = self.ledger.published, self.ledger.distinct
        pid, self._killed_at = self.broker.pid, time.monotonic()
        await self.broker.kill()
        view.say(f"kill -9 {pid}: {self.ledger.published:,} published, {self.ledger.distinct:,} consumed so far")
        await self.broker.start()
        recovery.ready = time.monotonic() - self._killed_at
        self.ledger.last_new_at = time.monotonic()
        self._broker_back.set()
        view.say(f"broker is back as {self.broker.pid} after {recovery.ready:.2f} s; publishers and consumers go on")

    def _note_first_confirm(self) -> None:
        if self._broker_back.is_set() and not self.result.recovery.first_confirm:
            self.result.recovery.first_confirm = time.monotonic() - self._killed_at

    def _note_first_delivery(self) -> None:
        if self._broker_back.is_set() and not self.result.recovery.first_delivery:
            self.result.recovery.first_delivery = time.monotonic() - self._killed_at

    async def _show(self, view: View) -> None:
        while True:
            view.update(self.ledger)
            if self._broker_back.is_set() and not self.broker.alive:
                raise CommandFailed("the broker has ended by itself; see its log with --keep")
            await anyio.sleep(VIEW_INTERVAL_S)

    async def _consumed(self) -> None:
        while not self.ledger.complete and time.monotonic() - self.ledger.last_new_at < STALL_S:
            await anyio.sleep(0.05)

    async def _settled(self) -> None:
        async with self.broker.client("demo-auditor") as mq:
            with anyio.move_on_after(SETTLE_TIMEOUT_S):
                while audit.left_in(await _info(mq, QUEUE)):
                    await anyio.sleep(0.05)


async def _info(mq: Client, queue: str) -> dict[str, Any]:
    info: dict[str, Any] = await mq.admin("queue.info", queue=queue)
    return info
