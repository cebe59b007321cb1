"""Publishes, starts drivers, and kills: the driver, executors, Python workers, the process of a source, the broker,
each when something has been seen.

What is seen is a write (of results into a queue, of a Parquet file) or an acknowledgement, so a kill strikes a batch at
one of its steps; which one, and how many of them pass by before, is drawn from the seed. Half of the kills of drivers
are aimed at the instant between the broker's commit of an exact batch and Spark's own, which chance hardly ever hits:
the driver dies as soon as the target queue has grown.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from tests.spark.torture.account import Account, place
from tests.spark.torture.driver import ON_PURPOSE, SINKS, output_of
from tests.spark.torture.hands import Hands
from vibemq.cli.child import BrokerProcess
from vibemq.client import Client
from vibemq.demos.spark import tidy
from vibemq.demos.spark.driver_process import DriverProcess
from vibemq.errors import VibeMQError

LOCAL, CLUSTER = "local[2,12]", "local-cluster[2,1,512]"
EVENTS_MOST = 2
CHUNK = 50
PUBLISH_INTERVAL_S = 0.25
BACKLOG_MOST = 4_000
POLL_S = 0.02
AIMED_POLL_S = 0.002
STALL_S = 180.0
DRAIN_S = 600.0
DRAIN_DRIVERS = 3
RELEASE_S = 30.0
"""How long a broker may need to let go of what it has held for long enough."""


STEPS = [(kind, name) for kind in ("ack", "write") for name in SINKS]
AIMED = ("write", "once")
"""The broker has committed, Spark has not."""


class Stalled(Exception):
    """Nothing has been seen for a long time."""


class Harness:
    def __init__(self, folder: Path, seed: int, say: Callable[[str], None], hold_s: int) -> None:
        """`hold_s`: 0 leaves the checkpoints alone, as nothing could be repeated."""
        self._folder = folder
        self._random = random.Random(seed)
        self._say = say
        self._broker = BrokerProcess(folder / "data")
        self._spark = folder / "spark"
        self._spark.mkdir()
        self._hold_s = hold_s
        self._hands = Hands(self._spark, SINKS, self._random, f"{hold_s}s", say)
        self._driver: DriverProcess | None = None
        self._began = time.monotonic()
        self.account = Account()

    async def run(self, minutes: float) -> None:
        await self._broker.start()
        try:
            async with self._broker.client("torture") as mq:
                for name in SINKS:
                    await mq.create_queue(f"work.{name}", durability="strong", mode="fan-out-with-ack")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._publish, mq)
                    while time.monotonic() < self._began + minutes * 60:
                        await self._life()
                    tasks.cancel_scope.cancel()
                await self._drain(mq)
                await self._count(mq)
        finally:
            with anyio.CancelScope(shield=True):
                if self._driver is not None:
                    await self._driver.stop()
                await self._broker.stop()

    # -- the producer -------------------------------------------------------------------------------------------------

    async def _publish(self, mq: Client) -> None:
        number = 0
        while True:
            for name in SINKS:
                numbers = range(number, number + CHUNK)
                report = await mq.publish_many(
                    f"work.{name}", [b"%d" % one for one in numbers], dedup=True, return_refused=True
                )
                self.account.published[name] |= {one for i, one in enumerate(numbers) if i not in report.refused}
            number += CHUNK
            await anyio.sleep(PUBLISH_INTERVAL_S)
            while await self._backlog(mq) > BACKLOG_MOST:
                await anyio.sleep(PUBLISH_INTERVAL_S)

    async def _backlog(self, mq: Client) -> int:
        try:
            infos = [await mq.admin("queue.info", queue=f"work.{name}") for name in SINKS]
        except VibeMQError:
            return 0  # The broker is away.
        return max(int(info["ready"]) for info in infos)

    # -- one driver's life --------------------------------------------------------------------------------------------

    async def _life(self) -> None:
        """Start a driver, kill some of what it needs, and then itself."""
        account = self.account
        behind = account.kills["executor"] < 0.3 * account.kills["driver"]
        targets = ["executor", "executor"] if behind else []
        for what, share in (("broker", 0.4), ("worker", 0.6)):
            if account.kills[what] < share * (account.kills["driver"] + 1):
                targets.insert(self._random.randrange(len(targets) + 1), what)
        last = "source" if account.kills["source"] < 0.15 * account.kills["driver"] else "driver"
        if self._hold_s:
            self._hands.between()
        driver = await self._start(CLUSTER if behind else LOCAL)
        try:
            for what in targets:
                await self._strike(driver, what)
            await (self._strike_source(driver) if last == "source" else self._strike_driver(driver))
        except Stalled as stalled:
            account.stalls += 1
            self._say(f"{stalled}; {driver.last_words()[-1500:]}")
            await driver.kill()
        except ChildProcessError:
            await self._ended(driver)

    async def _ended(self, driver: DriverProcess) -> None:
        why = await driver.failure()
        await driver.kill()
        if not self._hands.was_refused(why):
            self._say(f"the driver has ended by itself: {why[:300]}")
            self.account.ended(why)

    async def _start(self, master: str) -> DriverProcess:
        async with self._broker.client("outputs") as mq:
            for name in ("plain", "once"):
                await mq.create_queue(self._output(name), durability="strong")
        endpoint = f"127.0.0.1:{self._broker.port}"
        driver = DriverProcess(self._spark, "tests.spark.torture.driver", endpoint, str(self._spark), master)
        self._driver = driver
        self.account.drivers += 1
        seconds = await driver.start()
        self._say(f"driver {driver.pid} on {master} runs after {seconds:.1f} s")
        return driver

    def _output(self, name: str) -> str:
        return output_of(name, self._hands.queries[name].output)

    async def _strike(self, driver: DriverProcess, what: str) -> None:
        kind, name = self._random.choice(STEPS)
        await self._see(driver, kind, name, self._random.randint(1, EVENTS_MOST))
        if what == "broker":
            await self._broker.kill()
            await self._broker.start()
        else:
            pids = driver.executors() if what == "executor" else python_workers(driver.pid)
            os.kill(self._random.choice(pids), signal.SIGKILL)
        self._note(what, kind, name)

    async def _strike_driver(self, driver: DriverProcess) -> None:
        is_aimed = self._random.random() < 0.5
        kind, name = AIMED if is_aimed else self._random.choice(STEPS)
        await self._see(driver, kind, name, 1 if is_aimed else self._random.randint(1, EVENTS_MOST))
        planned = self._hands.newest(name)
        await driver.kill()
        if (kind, name) == AIMED:
            self.account.aimed += 1
            self.account.hits += not self._hands.is_noted(name, planned)
        self._note("driver", kind, name)

    async def _strike_source(self, driver: DriverProcess) -> None:
        """The process that plans a query: Spark starts none in its place, and the query fails."""
        kind, name = self._random.choice(STEPS)
        await self._see(driver, kind, name, self._random.randint(1, EVENTS_MOST))
        os.kill(self._random.choice(sources(driver.pid)), signal.SIGKILL)
        self._note("source", kind, name)
        deadline = time.monotonic() + STALL_S
        while driver.alive:
            if time.monotonic() > deadline:
                raise Stalled(f"a query without the process of its source has not failed within {STALL_S:.0f} s")
            await anyio.sleep(POLL_S)
        why = await driver.failure()
        await driver.kill()
        if not self._hands.was_refused(why):
            self._say(f"a query whose source was killed has failed: {why[:200]}")

    def _note(self, what: str, kind: str, name: str) -> None:
        self.account.kills[what] += 1
        self.account.seen[f"{kind} {name}"] += 1
        counts = ", ".join(f"{count} {one}s" for one, count in sorted(self.account.kills.items()))
        self._say(f"kill -9 {what} on {kind} of {name}: {counts} so far")

    async def _see(self, driver: DriverProcess, kind: str, name: str, times: int) -> None:
        """Wait until the sink or the cursor has moved so often.

        Raises:
            Stalled: it does not move.
            ChildProcessError: the driver has ended by itself.
        """
        async with self._broker.client("watcher") as mq:
            last, deadline = await self._stand(mq, kind, name), time.monotonic() + STALL_S
            pause_s = AIMED_POLL_S if (kind, name) == AIMED else POLL_S
            while times:
                await anyio.sleep(pause_s)
                now = await self._stand(mq, kind, name)
                if now is not None and now != last:
                    times, last, deadline = times - (last is not None), now, time.monotonic() + STALL_S
                if not driver.alive:
                    raise ChildProcessError
                if time.monotonic() > deadline:
                    raise Stalled(f"no {kind} of {name} within {STALL_S:.0f} s")

    async def _stand(self, mq: Client, kind: str, name: str) -> int | None:
        """A number that grows with every acknowledgement, or write; None while the broker is away."""
        if kind == "write" and name == "files":
            return sum(1 for _ in self._spark.glob("files*/*.parquet"))
        try:
            if kind == "write":
                return int((await mq.admin("queue.info", queue=self._output(name)))["next_sequence"])
            return int((await mq.admin("group.offsets", queue=f"work.{name}", group=name))["committed"])
        except VibeMQError:
            return None

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _drain(self, mq: Client) -> None:
        """Drivers until nothing is left."""
        deadline = time.monotonic() + DRAIN_S
        for _ in range(DRAIN_DRIVERS + len(SINKS)):  # Each query may be refused once.
            driver = await self._start(LOCAL)
            while driver.alive and await self._waiting(mq) and time.monotonic() < deadline:
                await anyio.sleep(0.2)
            if driver.alive:
                await driver.stop()
                return
            await self._ended(driver)
        self.account.stalls += 1
        self._say(f"{DRAIN_DRIVERS} drivers have not drained the queues")

    async def _waiting(self, mq: Client) -> int:
        found = [await mq.admin("group.offsets", queue=f"work.{name}", group=name) for name in SINKS]
        return sum(int(offsets["tail"]) - int(offsets["committed"]) for offsets in found)

    async def _count(self, mq: Client) -> None:
        account = self.account
        account.hands, account.refused = self._hands.done, self._hands.refused
        deadline = time.monotonic() + self._hold_s + RELEASE_S
        for name in SINKS:
            while (left := await self._left(mq, name)) and time.monotonic() < deadline:
                await anyio.sleep(1.0)
            account.left[name] = left
        for name in ("plain", "once"):
            for number in range(self._hands.queries[name].output + 1):
                while messages := await mq.fetch(output_of(name, number), max=2000, timeout=1.0):
                    account.arrived[name] += [_pair(number, bytes(message.payload).decode()) for message in messages]
                    for message in messages:
                        message.ack()
        files = self._spark / "files.txt"
        for line in files.read_text().splitlines() if files.exists() else ():
            number, _, body = line.partition(" ")
            account.arrived["files"].append(_pair(int(number), body))
        log = self._spark.with_suffix(".log").read_text(errors="replace").splitlines()
        account.failed_tasks = sum("Lost task" in line and ON_PURPOSE in line for line in log)

    @staticmethod
    async def _left(mq: Client, name: str) -> int:
        info = await mq.admin("queue.info", queue=f"work.{name}")
        return int(info["ready"] + info["in_flight"])


def _pair(output: int, body: str) -> tuple[int, int]:
    sequence, number = body.split()
    return place(output, int(sequence)), int(number)


def python_workers(driver: int) -> list[int]:
    """Processes that run tasks, not the daemons that start them."""
    found = [pid for pid, command in tidy.members(driver).items() if "pyspark.daemon" in command]
    return sorted(pid for pid in found if _parent(pid) in found)


def sources(driver: int) -> list[int]:
    return sorted(pid for pid, command in tidy.members(driver).items() if "python_streaming_source_runner" in command)


def _parent(pid: int) -> int:
    """0 when it has ended meanwhile."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
