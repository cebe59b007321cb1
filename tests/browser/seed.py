"""Fills a broker as one looks after a bad night: queues, letters of seven errors, readers, users, finished work.

    python -m tests.browser.seed vibemq://127.0.0.1:2925 --letters 20000 --stay

`--stay` leaves consumers connected until Ctrl-C. The same seed makes the same texts.
"""

import argparse
import asyncio
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import vibemq
from vibemq.client.api import Client
from vibemq.errors import VibeMQError

QUEUES = (
    "orders.eu",
    "orders.us",
    "orders.asia",
    "payments",
    "payments.refunds",
    "invoices",
    "emails",
    "emails.newsletter",
    "shipments",
    "stock",
    "stock.returns",
    "search.index",
    "images.resize",
    "reports.daily",
    "reports.monthly",
    "audit.trail",
    "webhooks",
    "sms",
    "clicks",
    "events",
)
LOGS = frozenset(("clicks", "events"))
"""Kept by time and read by range."""
TENANTS = ("acme", "globex", "initech", "umbrella")
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that went wrong again and again."""

    queue: str
    share: float
    """Of all letters."""
    error: Callable[[random.Random], str]
    retried: bool = False
    """It dies of its last attempt, not of a rejection."""


def _uuid(r: random.Random) -> str:
    return str(uuid.UUID(int=r.getrandbits(128), version=4))


MISTAKES = (
    Mistake(
        "orders.eu",
        0.34,
        lambda r: (
            f"ArticleMissing: no article {r.randrange(10_000, 99_999)} in warehouse 'HAM-{r.randrange(9)}' "
            f"(request {_uuid(r)})"
        ),
        retried=True,
    ),
    Mistake("orders.us", 0.12, lambda r: f"ValidationError: total must be positive, got -{r.randrange(1, 900)}.50"),
    Mistake(
        "payments",
        0.25,
        lambda r: f"TimeoutError: https://pay.example/v2/charges/{r.getrandbits(40):x} did not answer within 30 s",
        retried=True,
    ),
    Mistake("payments", 0.09, lambda r: f"CardDeclined: card ending {r.randrange(1000, 9999)}, code 05"),
    Mistake(
        "invoices",
        0.1,
        lambda r: (
            f"JSONDecodeError: Expecting ',' delimiter: line 1 column {r.randrange(2, 900)} "
            f"(char {r.randrange(1, 900)})"
        ),
    ),
    Mistake("emails", 0.07, lambda r: f'SMTPRefused: "user{r.randrange(9999)}@example.org": 550 no mailbox'),
    Mistake("webhooks", 0.03, lambda r: f"HTTPError: 503 from hook {r.randrange(1, 50)} after {r.randrange(2, 30)} s"),
)
FEW = Mistake("orders.asia", 0, lambda r: f"Forbidden: tenant '{r.choice(TENANTS)}' has no licence for region 7")
"""Some letters that needed several attempts."""


def bodies(r: random.Random, count: int) -> Iterator[vibemq.Outgoing]:
    for number in range(count):
        order = {
            "id": 9_007_199_254_740_993 + number,
            "article": r.randrange(10_000, 99_999),
            "total": f"{r.randrange(1, 900)}.90",
            "address": {"street": "Lange Reihe 12", "city": r.choice(("Hamburg", "Lyon", "Turku", "São Paulo"))},
            "lines": [{"sku": f"S-{r.randrange(999)}", "count": r.randrange(1, 5)} for _ in range(r.randrange(1, 4))],
        }
        headers = {"tenant": r.choice(TENANTS), "trace": f"{r.getrandbits(64):016x}"}
        yield vibemq.Outgoing(order, headers=headers)


async def make_queues(mq: Client) -> None:
    for queue in QUEUES:
        options: dict[str, Any] = {"max_attempts": 3, "retry_base_ms": 0}
        if queue in LOGS:
            options = {"mode": "fan-out-with-ack", "retention": "log", "lost_connection": "release"}
        await mq.create_queue(queue, **options)


async def make_letters(mq: Client, count: int, r: random.Random) -> None:
    for mistake in MISTAKES:
        await die(mq, mistake, max(1, round(count * mistake.share)), r)
    await die(mq, FEW, 12, r, attempts=3)


async def die(mq: Client, mistake: Mistake, count: int, r: random.Random, attempts: int = 1) -> None:
    """Publish so many messages, and consume them with the mistake until all are dead letters."""
    queue = mistake.queue
    await mq.change_queue(queue, max_attempts=attempts)
    for at in range(0, count, BATCH):
        some = min(BATCH, count - at)
        await mq.publish_many(queue, list(bodies(r, some)))
        left = some * attempts
        async with mq.subscribe(queue, prefetch=BATCH) as messages:
            async for batch in messages.batches():
                for message in batch:
                    retried = mistake.retried or attempts > 1
                    settle = message.retry if retried else message.reject
                    settle(reason=mistake.error(r))
                left -= len(batch)
                if left <= 0:
                    break
        await mq.ping()
    await mq.change_queue(queue, max_attempts=3)


async def make_waiting(mq: Client, r: random.Random) -> None:
    for queue, count in (("reports.daily", 400), ("sms", 35), ("stock", 1_200), ("clicks", 5_000), ("events", 800)):
        await mq.publish_many(queue, list(bodies(r, count)))
    await mq.publish_many("emails.newsletter", [b"hello"] * 20, ttl=0.001)
    await mq.publish_many("images.resize", [bytes(r.randbytes(2_000)) for _ in range(15)], delay=3_600)


async def make_readers(mq: Client) -> None:
    """Cursors as Spark's streams have them: one near the end, one far behind, one that skips what it cannot read."""
    for queue, group, below in (("clicks", "spark-sessions", 4_900), ("clicks", "spark-archive", 700)):
        joined = await mq.admin("group.join", queue=queue, group=group, owner=f"{group} on node-7", start="earliest")
        await mq.admin("group.commit", queue=queue, group=group, epoch=joined["epoch"], sequence=below)
    await mq.admin("group.join", queue="events", group="spark-alerts", owner="alerts", start="earliest")
    await mq.admin("group.quarantine", queue="events", group="spark-alerts", runs=[[17, 17], [20, 25]])


