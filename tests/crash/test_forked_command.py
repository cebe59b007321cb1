"""A forked command is what the same command is in a shell."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.forked_command import ForkedCommand

pytestmark = pytest.mark.slow


def in_a_shell(words: list[str], folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [Path(sys.executable).parent / words[0], *words[1:]], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def forked(words: list[str], folder: Path) -> tuple[int, str, str]:
    command = ForkedCommand(words, folder / "errors")
    assert command.stdout is not None
    with command.stdout:
        printed = command.stdout.read()
    return command.wait(60), printed, (folder / "errors").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["vibemq", "--version"],
        ["vibemq", "serve", "--port", "70000"],
        ["vibemq-admin", "check", "--data-dir", "missing"],
        ["vibemq-admin", "queue", "ls"],
    ],
    ids=" ".join,
)
def test_it_prints_and_ends_alike(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIBEMQ_URL", "vibemq://127.0.0.1:1")
    assert forked(words, tmp_path) == in_a_shell(words, tmp_path)


def test_a_signal_is_its_exit_code(tmp_path: Path) -> None:
    command = ForkedCommand(
        ["vibemq", "serve", "--data-dir", str(tmp_path / "d"), "--port", "0", "--http-port", "0"], tmp_path / "log"
    )
    assert command.stdout is not None
    assert command.stdout.readline() != ""
    assert command.poll() is None
    os.kill(command.pid, signal.SIGKILL)
    assert command.wait(60) == command.poll() == -signal.SIGKILL
    command.send_signal(signal.SIGTERM)
    command.stdout.close()
