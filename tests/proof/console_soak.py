"""Many people click about in consoles while messages flow: nothing grows, and nobody is told of an error of the broker.

    python -m tests.proof.console_soak [--minutes 120] [--sessions 20] [--seed 1]

Each session logs in as a browser does, opens pages (their requests and their streams), changes queues and jobs of its
own, and logs out. When all have gone, the broker has as many open files, readers of its store and sessions as before;
its memory has not grown since the first third of the time.
"""

import argparse
import statistics
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import anyio
import httpx
import lmdb

import vibemq
from bench.common.watched import WatchedBroker, watched_broker
from tests.integration.access import EVERYBODY, PASSWORD
from tests.waiting import until
from tests.watchdog import slowness
from vibemq.client import Client

API = "/api/v1"
LOAD = "load"
SITE = {"Sec-Fetch-Site": "same-origin"}
LOOK_S = 5.0
GROWN_MIB_MAX = 24
FILES_MAX = 4
"""More than before that may be open: logs and files of the store come and go."""
HOLD_MS_MAX = 20.0
REFUSALS = {404, 409, 410, 412, 429}
"""What somebody may be told who clicks on what another has just changed or deleted."""

PAGES = (
    "/overview",
    "/history?range=15m",
    "/queues?limit=50&sort=-ready",
    "/queues?limit=50&name=o",
    f"/queues/{LOAD}",
    f"/queues/{LOAD}/consumers",
    f"/queues/{LOAD}/messages?limit=50",
    f"/queues/{LOAD}/messages?limit=10&state=in_flight",
    f"/history?queue={LOAD}&range=15m",
    "/dead-letters?limit=50&order=newest",
    "/dead-letters?limit=20&error=odd",
    "/dead-letters/groups?limit=500",
    "/jobs",
    "/connections?limit=50",
    "/cursors?limit=50",
    "/transactions",
    "/broker",
    "/broker/checks",
    "/broker/settings",
    "/broker/listeners",
    "/audit?limit=50",
    "/users",
    "/openapi.json",
)
STREAMS = ("topic=overview", f"topic=overview&topic=queue:{LOAD}&topic=queues?queue={LOAD}", "topic=queues&topic=jobs")


@dataclass(slots=True)
class Soaked:
    """What the run was, for the report."""

    clicks: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    events: int = 0
    messages: int = 0
    memory_mib: list[float] = field(default_factory=list)
    longest_hold_ms: float = 0.0
    complaints: list[str] = field(default_factory=list)


