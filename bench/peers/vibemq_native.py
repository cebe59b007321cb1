"""VibeMQ over its native protocol, through its own Python clients with their default settings: the asynchronous one,
and at a steady rate, where each message waits for its confirm, the blocking one."""

import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel

import vibemq
import vibemq.sync
from bench.common.load import Bodies, Go, Job, Pacer, Span, now, sent_at
from bench.common.peer import Guarantee, Peer
from bench.common.servers import Plan
from vibemq.client import Client
from vibemq.client.publisher import Confirm

T = TypeVar("T")
QUEUE = "bench"
DURABILITY = {
    Guarantee.STRONG: "strong",
    Guarantee.WEAK: "weak",
    Guarantee.ASYNC: "async",
    Guarantee.TRANSIENT: "transient",
}


def run(work: Callable[[], Awaitable[T]]) -> T:
    """On uvloop, as every asyncio client here."""
    return anyio.run(work, backend_options={"use_uvloop": True})


def serve_command(folder: Path, port: int) -> list[str]:
    (folder / "vibemq.toml").touch()
    command = [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(folder / "data"), "--port", str(port)]
    return [*command, "--no-http", "--log-level", "warning", "--config", str(folder / "vibemq.toml")]


class VibeMQ(Peer):
    server_name = "vibemq"
    guarantees = frozenset(Guarantee)

    def instance(self) -> str:
        return self.server_name

    def plan(self, folder: Path) -> Plan:
        return Plan(serve_command(folder, self.port))

    def set_up(self, job: Job) -> None:
        async def create() -> None:
            async with self.connect() as mq:
                mode = "FanOutWithAck" if job.subscribers > 1 else "RoundRobin"
                await mq.create_queue(QUEUE, mode=mode, durability=DURABILITY[self.guarantee])

        run(create)

    def tear_down(self) -> None:
        async def delete() -> None:
            async with self.connect() as mq:
                await mq.delete_queue(QUEUE)

        run(delete)

    def connect(self) -> Client:
        return vibemq.connect(f"vibemq://127.0.0.1:{self.port}")

    # -- publishing -------------------------------------------------------------------------------------------------

    def produce(self, job: Job, go: Go) -> Span:
        return self._paced_one_by_one(job, go) if job.rate else self._produce_pipelined(job, go)

    def _paced_one_by_one(self, job: Job, go: Go) -> Span:
        """By the blocking client, as Redis', PostgreSQL's and beanstalkd's are."""
        latencies: list[float] = []
        with vibemq.sync.connect(f"vibemq://127.0.0.1:{self.port}") as mq:
            bodies = Bodies(job.size)
            go()
            pacer = Pacer(job.rate, job.messages)
            for number in range(job.messages):
                time.sleep(max(0.0, pacer.delay(number)))
                due_at = pacer.due_at(number)
                mq.publish(QUEUE, bodies.make(number, due_at))
                latencies.append(now() - due_at)
            return Span(pacer.began, now(), job.messages, latencies)

    def _produce_pipelined(self, job: Job, go: Go) -> Span:
        async def publish() -> Span:
            client = self.connect()
            if job.window:
                client = vibemq.connect(client.settings, max_unconfirmed=job.window)
            async with client as mq:
                go()
                return await _pipelined(mq, job)

        return run(publish)

    # -- receiving --------------------------------------------------------------------------------------------------

    def consume(self, job: Job, go: Go) -> Span:
        async def take() -> Span:
            async with self.connect() as mq:
                go()
                return await _consumed(mq, job, None)

        return run(take)

    def consume_fan_out(self, job: Job, go: Go) -> Span:
        async def take() -> Span:
            spans: list[Span] = []
            ready = _Countdown(job.subscribers, go)

            async def one(mq: Client, group: str) -> None:
                spans.append(await _consumed(mq, job, group, ready))

            async with self.connect() as mq, anyio.create_task_group() as tasks:
                for number in range(job.subscribers):
                    tasks.start_soon(one, mq, f"group-{number}")
            return _joined(spans)

        return run(take)


class _Countdown:
    """Calls `go` when everybody has subscribed; a fan-out gives nothing to those who come later."""

    def __init__(self, count: int, go: Go) -> None:
        self._missing = count
        self._go = go
        self._open = anyio.Event()

    async def subscribed(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._go()
            self._open.set()
        await self._open.wait()


async def _pipelined(mq: Client, job: Job) -> Span:
    bodies = Bodies(job.size)
    began = now()
    await mq.publish_many(QUEUE, map(bodies.make, range(job.messages)))
    return Span(began, now(), job.messages)


async def paced(mq: Client, job: Job) -> Span:
    bodies, pacer = Bodies(job.size), Pacer(job.rate, job.messages)
    waiting: deque[tuple[float, Confirm]] = deque()
    latencies: list[float] = []
    arrived = anyio.Event()

    async def note_confirms() -> None:
        nonlocal arrived
        while len(latencies) < job.messages:
            while not waiting:
                arrived = anyio.Event()
                await arrived.wait()
            due_at, confirm = waiting.popleft()
            await confirm
            latencies.append(now() - due_at)

    async with anyio.create_task_group() as tasks, mq.publisher(QUEUE) as out:
        tasks.start_soon(note_confirms)
        for number in range(job.messages):
            due_at = await pacer.wait_until_due(number)
            waiting.append((due_at, await out.send(bodies.make(number, due_at))))
            arrived.set()
    return Span(pacer.began, now(), job.messages, latencies)


async def _consumed(mq: Client, job: Job, group: str | None, ready: _Countdown | None = None) -> Span:
    latencies: list[float] = []
    async with mq.subscribe(QUEUE, prefetch=job.prefetch, group=group) as subscription:
        if ready is not None:
            await ready.subscribed()
        began = now()
        async for batch in subscription.batches():
            at = now()
            latencies += [at - sent_at(body) for body in batch.payloads()]
            batch.ack_all()
            if len(latencies) >= job.messages:
                break
        # The answer comes behind the last acknowledgement: the broker has handled it.
        await mq.ping()
        return Span(began, now(), len(latencies), latencies)


def _joined(spans: list[Span]) -> Span:
    def latencies() -> Iterator[float]:
        for span in spans:
            yield from span.latencies_s

    return Span(
        min(span.began for span in spans),
        max(span.ended for span in spans),
        sum(span.messages for span in spans),
        list(latencies()),
    )
