"""The number of flushes is what we claim, counted by the kernel's own tracer."""

import re
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (apt-get install strace)"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FlushCounter:
    """Counts flushes of one process (its threads included, its children not) from attach to detach."""

    def __init__(self, pid: int, log: Path) -> None:
        self._log = log
        # -f follows threads; the checkpointer is a process that exists already, so it is not followed.
        self._strace = subprocess.Popen(
            ["strace", "-f", "-e", "trace=fdatasync,fsync,sync_file_range,msync", "-o", str(log), "-p", str(pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._strace.stderr is not None
        line = self._strace.stderr.readline()
        assert "attached" in line, line

    def stop(self) -> int:
        self._strace.terminate()
        self._strace.communicate(timeout=10)
        return len(re.findall(r"(?:fdatasync|fsync|msync)\(", self._log.read_text()))


async def flushes_while_publishing(tmp_path: Path, durability: str, batches: int, publishers: int) -> tuple[int, float]:
    """(flushes, seconds) of a broker while several connections publish."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q", durability=durability)
            await mq.publish("q", {"warm": "up"})
        await anyio.sleep(2.5)
        counter = FlushCounter(broker.pid, tmp_path / "strace.log")

        async def publish() -> None:
            async with vibemq.connect(broker.url) as mq:
                for _ in range(batches):
                    await mq.publish_many("q", [{"n": n} for n in range(20)])

        started = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(publishers):
                tasks.start_soon(publish)
        seconds = anyio.current_time() - started
        return counter.stop(), seconds
    finally:
        broker.stop()


async def test_a_strong_group_costs_one_flush_however_many_publishers_share_it(tmp_path: Path) -> None:
    flushes, _ = await flushes_while_publishing(tmp_path, "strong", batches=20, publishers=8)
    assert 20 <= flushes <= 8 * 20, "each publisher waits for its own flush, so 20 at least"
    alone = 8 * 20
    assert flushes < alone * 0.75, f"{flushes} flushes for {alone} batches: groups were not shared"


async def test_weak_flushes_by_its_timer_only(tmp_path: Path) -> None:
    flushes, seconds = await flushes_while_publishing(tmp_path, "weak", batches=100, publishers=4)
    assert flushes <= seconds / 2.0 + 2


async def test_async_asks_for_no_flush(tmp_path: Path) -> None:
    flushes, _ = await flushes_while_publishing(tmp_path, "async", batches=50, publishers=4)
    assert flushes == 0
