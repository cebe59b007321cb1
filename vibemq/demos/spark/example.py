"""`vibemq-spark-example NAME`: a copy of an example for Spark, to submit and to change."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import vibemq

EXAMPLES = Path(vibemq.__file__).parent / "spark" / "examples"
PARTS = ("__init__", "common")


def names() -> list[str]:
    return sorted(file.stem for file in EXAMPLES.glob("*.py") if file.stem not in PARTS)


def run(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the script; returns its exit code."""
    parser = argparse.ArgumentParser(prog="vibemq-spark-example", description="Copy an example for Spark.")
    parser.add_argument("name", choices=names(), help="which one: %(choices)s")
    parser.add_argument("--into", type=Path, default=Path(), help="the folder (this one)")
    args = parser.parse_args(arguments)
    target: Path = args.into / f"{args.name}.py"
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write((EXAMPLES / f"{args.name}.py").read_text(encoding="utf-8"))
    except FileExistsError:
        print(f"{target} exists already; remove it or name another folder with --into", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{target} cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    print(target)
    return 0
