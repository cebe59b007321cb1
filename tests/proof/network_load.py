"""Publishers that never give up and consumers that settle, with a ledger of everything; for `network.py`."""

import contextlib
import logging
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.crash.ledger import Ledger
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import NotConnected, RemoteProtocolError, VibeMQError

QUEUES = ("net-strong", "net-weak")
OPTIONS: dict[str, dict[str, Any]] = {
    "net-strong": {"durability": "strong", "max_attempts": 1_000, "retry_base_ms": 50, "retry_max_ms": 200},
    "net-weak": {"durability": "weak", "max_attempts": 1_000, "retry_base_ms": 50, "retry_max_ms": 200},
}
PATIENT = ReconnectPolicy(initial_delay=0.05, max_delay=0.5, first_connect=True, offline_timeout=3.0)
CLIENT: dict[str, Any] = {"keep_alive": 1.0, "command_timeout": 3.0, "reconnect": PATIENT}


@dataclass
class Account(Ledger):
    published: set[str] = field(default_factory=set)
    """Ids that were ever sent."""
    broken: list[str] = field(default_factory=list)
    """Ids whose body arrived other than it was sent."""
    retries: int = 0
    interruptions: int = 0

    @property
    def phantoms(self) -> set[str]:
        return set(self.received) - self.published

    @property
    def doubled(self) -> int:
        return sum(times - 1 for times in self.received.values())


def body_of(message_id: str, rng: random.Random) -> dict[str, Any]:
    """Carries its own checksum."""
    fill = rng.randbytes(rng.choice((10, 200, 3_000))).hex()
    return {"id": message_id, "fill": fill, "crc": _checksum(message_id, fill)}


def _checksum(message_id: str, fill: str) -> int:
    return zlib.crc32(f"{message_id} {fill}".encode())


def is_whole(body: Any) -> bool:
    try:
        return bool(body["crc"] == _checksum(body["id"], body["fill"]))
    except (KeyError, TypeError):
        return False


async def publish(mq: Any, name: str, account: Account, rng: random.Random, stop: anyio.Event) -> None:
    """One message after the other, each until it is confirmed: under the same id, so that trying again is safe."""
    number = 0
    while not stop.is_set():
        number += 1
        message_id = f"{name}-{number:06}"
        body, queue = body_of(message_id, rng), rng.choice(QUEUES)
        account.published.add(message_id)
        while True:
            try:
                await mq.publish(queue, body, id=message_id, dedup_id=message_id)
            except VibeMQError:
                account.retries += 1
                if stop.is_set():
                    # Nobody promised anything about this one.
                    return
                await anyio.sleep(0.05)
            else:
                account.confirmed.add(message_id)
                break
        if number % 8 == 0:
            await anyio.sleep(rng.uniform(0, 0.01))


async def consume(mq: Any, queue: str, account: Account, rng: random.Random) -> None:
    """Until cancelled. Some deliveries are given back, as real consumers do."""
    while True:
        # The faults may keep it away for longer than the client waits. One that has been asked for ends with that.
        messages = mq.subscribe(queue, prefetch=50)
        with contextlib.suppress(NotConnected):
            await messages.start()
            break
        await anyio.sleep(0.05)
    try:
        async for message in messages:
            take(message, account)
            chance = rng.random()
            if chance < 0.03:
                message.retry(0)
            elif chance < 0.06:
                message.release()
            else:
                message.ack()
    finally:
        await messages.stop()


def take(message: Any, account: Account) -> None:
    try:
        body = message.json()
    except (ValueError, RemoteProtocolError):
        body = None
    if is_whole(body):
        account.received[body["id"]] += 1
    else:
        account.broken.append(f"{message.queue}#{message.sequence}")


@contextlib.contextmanager
def quiet_clients() -> Iterator[None]:
    """Clients say each time that they lost their broker; here that is the weather, not news."""
    log = logging.getLogger("vibemq")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


async def drained(account: Account, seconds: float) -> None:
    """Wait until every confirmed message has come, or no longer than so."""
    with anyio.move_on_after(seconds):
        while account.lost:
            await anyio.sleep(0.05)
