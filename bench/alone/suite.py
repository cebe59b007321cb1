"""The measurements of VibeMQ alone, in the order of the report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.alone.lifecycle import recovery, start_up_s
from bench.alone.memory import waiting_memory
from bench.common.lab import Cell, Lab, Mode
from bench.common.load import Job
from bench.common.peer import Guarantee
from bench.common.report import Journal, si

RATES = {128: 100_000, 1024: 50_000, 16384: 6_000}
"""Messages per second, roughly: they decide how many messages a run has, so that it lasts about as long as wanted."""
WIDTHS = (1, 10, 100, 1000)
LATENCY_RATE = 500.0
"""Messages per second, each of which waits for its confirm. Two slow cores cannot serve 1,000 a second to one client
that waits; what would then be measured is how long messages queue up in the client."""
KEPT_UP = 0.98
FAN_OUT = 10


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int = 3
    seconds: float = 3.0
    sizes: tuple[int, ...] = (128, 1024, 16384)
    waiting: int = 1_000_000
    recovered: int = 200_000


QUICK = Extent(rounds=1, seconds=0.4, sizes=(128, 1024, 16384), waiting=100_000, recovered=50_000)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report; `runs` are what the medians are of."""

    section: str
    name: str
    figure: float
    unit: str
    detail: str = ""


class Suite:
    def __init__(self, lab: Lab, journal: Journal, extent: Extent, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._journal = journal
        self._extent = extent
        self._say = say
        self.lines: list[Line] = []

    def run(self) -> None:
        for line in self._measured():
            self.lines.append(line)
            self._say(f"  {line.section}: {line.name}: {si(line.figure)} {line.unit}  {line.detail}")

    def _measured(self) -> Iterator[Line]:
        yield from self._start_up()
        yield from self._throughput()
        yield from self._latency()
        yield from self._fan_out()
        yield from self._widths("many queues", "vibemq-queues", Mode.E2E)
        yield from self._widths("many connections", "vibemq-connections", Mode.PUBLISH)
        yield from self._recovery()
        yield from self._memory()

    def _throughput(self) -> Iterator[Line]:
        for mode in (Mode.PUBLISH, Mode.E2E, Mode.DRAIN):
            for guarantee in Guarantee:
                for size in self._extent.sizes:
                    cell = Cell(guarantee, mode, size)
                    runs = self._runs("vibemq", cell, Job(messages=self._messages(size), size=size))
                    yield _rate_line(str(mode), f"{_policy(guarantee)} {size} B", runs)

    def _latency(self) -> Iterator[Line]:
        count = int(LATENCY_RATE * max(4.0, self._extent.seconds))
        for guarantee in Guarantee:
            cell = Cell(guarantee, Mode.LATENCY, 1024, rate=LATENCY_RATE)
            runs = self._runs("vibemq", cell, Job(messages=count, size=1024, rate=LATENCY_RATE))
            for what, key in (("confirm", "latency"), ("hand-out", "delivered_latency")):
                p99 = median(run[key]["p99_ms"] for run in runs)
                p50 = median(run[key]["p50_ms"] for run in runs)
                detail = f"p99 {p99:.3g} ms{_not_kept_up(median(run['rate'] for run in runs))}"
                yield Line(f"latency at {LATENCY_RATE:.0f}/s", f"{_policy(guarantee)} {what} p50", p50, "ms", detail)

    def _fan_out(self) -> Iterator[Line]:
        for guarantee in Guarantee:
            cell = Cell(guarantee, Mode.FAN_OUT, 1024, subscribers=FAN_OUT)
            job = Job(messages=self._messages(1024) // FAN_OUT * 4, size=1024, subscribers=FAN_OUT)
            yield _rate_line("fan-out 1→10", f"{_policy(guarantee)} deliveries", self._runs("vibemq", cell, job))

    def _widths(self, section: str, shape: str, mode: Mode) -> Iterator[Line]:
        for width in WIDTHS:
            messages = max(width, self._messages(1024) // width * width)
            cell = Cell(Guarantee.STRONG, mode, 1024)
            runs = self._runs(shape, cell, Job(messages=messages, size=1024, width=width), width=width)
            yield _rate_line(section, str(width), runs)

    def _start_up(self) -> Iterator[Line]:
        seconds = start_up_s(self._lab, self._extent.rounds)
        self._journal.write("start_up", seconds=seconds)
        yield Line("start-up", "empty folder", median(seconds), "s")

    def _recovery(self) -> Iterator[Line]:
        found = recovery(self._lab, self._extent.recovered, 1024)
        self._journal.write("recovery", **found)
        yield Line("recovery", f"{found['messages']:,} x 1 KiB, kill -9", found["recovery_s"], "s")

    def _memory(self) -> Iterator[Line]:
        found = waiting_memory(self._extent.waiting, 1024, self._lab.folder.parent)
        self._journal.write("memory", **found)
        detail = f"broker alone {found['rss_anon_broker_mib']:.0f} MiB, on disk {found['disk_mib']:.0f} MiB"
        yield Line("memory", f"RssAnon, {found['messages']:,} x 1 KiB waiting", found["rss_anon_mib"], "MiB", detail)

    def _messages(self, size: int) -> int:
        return int(RATES[size] * self._extent.seconds)

    def _runs(self, name: str, cell: Cell, job: Job, **labels: Any) -> list[dict[str, Any]]:
        runs = []
        for number in range(self._extent.rounds):
            run = self._lab.measure(name, cell, job)
            self._journal.write("run", round=number, **labels, **run)
            runs.append(run)
        return runs


def _rate_line(section: str, name: str, runs: list[dict[str, Any]]) -> Line:
    cpu_s = median(run["server_cpu_s_per_100k"] for run in runs)
    return Line(section, name, median(run["rate"] for run in runs), "/s", f"broker {cpu_s:.2f} CPU s per 100k")


def _not_kept_up(rate: float) -> str:
    if rate >= KEPT_UP * LATENCY_RATE:
        return ""
    return f", but only {rate:.0f}/s were served: these are times in the client's queue"


def _policy(guarantee: Guarantee) -> str:
    return guarantee.name.lower()
