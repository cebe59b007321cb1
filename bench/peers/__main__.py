"""Measure VibeMQ beside its peers and print the acceptance table. `python -m bench.peers --help` lists the switches."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from bench.alone.memory import waiting_memory
from bench.common.lab import Lab
from bench.common.options import parsed, switches
from bench.common.report import Journal, si, table
from bench.peers.acceptance import PEERS, ROWS, RSS_ANON_MIB_MAX, US, Row, Verdict, cells, judge
from bench.peers.interleaved import Interleaver, Results, Scale
from bench.peers.plots import ratios_plot

MILLION = 1_000_000
QUICK = Scale(rounds=2, seconds=0.7)


def main() -> None:
    options = _options()
    rows = [row for row in ROWS if options.rows.lower() in row.title.lower()]
    chosen = set(options.peers.split(",")) if options.peers else set(PEERS)
    quick: bool = options.quick
    scale = Scale(options.rounds, options.seconds, options.window)
    if quick:
        scale = Scale(QUICK.rounds, QUICK.seconds, options.window)
    began = time.monotonic()
    with Journal(options.output) as journal:
        with Lab(options.data_root) as lab:
            interleaver = Interleaver(lab, journal, scale, _say)
            for cell, peers in cells(rows).items():
                interleaver.run(cell, [US, *(peer for peer in peers if peer in chosen)])
        verdicts = [judge(row, interleaver.results.runs.get(row.cell, {})) for row in rows]
        lines = [_row(verdict) for verdict in verdicts]
        if "rss" in options.rows.lower() or not options.rows:
            lines.append(_memory_row(MILLION // 5 if quick else MILLION, options.data_root, journal))
        for verdict in verdicts:
            journal.write("row", **_as_object(verdict))
    _print_all(interleaver.results, rows, lines)
    ratios_plot(verdicts, options.output.with_suffix(".svg"))
    print(f"\n{time.monotonic() - began:.0f} s; {options.output}, {options.output.with_suffix('.svg')}")


def _options() -> argparse.Namespace:
    parser = switches("peers", __doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds: a look, no verdict")
    parser.add_argument("--rounds", type=int, default=5, help="pairs per cell (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one run, about (3)")
    parser.add_argument("--window", type=int, default=0, help="unconfirmed messages for everybody; 0 = each one's best")
    parser.add_argument("--rows", default="", help="only rows whose title contains this; rss for the memory row")
    parser.add_argument("--peers", default="", help=f"of {','.join(PEERS)}; all")
    return parsed("peers", parser, whose="the servers'", beside="a plot")


def _say(line: str) -> None:
    print(line, flush=True)


def _row(verdict: Verdict) -> list[str]:
    row = verdict.row
    sign = "≥" if row.figure.higher_is_better else "≤"
    return [
        row.title,
        f"{sign} {row.goal}",
        si(verdict.ours),
        verdict.best or "-",
        si(verdict.theirs),
        f"{verdict.ratio:.2f}",
        str(verdict.rounds),
        verdict.word,
    ]


def _memory_row(messages: int, data_root: Path, journal: Journal) -> list[str]:
    found = waiting_memory(messages, 1024, data_root)
    journal.write("memory", **found)
    mib = found["rss_anon_mib"]
    word = "pass" if mib <= RSS_ANON_MIB_MAX else "falls short"
    title = f"RssAnon, {messages:,} x 1 KiB waiting"
    return [title, f"≤ {RSS_ANON_MIB_MAX:.0f} MiB", f"{mib:.0f}", "-", "-", "-", "1", word]


def _print_all(results: Results, rows: Sequence[Row], lines: Sequence[Sequence[str]]) -> None:
    print("\nMedians of every peer")
    for row in rows:
        runs = results.runs.get(row.cell, {})
        figures = sorted(((judge_one(row, runs[name]), name) for name in runs if runs[name]), reverse=True)
        print(f"  {row.title} [{row.figure.name}]: " + ", ".join(f"{name} {si(value)}" for value, name in figures))
    for note in results.notes:
        print(f"  left out: {note}")
    print("\nAcceptance: VibeMQ / best peer, medians of ratios within rounds\n")
    print(table(["cell", "goal", "VibeMQ", "best peer", "its figure", "ratio", "pairs", "verdict"], lines))


def judge_one(row: Row, runs: Sequence[dict[str, object]]) -> float:
    ordered = sorted(row.figure.of(run) for run in runs)
    return ordered[len(ordered) // 2]


def _as_object(verdict: Verdict) -> dict[str, object]:
    return {
        "row": verdict.row.title,
        "figure": verdict.row.figure.name,
        "goal": verdict.row.goal,
        "ours": verdict.ours,
        "best": verdict.best,
        "theirs": verdict.theirs,
        "ratio": verdict.ratio,
        "pairs": verdict.rounds,
        "verdict": verdict.word,
    }


if __name__ == "__main__":
    main()
