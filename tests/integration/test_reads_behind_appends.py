"""What was decided is found by whoever reads it next, however slow the append: hand-outs, peeks, ranges, dead letters.

Everything here happens in one turn of the broker's loop, so that the read is asked for before the append has begun.
"""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from vibemq.auth.users import ANONYMOUS
from vibemq.model.commands import CreateQueue, Publish, SetFlow, Settle, Settlement
from vibemq.model.options import DeliveryMode, Durability, QueueOptions
from vibemq.model.records import Record
from vibemq.model.rows import Rows, pack_row
from vibemq.server.assembly import Assembly

pytestmark = pytest.mark.anyio

COUNT = 50
PROVIDERS = ("lmdb", "sqlite", "memory")
CASES = [
    pytest.param(provider, durability, mode, id=f"{provider}-{durability.name}-{mode.name}".lower())
    for provider, durability, mode in product(PROVIDERS, Durability, DeliveryMode)
    if provider != "memory" or durability is Durability.TRANSIENT
]


class SlowAppends:
    """The provider's appends give every other thread its chance first."""

    def __init__(self, context: Assembly) -> None:
        self._append = context.store.provider.append
        self._pause = threading.Event()
        context.store.provider.append = self  # type: ignore[method-assign]

    def __call__(self, records: Sequence[Record]) -> int:
        # Nobody sets it: an append that takes its time, not a wait for anything.
        self._pause.wait(0.001)
        return self._append(records)


@asynccontextmanager
async def context_of(provider: str, place: Path) -> AsyncIterator[tuple[vibemq.Broker, Assembly]]:
    async with vibemq.Broker(data_dir=place / "data", storage=provider) as broker:
        assert broker._parts is not None
        yield broker, broker._parts


def publish(context: Assembly, number: int) -> None:
    context.decider.decide([Publish(0, None, "q", Rows.of([pack_row(str(number), b"%d" % number)]))])


@pytest.mark.parametrize(("provider", "durability", "mode"), CASES)
async def test_what_is_published_and_handed_out_in_one_turn_arrives(
    tmp_path: Path, provider: str, durability: Durability, mode: DeliveryMode
) -> None:
    async with context_of(provider, tmp_path) as (broker, context):
        context.decider.decide([CreateQueue(0, None, "q", QueueOptions(mode=mode, durability=durability), False)])
        async with vibemq.connect(broker.url) as mq, mq.subscribe("q", prefetch=COUNT) as messages:
            session = next(iter(context.connection_table)).number
            SlowAppends(context)
            for number in range(COUNT):
                # Every other one is handed out by a step of its own, which keeps nothing where nobody acknowledges.
                context.decider.decide([SetFlow(session, number % 2 == 0)])
                publish(context, number)
                context.decider.decide([SetFlow(session, True)])
                for _ in range(5):
                    await anyio.sleep(0)
            arrived = []
            with anyio.move_on_after(60):
                while len(arrived) < COUNT:
                    message = await anext(aiter(messages))
                    arrived.append(int(message.payload))
                    await message.ack()
            assert arrived == list(range(COUNT))


async def run(context: Assembly, operation: str, **arguments: Any) -> Any:
    return await context.operations.admit(ANONYMOUS, operation, arguments).run()


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_peek_finds_what_was_published_before_it(tmp_path: Path, provider: str) -> None:
    durability = Durability.TRANSIENT if provider == "memory" else Durability.ASYNC
    async with context_of(provider, tmp_path) as (_, context):
        context.decider.decide([CreateQueue(0, None, "q", QueueOptions(durability=durability), False)])
        await context.committer.settled()
        SlowAppends(context)
        for number in range(COUNT):
            publish(context, number)
            assert len(await run(context, "queue.peek", queue="q")) == number + 1


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_list_of_dead_letters_finds_what_was_rejected_before_it(tmp_path: Path, provider: str) -> None:
    durability = Durability.TRANSIENT if provider == "memory" else Durability.ASYNC
    async with context_of(provider, tmp_path) as (broker, context):
        context.decider.decide([CreateQueue(0, None, "q", QueueOptions(durability=durability), False)])
        async with vibemq.connect(broker.url) as mq, mq.subscribe("q", prefetch=COUNT) as messages:
            session = next(iter(context.connection_table)).number
            [(consumer, _)] = context.engine.subscriptions(session)
            for number in range(COUNT):
                publish(context, number)
            with anyio.fail_after(60):
                for _ in range(COUNT):
                    await anext(aiter(messages))
            SlowAppends(context)
            for number in range(1, COUNT + 1):
                context.decider.decide([Settle(session, None, consumer, Settlement.REJECT, [(number, number)])])
                page = await run(context, "dlq.list", queue="q", limit=COUNT)
                assert len(page["letters"]) == number