class SoakSession:
    """One person and one browser."""

    def __init__(self, http_port: int, number: int, seed: int, told: Soaked) -> None:
        self._http_port = http_port
        self._rng = Random(f"{seed} {number}")
        self._queue = f"own-{number}"
        # Limits are those of a user and an address.
        self._host = f"127.0.{1 + number // 250}.{1 + number % 250}"
        self._told = told

    async def visit(self, clicks: int) -> None:
        """Log in, click so often, log out."""
        address = f"http://127.0.0.1:{self._http_port}"
        transport = httpx.AsyncHTTPTransport(local_address=self._host)
        async with httpx.AsyncClient(
            base_url=address, headers=SITE, timeout=60, trust_env=False, transport=transport
        ) as http:
            await self._ask(http, "POST", "/session", json={"user": "root", "password": PASSWORD})
            for _ in range(clicks):
                click = self._rng.choices(
                    (self._page, self._stream, self._tail, self._work, self._replay), (60, 8, 4, 20, 8)
                )[0]
                self._told.clicks[click.__name__.strip("_")] += 1
                await click(http)
            await self._ask(http, "DELETE", "/session")

    async def _ask(self, http: httpx.AsyncClient, method: str, path: str, **more: Any) -> Any:
        """The JSON of the answer; None when it was refused."""
        answer = await http.request(method, API + path, **more)
        self._told.answers[answer.status_code] += 1
        if answer.is_success:
            return answer.json() if answer.content else None
        if answer.status_code not in REFUSALS:
            self._told.complaints.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return None

    async def _page(self, http: httpx.AsyncClient) -> None:
        await self._ask(http, "GET", self._rng.choice(PAGES))

    async def _stream(self, http: httpx.AsyncClient) -> None:
        await self._read(http, f"/events?{self._rng.choice(STREAMS)}")

    async def _tail(self, http: httpx.AsyncClient) -> None:
        await self._read(http, f"/queues/{LOAD}/tail?sample={self._rng.randint(1, 50)}")

    async def _read(self, http: httpx.AsyncClient, path: str) -> None:
        """Some events, and then the tab is closed."""
        async with http.stream("GET", API + path) as response:
            self._told.answers[response.status_code] += 1
            if response.status_code != 200:
                if response.status_code not in REFUSALS:
                    self._told.complaints.append(f"GET {path}: {response.status_code}")
                return
            left = self._rng.randint(1, 3)
            async for part in response.aiter_bytes():
                self._told.events += 1
                left -= b"event:" in part
                if left <= 0:
                    return

    async def _work(self, http: httpx.AsyncClient) -> None:
        path = f"/queues/{self._queue}"
        await self._ask(http, "PUT", path, json={})
        lines = b"\n".join(b'{"payload": "%d"}' % number for number in range(self._rng.randint(1, 100)))
        await self._ask(
            http, "POST", f"{path}/messages", content=lines, headers={"Content-Type": "application/x-ndjson"}
        )
        await self._ask(http, "GET", f"{path}/messages?limit=20")
        taken = await self._ask(http, "POST", f"{path}/deliveries", json={"max": 20, "wait_ms": 0})
        leases = [{"lease": one["lease"], "verb": "reject", "reason": "odd"} for one in (taken or {}).get("items", ())]
        if leases:
            await self._ask(http, "POST", "/deliveries", json={"settlements": leases})
        if self._rng.random() < 0.5:
            await self._ask(http, "POST", f"{path}/purge", json={})
        if self._rng.random() < 0.5:
            await self._ask(http, "DELETE", path)

    async def _replay(self, http: httpx.AsyncClient) -> None:
        chosen = {"queue": self._queue}
        await self._ask(http, "POST", "/dead-letters/preview", json={"filter": chosen})
        body = {"kind": self._rng.choice(("replay", "purge_dead")), "filter": chosen, "rate": self._rng.choice((0, 50))}
        job = await self._ask(http, "POST", "/jobs", json=body)
        if job is None:
            return
        path = f"/jobs/{job['job']}"
        for state in self._rng.sample(("paused", "running", "cancelled"), 2):
            await self._ask(http, "PATCH", path, json={"state": state})
        await self._ask(http, "PATCH", path, json={"state": "cancelled"})


class Load:
    """One message in a hundred is rejected; every hundredth letter of these stays."""

    def __init__(self, url: str, told: Soaked) -> None:
        self._url = url
        self._told = told

    async def run(self) -> None:
        async with vibemq.connect(self._url) as producer, vibemq.connect(self._url) as consumer:
            await producer.create_queue(LOAD, dead_letter=True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._publish, producer)
                async with consumer.subscribe(LOAD, prefetch=500) as messages:
                    async for message in messages:
                        self._told.messages += 1
                        if self._told.messages % 1_000:
                            message.ack()
                        else:
                            message.reject("odd")

    async def _publish(self, producer: Client) -> None:
        while True:
            await producer.publish_many(LOAD, [b"x" * 200] * 100)
            await anyio.sleep(0.05)


