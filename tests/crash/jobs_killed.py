"""A replay job, and kills of the broker while it runs: each letter is exactly once in its queue or still dead. And an
export: each letter is in its file, once."""

import argparse
import base64
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import anyio
import orjson

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.waiting import until
from vibemq import Outgoing
from vibemq.client import Client

SOURCE, OTHER = "source", "other"


@dataclass(slots=True)
class Told:
    """What the run was, for the report."""

    kills: int = 0
    at_work: int = 0
    """Kills while the job ran."""
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
            await until(partial(_has_died, mq, queue, len(own)))
    return ids


async def _has_died(mq: Client, queue: str, count: int) -> bool:
    info = await mq.queue_info(queue)
    return info is not None and info.dead >= count


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


async def _exported(mq: Client, number: str) -> list[str]:
    """Ids of the messages in the file, whose last line must count them."""
    file, offset = b"", 0
    while offset is not None:
        part = await mq.admin("job.result", job=number, offset=offset)
        file += base64.b64decode(part["data"])
        offset = part["next"]
    *lines, tail = map(orjson.loads, file.splitlines())
    assert tail == {"count": len(lines), "damaged": 0}, tail
    return [line["id"] for line in lines]


async def killed(
    data_dir: Path,
    provider: str,
    *,
    letters: int,
    limit: int,
    kills: int,
    seed: int,
    rate: int,
    cli: bool = False,
    kind: str = "replay",
) -> Told:
    """Replay, or export, `limit` of the letters, and kill the broker so often while that runs. `cli`: and the command
    line that has begun it, or follows it."""
    rng, told = Random(seed), Told()
    broker = BrokerProcess(data_dir, provider=provider)
    broker.start()
    try:
        ids = await fill(broker.url, letters)
        wanted = {"kind": kind, "filter": {}, "limit": limit, "rate": rate, "key": "once"}
        command = ["dlq", "replay", "--limit", str(limit), "--rate", str(rate)]
        looks_on = _command(broker, data_dir, command) if cli else None
        job = await (_first_job(broker) if cli else _admin(broker, "job.start", **wanted))
        # In the first half: what is left takes seconds, also when this process stands still for a while.
        number, span = job["job"], limit // (2 * (kills + 1))
        for kill in range(kills):
            now = await _until_done(broker, number, span * kill + rng.randrange(1, max(2, span)))
            told.at_work += now["state"] == "running"
            if looks_on is not None and rng.random() < 0.7:
                _kill(looks_on)
            broker.kill()
            told.kills += 1
            broker.start()
            if looks_on is not None:
                _kill(looks_on)
                looks_on = _command(broker, data_dir, ["job", "follow", number])
            elif (again := await _admin(broker, "job.start", **wanted))["job"] != number:
                told.complaints.append(f"the same request made job {again['job']} after job {number}")
        await _admin(broker, "job.change", job=number, rate=0)
        told.job = await _until_ended(broker, number)
        if looks_on is not None and (code := looks_on.wait(60)):
            told.complaints.append(f"the command that followed the job ended with {code}")
        async with vibemq.connect(broker.url) as mq:
            if kind == "replay":
                back = await _kept(mq, SOURCE) + await _kept(mq, OTHER)
                told.complaints += judge(ids, back, await _dead(mq), limit, told.job)
            else:
                dead, written = await _dead(mq), await _exported(mq, number)
                if sorted(dead) != sorted(ids):
                    told.complaints.append(f"{len(dead)} letters are dead after the export, not {len(ids)}")
                told.complaints += judge(ids, written, [name for name in dead if name not in written], limit, told.job)
    finally:
        ended = broker.stop()
    if ended:
        told.complaints.append(f"the broker ended with {ended}: {broker.log_text()}")
    return told


def _command(broker: BrokerProcess, data_dir: Path, words: list[str]) -> "subprocess.Popen[bytes]":
    program = "from vibemq.cli.admin.main import run; run()"
    with (data_dir.parent / "command.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program, *words, "--url", broker.url], stdout=log, stderr=log, start_new_session=True
        )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(60)


async def _first_job(broker: BrokerProcess) -> dict[str, Any]:
    async with vibemq.connect(broker.url) as mq:
        found: list[dict[str, Any]] = []

        async def is_there() -> bool:
            found[:] = (await mq.admin("job.list"))["jobs"]
            return bool(found)

        await until(is_there)
        return found[0]


async def _until_done(broker: BrokerProcess, number: str, count: int) -> dict[str, Any]:
    """The job when it has done so many, or has ended."""
    return await _when(broker, number, lambda job: job["done"] >= count or job["state"] in ("done", "failed"))


async def _until_ended(broker: BrokerProcess, number: str) -> dict[str, Any]:
    return await _when(broker, number, lambda job: job["state"] not in ("running", "queued", "waiting"))


async def _when(broker: BrokerProcess, number: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with vibemq.connect(broker.url) as mq:
        job: dict[str, Any] = {}

        async def looks() -> bool:
            job.update(await mq.admin("job.show", job=number))
            return holds(job)

        await until(looks)
        return job


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


PROVIDERS, KINDS = ("lmdb", "sqlite"), ("replay", "export_dead")


def main() -> int:
    """100,000 letters, 20 kills: `make jobs-proof`. Prints what it was; 1 = something does not add up."""
    parser = argparse.ArgumentParser(prog="jobs-proof", description=__doc__)
    parser.add_argument("--provider", choices=PROVIDERS, action="append", help="left out: each")
    parser.add_argument("--kind", choices=KINDS, action="append", help="left out: each")
    given = parser.parse_args()
    for provider, kind in product(given.provider or PROVIDERS, given.kind or KINDS):
        with tempfile.TemporaryDirectory() as folder:
            work = partial(killed, Path(folder) / "data", provider, letters=100_000, limit=95_000, kills=20)
            told = anyio.run(partial(work, seed=20, rate=3_000, cli=kind == "replay", kind=kind))
        counts = {name: told.job[name] for name in ("state", "selected", "done", "skipped", "damaged", "dead_again")}
        print(f"{provider}, {kind}: {told.kills} kills, {told.at_work} at work, job {counts}", flush=True)
        for complaint in told.complaints:
            print(f"  {complaint}", flush=True)
        if told.complaints:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
