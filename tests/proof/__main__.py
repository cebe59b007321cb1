"""`python -m tests.proof crash|torture|short [METHOD …]`: run the methods, print the table. The exit code is 1 on any
finding, and when nothing was run, or not all that was named.

Those that measure speed run first, one after another and nothing beside them; then the others two at a time, each in a
process of its own, and one more of those that mostly wait. A method for which a short run has no time is not run.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.proof.contract import Finding, Method, Result, Size
from tests.proof.methods import MODULES, find
from tests.proof.shares import Lane, alone, lanes
from tests.proof.table import Row, details, is_proof, table
from tests.proof.worker import repeated

GRACE_S = 120
"""How far a method may overrun its time before it counts as hung."""
LEVEL_SECONDS = {"short": 120, "crash": 600, "torture": 3600}
"""What a whole run may take, shared as the methods' own sizes say."""
FAIR_PART = 0.5
"""Of the time that a method wants: whoever tries nothing in it has failed, and was not just cut short."""


def run_in_child(method: Method, size: Size, seconds: float, seed: int, folder: Path, aim: str = "") -> Row:
    """`seconds`: what the run has for it, of the time that its size wants."""
    why = method.missing()
    if why is None and seconds < method.least_s:
        why = f"the run has {seconds:.0f} s for it, it needs {method.least_s:.0f}"
    if why is not None:
        return Row(method, size.cases, 0, None, why)
    work = folder / method.name
    work.mkdir()
    words = [method.name, str(size.cases), str(seconds), str(seed)]
    command = [sys.executable, "-m", "tests.proof.worker", *words, str(work), aim]
    repeat = repeated(*words, aim)
    began = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds + GRACE_S)
        result = parsed(done.stdout, done.returncode, repeat)
    except subprocess.TimeoutExpired:
        result = Result(findings=[Finding(f"hung: over {seconds + GRACE_S:.0f} s", repeat)], complete=False)
    shutil.rmtree(work, ignore_errors=True)
    row = row_of(method, size, seconds, time.monotonic() - began, result, repeat)
    print(f"{method.title}: {result.cases:,} {result.unit} in {row.seconds:.0f} s", file=sys.stderr, flush=True)
    return row


def row_of(method: Method, size: Size, seconds: float, took: float, result: Result, repeat: str) -> Row:
    """A method that tried nothing must not look like one that finds nothing."""
    if not result.is_empty:
        return Row(method, size.cases, took, result)
    if not result.complete and seconds < FAIR_PART * size.seconds:
        return Row(method, size.cases, took, None, f"its {seconds:.0f} s ended before the first of its {result.unit}")
    what = f"{method.name} ran none of its {result.unit}, so it has proved nothing"
    return Row(method, size.cases, took, replace(result, findings=[Finding(what, repeat)]))


def parsed(output: str, code: int, repeat: str) -> Result:
    lines = output.strip().splitlines()
    if code or not lines:
        return Result(findings=[Finding(f"the method ended with code {code}", repeat)], complete=False)
    fields = json.loads(lines[-1])
    return Result(**{**fields, "findings": [Finding(**finding) for finding in fields["findings"]]})


def run_all(
    names: list[str], level: str, seed: int, folder: Path, jobs: int, seconds: float, aim: str = ""
) -> list[Row]:
    methods = {name: find(name) for name in names}
    sizes: dict[str, Size] = {name: getattr(method, level) for name, method in methods.items()}
    deadline = time.monotonic() + seconds
    rows: dict[str, Row] = {}

    def one(name: str, share: float) -> None:
        rows[name] = run_in_child(methods[name], sizes[name], share, seed, folder, aim)

    def next_of(lane: Lane, name: str) -> None:
        one(name, lane.take(name, time.monotonic()))
        lane.done(name)

    # First, because what the others leave behind, in the page cache or running, would be measured too.
    for name, share in alone(methods.values(), sizes, jobs, seconds).items():
        one(name, share)
    with ExitStack() as stack:
        work = []
        for lane in lanes(methods.values(), sizes, jobs, deadline):
            pool = stack.enter_context(ThreadPoolExecutor(lane.width))
            work += [pool.submit(next_of, lane, name) for name in lane.order]
        for future in work:
            future.result()
    return [rows[name] for name in names]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("level", choices=["short", "crash", "torture"])
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(MODULES)}; all by default")
    parser.add_argument("--seed", type=int, default=None, help="a random one by default; it is printed")
    parser.add_argument("--jobs", type=int, default=2, help="methods at a time (2)")
    parser.add_argument("--minutes", type=float, default=None, help="for everything together (crash 10, torture 60)")
    parser.add_argument(
        "--aim", default="", help="a regular expression: only cases like this, where a method can choose"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp"), help="where the stores go; a real disk (/var/tmp)"
    )
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.methods) - set(MODULES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; the methods are {', '.join(MODULES)}")
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    names = arguments.methods or list(MODULES)
    seconds = LEVEL_SECONDS[arguments.level] if arguments.minutes is None else 60 * arguments.minutes
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="proof-", dir=arguments.folder, ignore_cleanup_errors=True) as folder:
        rows = run_all(names, arguments.level, seed, Path(folder), arguments.jobs, seconds, arguments.aim)
    print(f"\n{table(rows)}\n\n{details(rows)}\n\nseed {seed}")
    return 0 if is_proof(rows, arguments.methods) else 1


if __name__ == "__main__":
    sys.exit(main())