USERS: dict[str, tuple[tuple[str, list[str]], ...]] = {
    "ann": (("orders.*", ["publish", "subscribe", "inspect", "purge"]),),
    "ben": (("*", ["inspect"]),),
    "shop": (("orders.*", ["publish"]), ("payments*", ["publish"])),
}
PASSWORD = "a long pass phrase"


async def make_users(mq: Client) -> None:
    for user, rules in USERS.items():
        await mq.admin("user.add", user=user, password=PASSWORD)
        for queues, actions in rules:
            await mq.admin("user.grant", user=user, queues=queues, actions=actions)
    await mq.admin("token.create", user="shop", label="checkout service", expires_ms=90 * 86_400_000)
    await mq.admin("token.create", user="ann", label="laptop")


async def seed(url: str, letters: int, *, users: bool = True) -> None:
    r = random.Random(20)
    async with vibemq.connect(url, name="seed") as mq:
        await make_queues(mq)
        await make_letters(mq, letters, r)
        await make_waiting(mq, r)
        await make_readers(mq)
        if users:
            await make_users(mq)


async def consume_badly(stack: AsyncExitStack, url: str) -> None:
    """Consumers of several kinds: one that holds what it got, one that has nothing to do."""
    kinds = (("stock-worker", "stock", 50), ("sms-sender", "sms", 5), ("shipper", "shipments", 10))
    for name, queue, prefetch in kinds:
        mq = await stack.enter_async_context(vibemq.connect(url, name=name))
        await stack.enter_async_context(mq.subscribe(queue, prefetch=prefetch))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--letters", type=int, default=20_000)
    parser.add_argument("--no-users", action="store_true")
    parser.add_argument("--stay", action="store_true")
    wanted = parser.parse_args()
    try:
        await seed(wanted.url, wanted.letters, users=not wanted.no_users)
    except VibeMQError as error:
        raise SystemExit(f"{error.code}: {error}") from error
    async with AsyncExitStack() as stack:
        if wanted.stay:
            await consume_badly(stack, wanted.url)
            print("consumers are connected; Ctrl-C ends them", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
