"""The list of verbs: complete, told as the verbs tell it, and cheap."""

import subprocess
import sys

import pytest

from vibemq.cli.admin.main import VERBS as ADMIN_VERBS
from vibemq.cli.admin.main import app as admin_app
from vibemq.cli.entry import run_app
from vibemq.cli.lazy import Verb, loaded
from vibemq.cli.main import VERBS, app
from vibemq.cli.values import duration_ms, seconds, size_bytes

# Not pydantic: typer itself may use it to read values.
HEAVY = (
    "anyio",
    "asyncio",
    "lmdb",
    "numpy",
    "orjson",
    "pandas",
    "rich.live",
    "rich.progress",
    "sqlite3",
    "ssl",
    "starlette",
    "uvicorn",
    "vibemq.client",
    "vibemq.config",
    "vibemq.engine",
    "vibemq.model",
    "vibemq.protocols",
    "vibemq.server",
    "vibemq.storage",
)


GRAMMAR = {"vibemq.model", "vibemq.model.quantities"}
"""The grammar of durations and sizes, which needs nothing but the standard library."""
ALL = [("vibemq", app, name) for name in VERBS] + [("vibemq-admin", admin_app, name) for name in ADMIN_VERBS]


@pytest.mark.parametrize(("program", "application", "verb"), ALL, ids=[f"{program} {verb}" for program, _, verb in ALL])
def test_each_verb_has_help_and_stands_in_the_list(
    program: str, application: object, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([verb, "--help"], ["--help"]):
        assert run_app(application, program, words) == 0  # type: ignore[arg-type]
        assert verb in capsys.readouterr().out


@pytest.mark.parametrize(("word", "verb"), [*VERBS.items(), *ADMIN_VERBS.items()], ids=[*VERBS, *ADMIN_VERBS])
def test_the_list_says_what_the_verb_says(word: str, verb: Verb) -> None:
    command = loaded(word, verb)
    first = (command.short_help or command.help or "").split("\n\n")[0]
    assert " ".join(first.split()) == verb.summary


def test_a_mistyped_verb_is_told_of_a_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, "vibemq", ["srve"]) != 0
    assert "'serve'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["vibemq-admin", "queue", "delete", "orders"], "'delete'; write vibemq-admin queue rm"),
        (["vibemq-admin", "queue", "list"], "'list'; write vibemq-admin queue ls (try"),
        (["vibemq-admin", "queue", "lss"], "Did you mean 'ls'? (try"),
        (["vibemq-admin", "queue", "remove", "q"], "'remove'; write vibemq-admin queue rm (try"),
        (["vibemq-admin", "serve"], "'serve'; write vibemq serve (try"),
        (["vibemq-admin", "start"], "'start'; write vibemq serve (try"),
        (["vibemq-admin", "publish", "orders"], "'publish'; write vibemq pub (try"),
        (["vibemq", "consume", "orders"], "'consume'; write vibemq sub (try"),
        (["vibemq-admin", "token", "delete", "x"], "'delete'; write vibemq-admin token revoke"),
        (["vibemq-admin", "user", "create", "ann"], "'create'; write vibemq-admin user add"),
        (["vibemq-admin", "pub", "orders"], "'pub'; write vibemq pub"),
        (["vibemq", "queue", "ls"], "'queue'; write vibemq-admin queue"),
        (["vibemq", "start"], "'start'; write vibemq serve"),
        (["vibemq", "pub", "orders", "-5"], "-5; a message that begins with - stands behind --"),
        (["vibemq-admin", "queue", "change", "orders", "--mode", "broadcast"], "--mode; it cannot be changed"),
        (["vibemq-admin", "queue", "change", "orders", "--retention", "log"], "--retention; it cannot be changed"),
    ],
)
def test_a_verb_of_other_programs_is_told_of_ours(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *rest = words
    assert run_app({"vibemq": app, "vibemq-admin": admin_app}[program], program, rest) == 2
    assert meant in capsys.readouterr().err


def test_a_verb_of_nobody_is_only_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(admin_app, "vibemq-admin", ["queue", "xyzzy"]) == 2
    assert "write" not in capsys.readouterr().err


def imported(*words: str) -> list[str]:
    """The modules that a command line of `vibemq` or `vibemq-admin` has imported when it ends."""
    program = "run_admin" if words[0] == "vibemq-admin" else "run"
    code = f"""
import sys
from vibemq.cli import {program}
sys.argv = {list(words)!r}
try:
    {program}()
finally:
    print("MODULES", *sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    *_, last = ran.stdout.splitlines()
    return last.split()[1:]


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("serve", "--help"), ("no-such-verb",)])
@pytest.mark.parametrize("program", ["vibemq", "vibemq-admin"])
def test_help_imports_no_verb(program: str, words: tuple[str, ...]) -> None:
    modules = imported(program, *words)
    heavy = [name for name in modules if name in HEAVY or name.startswith(tuple(f"{heavy}." for heavy in HEAVY))]
    assert set(heavy) <= GRAMMAR
    # A verb that is imported by mistake brings hundreds of them.
    assert len(modules) < 470


NOT_FOR_A_CLIENT = (
    "argon2",
    "bcrypt",
    "lmdb",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
    "vibemq.auth",
    "vibemq.config",
    "vibemq.engine",
    "vibemq.model.commands",
    "vibemq.model.effects",
    "vibemq.model.records",
    "vibemq.server",
)


@pytest.mark.parametrize("words", [("vibemq", "ping"), ("vibemq-admin", "queue", "ls")])
def test_a_short_verb_imports_no_broker_nor_what_draws(words: tuple[str, ...]) -> None:
    modules = imported(*words, "--url", "vibemq://127.0.0.1:1")
    heavy = [name for name in modules if name.startswith(NOT_FOR_A_CLIENT)]
    assert heavy == []
    assert "vibemq.client.api" in modules
    assert len(modules) < 520


def test_a_broker_loads_neither_the_client_nor_what_draws_tables() -> None:
    modules = imported("vibemq", "serve", "--config", "/no/such/file")
    assert "vibemq.settings" in modules
    assert [name for name in modules if name.startswith(("vibemq.client", "rich.table", "rich.progress"))] == []


def parameters() -> list[object]:
    """Every option of every verb, as typer knows it."""
    commands = [loaded(word, verb) for word, verb in [*VERBS.items(), *ADMIN_VERBS.items()]]
    commands += [command for group in commands for command in getattr(group, "commands", {}).values()]
    return [parameter for command in commands for parameter in command.params]


def test_defaults_of_durations_and_sizes_are_shown_with_their_unit() -> None:
    shown = {}
    for parameter in parameters():
        if parameter.metavar in ("DURATION", "SIZE") and parameter.default is not None:  # type: ignore[attr-defined]
            assert parameter.show_default is False, parameter  # type: ignore[attr-defined]
            _, begin, text = parameter.help.rpartition("[default: ")  # type: ignore[attr-defined]
            assert begin, parameter
            text = text.partition("]")[0]
            read = {"--timeout": seconds}.get(parameter.opts[0], duration_ms)  # type: ignore[attr-defined]
            read = size_bytes if parameter.metavar == "SIZE" else read  # type: ignore[attr-defined]
            assert read(text) == parameter.default, parameter  # type: ignore[attr-defined]
            assert not text.isdecimal(), parameter
            shown[parameter.opts[0]] = text  # type: ignore[attr-defined]
    assert shown["--idle"] == "1s"


def test_every_verb_that_talks_to_a_broker_can_use_tls() -> None:
    commands = [loaded(word, verb) for word, verb in [*VERBS.items(), *ADMIN_VERBS.items()]]
    commands += [command for group in commands for command in getattr(group, "commands", {}).values()]
    talking = [command for command in commands if any("--url" in parameter.opts for parameter in command.params)]
    assert len(talking) > 20
    for command in talking:
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name", "--tls-insecure"} <= options, command.name
