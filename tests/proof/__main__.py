"""`python -m tests.proof crash|torture|short [METHOD …]`: run the methods, print the table; exit 1 on any finding.

Methods run two at a time, each in a process of its own, and one more of those that mostly wait; those that measure
speed run alone, at the end.
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
from pathlib import Path

from tests.proof.contract import Finding, Method, Result, Size
from tests.proof.methods import MODULES, find
from tests.proof.shares import Lane, alone, lanes
from tests.proof.table import Row, details, table

GRACE_S = 120
"""How far a method may overrun its time before it counts as hung."""


LEVEL_SECONDS = {"short": 120, "crash": 600, "torture": 3600}
"""What a whole run may take, shared as the methods' own sizes say."""


def run_in_child(method: Method, size: Size, seed: int, folder: Path, aim: str = "") -> Row:
    why = method.missing()
    if why is not None:
        return Row(method, size.cases, 0, None, why)
    work = folder / method.name
    work.mkdir()
    words = [method.name, str(size.cases), str(size.seconds), str(seed), str(work), aim]
    command = [sys.executable, "-m", "tests.proof.worker", *words]
    began = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=size.seconds + GRACE_S)
        result = parsed(done.stdout, done.returncode, words)
    except subprocess.TimeoutExpired:
        result = Result(
            findings=[Finding(f"hung: over {size.seconds + GRACE_S:.0f} s", " ".join(words))], complete=False
        )
    shutil.rmtree(work, ignore_errors=True)
    row = Row(method, size.cases, time.monotonic() - began, result)
    print(f"{method.title}: {result.cases:,} {result.unit} in {row.seconds:.0f} s", file=sys.stderr, flush=True)
    return row


def parsed(output: str, code: int, words: list[str]) -> Result:
    lines = output.strip().splitlines()
    if code or not lines:
        return Result(findings=[Finding(f"the method ended with code {code}", " ".join(words))], complete=False)
    fields = json.loads(lines[-1])
    return Result(**{**fields, "findings": [Finding(**finding) for finding in fields["findings"]]})


def run_all(
    names: list[str], level: str, seed: int, folder: Path, jobs: int, seconds: float, aim: str = ""
) -> list[Row]:
    methods = {name: find(name) for name in names}
    sizes: dict[str, Size] = {name: getattr(method, level) for name, method in methods.items()}
    begin = time.monotonic()
    rows: dict[str, Row] = {}

    def one(lane: Lane, name: str) -> None:
        size = Size(sizes[name].cases, lane.take(name, time.monotonic()))
        rows[name] = run_in_child(methods[name], size, seed, folder, aim)
        lane.done(name)

    all_lanes = lanes(methods.values(), sizes, jobs, begin, seconds)
    with ExitStack() as stack:
        work = []
        for lane in all_lanes:
            pool = stack.enter_context(ThreadPoolExecutor(lane.width))
            work += [pool.submit(one, lane, name) for name in lane.order]
        for future in work:
            future.result()
    for name, share in alone(methods.values(), sizes, jobs, seconds).items():
        rows[name] = run_in_child(methods[name], Size(sizes[name].cases, share), seed, folder, aim)
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
    return 0 if all(row.is_good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
