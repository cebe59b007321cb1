"""Measure VibeMQ alone: throughput, latency, fan-out, many queues and connections, start-up, recovery, memory."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.alone.suite import QUICK, Extent, Line, Suite
from bench.common import svg
from bench.common.lab import Lab
from bench.common.options import parsed, switches
from bench.common.report import Journal, fsync_ms, si, table


def main() -> None:
    options = _options()
    extent = QUICK if options.quick else Extent(rounds=options.rounds, seconds=options.seconds)
    if options.sizes:
        extent = replace(extent, sizes=tuple(map(int, options.sizes.split(","))))
    began = time.monotonic()
    with Journal(options.output) as journal, Lab(options.data_root) as lab:
        flush = fsync_ms(lab.folder)
        journal.write("fsync", p50_ms=flush[0], p99_ms=flush[1])
        suite = Suite(lab, journal, extent, lambda line: print(line, flush=True))
        suite.run()
    print(f"\nVibeMQ alone; medians of {extent.rounds}; fsync p50 {flush[0]:.2f} ms, p99 {flush[1]:.2f} ms\n")
    rows = [[line.section, line.name, si(line.figure), line.unit, line.detail] for line in suite.lines]
    print(table(["what", "of", "figure", "unit", "beside"], rows))
    _plot(suite.lines, options.output)
    print(f"\n{time.monotonic() - began:.0f} s; {options.output} and plots beside it")


def _options() -> argparse.Namespace:
    parser = switches("alone", __doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of everything")
    parser.add_argument("--rounds", type=int, default=3, help="runs per figure, of which the median counts (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one run, about (3)")
    parser.add_argument("--sizes", default="", help="of 128,1024,16384; all")
    return parsed("alone", parser, whose="the broker's", beside="plots")


def _plot(lines: Sequence[Line], output: Path) -> None:
    throughput = [line for line in lines if line.section in ("publish", "e2e", "drain")]
    svg.bars(
        output.with_suffix(".svg"),
        "VibeMQ alone, messages per second",
        [svg.Bar(f"{line.section} {line.name}", line.figure) for line in throughput],
    )
    many = ("many queues", "many connections")
    points = {
        section: [(float(line.name), line.figure) for line in lines if line.section == section] for section in many
    }
    svg.lines(output.with_name(f"{output.stem}-many.svg"), "strong, 1 KiB, messages per second", points)


if __name__ == "__main__":
    main()
