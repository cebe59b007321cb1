"""A broker with any settings in a process of its own, which is asked how long its loop was held; and attacks on it.

Its interpreter is set up as `vibemq serve` sets it up. Run as a module, this is that process.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from math import ceil
from pathlib import Path
from typing import Any

import anyio

import vibemq
from bench.common.accounting import cpu_seconds, memory_mib
from bench.common.lab import DATA_ROOT
from tests.watchdog import slowness
from vibemq.config import Settings
from vibemq.server.app import SWITCH_INTERVAL_S, tune_heap
from vibemq.server.collector import Collector, collector_at_rest

HOLD_MS_MAX = 5.0
REPOSITORY = Path(__file__).parents[2]
SAMPLES_EVERY_S = 0.0005
BUSY_S = 0.0003
TURNS_WATCHED = 500
"""Each for itself, after a busy one. A timer of the loop has milliseconds: between two of them there are several turns,
which together are no hold."""


class WatchedBroker:
    """Running from the beginning, until `stop`."""

    def __init__(self, settings: dict[str, Any], *, watched: bool) -> None:
        command = [sys.executable, "-m", __name__, json.dumps(settings), *(["watched"] if watched else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert self._process.stdout is not None
        self._said = self._process.stdout
        told = self._said.readline()
        if not told:
            raise SystemExit(f"the broker has ended with code {self._process.wait()}")
        self.ports: list[int]
        """Of the listeners, in the order of the settings."""
        self.ports, self.http_port = json.loads(told)

    @property
    def url(self) -> str:
        """Of the first listener, which speaks the native protocol."""
        return f"vibemq://127.0.0.1:{self.ports[0]}"

    def longest_hold_ms(self) -> float:
        """Since the last call: an upper bound, for the first turn behind a rest may be two."""
        self._process.send_signal(signal.SIGUSR1)
        return float(self._said.readline())

    def turns(self) -> Counter[int]:
        """All turns of its loop so far, by how long each held it, in ms rounded up. While it rests it has one each half
        millisecond; of a busy one each counts."""
        self._process.send_signal(signal.SIGUSR2)
        return Counter({int(ms): count for ms, count in json.loads(self._said.readline()).items()})

    def cpu_s(self) -> float:
        return cpu_seconds([self._process.pid])

    def memory_mib(self, kind: str = "VmRSS") -> float:
        """`kind`: see `bench.common.accounting.memory_mib`."""
        return memory_mib([self._process.pid], kind, children=False)

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """What comes meanwhile is there all at once when it goes on."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._said.close()


@contextmanager
def watched_broker(*, watched: bool = True, folder: Path | None = None, **settings: Any) -> Iterator[WatchedBroker]:
    """
    Args:
        watched: it can tell how long its loop was held, which costs it some processor time.
        folder: with its data; None: a new one, which is removed.
        settings: one native listener if they name none.
    """
    new = tempfile.TemporaryDirectory(prefix="vibemq-bench-", dir=DATA_ROOT) if folder is None else nullcontext(folder)
    with new as data_dir:
        broker = WatchedBroker({"data_dir": str(data_dir), "listeners": [{"port": 0}], **settings}, watched=watched)
        try:
            yield broker
        finally:
            broker.stop()


def attack_each(
    broker: WatchedBroker, attacks: Iterable[tuple[str, Callable[[], None]]], witness: Callable[[], None]
) -> None:
    """Print, behind each attack, how long the loop was held at most, as on the machine of `tests/watchdog.py`, and how
    much memory the broker has gained.

    Args:
        attacks: with their names.
        witness: whether another client is still served; raises if not.

    Raises:
        SystemExit: the loop was held for longer than it may be.
    """
    worst, before = 0.0, broker.memory_mib()
    broker.longest_hold_ms()
    print(f"{'attack':28} {'hold ms':>8} {'memory MiB':>10}")
    for name, attack in attacks:
        slow = slowness()
        attack()
        witness()
        held, memory = broker.longest_hold_ms() / min(slow, slowness()), broker.memory_mib()
        worst = max(worst, held)
        print(f"{name:28} {held:8.2f} {memory - before:+10.1f}", flush=True)
        before = memory
    if worst > HOLD_MS_MAX:
        raise SystemExit(f"the loop was held for {worst:.2f} ms")


# -- its process ------------------------------------------------------------------------------------------------------


class LoopWatch:
    """Turns of the loop, in processor time of its thread: what the machine does besides does not count."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._turns = Counter[int]()

    async def sample(self) -> None:
        watched = 0
        while True:
            before = time.thread_time()
            await asyncio.sleep(0 if watched else SAMPLES_EVERY_S)
            took_s = time.thread_time() - before
            self._longest_s = max(self._longest_s, took_s)
            self._turns[ceil(took_s * 1000)] += 1
            watched = TURNS_WATCHED if took_s > BUSY_S else max(0, watched - 1)

    def tell(self) -> None:
        print(f"{self._longest_s * 1000:.2f}", flush=True)
        self._longest_s = 0.0

    def tell_turns(self) -> None:
        print(json.dumps(self._turns), flush=True)


async def serve(settings: Settings, watched: bool) -> None:
    loop, tasks = asyncio.get_running_loop(), []
    with collector_at_rest():
        broker = vibemq.Broker(settings=settings)
        await broker.__aenter__()
    collector = Collector(loop.call_soon_threadsafe, alone=lambda: False, short=lambda: False)
    try:
        collector.start()
        if watched:
            watch = LoopWatch()
            loop.add_signal_handler(signal.SIGUSR1, watch.tell)
            loop.add_signal_handler(signal.SIGUSR2, watch.tell_turns)
            tasks.append(asyncio.create_task(watch.sample()))
        http_port = broker.http_address[1] if broker.http_address is not None else 0
        print(json.dumps([[each.port for each in broker.listening], http_port]), flush=True)
        await broker.run()
    finally:
        for task in tasks:
            task.cancel()
        await broker.__aexit__(None, None, None)


def main() -> None:
    tune_heap()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings, watched = Settings.model_validate_json(sys.argv[1]), "watched" in sys.argv[2:]
    anyio.run(serve, settings, watched, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()
