"""Measure whether a message costs more with a larger backlog, more queues, more connections; pauses by checkpoints."""

import argparse
import time
from dataclasses import asdict
from functools import partial
from statistics import median

from bench.common.lab import Cell, Lab, Mode
from bench.common.load import Job
from bench.common.options import parsed, switches
from bench.common.peer import Guarantee
from bench.common.report import Journal, si, table
from bench.growth.backlog import Backlog
from bench.growth.pauses import pauses

FLAT = 1.15
PAUSE = 2.0
WIDTHS = (1, 10, 100, 1000)
WIDTH_MESSAGES = 300_000
WIDTH_SIZE = 128
"""So many that what a queue or connection costs once does not count, and so small that no checkpoint comes between."""


def main() -> None:
    options = _options()
    sections = {
        "backlog": partial(_backlog, sizes=tuple(10**power for power in range(4, options.power + 1))),
        "queues": partial(_widths, what="queues", mode=Mode.E2E),
        "connections": partial(_widths, what="connections", mode=Mode.PUBLISH),
    }
    began = time.monotonic()
    rows: list[list[str]] = []
    with Journal(options.output) as journal:
        for section, measure in sections.items():
            if options.only in section:
                with Lab(options.data_root) as lab:
                    rows += measure(lab, journal, options.rounds)
        if options.only in "pauses":
            with Lab(options.data_root) as lab:
                found = pauses(lab, options.seconds)
            journal.write("pauses", **asdict(found))
            name = f"p99 of publishes at 1,000/s during a checkpoint ({found.during} of them)"
            figures = f"{found.during_p99_ms:.2f} ms beside {found.beside_p99_ms:.2f} ms"
            rows.append([name, figures, f"{found.ratio:.2f}", f"≤ {PAUSE:g}", _verdict(found.ratio <= PAUSE)])
    print(f"\n{table(['what', 'figure', 'of the first', 'goal', 'verdict'], rows)}")
    print(f"\n{time.monotonic() - began:.0f} s; {options.output}")


def _options() -> argparse.Namespace:
    parser = switches("growth", __doc__)
    parser.add_argument("--power", type=int, default=7, help="largest backlog, as a power of ten (7)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per figure, of which the median counts (3)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of publishing beside checkpoints (60)")
    parser.add_argument("--only", default="", help="sections whose name holds this: backlog queues connections pauses")
    return parsed("growth", parser, whose="the broker's")


def _backlog(lab: Lab, journal: Journal, rounds: int, sizes: tuple[int, ...]) -> list[list[str]]:
    costs, starts = [], []
    for held in Backlog(lab, rounds).measured(sizes):
        journal.write("backlog", **asdict(held))
        print(f"  {held.waiting:,} waiting: {held.cpu_us:.1f} us a message, start {held.start_s:.2f} s", flush=True)
        costs.append((f"{held.waiting:,} waiting, processor time a message", held.cpu_us))
        starts.append([f"{held.waiting:,} waiting, start after kill -9", f"{held.start_s:.2f} s", "", "", ""])
    return _growth(costs) + starts


def _widths(lab: Lab, journal: Journal, rounds: int, what: str, mode: Mode) -> list[list[str]]:
    costs = []
    for width in WIDTHS:
        job = Job(messages=WIDTH_MESSAGES, size=WIDTH_SIZE, width=width)
        runs = [lab.measure(f"vibemq-{what}", Cell(Guarantee.STRONG, mode, WIDTH_SIZE), job) for _ in range(rounds + 1)]
        # The first one also warms the load processes up.
        cost = median(run["server_cpu_s_per_100k"] * 10 for run in runs[1:])
        journal.write("width", what=what, width=width, cpu_us=cost, rates=[run["rate"] for run in runs])
        print(f"  {width:,} {what}: {cost:.1f} us a message, {si(median(run['rate'] for run in runs))}/s", flush=True)
        costs.append((f"{width:,} {what}, processor time a message", cost))
    return _growth(costs)


def _growth(costs: list[tuple[str, float]]) -> list[list[str]]:
    first = costs[0][1]
    return [
        [name, f"{cost:.1f} us", f"{cost / first:.2f}", f"≤ {FLAT}", _verdict(cost <= FLAT * first)]
        for name, cost in costs
    ]


def _verdict(holds: bool) -> str:
    return "pass" if holds else "fall short"


if __name__ == "__main__":
    main()
