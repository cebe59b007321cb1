"""Fuzzing: the targets of `fuzz_targets.py`, all of them or one at a time.

Short forms replay the corpus and mutate it in this process, with our own engine. Long forms run in child processes:
first atheris, where it is installed, looks for inputs that reach new code; then our own engine, which is several times
faster because it watches nothing, starts from those too and makes up the number.
"""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.fuzz_child import as_json, fuzz
from tests.proof.fuzz_engine import Target
from tests.proof.fuzz_targets import TARGETS, corpus

IN_PROCESS_SECONDS_MAX = 15
GUIDED_SHARE = 0.25
GUIDED_SECONDS_MAX = 20
"""Of each target. What it finds goes on in the next engine, and each of its inputs costs several of that one's."""
GRACE_S = 120
REPEAT_BYTES_MAX = 2_000
COST_US = {
    "outbound-url": 12,
    "eventmesh-frames": 15,
    "native-bulk": 25,
    "native-body": 25,
    "batch": 27,
    "eventmesh-message": 30,
    "dotnet": 35,
    "value": 35,
    "bmq-json": 40,
    "native-rows": 40,
    "bmq-properties": 45,
    "selector": 45,
    "bmq-ber": 55,
    "bmq-events": 55,
    "block": 60,
    "frames": 70,
    "eventmesh-session": 80,
    "http1": 80,
    "omq-frames": 85,
    "native-json": 110,
    "bmq-headers": 120,
    "address": 140,
    "omq-session": 165,
    "bmq-session": 190,
    "omq-sexp": 200,
    "segment": 200,
    "native-session": 210,
    "eventmesh-http": 220,
    "settings": 420,
    "journal-store": 430,
}
"""Processor time of one input, about; its targets share the time accordingly."""
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


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
        guided_s = min(GUIDED_SECONDS_MAX, int(budget.seconds * GUIDED_SHARE))
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
        repeat = _command(target, _input(bytes.fromhex(crash["data"])))
        result.findings.append(Finding(f"{target.name}: {crash['error']}", repeat))


def _input(data: bytes) -> list[str]:
    """The options of `fuzz_child` that show an input again; a long one is put into a file that stays."""
    if len(data) <= REPEAT_BYTES_MAX:
        return ["--hex", data.hex()]
    path = Path(tempfile.gettempdir()) / f"vibemq-proof-{hashlib.sha256(data).hexdigest()[:16]}.input"
    path.write_bytes(data)
    return ["--file", str(path)]


def _command(target: Target, arguments: list[str]) -> str:
    return " ".join(["python -m tests.proof.fuzz_child", target.name, *arguments])


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def run_all(budget: Budget) -> Result:
    """Every target with the budget's executions each; the seconds are shared, the slow ones come last."""
    whole = Result(unit="executions")
    targets = [target for target in TARGETS.values() if re.search(budget.aim, target.name)]
    targets.sort(key=_wanted_s)
    deadline = time.monotonic() + budget.seconds
    for index, target in enumerate(targets):
        # Whoever is quick leaves its time to those behind it.
        part = _wanted_s(target) / sum(map(_wanted_s, targets[index:]))
        seconds = max(0.5, (deadline - time.monotonic()) * part)
        cases = min(budget.cases, target.torture_cases)
        share = Budget(cases, seconds, budget.seed + index, budget.work / target.name)
        _add(whole, target, run(target, share))
    return whole


def _wanted_s(target: Target) -> float:
    """What all its executions take on a quiet machine, about."""
    return COST_US[target.name] * target.torture_cases / 1e6 + GUIDED_SECONDS_MAX


def _add(whole: Result, target: Target, part: Result) -> None:
    whole.cases += part.cases
    whole.findings += part.findings
    whole.complete &= part.complete
    guided = part.figures.get("guided by coverage", 0)
    told = f"{part.cases:,}" + (f", {guided:,} of them guided by coverage" if guided else "")
    whole.figures[target.name] = told + ("" if target.is_decoder else ", of whole stores")


METHOD = Method(
    name="fuzz",
    title="fuzz: every decoder and parser",
    run=run_all,
    short=Size(250, 3),
    crash=Size(cases=130_000, seconds=240),
    torture=Size(cases=1_000_000, seconds=1_530),
)
