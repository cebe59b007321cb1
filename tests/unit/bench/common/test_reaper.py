"""Nothing that a benchmark starts survives it."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.common.accounting import process_tree
from bench.common.reaper import REPOSITORY, Reaper
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
_KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from bench.common.reaper import Reaper

with Reaper() as reaper:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    reaper.begun(child.pid)
    reaper.remove_at_end(Path(sys.argv[1]))
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"


def test_what_is_left_is_ended_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with Reaper() as reaper:
        left, ended = sleeper(), sleeper()
        reaper.begun(left.pid)
        reaper.begun(ended.pid)
        reaper.ended(ended.pid)
        reaper.remove_at_end(folder)
    try:
        assert left.wait(PATIENCE_S) == -9
        assert not folder.exists()
        # What was taken off the list is none of the reaper's business: its number may be somebody else's by now.
        assert ended.poll() is None
    finally:
        ended.kill()
        ended.wait()


def test_a_killed_benchmark_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(folder)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    pid = int(killed.stdout)
    wait_until(lambda: not is_running(pid) and not folder.exists())


def test_a_tree_has_its_children() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo started; wait"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        tree = process_tree([parent.pid])
        assert len(tree) == 2
        for pid in reversed(tree):
            subprocess.run(["kill", "-9", str(pid)], check=True)
