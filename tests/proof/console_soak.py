"""Many people click about in consoles while messages flow: nothing grows, and nobody is told of an error of the broker.

    python -m tests.proof.console_soak [--minutes 120] [--browsers 20] [--seed 1] [--no-chromium]

Each session logs in as a browser does, opens pages (their requests and their streams), changes queues and jobs of its
own, and logs out; one of them is Chromium, which stays open all the while. When all have gone, the broker has as many
open files, readers of its store and sessions as before; neither its memory nor that of a tab has grown since the first
third of the time.
"""

import argparse
import math
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
from tests.browser.conftest import CHROMIUM
from tests.integration.access import EVERYBODY, PASSWORD
from tests.proof.console_tab import TabsSeen, browse_in_chromium
from tests.proof.growth import judge_growth, thirds_of
from tests.waiting import until
from tests.watchdog import slowness
from vibemq.client import Client

API = "/api/v1"
LOAD = "load"
SITE = {"Sec-Fetch-Site": "same-origin"}
LOOK_S = 5.0
TELL_S = 300.0
PURGE_S = 60.0
GOING_ON = {"queued", "running", "waiting"}
GROWN_MIB_MAX = 24
FILES_MAX = 4
"""More than before that may be open: logs and files of the store come and go."""
HOLD_MS_MAX = 20.0
"""Of all turns of the loop but one in a thousand."""
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
    holds_ms: list[float] = field(default_factory=list)
    """The longest turn of the broker's loop between two looks."""
    turns: Counter[int] = field(default_factory=Counter)
    """All of them, by ms."""
    complaints: list[str] = field(default_factory=list)
    tabs: TabsSeen = field(default_factory=TabsSeen)


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
        try:
            answer = await http.request(method, API + path, **more)
        except httpx.HTTPError as error:
            self._told.complaints.append(f"{method} {path}: {error!r}")
            return None
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
        try:
            await self._read_some(http, path)
        except httpx.HTTPError as error:
            self._told.complaints.append(f"GET {path}: {error!r}")

    async def _read_some(self, http: httpx.AsyncClient, path: str) -> None:
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
            await self._purge_letters(http)
            await self._ask(http, "DELETE", path)

    async def _purge_letters(self, http: httpx.AsyncClient) -> None:
        """A queue's letters outlive it: without this the store would grow by those of each queue that is deleted."""
        body = {"kind": "purge_dead", "filter": {"queue": self._queue}}
        job = await self._ask(http, "POST", "/jobs", json=body)
        while job is not None and job["state"] in GOING_ON:
            await anyio.sleep(0.1)
            job = await self._ask(http, "GET", f"/jobs/{job['job']}")

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
    """One message in a thousand is rejected; somebody purges the letters once a minute."""

    def __init__(self, url: str, told: Soaked) -> None:
        self._url = url
        self._told = told

    async def run(self) -> None:
        async with vibemq.connect(self._url) as producer, vibemq.connect(self._url) as consumer:
            await producer.create_queue(LOAD, dead_letter=True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._publish, producer)
                tasks.start_soon(self._purge_letters, producer)
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

    async def _purge_letters(self, operator: Client) -> None:
        while True:
            await anyio.sleep(PURGE_S)
            await operator.admin("job.start", kind="purge_dead", filter={"queue": LOAD})


async def soak(
    broker: WatchedBroker, folder: Path, *, seed: int, sessions: int, clicks: int, chromium: bool, seconds: float = 0.0
) -> Soaked:
    """Each session visits once, and again until the seconds are over.

    Args:
        chromium: it is one of those who click.
    """
    told = Soaked()
    async with anyio.create_task_group() as working:
        working.start_soon(Load(broker.url.replace("://", f"://root:{PASSWORD}@"), told).run)
        await until(lambda: told.messages)
        # What is made once, and stays, is there after one visit.
        await SoakSession(broker.http_port, sessions, seed, told).visit(clicks)
        before = _open_things(broker, folder)
        broker.longest_hold_ms()
        begun = broker.turns()
        ends = monotonic() + seconds

        async def browse(number: int) -> None:
            session = SoakSession(broker.http_port, number, seed, told)
            await session.visit(clicks)
            while monotonic() < ends:
                await session.visit(clicks)

        def goes_on(clicked: int) -> bool:
            return clicked < clicks or monotonic() < ends

        async with anyio.create_task_group() as watching:
            watching.start_soon(_look, broker, told)
            async with anyio.create_task_group() as browsing:
                for number in range(sessions):
                    browsing.start_soon(browse, number)
                if chromium:
                    browsing.start_soon(browse_in_chromium, broker.http_port, seed, goes_on, told.tabs)
            watching.cancel_scope.cancel()
        told.complaints += await _left_open(broker, folder, before)
        working.cancel_scope.cancel()
    told.complaints += told.tabs.complaints
    if seconds:
        told.complaints += told.tabs.judge_heap()
        told.complaints += judge_growth("memory", told.memory_mib, GROWN_MIB_MAX)
        told.turns = broker.turns() - begun
        if (hold_ms := turn_ms(told.turns, 0.999)) > HOLD_MS_MAX:
            told.complaints.append(f"one turn of the loop in a thousand holds it for {hold_ms} ms or more")
    return told


