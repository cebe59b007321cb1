"""No test waits for time to pass or compares what a clock says: the result would depend on the load of the machine.

`tests/waiting.py` waits for conditions. The proof, the Spark clusters and the torture have time budgets of their own.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ELSEWHERE = ("proof/", "spark/", "waiting.py")
"""Programs with a time budget, and the functions that wait."""

CLOCKS = {
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "time",
    "time_ns",
    "process_time",
    "thread_time",
}
LIMITS = {"fail_after": 0, "timeout": 0, "wait_for": 1, "move_on_after": 0}
"""Function -> position of its seconds."""
LIMIT_S_MIN = 30

EXCEPTIONS = {
    "crash/lmdb_child.py": "a child process that works until it is killed; the pause leaves time to the appends",
    "crash/test_full_disk.py": "gives another process time to write checkpoints; no assertion depends on how much",
    "crash/test_http_kill.py": "a pause between two attempts at a broker that was killed; nothing is asserted of it",
    "crash/test_kill_delays.py": "the instants of kills and dues are chance; whoever is late makes nothing early",
    "crash/test_kill_ledger.py": "the instant of a kill is chance",
    "docker/engine.py": "how long `docker stop` takes tells whether the container drained or was killed",
    "integration/conditions.py": "the waits of tests with disks that fail",
    "integration/cli_online/test_pub_and_sub.py": "writes lines now and then, as the log does that is followed",
    "integration/test_bad_peers.py": "a peer that sends a frame byte by byte, until it is cut off",
    "integration/test_omq_replay.py": "samples the memory of a process; a sample that is missed fails nothing",
    "integration/test_reads_behind_appends.py": "an append that takes its time; who comes first is chance",
    "integration/test_bad_disk.py": "the broker samples its disk once a second",
    "integration/test_cli_offline.py": "instants in a store that the test writes; none is compared",
    "integration/test_client_consume.py": "requests are cancelled at instants that differ; none is asserted",
    "integration/test_http_limits.py": "a peer that sends a byte again and again; the limit itself ends it",
    "integration/test_large_messages.py": "the instant of a kill is chance",
    "integration/test_monitoring.py": "processor time of one thread, best of some; a wall clock a year ahead",
    "properties/test_native_codec.py": "processor time, best of three, one against another",
    "run.py": "prints how long the run took",
    "unit/proof/test_idle.py": "processor time of a thread that has ended, which its process has at least",
    "watchdog.py": "processor time of one thread between two turns of the loop, at best of some",
    "unit/spark/read/test_batch.py": "an instant of the broker is compared with the wall clock, within a minute",
}


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def owner_of(call: ast.Call) -> str:
    return getattr(call.func.value, "id", "") if isinstance(call.func, ast.Attribute) else ""


def is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def number(node: ast.expr | None) -> float | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def limit_of(call: ast.Call) -> ast.expr | None:
    """The seconds after which the call ends something."""
    position = LIMITS.get(name_of(call))
    if position is not None and position < len(call.args) and owner_of(call) in ("anyio", "asyncio"):
        return call.args[position]
    if owner_of(call) in ("subprocess", "asyncio"):
        return next((word.value for word in call.keywords if word.arg == "timeout"), None)
    return None


def waits(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and reason for everything that depends on time."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if name_of(node) == "sleep" and node.args and not is_zero(node.args[0]):
            yield node.lineno, "a sleep"
        elif name_of(node) == "wait" and 0 < (number(next(iter(node.args), None)) or 0) < LIMIT_S_MIN:
            yield node.lineno, "a wait of an event, which is a sleep"
        elif owner_of(node) == "time" and name_of(node) in CLOCKS:
            yield node.lineno, "a reading of a clock"
        elif (seconds := number(limit_of(node))) is not None and seconds < LIMIT_S_MIN:
            yield node.lineno, f"a limit below {LIMIT_S_MIN} s"


def files() -> list[str]:
    every = (str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py"))
    return sorted(name for name in every if not name.startswith(ELSEWHERE))


@pytest.mark.parametrize("name", files())
def test_a_test_does_not_depend_on_time(name: str) -> None:
    found = list(waits(ast.parse((TESTS / name).read_text())))
    if name in EXCEPTIONS:
        assert found, f"{name} needs no exception any more"
    else:
        assert found == [], "wait for a condition with tests/waiting.py, or inject the clock (vibemq/testing)"


@pytest.mark.parametrize(
    "text",
    [
        "time.sleep(0.1)",
        "threading.Event().wait(0.3)",
        "await anyio.sleep(pause)",
        "assert time.monotonic() - began < 5",
        "asyncio.wait_for(it, 2)",
        "anyio.fail_after(5)",
        "subprocess.run([], timeout=5)",
    ],
)
def test_what_depends_on_time_is_found(text: str) -> None:
    assert list(waits(ast.parse(f"async def f():\n    {text}")))


@pytest.mark.parametrize(
    "text",
    ["await anyio.sleep(0)", "event.wait(60)", "event.wait()", "anyio.fail_after(60)", "wait_until(lambda: done)"],
)
def test_what_does_not_is_allowed(text: str) -> None:
    assert not list(waits(ast.parse(f"async def f():\n    {text}")))
