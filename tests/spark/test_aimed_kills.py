"""The driver dies when the target queue grows: after the broker's commit, before Spark's. Random kills hardly ever hit
that instant."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from tests.spark.world import CEILING_S, needs_spark
from vibemq.cli.child import BrokerProcess
from vibemq.client import Client
from vibemq.demos.spark import tidy
from vibemq.demos.spark.driver_process import DriverProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark, needs_spark]

ROWS = 10
SECOND = 1_000_000
DRIVERS_MOST = 8


class Aim:
    """One query, killed again and again."""

    def __init__(self, folder: Path, broker: BrokerProcess, mq: Client, kind: str, mutant: str) -> None:
        self._checkpoint = folder / "checkpoint"
        self._mq = mq
        endpoint = f"127.0.0.1:{broker.port}"
        self.driver = DriverProcess(folder, "tests.spark.aimed_driver", endpoint, str(folder), kind, mutant)
        self.sent = 0

    async def grown(self) -> int:
        """How many messages the target has had."""
        return int((await self._mq.admin("queue.info", queue="target"))["next_sequence"]) - 1

    async def send(self) -> None:
        await self._mq.publish_many("source", [b"%d" % (self.sent + n) for n in range(ROWS)])
        self.sent += ROWS

    def is_hit(self) -> bool:
        """Whether Spark has planned a batch whose end it has not noted."""
        planned = max(int(file.name) for file in (self._checkpoint / "offsets").glob("[0-9]*"))
        return not (self._checkpoint / "commits" / f"{planned}").exists()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + 2 * CEILING_S
        while not await holds():
            assert self.driver.alive, self.driver.last_words()
            assert time.monotonic() < deadline, self.driver.last_words()
            await anyio.sleep(0.002)

    async def strike(self, growth: int) -> bool:
        """A batch, and a kill when the target has grown by so much; whether it came in time."""
        await self.driver.start()
        await self.until(self.acknowledged)
        before = await self.grown()
        await self.send()

        async def hit() -> bool:
            return await self.grown() >= before + growth

        await self.until(hit)
        await self.driver.kill()
        return self.is_hit()

    async def acknowledged(self) -> bool:
        """Whether everything sent is done, in Spark's eyes too."""
        if not self.sent:
            return True
        found = await self._mq.admin("group.offsets", queue="source", group="aimed")
        return int(found["committed"]) == self.sent + 1


async def aimed(folder: Path, kind: str, mutant: str, growths: list[int]) -> list[int]:
    """What is in the target after a kill at each of these growths that came in time."""
    broker = BrokerProcess(folder / "data")
    await broker.start()
    try:
        async with broker.client("aimed") as mq:
            await mq.create_queue("source", mode="fan-out-with-ack")
            await mq.create_queue("target", retention="log")
            (folder / "spark").mkdir()
            aim = Aim(folder / "spark", broker, mq, kind, mutant)
            drivers = 0
            try:
                for growth in growths:
                    while not await aim.strike(growth):
                        drivers += 1
                        assert drivers < DRIVERS_MOST, "no kill comes in time"
                await aim.driver.start()
                await aim.until(aim.acknowledged)
            finally:
                await aim.driver.stop()
            messages = await mq.admin("queue.peek", queue="target", limit=1000)
            return sorted(int(message["payload"]) for message in messages)
    finally:
        await broker.stop()


@pytest.mark.parametrize(
    ("kind", "growths", "writes"),
    [
        pytest.param("batches", [2 * ROWS], [0, SECOND], marks=pytest.mark.long),
        pytest.param("batches", [ROWS, 2 * ROWS, ROWS], [0, SECOND], marks=pytest.mark.spark_cluster),
        pytest.param("stream", [ROWS, ROWS, ROWS], [0], marks=pytest.mark.spark_cluster),
    ],
)
def test_nothing_is_lost_or_doubled(kind: str, growths: list[int], writes: list[int]) -> None:
    with tidy.folder() as folder:
        found = anyio.run(aimed, folder, kind, "", growths)
    sent = len(found) // len(writes)
    assert sent >= ROWS * len(growths)
    assert found == [first + number for first in writes for number in range(sent)]


@pytest.mark.spark_cluster
def test_a_sink_with_a_new_name_in_every_run_doubles() -> None:
    with tidy.folder() as folder:
        found = anyio.run(aimed, folder, "stream", "NewNames", [ROWS])
    assert found == sorted([*found[::2], *found[::2]])
    assert len(found) >= 2 * ROWS
