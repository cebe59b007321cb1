"""How a command ends that the system has refused something, or whose output is not taken."""

import os
import subprocess
import sys

import pytest
import typer

from vibemq.cli.entry import run_app


def test_without_threads_the_limits_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()

    @app.command()
    def serve() -> None:
        raise RuntimeError("can't start new thread")

    assert run_app(app, "vibemq", []) == 1
    said = capsys.readouterr().err
    assert said.startswith("error FAILED: the system lets this user or service begin no more threads;")
    assert said.count("\n") == 1
    for limit in ("TasksMax=", "--pids-limit", "ulimit -u"):
        assert limit in said


def test_other_errors_of_the_runtime_pass_through() -> None:
    app = typer.Typer()

    @app.command()
    def serve() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run_app(app, "vibemq", [])


def vibemq(words: list[str], *, out: str, err: str | None = None) -> "subprocess.CompletedProcess[str]":
    with open(out, "wb") as output, open(err or "/dev/null", "wb") as errors:
        return subprocess.run(
            [sys.executable, "-m", "vibemq", *words],
            stdout=output,
            stderr=errors if err is not None else subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            # Without a buffer nothing is left for the end of the process.
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )


def test_output_that_a_full_disk_does_not_take_is_one_error_and_exit_code_1() -> None:
    ended = vibemq(["--version"], out="/dev/full")
    assert ended.returncode == 1
    assert ended.stderr == "error SYSTEM: the operating system refuses: No space left on device\n"


def test_the_exit_code_counts_though_nobody_takes_the_error() -> None:
    assert vibemq(["no-such-command"], out="/dev/null", err="/dev/full").returncode == 2
