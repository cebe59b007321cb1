"""The forks that stand for commands end as the commands do."""

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.quick_commands import PYTHON, quick_commands

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vmq-") as folder, quick_commands(Path(folder)) as path:
        yield path


def program(commands: Path, text: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([str(commands / PYTHON), text], stdin=stdin, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(
    ("text", "code", "printed", "complaint"),
    [
        ("import sys; print(sys.stdin.read())", 0, "given\n", ""),
        ("raise SystemExit(3)", 3, "", ""),
        ("raise SystemExit('why')", 1, "", "why\n"),
        ("vibemq", 1, "", "NameError: name 'vibemq' is not defined\n"),
        ("import vibemq, sys; print('vibemq.spark' in sys.modules)", 0, "False\n", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "", ""),
    ],
)
def test_a_program_ends_as_python_ends_it(commands: Path, text: str, code: int, printed: str, complaint: str) -> None:
    with program(commands, text, subprocess.PIPE) as process:
        out, said = process.communicate("given", timeout=60)
    assert (process.returncode, out.rstrip(), said.endswith(complaint)) == (code, printed.rstrip(), True), said


def test_a_signal_reaches_it(commands: Path) -> None:
    waiting = "import time\ntry: print('up', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: print('ended')"
    with program(commands, waiting) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
        assert (out, process.returncode) == ("ended\n", 0), said


def test_it_ends_with_who_has_started_it(commands: Path) -> None:
    with program(commands, "import time; print('up', flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
        # The end of its output, which it has open too.
        assert process.communicate(timeout=30)[0] == ""


def test_commands_complain_with_their_exit_code(commands: Path) -> None:
    done = subprocess.run([commands / "vibemq-admin", "check", "--data-dir", "missing"], capture_output=True, text=True)
    assert (done.returncode != 0, "missing" in done.stderr) == (True, True), done
