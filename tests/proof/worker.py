"""One method in a process of its own; its result is printed.

python -m tests.proof.worker NAME CASES SECONDS SEED WORK [AIM]
"""

import json
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from tests.proof.contract import Budget, Finding, Result
from tests.proof.methods import find


def repeated(name: str, cases: str, seconds: str, seed: str, aim: str) -> str:
    """The command that runs it again."""
    return f"python -m tests.proof.worker {name} {cases} {seconds} {seed} FOLDER {aim!r}"


def main(name: str, cases: str, seconds: str, seed: str, work: str, aim: str = "") -> None:
    budget = Budget(int(cases), float(seconds), int(seed), Path(work), aim)
    try:
        result = find(name).run(budget)
    except Exception:
        # A method that breaks has proved nothing, and the table must say so.
        result = Result(
            findings=[Finding(traceback.format_exc(), repeated(name, cases, seconds, seed, aim))], complete=False
        )
    sys.stdout.write(f"\n{json.dumps(asdict(result))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
