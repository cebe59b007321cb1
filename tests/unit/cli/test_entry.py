"""How a command ends that the system has refused something, or whose output is not taken."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from vibemq import plugins
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


def admin(*words: str | bytes, encoding: str) -> tuple[int, bytes, bytes]:
    program = "from vibemq.cli import run_admin; run_admin()"
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    return ended.returncode, ended.stdout, ended.stderr


def store_in(folder: bytes) -> bytes:
    plugin = plugins.find("storage", "sqlite")
    store = plugin.create(Path(os.fsdecode(folder)), plugin.settings())
    store.open()
    store.close()
    return folder


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_name_that_is_no_text_is_written_with_escapes(tmp_path: Path, encoding: str) -> None:
    folder = store_in(os.fsencode(tmp_path) + b"/caf\xe9")
    target = folder + b"-copy"
    code, out, err = admin("backup", target, "--data-dir", folder, "--json", encoding=encoding)
    assert (code, err) == (0, b"")
    assert json.loads(out)["target"] == os.fsdecode(target)
    code, out, err = admin("check", "--data-dir", folder, encoding=f"{encoding}:strict")
    assert (code, err) == (0, b"")
    assert out.endswith(b"/caf\\udce9: sound\n")


def test_a_locale_that_lacks_a_letter_gets_an_escape_and_json_is_utf_8(tmp_path: Path) -> None:
    folder, target = store_in(os.fsencode(tmp_path / "œuvre")), tmp_path / "œuvre-copy"
    code, out, _ = admin("check", "--data-dir", folder, encoding="latin-1")
    assert (code, out.endswith(b"/\\u0153uvre: sound\n")) == (0, True)
    code, out, _ = admin("backup", str(target), "--data-dir", folder, "--json", encoding="latin-1")
    assert (code, json.loads(out.decode())["target"]) == (0, str(target))
