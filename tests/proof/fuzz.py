"""Fuzzing: the targets of `fuzz_targets.py`, all of them or one at a time.

Short forms replay the corpus and mutate it in this process, with our own engine. Long forms run in child processes:
first atheris, where it is installed, looks for inputs that reach new code; then our own engine, which is several times
faster because it watches nothing, starts from those too and makes up the number.
"""

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.fuzz_child import as_json, fuzz
from tests.proof.fuzz_engine import Target
from tests.proof.fuzz_targets import TARGETS, corpus

IN_PROCESS_SECONDS_MAX = 15
GUIDED_SHARE = 0.25
GRACE_S = 120
REPEAT_BYTES_MAX = 2_000
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_ARTIFACT = re.compile(r"Test unit written to (\S+)")


def run(target: Target, budget: Budget) -> Result:
    result = Result(unit="executions")
    if budget.seconds <= IN_PROCESS_SECONDS_MAX:
        _take(target, result, as_json(fuzz(target, None, budget.cases, budget.seconds, budget.seed)))
    else:
        _run_in_children(target, budget, result)
    result.complete = result.cases >= budget.cases
    return result


def _run_in_children(target: Target, budget: Budget, result: Result) -> None:
    found = budget.work / "found"
    found.mkdir(parents=True, exist_ok=True)
    seconds = budget.seconds
    if has_atheris():
        guided_s = max(10, int(budget.seconds * GUIDED_SHARE))
        seconds -= guided_s
        result.cases = _guided(target, budget, found, guided_s)
        result.figures["guided by coverage"] = result.cases
    command = ["--executions", str(max(0, budget.cases - result.cases)), "--seconds", str(seconds)]
    command += ["--seed", str(budget.seed), "--more", str(found)]
    child = _child(target, command, seconds + GRACE_S)
    try:
        _take(target, result, json.loads(child.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        # It was killed: by the limit of memory, a fault in a library, or the clock.
        what = f"{target.name}: the process ended with {child.returncode}: {child.stderr[-400:]}"
        result.findings.append(Finding(what, _command(target, command)))


def _guided(target: Target, budget: Budget, found: Path, seconds: int) -> int:
    """Let atheris look for `seconds`; inputs worth keeping are then in `found`. How many it ran."""
    seeds = budget.work / "seeds"
    seeds.mkdir(exist_ok=True)
    for data in corpus(target):
        (seeds / hashlib.sha1(data).hexdigest()).write_bytes(data)
    words = budget.work / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words if len(word) < 60))
    options = [f"-max_total_time={seconds}", f"-runs={budget.cases}", f"-seed={budget.seed}", "-timeout=60"]
    options += [f"-max_len={target.size_max}", "-rss_limit_mb=2048", "-print_final_stats=1", f"-dict={words}"]
    options += [f"-artifact_prefix={found}/", str(found), str(seeds)]
    child = _child(target, ["--engine", "atheris", "--", *options], seconds + GRACE_S)
    ran = _EXECUTED.search(child.stderr + child.stdout)
    # What made it stop lies in `found` now: our own engine replays it there and says what it is.
    return int(ran[1]) if ran else 0


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _child(target: Target, arguments: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.proof.fuzz_child", target.name, *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, -9, "", f"no end after {error.timeout:.0f} s")


def _take(target: Target, result: Result, told: dict[str, object]) -> None:
    own, crashes = told["executions"], told["crashes"]
    assert isinstance(own, int)
    assert isinstance(crashes, list)
    result.cases += own
    result.figures |= {"own engine": own, "kinds of answers": str(told["kinds"])}
    for crash in crashes:
        data = crash["data"]
        shown = data if len(data) <= 2 * REPEAT_BYTES_MAX else "… (run the same seed)"
        result.findings.append(Finding(f"{target.name}: {crash['error']}", _command(target, ["--hex", shown])))


def _command(target: Target, arguments: list[str]) -> str:
    return " ".join(["python -m tests.proof.fuzz_child", target.name, *arguments])


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def run_all(budget: Budget) -> Result:
    """Every target with the budget's executions each; the seconds are shared."""
    whole = Result(unit="executions")
    in_process = budget.seconds <= IN_PROCESS_SECONDS_MAX
    waiting = list(enumerate(TARGETS.values()))
    deadline = time.monotonic() + budget.seconds
    workers = 1 if in_process else os.cpu_count() or 1

    def next_one() -> None:
        while waiting:
            index, target = waiting.pop(0)
            # Whoever is quick leaves its time to those behind it.
            seconds = max(2.0, (deadline - time.monotonic()) * min(1.0, workers / (len(waiting) + 1)))
            cases = min(budget.cases, target.torture_cases)
            share = Budget(cases, seconds, budget.seed + index, budget.work / target.name)
            _add(whole, target, run(target, share))

    if in_process:
        next_one()
        return whole
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(next_one) for _ in range(workers)]:
            done.result()
    return whole


def _add(whole: Result, target: Target, part: Result) -> None:
    whole.cases += part.cases
    whole.findings += part.findings
    whole.complete &= part.complete
    guided = part.figures.get("guided by coverage", 0)
    whole.figures[target.name] = f"{part.cases:,}" + (f", {guided:,} of them guided by coverage" if guided else "")


METHOD = Method(
    name="fuzz",
    title="fuzz: every decoder and parser",
    run=run_all,
    short=Size(250, 3),
    crash=Size(15_000, 120),
    torture=Size(1_000_000, 1_500),
)


def _method(target: Target) -> Method:
    return Method(
        name=f"fuzz-{target.name}",
        title=f"fuzz: {target.what}",
        run=lambda budget: run(target, budget),
        short=Size(1_500, 8),
        crash=Size(20_000, 30),
        torture=Size(target.torture_cases, target.torture_seconds),
    )


BY_TARGET = [_method(target) for target in TARGETS.values()]
"""The same, one target at a time."""
