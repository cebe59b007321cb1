"""The goals: which figure of which cell is compared, with whom, and what VibeMQ has promised."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.common.lab import Cell, Mode
from bench.common.peer import PLACES, Guarantee

S, W, T = Guarantee.STRONG, Guarantee.WEAK, Guarantee.TRANSIENT
US = "vibemq"
PEERS = tuple(name for name in PLACES if not name.startswith(US))
Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Per peer the runs of one cell, in order of rounds."""


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    of: Callable[[Mapping[str, Any]], float]
    higher_is_better: bool = True


RATE = Figure("messages/s", lambda run: float(run["rate"]))
CPU = Figure("server CPU s per 100k", lambda run: float(run["server_cpu_s_per_100k"]), higher_is_better=False)
P50 = Figure("confirm p50 ms", lambda run: float(run["latency"]["p50_ms"]), higher_is_better=False)
P99 = Figure("confirm p99 ms", lambda run: float(run["latency"]["p99_ms"]), higher_is_better=False)


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    cell: Cell
    figure: Figure
    goal: float
    """Of the ratio VibeMQ / best peer."""
    peers: tuple[str, ...] = PEERS


@dataclass(frozen=True, slots=True)
class Verdict:
    row: Row
    ours: float
    """Median."""
    best: str
    """The peer that comes out best against us; empty when none could be measured."""
    theirs: float
    ratio: float
    """Median of the ratios of the rounds."""
    rounds: int

    @property
    def passed(self) -> bool:
        return self.ratio >= self.row.goal if self.row.figure.higher_is_better else self.ratio <= self.row.goal

    @property
    def word(self) -> str:
        if not self.best:
            return "no peer"
        return "pass" if self.passed else "falls short"


def _throughput() -> list[Row]:
    names = {Mode.PUBLISH: "publish", Mode.E2E: "publish+consume+ack", Mode.DRAIN: "drain"}
    wanted = [(S, Mode.PUBLISH, size, 1.5) for size in (1024, 128)]
    wanted += [(S, Mode.E2E, size, 1.5) for size in (1024, 128)]
    wanted += [(S, Mode.DRAIN, 1024, 1.3)]
    wanted += [(W, mode, size, 1.3) for mode in names for size in (1024, 128)]
    return [
        Row(f"{guarantee} {names[mode]} {size} B", Cell(guarantee, mode, size), RATE, goal)
        for guarantee, mode, size, goal in wanted
    ]


_STEADY = Cell(S, Mode.LATENCY, 1024, rate=1000)
ROWS = (
    *_throughput(),
    Row("S confirm at 1,000/s, p50", _STEADY, P50, 1.0),
    Row("S confirm at 1,000/s, p99", _STEADY, P99, 1.0),
    Row("S publish+consume+ack 1024 B, server CPU", Cell(S, Mode.E2E, 1024), CPU, 0.7),
    Row("T publish+consume+ack 1024 B", Cell(T, Mode.E2E, 1024), RATE, 1.0, ("redis",)),
    Row("T publish+consume+ack 128 B", Cell(T, Mode.E2E, 128), RATE, 1.0, ("redis",)),
    Row(
        "W fan-out 1→10 1024 B, deliveries",
        Cell(W, Mode.FAN_OUT, 1024, subscribers=10),
        RATE,
        1.3,
        ("rabbitmq-quorum", "rabbitmq-classic", "nats"),
    ),
)
RSS_ANON_MIB_MAX = 100.0


def cells(rows: Sequence[Row] = ROWS) -> dict[Cell, tuple[str, ...]]:
    """Each cell once, with the peers that any of its rows asks for."""
    found: dict[Cell, tuple[str, ...]] = {}
    for row in rows:
        found[row.cell] = tuple(dict.fromkeys((*found.get(row.cell, ()), *row.peers)))
    return found


def judge(row: Row, runs: Runs) -> Verdict:
    """Compare round by round, so that what disturbs the machine disturbs both sides of a ratio."""
    of = row.figure.of
    ours = [of(run) for run in runs.get(US, ())]
    ratios = {
        peer: median(our / of(run) if of(run) else float("inf") for our, run in zip(ours, runs[peer], strict=False))
        for peer in row.peers
        if runs.get(peer) and ours
    }
    if not ratios:
        return Verdict(row, median(ours) if ours else 0.0, "", 0.0, 0.0, len(ours))
    choose = min if row.figure.higher_is_better else max
    best = choose(ratios, key=lambda peer: ratios[peer])
    return Verdict(row, median(ours), best, median(map(of, runs[best])), ratios[best], min(len(ours), len(runs[best])))
