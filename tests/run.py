"""Runs pytest, and what failed once more by itself: `python tests/run.py [arguments of pytest]`.

What passes the second time is printed as `FLAKY <test>` with its first traceback and does not fail the run; it has to
be repaired all the same. What fails twice fails. The last line is a closing line of pytest with the totals of both.

A test that hangs has failed: after `faulthandler_timeout` of pyproject.toml it prints the stacks of its threads, and it
ends with its worker. Processes that outlive their tests are named and killed at the end: each of them may hold the
output open, for whose end a shell waits.

Nothing is run again, and the first exit code stands, when the first run does not account for every test: modules that
cannot be imported, an interruption, `-x`, an internal error. Nor when more than RERUN_MAX tests failed, which is no
chance.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

RERUN_MAX = 25
RUN_SECONDS_MAX = 3000
"""The first run is ended, and fails, when it takes longer: something hangs that is no test."""
RERUN_SECONDS_MAX = 300
"""The second run is ended, and fails, when it takes longer."""
PR_SET_CHILD_SUBREAPER = 36
"""See prctl(2)."""
CATEGORIES = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "error")
"""In the order in which pytest names them."""


class Scheduler:
    """A plug-in for `--dist loadgroup`: a test whose worker has crashed is not run again by the next one, and what its
    worker has left is run.

    pytest-xdist hands the rest to the worker that replaces it one unit at a time; with a unit of one test that worker
    waits for a second one, and the run never ends.
    """

    def pytest_xdist_make_scheduler(self, config: Any, log: Any) -> Any:
        if config.getvalue("dist") != "loadgroup":
            return None
        # pytest warns when xdist is imported before it.
        from xdist.scheduler import LoadGroupScheduling

        class Groups(LoadGroupScheduling):
            def remove_node(self, node: Any) -> str | None:
                units = self.assigned_work.pop(node)
                crashed = next((test for unit in units.values() for test, done in unit.items() if not done), None)
                if crashed is None:
                    return None
                for unit in units.values():
                    if crashed in unit:
                        unit[crashed] = True
                self.workqueue.update({scope: unit for scope, unit in units.items() if not all(unit.values())})
                for other in self.assigned_work:
                    self._reschedule(other)
                return crashed

            def schedule(self) -> None:
                again = self.collection is not None
                super().schedule()
                for node in self.nodes if again else ():
                    self._reschedule(node)

        return Groups(config, log)


class Recorder:
    """A plug-in of the process that prints (with xdist: not of the workers): what became of each test, as JSON."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()
        self._tests: dict[str, dict[str, Any]] = {}
        self._uncollected = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        test = self._tests.setdefault(plain(report.nodeid), {"failed": [], "outcome": "passed"})
        if report.failed:
            test["failed"].append([report.when, report.longreprtext])
            # A run of twenty minutes need not end before one knows.
            print(f"\nNOT PASSED {plain(report.nodeid)} ({report.when})", flush=True)
        elif hasattr(report, "wasxfail"):
            test["outcome"] = "xfailed" if report.skipped else "xpassed"
        elif report.skipped:
            test["outcome"] = "skipped"

    def pytest_collectreport(self, report: Any) -> None:
        self._uncollected += report.failed

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        if os.getpid() != self._pid:
            return  # A child that a test has forked.
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        stats = terminal.stats if terminal is not None else {}
        record = {
            "whole": not self._uncollected
            and not session.shouldfail
            and not session.shouldstop
            and session.testscollected == len(self._tests),
            "tests": self._tests,
            "deselected": len(stats.get("deselected", ())),
            "warnings": len(stats.get("warnings", ())),
        }
        Path(self._path).write_text(json.dumps(record))


def plain(nodeid: str) -> str:
    """Without the group that xdist's `--dist loadgroup` puts behind it."""
    return nodeid[: nodeid.rfind("@")] if nodeid.rfind("@") > nodeid.rfind("]") else nodeid


def child(path: str, arguments: list[str]) -> int:
    """One run of pytest in this process."""
    import pytest

    # As in the script `pytest`: the folder of this file is no place to import from.
    if sys.path[0] == str(Path(__file__).parent):
        del sys.path[0]
    return int(pytest.main(arguments, plugins=[Recorder(path), Scheduler()]))


