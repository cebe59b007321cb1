"""VibeMQ with many queues, and with many connections."""

from collections.abc import Awaitable, Callable

import anyio

import vibemq
from bench.common.load import Bodies, Go, Job, Span, now, sent_at
from bench.peers.vibemq_native import DURABILITY, QUEUE, VibeMQ, run
from vibemq.client import Client

CREATING_AT_ONCE = 50


class ManyQueues(VibeMQ):
    """One producer and one consumer, each with one connection, and `job.width` queues."""

    def set_up(self, job: Job) -> None:
        async def create() -> None:
            async with self.connect() as mq:
                durability = DURABILITY[self.guarantee]
                await _each(job, lambda queue: mq.create_queue(queue, durability=durability))

        run(create)
        self._job = job

    def tear_down(self) -> None:
        async def delete() -> None:
            async with self.connect() as mq:
                await _each(self._job, mq.delete_queue)

        run(delete)

    def produce(self, job: Job, go: Go) -> Span:
        async def publish() -> Span:
            bodies, share = Bodies(job.size), job.messages // job.width
            async with self.connect() as mq:
                go()
                began = now()
                async with anyio.create_task_group() as tasks:
                    for queue in _names(job):
                        tasks.start_soon(mq.publish_many, queue, map(bodies.make, range(share)))
                return Span(began, now(), share * job.width)

        return run(publish)

    def consume(self, job: Job, go: Go) -> Span:
        async def take() -> Span:
            latencies: list[float] = []
            expected = job.messages // job.width

            async def one(mq: Client, queue: str) -> None:
                taken = 0
                async with mq.subscribe(queue, prefetch=job.prefetch) as subscription:
                    subscribed()
                    async for batch in subscription.batches():
                        at = now()
                        latencies.extend(at - sent_at(body) for body in batch.payloads())
                        batch.ack_all()
                        taken += len(batch)
                        if taken >= expected:
                            return

            missing = job.width

            def subscribed() -> None:
                nonlocal missing
                missing -= 1
                if not missing:
                    go()

            async with self.connect() as mq:
                began = now()
                async with anyio.create_task_group() as tasks:
                    for queue in _names(job):
                        tasks.start_soon(one, mq, queue)
                await mq.ping()
                return Span(began, now(), len(latencies), latencies)

        return run(take)


class ManyConnections(VibeMQ):
    """One queue, and `job.width` connections that publish to it at once."""

    def produce(self, job: Job, go: Go) -> Span:
        async def publish() -> Span:
            share, width = job.messages // job.width, job.width
            all_connected, go_on = anyio.Event(), anyio.Event()
            missing = width

            async def one() -> None:
                nonlocal missing
                bodies = Bodies(job.size)
                async with vibemq.connect(f"vibemq://127.0.0.1:{self.port}") as mq:
                    missing -= 1
                    if not missing:
                        all_connected.set()
                    await go_on.wait()
                    await mq.publish_many(QUEUE, map(bodies.make, range(share)))
                    confirmed.append(now())

            confirmed: list[float] = []
            async with anyio.create_task_group() as tasks:
                for _ in range(width):
                    tasks.start_soon(one)
                await all_connected.wait()
                go()
                began = now()
                go_on.set()
            return Span(began, max(confirmed), share * width)

        return run(publish)


def _names(job: Job) -> list[str]:
    return [f"{QUEUE}-{number}" for number in range(job.width)]


async def _each(job: Job, verb: Callable[[str], Awaitable[None]]) -> None:
    at_once = anyio.CapacityLimiter(CREATING_AT_ONCE)

    async def one(queue: str) -> None:
        async with at_once:
            await verb(queue)

    async with anyio.create_task_group() as tasks:
        for queue in _names(job):
            tasks.start_soon(one, queue)
