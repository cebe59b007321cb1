"""The command line of a benchmark."""

import argparse
from pathlib import Path

from bench.common.lab import DATA_ROOT
from bench.common.report import RESULTS


def switches(name: str, about: str | None) -> argparse.ArgumentParser:
    """For a benchmark's own switches. `about`: the docstring of its module, which its help shows as it stands."""
    layout = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=f"python -m bench.{name}", description=about, formatter_class=layout)


def parsed(name: str, parser: argparse.ArgumentParser, *, whose: str, beside: str = "") -> argparse.Namespace:
    """Read the command line, with --data-root and --output behind the benchmark's own switches.

    Args:
        name: of the benchmark, and so of its results.
        whose: data it is that goes to --data-root.
        beside: what else is written next to the results.
    """
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help=f"where {whose} data goes ({DATA_ROOT})")
    lines = f"JSON lines; {beside} beside it" if beside else "JSON lines"
    parser.add_argument("--output", type=Path, default=RESULTS / f"{name}.jsonl", help=lines)
    return parser.parse_args()
