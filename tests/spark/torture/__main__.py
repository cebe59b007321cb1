"""`make spark-torture`: what Spark publishes and reads, while its drivers, executors, Python workers and the broker are
killed, and its checkpoints are rolled back, exchanged for older copies and deleted."""

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import anyio

from tests.spark.torture.harness import Harness
from vibemq.demos.spark import tidy


def main() -> int:
    options = _options()
    if reason := tidy.why_no_spark():
        print(reason)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    logging.getLogger("vibemq").addHandler(logging.NullHandler())
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="vmq-torture-"))
    # Dozens of JVMs are to start.
    tidy.prepare((Path("build") / f"spark-{version('pyspark')}").absolute())
    print(f"{options.minutes:g} minutes, seed {options.seed}", flush=True)

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} {text}", flush=True)

    harness = Harness(folder, options.seed, say, options.hold)
    try:
        anyio.run(harness.run, options.minutes)
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    account = harness.account
    print(f"\n{account.table()}\n\n{account.summary(options.minutes)}")
    problems = account.problems()
    print("\n".join(f"FAILED: {problem}" for problem in problems) or "nothing lost, nothing twice where it must not be")
    print(f"{time.monotonic() - began:.0f} s, seed {options.seed}")
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long things are killed (10)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="which kills (new)")
    parser.add_argument(
        "--hold", type=int, default=45, help="hold of the sources in seconds (45); 0: checkpoints are left alone"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
