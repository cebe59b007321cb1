"""Command lines that need no broker: parsing, refusals, exit codes, help."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vibemq.cli import main, pub
from vibemq.cli.entry import run_app, wants_json
from vibemq.cli.serve import given_of_listeners, with_listener
from vibemq.config import Listener, Settings
from vibemq.errors import ConfigInvalid

NOBODY = "vibemq://127.0.0.1:1"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def vibemq(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        code = run_app(main.app, "vibemq", list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_help_and_version(vibemq: Run) -> None:
    code, out, _ = vibemq("--help")
    assert code == 0
    assert all(verb in out for verb in ("serve", "pub", "sub", "ping", "bench", "demo"))
    code, out, _ = vibemq("--version")
    assert (code, out.count(".")) == (0, 2)


def test_a_reload_misses_the_files_of_the_settings_in_use_and_no_others(
    vibemq: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served: list[tuple[Any, ...]] = []
    monkeypatch.setattr("vibemq.server.app.serve", lambda *given: served.append(given))
    file = tmp_path / "vibemq.toml"
    file.write_text("auto_create = false")
    assert vibemq("serve", "--config", str(file))[0] == 0
    [(_, read_again, taken)] = served
    file.unlink()
    with pytest.raises(ConfigInvalid, match=f"the file {file}, which settings were read from before, is gone"):
        read_again()
    taken(())
    with pytest.raises(ConfigInvalid, match=f"cannot read the settings file {file}"):
        read_again()


def test_closed_standard_streams_are_as_dev_null() -> None:
    words = [sys.executable, "-m", "vibemq", "pub", "q", "--dry-run"]
    shell = shutil.which("sh")
    assert shell is not None
    ran = subprocess.run([shell, "-c", 'exec "$@" <&- >&-', "sh", *words], stderr=subprocess.PIPE)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("verb", ["serve", "pub", "sub", "ping", "bench", "demo"])
def test_every_verb_has_help(vibemq: Run, verb: str) -> None:
    code, out, _ = vibemq(verb, "--help")
    assert code == 0
    assert "--help" in out


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("pub",),
        ("pub", "q", "x", "--count", "0"),
        ("pub", "q", "x", "--ttl", "soon"),
        ("pub", "q", "x", "--header", "novalue"),
        ("pub", "q", "x", "y", "--dedup-id", "d"),
        ("pub", "q", "x", "--file", "f"),
        ("sub", "q", "--reject", "r", "--no-ack"),
        ("ping", "--url", "http://x"),
        ("ping", "--timeout", "0"),
        ("bench", "--durability", "granite"),
    ],
)
def test_usage_errors(vibemq: Run, words: tuple[str, ...]) -> None:
    code, out, err = vibemq(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error ")
    assert err.count("\n") == 1


def test_usage_errors_obey_json(vibemq: Run) -> None:
    code, _, err = vibemq("pub", "--json")
    assert code == 2
    assert json.loads(err)["error"]["code"] == "USAGE"
    assert json.loads(err)["exit_code"] == 2


@pytest.mark.parametrize("words", [("ping",), ("pub", "q", "x"), ("sub", "q")])
def test_nobody_there(vibemq: Run, words: tuple[str, ...]) -> None:
    code, out, err = vibemq(*words, "--url", NOBODY)
    assert (code, out) == (5, ""), err
    assert err.startswith("error UNREACHABLE: cannot connect to 127.0.0.1:1")


def test_a_missing_file_is_not_found(vibemq: Run, tmp_path: Path) -> None:
    code, _, err = vibemq("pub", "q", "--file", str(tmp_path / "gone"), "--url", NOBODY)
    assert code == 3
    assert err.startswith("error NOT_FOUND")


def test_a_dry_run_counts_without_a_broker(vibemq: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b'{"a": 1}\r\n\n"b"\nthree')
    code, out, _ = vibemq("pub", "q", "--file", str(file), "--count", "2", "--dry-run", "--json", "--url", NOBODY)
    assert code == 0
    assert json.loads(out)["published"] == 6
    code, _, err = vibemq("pub", "q", "--file", str(file), "--ndjson", "--dry-run")
    assert code == 2
    assert "message 3 is not JSON: b'three'" in err


def test_json_is_looked_for_before_the_double_dash_only() -> None:
    assert wants_json(["pub", "q", "--json"])
    assert not wants_json(["pub", "q", "--", "--json"])


def test_text_that_is_no_json_is_labelled() -> None:
    options = pub.Options({"k": "v"}, None, None, None, None, json_only=False)
    assert options.headers_for(b'{"a": 1}', 1) == {"k": "v"}
    assert options.headers_for(b"hello", 1) == {"k": "v", "content-type": "text/plain"}
    own = pub.Options({"content-type": "text/csv"}, None, None, None, None, json_only=False)
    assert own.headers_for(b"a,b", 1) == {"content-type": "text/csv"}


def test_a_bug_is_not_dressed_up_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(value: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pub, "key_values", broken)
    with pytest.raises(ZeroDivisionError):
        run_app(main.app, "vibemq", ["pub", "q", "x"])


def test_the_command_line_wins_over_the_listeners_of_the_settings() -> None:
    settings = Settings(listeners=(Listener(protocol="other", port=1), Listener(port=2)))
    changed = with_listener(settings, "0.0.0.0", 7)
    assert [(listener.protocol, listener.host, listener.port) for listener in changed.listeners] == [
        ("other", "0.0.0.0", 1),
        ("native", "0.0.0.0", 7),
    ]
    for before in (settings, changed):
        listeners = with_listener(before, "0.0.0.0", 7).listeners
        assert given_of_listeners(listeners, "0.0.0.0", 7) == dict.fromkeys(
            ("listeners[0].host", "listeners[1].host", "listeners[1].port"), "command line"
        )
    assert with_listener(settings, None, None) is settings


def test_a_port_adds_the_native_listener_that_the_settings_lack() -> None:
    settings = Settings(listeners=(Listener(protocol="other", port=1),))
    assert with_listener(settings, None, 0).listeners[1] == Listener(port=0)


def test_a_broken_setting_is_a_usage_error(vibemq: Run, tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text("data_dri = 'x'")
    code, _, err = vibemq("serve", "--config", str(file))
    assert code == 2
    assert err.startswith("error CONFIG_INVALID: setting data_dri")


def test_two_listeners_at_one_port_are_not_taken_for_another_broker(vibemq: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    code, _, err = vibemq("serve", "--config", str(tmp_path / "empty.toml"), "--port", "2930", "--http-port", "2930")
    assert code == 2
    assert err.startswith("error CONFIG_INVALID: setting http.port (from command line) is not valid: listeners[0] ")


@pytest.mark.parametrize(
    ("words", "place"),
    [(("--data-dir", ""), "option --data-dir is"), (("--host", ""), "setting http.host (from command line) is")],
)
def test_an_empty_option_of_serve_is_refused(
    vibemq: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.toml").touch()
    code, _, err = vibemq("serve", "--config", "empty.toml", *words)
    assert code == 2
    assert err.startswith(f"error CONFIG_INVALID: {place} not valid: it is empty; ")


def test_reading_standard_input_from_a_terminal_is_refused(vibemq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    code, _, err = vibemq("pub", "q")
    assert code == 2
    assert "no message" in err


@pytest.mark.parametrize("verb", ["ping", "bench"])
def test_a_broker_that_never_answers_is_given_up_after_the_timeout(vibemq: Run, verb: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"vibemq://127.0.0.1:{silent.getsockname()[1]}"
        code, out, err = vibemq(verb, "--url", url, "--timeout", "200ms")
    assert (code, out) == (5, ""), err
    assert re.search(r"did not (finish the handshake in|answer within) 0\.2 s", err)
