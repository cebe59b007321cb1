"""One run: publish, let Spark work, kill what it needs, one after another, and see it come back.

Each kill waits for its share of the work, and then for something that is *seen*: a result that was written, or an
acknowledgement. So it strikes a batch at a known step, however fast the machine is.
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio

from vibemq.cli.child import BrokerProcess
from vibemq.cli.exits import CommandFailed
from vibemq.cli.progress import Tracker
from vibemq.client import Client
from vibemq.demos.flights import flights
from vibemq.demos.spark.driver_process import DriverProcess
from vibemq.demos.spark.names import DELAYS, DELAYS_GROUP, FLIGHTS, REJECTS_GROUP
from vibemq.errors import VibeMQError

Strike = Callable[[], Awaitable[int]]
Revive = Callable[[int], Awaitable[None]]

EXECUTORS = 2
PUBLISHERS = 2
CHUNK_ROWS = 1_000
AHEAD_SHARE = 0.25
"""How far publishing may run ahead of Spark: so both go on while things are killed."""
POLL_S = 0.02
STALL_S = 120.0
"""Nothing new for so long, with everything up: something is lost or stuck."""


@dataclass(slots=True)
class Stand:
    """What the broker says."""

    processed: int = 0
    """Flights that both queries have acknowledged."""
    acked: int = 0
    """By the query that counts."""
    written: int = 0
    """Results in `delays`."""


@dataclass(slots=True)
class Kill:
    what: str
    seen: str
    """What was observed just before."""
    published: int
    processed: int
    back_s: float = 0.0
    """Until what was killed runs again."""
    progress_s: float = 0.0
    """Until the next acknowledgement."""


@dataclass(slots=True)
class FlowResult:
    rows: int
    published: int = 0
    refused: int = 0
    start_s: float = 0.0
    flow_s: float = 0.0
    kills: list[Kill] = field(default_factory=list)


class DemoFlow:
    def __init__(self, broker: BrokerProcess, driver: DriverProcess, frame: Any, say: Callable[[str], None]) -> None:
        self._broker = broker
        self._driver = driver
        self._say = say
        self._chunks: Iterator[list[dict[str, Any]]] = flights.chunks(frame, CHUNK_ROWS)
        self._stand = Stand()
        self._driver_wanted = True
        self._moved_at = time.monotonic()
        self.result = FlowResult(len(frame))

    async def run(self, progress: Tracker) -> None:
        """Everything, until both queries have acknowledged every flight."""
        began = time.monotonic()
        async with self._broker.client("demo-publisher") as mq:
            # Cursors only: a message is gone once both groups have acknowledged it.
            await mq.create_queue(FLIGHTS, durability="strong", mode="fan-out-with-ack")
            await mq.create_queue(DELAYS, durability="strong")
        self.result.start_s = await self._driver.start()
        self._say(f"driver {self._driver.pid} runs, executors {', '.join(map(str, self._driver.executors()))}")
        self._moved_at = time.monotonic()
        async with anyio.create_task_group() as tasks, self._broker.client("demo-publisher") as mq:
            tasks.start_soon(self._watch, progress)
            for _ in range(PUBLISHERS):
                tasks.start_soon(self._publish, mq)
            await self._kill("one executor", 0.25, "written", self._kill_executor, self._executor_back)
            await self._kill("the broker", 0.45, "acked", self._kill_broker, self._start_broker)
            await self._kill("the driver", 0.65, "written", self._kill_driver, self._start_driver)
            await self._until(lambda: self._finished)
            tasks.cancel_scope.cancel()
        self.result.flow_s = time.monotonic() - began
        progress(self.result.rows, self.result.rows)

    # -- tasks --------------------------------------------------------------------------------------------------------

    async def _publish(self, mq: Client) -> None:
        ahead = max(2 * CHUNK_ROWS, int(self.result.rows * AHEAD_SHARE))
        for rows in self._chunks:
            while self.result.published > self._stand.processed + ahead:
                await anyio.sleep(POLL_S)
            # What is sent again after the crash is not doubled: each row has a dedup id of the client's making.
            report = await mq.publish_many(FLIGHTS, rows, dedup=True, return_refused=True)
            self.result.published += len(rows) - len(report.refused)
            self.result.refused += len(report.refused)

    async def _watch(self, progress: Tracker) -> None:
        async with self._broker.client("demo-watcher") as mq:
            while True:
                await self._look(mq)
                progress(self._stand.processed, self.result.rows)
                if self._driver_wanted and not self._driver.alive:
                    raise CommandFailed(f"the Spark driver has ended by itself; {await self._driver.failure()}")
                if time.monotonic() - self._moved_at > STALL_S:
                    raise CommandFailed(f"nothing has moved for {STALL_S:.0f} s; {self._driver.last_words()}")
                await anyio.sleep(POLL_S)

    async def _look(self, mq: Client) -> None:
        try:
            source, results = [await mq.admin("queue.info", queue=queue) for queue in (FLIGHTS, DELAYS)]
        except VibeMQError:
            return  # The broker is away; whoever killed it starts it again.
        heads = {group["name"]: group["head"] - 1 for group in source["groups"]}
        acked, rejected = heads.get(DELAYS_GROUP, 0), heads.get(REJECTS_GROUP, 0)
        stand = Stand(min(acked, rejected), acked, results["next_sequence"] - 1)
        if stand != self._stand:
            self._stand, self._moved_at = stand, time.monotonic()

    # -- kills --------------------------------------------------------------------------------------------------------

    async def _kill(self, what: str, share: float, event: str, strike: Strike, revive: Revive) -> None:
        """When `share` of the flights is processed, and then `event` is seen: kill, wait for return and progress."""
        await self._until(lambda: self._stand.processed >= share * self.result.rows)
        before = getattr(self._stand, event)
        await self._until(lambda: getattr(self._stand, event) > before or self._finished)
        seen = _SEEN[event].format(getattr(self._stand, event) - before)
        if self._finished:
            raise CommandFailed(f"all flights were processed before {what} could be killed")
        kill = Kill(what, seen, self.result.published, self._stand.processed)
        self.result.kills.append(kill)
        killed_at, acked = time.monotonic(), self._stand.acked
        pid = await strike()
        self._say(
            f"kill -9 {pid} ({what}) on {seen}: {kill.published:,} published, {kill.processed:,} processed so far"
        )
        await revive(pid)
        kill.back_s = time.monotonic() - killed_at
        self._moved_at = time.monotonic()
        await self._until(lambda: self._stand.acked > acked or self._finished)
        kill.progress_s = time.monotonic() - killed_at
        self._say(
            f"{what} is back after {kill.back_s:.1f} s; the next acknowledgement came after {kill.progress_s:.1f} s"
        )

    async def _kill_executor(self) -> int:
        pid = self._driver.executors()[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    async def _executor_back(self, pid: int) -> None:
        """Spark starts another by itself."""
        await self._until(lambda: len(set(self._driver.executors()) - {pid}) >= EXECUTORS)

    async def _kill_broker(self) -> int:
        pid = self._broker.pid
        await self._broker.kill()
        return pid

    async def _start_broker(self, _: int) -> None:
        await self._broker.start()

    async def _kill_driver(self) -> int:
        pid = self._driver.pid
        self._driver_wanted = False
        await self._driver.kill()
        return pid

    async def _start_driver(self, _: int) -> None:
        await self._driver.start()
        self._driver_wanted = True

    @property
    def _finished(self) -> bool:
        return self._stand.processed >= self.result.rows

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await anyio.sleep(POLL_S)


_SEEN = {
    "written": "{:,} results written",
    "acked": "an acknowledgement of {:,} flights",
}
