"""A replay job, and kills of the broker while it runs: each letter is exactly once in its queue or still dead."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import anyio
import orjson

import vibemq
from tests.crash.ledger import BrokerProcess
from vibemq import Outgoing
from vibemq.client import Client

SOURCE, OTHER = "source", "other"


@dataclass(slots=True)
class Told:
    """What the run was, for the report."""

    kills: int = 0
    states: Counter[str] = field(default_factory=Counter)
    job: dict[str, Any] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


async def fill(url: str, letters: int) -> set[str]:
    """So many dead letters in two queues; the ids of their messages."""
    ids = {f"m{number}" for number in range(letters)}
    async with vibemq.connect(url) as mq:
        for queue in (SOURCE, OTHER):
            await mq.create_queue(queue)
        for number, queue in enumerate((SOURCE, OTHER)):
            own = [f"m{n}" for n in range(number, letters, 2)]
            await mq.publish_many(queue, (Outgoing(b"x", name) for name in own))
            left = len(own)
            while left:
                for message in await mq.fetch(queue, max=min(left, 500), timeout=30):
                    message.reject("bad")
                    left -= 1
            while (await mq.queue_info(queue)).dead < len(own):  # type: ignore[union-attr]
                await anyio.sleep(0.05)
    return ids


async def _admin(broker: BrokerProcess, verb: str, **arguments: Any) -> Any:
    async with vibemq.connect(broker.url) as mq:
        return await mq.admin(verb, **arguments)


async def _kept(mq: Client, queue: str) -> list[str]:
    found: list[str] = []
    start = 0
    while start is not None:
        page = await mq.admin("queue.export", queue=queue, **{"from": start})
        found += [message["id"] for message in page["messages"]]
        start = page["next"]
    return found


async def _dead(mq: Client) -> list[str]:
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await mq.admin("dlq.list", after=after, limit=1_000)
        found += [letter["id"] for letter in page["letters"]]
        after = page["next"]
    return found


async def killed(
    data_dir: Path, provider: str, *, letters: int, limit: int, kills: int, seed: int, rate: int | None = None
) -> Told:
    """Replay `limit` of the letters, and kill the broker so often while that runs."""
    rng, told = Random(seed), Told()
    broker = BrokerProcess(data_dir, provider=provider)
    broker.start()
    try:
        ids = await fill(broker.url, letters)
        more = {} if rate is None else {"rate": rate}
        job = await _admin(broker, "job.start", kind="replay", filter={}, limit=limit, key="once", **more)
        number, span = job["job"], limit // (kills + 1)
        for kill in range(kills):
            await _until_done(broker, number, span * kill + rng.randrange(1, max(2, span)))
            broker.kill()
            told.kills += 1
            broker.start()
            again = await _admin(broker, "job.start", kind="replay", filter={}, limit=limit, key="once", **more)
            if again["job"] != number:
                told.complaints.append(f"the same request made job {again['job']} after job {number}")
        told.job = await _until_ended(broker, number)
        async with vibemq.connect(broker.url) as mq:
            back = await _kept(mq, SOURCE) + await _kept(mq, OTHER)
            told.complaints += judge(ids, back, await _dead(mq), limit, told.job)
    finally:
        code = broker.stop()
    if code:
        told.complaints.append(f"the broker ended with {code}: {broker.log_text()}")
    return told


async def _until_done(broker: BrokerProcess, number: str, count: int) -> None:
    async with vibemq.connect(broker.url) as mq:
        while True:
            job = await mq.admin("job.show", job=number)
            if job["done"] >= count or job["state"] in ("done", "failed"):
                return


async def _until_ended(broker: BrokerProcess, number: str) -> dict[str, Any]:
    async with vibemq.connect(broker.url) as mq:
        while True:
            job: dict[str, Any] = await mq.admin("job.show", job=number)
            if job["state"] not in ("running", "queued", "waiting"):
                return job
            await anyio.sleep(0.05)


def judge(ids: set[str], back: list[str], dead: list[str], limit: int, job: dict[str, Any]) -> list[str]:
    """What does not add up, in sentences."""
    found: list[str] = []
    twice = [name for name, count in Counter([*back, *dead]).items() if count > 1]
    if twice:
        found.append(f"{len(twice)} letters are there more than once, such as {twice[:3]}")
    lost = ids - set(back) - set(dead)
    if lost:
        found.append(f"{len(lost)} letters are lost, such as {sorted(lost)[:3]}")
    wanted = min(limit, len(ids))
    if len(back) != wanted:
        found.append(f"{len(back)} letters came back, not {wanted}")
    if (job["state"], job["done"], job["skipped"], job["damaged"]) != ("done", wanted, 0, 0):
        found.append(f"the account of the job does not balance: {orjson.dumps(job).decode()}")
    return found