async def _look(broker: WatchedBroker, told: Soaked) -> None:
    began = tell_at = monotonic()
    while True:
        told.memory_mib.append(broker.memory_mib("RssAnon"))
        if monotonic() >= tell_at:
            tell_at += TELL_S
            print(_line(told, monotonic() - began), flush=True)
        slow = slowness()
        await anyio.sleep(LOOK_S)
        told.holds_ms.append(broker.longest_hold_ms() / min(slow, slowness()))


def _line(told: Soaked, seconds: float) -> str:
    """How it goes, for who watches a long run."""
    heap = f", heap of a tab {told.tabs.heap_mib[-1]:.1f} MiB" if told.tabs.heap_mib else ""
    return (
        f"{seconds / 60:.0f} min: clicks {told.clicks.total():,} and {told.tabs.clicks:,}, messages {told.messages:,}, "
        f"memory {told.memory_mib[-1]:.1f} MiB{heap}, complaints {len(told.complaints) + len(told.tabs.complaints)}"
    )


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


def soaked(folder: Path, *, seed: int, sessions: int, clicks: int, chromium: bool, seconds: float = 0.0) -> Soaked:
    http = {"port": 0, "requests_per_second": 0, "streams_max": 2 * sessions}
    auth = tomllib.loads(EVERYBODY)["auth"]
    with watched_broker(folder=folder, http=http, auth=auth) as broker:
        more = {"seed": seed, "sessions": sessions, "clicks": clicks, "chromium": chromium, "seconds": seconds}
        return anyio.run(lambda: soak(broker, folder, **more))


def main() -> int:
    parser = argparse.ArgumentParser(prog="console-soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--browsers", type=int, default=20, help="one of them is Chromium")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-chromium", action="store_true", help="without Chromium")
    given = parser.parse_args()
    if CHROMIUM is None and not given.no_chromium:
        parser.error("there is no Chromium on the path (Debian: apt-get install chromium); --no-chromium goes without")
    with TemporaryDirectory(prefix="vibemq-soak-") as folder:
        told = soaked(
            Path(folder),
            seed=given.seed,
            # Of more than 20 sessions of a user one ends.
            sessions=given.browsers - (not given.no_chromium),
            clicks=50,
            chromium=not given.no_chromium,
            seconds=60 * given.minutes,
        )
    print(f"clicks {dict(told.clicks)}, answers {dict(sorted(told.answers.items()))}, events {told.events:,}")
    print(f"messages {told.messages:,}, memory {_thirds(told.memory_mib)}, seed {given.seed}")
    if told.holds_ms:
        found = [share_of(told.holds_ms, share) for share in (0.5, 0.99, 0.999, 1.0)]
        print(f"longest hold between two looks: {', '.join(f'{hold:.1f}' for hold in found)} ms (p50, p99, p99.9, max)")
    if told.turns:
        busy = Counter({ms: count for ms, count in told.turns.items() if ms > 1})
        for word, turns in (("all turns of the loop", told.turns), ("those above 1 ms", busy)):
            shares = ", ".join(str(turn_ms(turns, share)) for share in (0.99, 0.999, 0.9999))
            print(f"{word}: {turns.total():,}, at most {shares} ms (p99, p99.9, p99.99)")
    print(f"Chromium: {told.tabs.clicks:,} clicks, heap of the tab that stays {_thirds(told.tabs.heap_mib)}")
    for complaint in told.complaints[:50]:
        print(f"  {complaint}")
    return 1 if told.complaints else 0


def share_of(samples: list[float], share: float) -> float:
    """The least sample that so many of them, as a share, do not exceed."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def turn_ms(turns: Counter[int], share: float) -> int:
    """The least time that so many of the turns, as a share, do not exceed; 0 where there is none."""
    rest = math.ceil(share * turns.total())
    for ms in sorted(turns):
        rest -= turns[ms]
        if rest <= 0:
            return ms
    return 0


def _thirds(samples: list[float]) -> str:
    return f"{', '.join(f'{third:.1f}' for third in thirds_of(samples))} MiB in the thirds"


if __name__ == "__main__":
    sys.exit(main())
