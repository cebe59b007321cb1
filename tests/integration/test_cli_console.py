"""`vibemq console` and the address that `vibemq serve` prints, against real brokers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vibemq.cli import main
from vibemq.cli.entry import run_app

Capture = pytest.CaptureFixture[str]


@contextmanager
def serving(data: Path, *words: str, settings: str = "") -> Iterator[dict[str, Any]]:
    """What the broker prints of its HTTP port."""
    file = data.with_suffix(".toml")
    file.write_text(settings)
    command = [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(data), "--config", str(file)]
    ports = ["--port", "0", "--http-port", "0"]
    with subprocess.Popen(
        [*command, *ports, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told: dict[str, Any] = {}
        for line in process.stdout:
            event = json.loads(line)
            told |= event if event.get("protocol") == "http" else {}
            if event["event"] == "ready":
                break
        try:
            yield told
        finally:
            process.terminate()
            told["log"] = process.stderr.read()


def console(capture: Capture, http: str) -> tuple[int, str, str]:
    code = run_app(main.app, "vibemq", ["console", "--print", "--http", http])
    captured = capture.readouterr()
    return code, captured.out.strip(), captured.err


def test_the_address_is_printed_where_it_works(tmp_path: Path, capsys: Capture) -> None:
    with serving(tmp_path / "data") as told:
        assert console(capsys, told["console"].removesuffix("/console/")) == (0, told["console"], "")


@pytest.mark.parametrize(
    ("words", "settings", "sentence"),
    [
        (["--host", "0.0.0.0"], "", "answers 403: this broker lets everybody in without a password"),
        ([], "[http]\nconsole = false\n", "answers 404: the broker serves no console there"),
    ],
    ids=["open to the network", "switched off"],
)
def test_a_console_that_is_closed(
    words: list[str], settings: str, sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    with serving(tmp_path / "data", *words, settings=settings) as told:
        assert "console" not in told
        code, out, err = console(capsys, f"http://localhost:{told['port']}")
    assert (code, out) == (1, "")
    assert sentence in err
    assert ("the console answers 403: this broker lets everybody in" in told["log"]) is bool(words)


@pytest.mark.parametrize("http", ["ftp://localhost:2926", "localhost:2926", "http://"])
def test_what_is_no_url_of_an_http_port(http: str, capsys: Capture) -> None:
    code, out, err = console(capsys, http)
    assert (code, out) == (1, "")
    assert f"--http is {http}; give the URL of the broker's HTTP port" in err