def adopt_orphans() -> None:
    """Become the parent of what a test leaves behind, where the system knows that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def bury(pid: int, ended: Event) -> None:
    """Take the exit codes of adopted orphans, which tests wait to see gone, until `pid` has ended; leave its own."""
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) is not None and dead.si_pid != pid:
            os.waitpid(dead.si_pid, 0)
    ended.set()


def children(pid: int) -> list[int]:
    """Of all its threads. Some of those that come or end meanwhile are missing."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.extend(map(int, task.read_text().split()))
    return found


def kill_what_is_left(number: int = signal.SIGKILL) -> None:
    """Name and kill every descendant. With SIGABRT the tests' processes print their stacks."""
    pending = children(os.getpid())
    while pending:
        pid = pending.pop()
        pending.extend(children(pid))
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
            if command:  # Otherwise it has ended, and nobody has asked for its exit code.
                print(f"LEFT BEHIND {pid} {command[:200]}", flush=True)
            os.kill(pid, number)


def run(arguments: list[str], timeout: float) -> tuple[int, dict[str, Any] | None]:
    """One run of pytest in a process of its own: its exit code, and its record if it came to an end."""
    with tempfile.TemporaryDirectory(prefix="tests-run-") as folder:
        record = Path(folder, "record.json")
        process = subprocess.Popen([sys.executable, __file__, "--child", str(record), *arguments])
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        ended = Event()
        Thread(target=bury, args=(process.pid, ended), daemon=True).start()
        try:
            if not ended.wait(timeout):
                raise subprocess.TimeoutExpired(process.args, timeout)
            status = process.wait()
        except subprocess.TimeoutExpired:
            print(f"\nthe tests did not end within {timeout:.0f} s; what still runs, and the stacks of its threads:")
            kill_what_is_left(signal.SIGABRT)
            process.wait()
            return 1, None
        except KeyboardInterrupt:
            # The terminal has interrupted pytest as well, which says how far it came.
            process.wait()
            return 130, None
        finally:
            kill_what_is_left()
        if status < 0:
            return 128 - status, None
        return status, json.loads(record.read_text()) if record.exists() else None


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    adopt_orphans()
    status, first = run(arguments, RUN_SECONDS_MAX)
    if status != 1 or first is None or not first["whole"]:
        return status
    failed = [nodeid for nodeid, test in first["tests"].items() if test["failed"]]
    if not failed:
        return status  # pytest found fault with something else, such as its own session.
    if len(failed) > RERUN_MAX:
        print(f"{len(failed)} tests failed, too many to be chance: none is run again", flush=True)
        return status
    print(f"\nrunning again what failed, alone: {len(failed)} tests", flush=True)
    _, second = run(["-ra", "-p", "no:cacheprovider", *failed], RERUN_SECONDS_MAX)
    again = second["tests"] if second is not None else {}
    flaky = [nodeid for nodeid in failed if nodeid in again and again[nodeid] == {"failed": [], "outcome": "passed"}]
    return close(first, flaky, time.monotonic() - began)


def close(first: dict[str, Any], flaky: list[str], seconds: float) -> int:
    """Print what both runs mean together; the exit code."""
    print()
    for nodeid in flaky:
        print(f"FLAKY {nodeid}")
        for when, text in first["tests"][nodeid]["failed"]:
            print(f"  first traceback ({when}):")
            print("\n".join(f"  | {line}" for line in text.splitlines()))
    counts = dict.fromkeys(CATEGORIES, 0)
    counts["deselected"], counts["warnings"] = first["deselected"], first["warnings"]
    for nodeid, test in first["tests"].items():
        if not test["failed"] or nodeid in flaky:
            counts["passed" if nodeid in flaky else test["outcome"]] += 1
            continue
        around = all(when in ("setup", "teardown") for when, _ in test["failed"])
        counts["error" if around else "failed"] += 1
        print(f"FAILED TWICE {nodeid}")
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    print(f"{f' {said} in {seconds:.2f}s ':=^100}", flush=True)
    return 1 if counts["failed"] or counts["error"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.exit(child(sys.argv[2], sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
