"""What is refused is refused in a sentence, and Ctrl-C ends a verb without a traceback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.crash import ledger
from tests.integration.cli_online.verbs import Run
from tests.integration.conditions import running
from vibemq.auth.passwords import hash_password
from vibemq.cli.admin import main as admin_main
from vibemq.cli.child import BrokerProcess
from vibemq.cli.entry import run_app


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pub", "q", "hi", "--delay", "99999999999999999999w"), 2),
        (("admin", "queue", "peek", "q", "--from", "99999999999999999999"), 2),
        (("admin", "dlq", "show", "99999999999999999999"), 2),
        (("admin", "dlq", "show", "9223372036854775807"), 3),
        (("admin", "dlq", "show", "0"), 3),
        (("admin", "dlq", "ls", "--id", "5-2"), 2),
        (("admin", "dlq", "ls", "--after", "99999999999999999999"), 2),
        (("admin", "dlq", "ls", "--id", "9" * 5_000), 2),
        (("admin", "message", "rm", "q", "9" * 5_000, "--yes"), 2),
        (("admin", "queue", "create", "q", "--option", "max_attempts=" + "9" * 5_000), 2),
        (("admin", "queue", "create", "q", "--option", "max_attempts=--5"), 2),
        (("admin", "connections", "redirect", "h:" + "9" * 5_000, "--user", "ann"), 2),
        (("pub", "q", "hi", "--priority", "9" * 5_000), 2),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else str(value),
)
def test_numbers_that_are_too_large_are_refused_in_a_sentence(
    vibemq: Run, words: tuple[str, ...], expected: int
) -> None:
    code, found, err = vibemq(*words)
    assert (code, found) == (expected, []), err
    assert "Traceback" not in err
    assert json.loads(err)["exit_code"] == expected


def test_credentials_that_are_missing_or_wrong(vibemq: Run, tmp_path: Path) -> None:
    guarded = BrokerProcess(tmp_path / "guarded", storage="sqlite")
    (tmp_path / "guarded.toml").write_text('[auth]\ntoken = "open sesame"\n')
    anyio.run(guarded.start)
    try:
        codes = [vibemq("ping", "-n", "1", "--url", f"{guarded.url}{query}")[0] for query in ("", "?token=no")]
        assert codes == [4, 4]
        assert vibemq("ping", "-n", "1", "--url", f"{guarded.url}?token=open%20sesame")[0] == 0
    finally:
        anyio.run(guarded.stop)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("audit", "ls"), "audit.list requires a superuser, and user 'ann' is not one; connect as a superuser"),
        (
            ("queue", "info", "hidden"),
            "user 'ann' does not have the permission 'inspect' on queue 'hidden', which queue.info requires; ask",
        ),
        (
            ("dlq", "replay"),
            "user 'ann' does not have the permission 'purge' on every queue, which job.start requires; name "
            "the queue that is meant (`queue`), or ask",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_refusal_names_the_operation_and_the_missing_permission(
    words: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "vibemq.toml"
    config.write_text(
        f'[auth.users.ann]\npassword_hash = "{hash_password("pass word")}"\n'
        '[[auth.users.ann.permissions]]\nqueues = "seen"\nactions = ["inspect"]\n'
    )
    with running(ledger.BrokerProcess(tmp_path / "data", arguments=("--config", str(config)))) as broker:
        url = f"vibemq://ann:pass%20word@127.0.0.1:{broker.port}"
        code = run_app(admin_main.app, "vibemq-admin", [*words, "--url", url])
    assert code == 4
    assert sentence in capsys.readouterr().err


def test_the_timeout_comes_from_the_environment_too(vibemq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBEMQ_TIMEOUT", "soon")
    code, _, err = vibemq("ping", "--count", 1)
    assert code == 2
    where = "option --timeout (from environment variable VIBEMQ_TIMEOUT) is not valid"
    assert f"{where}: 'soon' is not a duration; write 250ms" in err
    code, _, err = vibemq("ping", "--timeout", "later")
    assert code == 2
    assert "option --timeout is not valid: 'later' is not a duration" in err


@pytest.mark.parametrize("variable", ["VIBEMQ_TLS_CA", "VIBEMQ_TLS_CERT", "VIBEMQ_TLS_KEY"])
def test_a_missing_file_of_tls_is_named_with_its_variable(
    vibemq: Run, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "none.pem")
    code, _, err = vibemq("ping", "--count", 1)
    assert code == 2
    option = variable.removeprefix("VIBEMQ_").lower().replace("_", "-")
    assert f"option --{option} (from environment variable {variable}) is not valid: the file none.pem cannot be" in err


def test_without_a_terminal_only_flags_that_exist_are_named(vibemq: Run, tmp_path: Path) -> None:
    file = tmp_path / "letters.ndjson"
    file.touch()
    code, _, err = vibemq("admin", "dlq", "export", file)
    assert code == 2
    assert "--yes" in err
    assert "--dry-run" not in err


def test_ctrl_c_is_the_normal_end_of_top() -> None:
    terminal, other_end = os.openpty()
    program = "from vibemq.cli.admin.main import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "top", "--interval", "100ms"],
        stdin=other_end,
        stdout=other_end,
        stderr=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm"},
    ) as process:
        os.close(other_end)
        shown = b""
        while b"VibeMQ" not in shown:
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        # The terminal holds a few pages; a program that cannot write on does not end.
        with contextlib.suppress(OSError):
            while os.read(terminal, 4096):
                pass
        assert process.stderr is not None
        assert (process.wait(60), process.stderr.read()) == (0, b"")
    os.close(terminal)


@pytest.mark.parametrize(
    "words",
    [
        ("vibemq", "sub", "interrupted", "--create", "--follow"),
        ("vibemq", "sub", "interrupted", "--create", "--idle", "1h"),
        ("vibemq", "pub", "interrupted"),
        ("vibemq", "ping", "--count", "100000", "--interval", "1h"),
        ("vibemq-admin", "top", "--once", "--interval", "1h"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_ctrl_c_ends_a_verb_without_a_traceback(words: tuple[str, ...], vibemq: Run, broker: BrokerProcess) -> None:
    name = f"interrupted-{'-'.join(words[:2])}-{len(words)}"
    program = {"vibemq": "run", "vibemq-admin": "run_admin"}[words[0]]
    code = f"import sys; from vibemq.cli import {program}; sys.argv = {list(words)!r}; {program}()"
    # Standard input stays open: a program that waits for it must end all the same.
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"VIBEMQ_URL": f"{broker.url}?name={name}"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while name not in [
                one["name"] for one in vibemq("admin", "top", "--interval", "100ms")[1][0]["connections"]
            ]:
                assert process.poll() is None, process.stderr.read()
            process.send_signal(signal.SIGINT)
            status = process.wait(60)
        finally:
            process.kill()
        errors = process.stderr.read().decode()
    assert status == 130
    assert "Traceback" not in errors
    assert "Error" not in errors


@pytest.mark.parametrize("ctrl_c", [signal.SIG_DFL, signal.SIG_IGN], ids=["", "ctrl-c-ignored"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_bench_that_is_ended_leaves_neither_its_broker_nor_its_folder(
    tmp_path: Path, number: int, ctrl_c: signal.Handlers
) -> None:
    words = ["vibemq", "bench", "--messages", "100000000", "--size", "1", "--storage", "sqlite"]
    # Whoever runs the tests under nohup, or in the background, has signals ignored, also by children.
    handler = "signal.SIG_IGN" if ctrl_c is signal.SIG_IGN else "signal.default_int_handler"
    code = (
        f"import signal, sys; signal.signal({int(number)}, signal.SIG_DFL); signal.signal(signal.SIGINT, {handler}); "
        f"from vibemq.cli import run; sys.argv = {[*words, '--data-dir', str(tmp_path)]!r}; run()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("published")
        (owner,) = tmp_path.glob("*/data/owner.json")
        pid = json.loads(owner.read_text())["pid"]
        process.send_signal(number)
        said = process.stderr.read()
    assert (process.returncode, "Traceback" in said, list(tmp_path.iterdir())) == (130, False, [])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_during_the_import_is_quiet_too() -> None:
    code = (
        "import builtins, os, signal, sys\n"
        "from vibemq.cli import run\n"
        "real = builtins.__import__\n"
        "def interrupted(name, *rest, **more):\n"
        "    if name == 'typer':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = interrupted\n"
        "sys.argv = ['vibemq', 'ping']\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
