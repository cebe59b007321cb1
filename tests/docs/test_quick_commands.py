"""The forks that stand for commands end as the commands do."""

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.quick_commands import NUMBER, PYTHON, STARTER, quick_commands
from tests.waiting import killed_if_late

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


WAITS = """
import select, signal, socket
# A signal that comes just before time.sleep() begins is heard when it ends.
woken, wakes = socket.socketpair()
wakes.setblocking(False)
signal.set_wakeup_fd(wakes.fileno())
try:
    print('up', flush=True)
    select.select([woken], [], [])
except KeyboardInterrupt:
    print('ended')
"""


def test_a_signal_reaches_it(commands: Path) -> None:
    with program(commands, WAITS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
        assert (out, process.returncode) == ("ended\n", 0), said


def test_a_signal_that_comes_before_the_fork_is_passed_on(tmp_path: Path) -> None:
    """Whatever the starter is doing: here it waits for the number of the process that it stands for."""
    with tempfile.TemporaryDirectory(prefix="vmq-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        listener.listen()
        starter = tmp_path / PYTHON
        starter.write_text(STARTER.format(python=sys.executable, path=f"{folder}/s"), encoding="utf-8")
        with (
            subprocess.Popen([sys.executable, "-IS", starter], stderr=subprocess.PIPE, text=True) as process,
            subprocess.Popen([sys.executable, "-ISc", "import signal; signal.pause()"]) as stood_for,
        ):
            asked, _ = listener.accept()
            with asked, killed_if_late(stood_for):
                process.send_signal(signal.SIGTERM)
                asked.sendall(NUMBER.pack(stood_for.pid))
                assert stood_for.wait() == -signal.SIGTERM
                asked.sendall(NUMBER.pack(3))
            assert process.wait(timeout=60) == 3, process.stderr


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
