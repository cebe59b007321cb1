"""The number of flushes is what we claim, counted by the kernel's own tracer."""

import re
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.integration.conditions import broker_on, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (apt-get install strace)"),
]


TRACED = ("-y", "-e", "trace=fdatasync,fsync,sync_file_range,msync", "-e", "inject=fdatasync,fsync:delay_exit=20000")
"""Each takes 20 ms: on a disk that is quicker than the publishers, no group would ever come together."""


class FlushCounter:
    """Counts flushes of one process (its threads included, its children not) from attach to detach."""

    def __init__(self, pid: int, log: Path) -> None:
        self._log = log
        # -f follows threads; the checkpointer is a process that exists already, so it is not followed.
        self._strace = subprocess.Popen(
            ["strace", "-f", *TRACED, "-o", str(log), "-p", str(pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._strace.stderr is not None
        line = self._strace.stderr.readline()
        assert "attached" in line, line

    def stop(self) -> int:
        self._strace.terminate()
        self._strace.communicate(timeout=60)
        flushed = re.findall(r"(?:fdatasync|fsync|msync)\((.*)", self._log.read_text())
        # Flushed by timers: the note of how far the journal is durable, the audit log, the history.
        return len([file for file in flushed if not re.search(r"journal-durable>|/audit|/history", file)])


NO_TIMER = """
weak_flush_ms = 3_600_000
[storage.settings]
checkpoint_ms = 3_600_000
"""


async def flushes_while_publishing(tmp_path: Path, durability: str, batches: int, publishers: int) -> int:
    """Flushes of a broker, of which no timer asks for any, while several connections publish."""
    broker = broker_on(tmp_path / "data", tmp_path, toml=NO_TIMER)
    broker.start()
    try:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q", durability=durability)
            await mq.publish("q", {"warm": "up"})

            async def has_all_it_prepares() -> bool:
                return bool((await mq.admin("broker.info"))["storage"]["details"]["journal_spares"])

            await until(has_all_it_prepares, anyio.sleep)
        counter = FlushCounter(broker.pid, tmp_path / "strace.log")

        async def publish() -> None:
            async with vibemq.connect(broker.url) as mq:
                for _ in range(batches):
                    await mq.publish_many("q", [{"n": n} for n in range(20)])

        async with anyio.create_task_group() as tasks:
            for _ in range(publishers):
                tasks.start_soon(publish)
        return counter.stop()
    finally:
        broker.stop()


async def test_a_strong_group_costs_one_flush_however_many_publishers_share_it(tmp_path: Path) -> None:
    flushes = await flushes_while_publishing(tmp_path, "strong", batches=20, publishers=8)
    assert 20 <= flushes <= 8 * 20, "each publisher waits for its own flush, so 20 at least"
    alone = 8 * 20
    assert flushes < alone * 0.75, f"{flushes} flushes for {alone} batches: groups were not shared"


async def test_weak_flushes_by_its_timer_only(tmp_path: Path) -> None:
    assert await flushes_while_publishing(tmp_path, "weak", batches=100, publishers=4) == 0


async def test_async_asks_for_no_flush(tmp_path: Path) -> None:
    assert await flushes_while_publishing(tmp_path, "async", batches=50, publishers=4) == 0
