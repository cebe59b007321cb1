"""A client's day, noted in an account: publishers of every policy, a consumer that acks, rejects, retries and holds,
and an operator who replays dead letters. It ends when it is told to, when its batches are done, or when the broker is
gone.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import monotonic_ns
from typing import Any

import anyio

import vibemq
from tests.proof.account import Account, body_of
from vibemq.client.publishing.outgoing import Outgoing
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import ErrorCode, VibeMQError

ONE_CONNECTION = ReconnectPolicy(max_attempts=0)
SIZES = (10, 10, 200, 200, 200, 1500, 6000)
HELD_MAX = 30
# That the broker goes away is what the load is there for.
logging.getLogger("vibemq.client").addHandler(logging.NullHandler())
FULL = (ErrorCode.STORAGE_FULL, ErrorCode.BLOCKED)


async def publish_accounted(
    mq: vibemq.Client, account: Account, policy: str, queue: str, sizes: Sequence[int]
) -> list[VibeMQError]:
    """Publish a message of each size, and note what became of it; why some were refused."""
    ids = [account.new_id(queue, size) for size in sizes]
    now = monotonic_ns()
    for message_id in ids:
        account.published(message_id, queue, policy, now)
    bodies = [Outgoing(body_of(message_id), id=message_id) for message_id in ids]
    report = await mq.publish_many(queue, bodies, return_refused=True)
    now = monotonic_ns()
    for index, message_id in enumerate(ids):
        error = report.refused.get(index)
        if error is None:
            account.confirmed(message_id, report[index].sequence, now)
        elif error.code in FULL:
            account.refused(message_id)
    return list(report.refused.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """What one load does."""

    seed: int
    weights: tuple[int, int, int] = (30, 35, 35)
    """How often strong, weak and async queues are published to."""
    publishers: int = 2
    batches: int = 1 << 30
    """Per publisher; then the load is over."""
    batch_max: int = 8
    pause_s: float = 0.003
    """Longest pause between two batches."""
    sizes: tuple[int, ...] = SIZES
    consume: bool = True
    prefix: str = ""
    """Of the queues' names; another prefix makes another load on the same broker."""


class Load:
    """One broker's life of a plan. Make a new one for every start of the broker; the account goes on."""

    def __init__(self, url: str, account: Account, plan: Plan) -> None:
        self._url = url
        self._account = account
        self._plan = plan
        self._rng = Random(plan.seed)
        self._publishing = plan.publishers
        self._held: list[Any] = []
        self.refusals: list[str] = []
        """One sentence per message that found no room."""
        self.stop = anyio.Event()
        """Set it to end the load while the broker lives."""

    @property
    def queues(self) -> dict[str, str]:
        """Policy -> name."""
        return {policy: f"{self._plan.prefix}{policy}" for policy in ("strong", "weak", "async")}

    async def run(self) -> None:
        """Return when the load is over. Never raises because of the broker."""
        try:
            await self._create_queues()
        except (VibeMQError, TimeoutError):
            return
        async with anyio.create_task_group() as tasks:
            for number in range(self._plan.publishers):
                tasks.start_soon(self._until_gone, self._publish, Random(self._rng.random() + number))
            if self._plan.consume:
                tasks.start_soon(self._until_gone, self._consume, Random(self._rng.random()))
            await self.stop.wait()
            tasks.cancel_scope.cancel()

    async def _until_gone(self, work: Callable[[Random], Awaitable[None]], rng: Random) -> None:
        try:
            await work(rng)
        except (VibeMQError, TimeoutError):
            self.stop.set()
        except ExceptionGroup as group:
            if group.split((VibeMQError, TimeoutError))[1] is not None:
                raise
            self.stop.set()

    def _connect(self) -> vibemq.Client:
        return vibemq.connect(self._url, reconnect=ONE_CONNECTION, command_timeout=20)

    async def _create_queues(self) -> None:
        async with self._connect() as mq:
            for policy, name in self.queues.items():
                if name not in self._account.queues:
                    event = self._account.creating(name, monotonic_ns())
                    await mq.create_queue(name, durability=policy, max_attempts=1_000_000, lost_connection="release")
                    event.done_at = monotonic_ns()

    # -- publishing -----------------------------------------------------------------------------------------------

    async def _publish(self, rng: Random) -> None:
        async with self._connect() as mq:
            for _ in range(self._plan.batches):
                await self._one_batch(mq, rng)
                await anyio.sleep(rng.uniform(0, self._plan.pause_s))
        self._publishing -= 1
        if not self._publishing:
            self.stop.set()

    async def _one_batch(self, mq: vibemq.Client, rng: Random) -> None:
        ((policy, queue),) = rng.choices(list(self.queues.items()), self._plan.weights)
        sizes = rng.choices(self._plan.sizes, k=rng.randint(1, self._plan.batch_max))
        refused = await publish_accounted(mq, self._account, policy, queue, sizes)
        self.refusals += [str(error) for error in refused if error.code in FULL]

    # -- consuming ------------------------------------------------------------------------------------------------

    async def _consume(self, rng: Random) -> None:
        async with self._connect() as mq, anyio.create_task_group() as tasks:
            for queue in self.queues.values():
                tasks.start_soon(self._consume_queue, mq, queue, rng)
            tasks.start_soon(self._operate, mq, rng)

    async def _consume_queue(self, mq: vibemq.Client, queue: str, rng: Random) -> None:
        async with mq.subscribe(queue, prefetch=100) as messages:
            async for batch in messages.batches():
                events = [event for message in batch for event in self._settle(message, rng)]
                await mq.ping()
                now = monotonic_ns()
                for event in events:
                    event.done_at = now

    def _settle(self, message: Any, rng: Random) -> list[Any]:
        """Do one of the four things; the events that begin with it."""
        chance = rng.random()
        now = monotonic_ns()
        if chance < 0.6:
            event = self._account.issued(message.id, "ack", now)
            message.ack()
            return [event]
        if chance < 0.75:
            event = self._account.issued(message.id, "reject", now)
            message.reject("the proof says so")
            return [event]
        if chance < 0.9:
            self._held.append(message)
            if len(self._held) > HELD_MAX:
                for held in self._held:
                    held.release()
                self._held.clear()
        else:
            message.retry(0, reason="again")
        return []

    async def _operate(self, mq: vibemq.Client, rng: Random) -> None:
        while True:
            await anyio.sleep(rng.uniform(0.02, 0.2))
            listed = await mq.admin("dlq.list", queue=rng.choice(list(self.queues.values())), limit=5)
            letters = {letter["dead_id"]: letter["id"] for letter in listed["letters"]}
            if letters:
                now = monotonic_ns()
                events = [self._account.issued(message_id, "replay", now) for message_id in letters.values()]
                await mq.admin("dlq.replay", ids=list(letters))
                now = monotonic_ns()
                for event in events:
                    event.done_at = now