async def soak(
    broker: WatchedBroker, folder: Path, *, seed: int, sessions: int, clicks: int, seconds: float = 0.0
) -> Soaked:
    """Each session visits once, and again until the seconds are over."""
    told = Soaked()
    async with anyio.create_task_group() as working:
        working.start_soon(Load(broker.url.replace("://", f"://root:{PASSWORD}@"), told).run)
        await until(lambda: told.messages)
        # What is made once, and stays, is there after one visit.
        await SoakSession(broker.http_port, sessions, seed, told).visit(clicks)
        before = _open_things(broker, folder)
        broker.longest_hold_ms()
        slow, ends = slowness(), monotonic() + seconds

        async def browse(number: int) -> None:
            session = SoakSession(broker.http_port, number, seed, told)
            await session.visit(clicks)
            while monotonic() < ends:
                await session.visit(clicks)

        async with anyio.create_task_group() as watching:
            watching.start_soon(_look, broker, told)
            async with anyio.create_task_group() as browsing:
                for number in range(sessions):
                    browsing.start_soon(browse, number)
            watching.cancel_scope.cancel()
        told.longest_hold_ms = max(told.longest_hold_ms, broker.longest_hold_ms()) / min(slow, slowness())
        told.complaints += await _left_open(broker, folder, before)
        working.cancel_scope.cancel()
    if seconds:
        told.complaints += judge_memory(told.memory_mib)
        if told.longest_hold_ms > HOLD_MS_MAX:
            told.complaints.append(f"the loop was held for {told.longest_hold_ms:.1f} ms")
    return told


async def _look(broker: WatchedBroker, told: Soaked) -> None:
    while True:
        told.memory_mib.append(broker.memory_mib("RssAnon"))
        await anyio.sleep(LOOK_S)
        told.longest_hold_ms = max(told.longest_hold_ms, broker.longest_hold_ms())


def thirds_of(samples: list[float]) -> list[float]:
    """The median of each third; none of a run that was too short."""
    third = len(samples) // 3
    parts = (samples[:third], samples[third : 2 * third], samples[2 * third :]) if third else ()
    return [statistics.median(part) for part in parts]


def judge_memory(samples: list[float]) -> list[str]:
    """Whether the last third is above the second: in the first the broker fills what it keeps."""
    if not (thirds := thirds_of(samples)):
        return []
    _, middle, last = thirds
    return [f"memory has grown from {middle:.0f} to {last:.0f} MiB"] if last > middle + GROWN_MIB_MAX else []


def _open_things(broker: WatchedBroker, folder: Path) -> dict[str, int]:
    with lmdb.open(str(folder / "store"), subdir=True, readonly=True, max_dbs=64) as store:
        readers = len(store.readers().splitlines())
    return {"files": broker.open_files(), "readers": readers}


async def _left_open(broker: WatchedBroker, folder: Path, before: dict[str, int]) -> list[str]:
    """What is open beyond that when the browsers have gone, as soon as their connections are closed."""
    now: dict[str, int] = {}

    def is_back() -> bool:
        now.update(_open_things(broker, folder))
        return now["files"] <= before["files"] + FILES_MAX and now["readers"] <= before["readers"]

    try:
        await until(is_back)
    except AssertionError:
        return [f"open before: {before}, afterwards: {now}"]
    return []


def soaked(folder: Path, *, seed: int, sessions: int, clicks: int, seconds: float = 0.0) -> Soaked:
    http = {"port": 0, "requests_per_second": 0, "streams_max": 2 * sessions}
    auth = tomllib.loads(EVERYBODY)["auth"]
    with watched_broker(folder=folder, http=http, auth=auth) as broker:
        return anyio.run(lambda: soak(broker, folder, seed=seed, sessions=sessions, clicks=clicks, seconds=seconds))


def main() -> int:
    parser = argparse.ArgumentParser(prog="console-soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="vibemq-soak-") as folder:
        told = soaked(Path(folder), seed=given.seed, sessions=given.sessions, clicks=50, seconds=60 * given.minutes)
    memory = f"{', '.join(f'{third:.0f}' for third in thirds_of(told.memory_mib))} MiB in the thirds"
    print(f"clicks {dict(told.clicks)}, answers {dict(sorted(told.answers.items()))}, events {told.events:,}")
    print(f"messages {told.messages:,}, memory {memory}, longest hold {told.longest_hold_ms:.1f} ms, seed {given.seed}")
    for complaint in told.complaints[:50]:
        print(f"  {complaint}")
    return 1 if told.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
