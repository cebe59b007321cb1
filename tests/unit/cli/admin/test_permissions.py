"""The help of every command that talks to a broker says what the command requires of the user."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import typer

from vibemq.auth.matrix import OPERATIONS
from vibemq.cli.admin import main as admin
from vibemq.cli.admin.permissions import REQUESTS, required
from vibemq.cli.entry import run_app

OPERATION = re.compile(r'"((?:queue|message|group|dlq|broker|storage|connections|user|token)\.[a-z]+)"')
NOT_REQUIRED = {("queue create", "queue.info"), ("queue import", "queue.create"), ("connections close", "user.self")}
"""Used only where it is permitted."""
OF_READERS = "of programs that read by ranges"
OF_COMMITS = "of programs that commit transactions"
WITHOUT_A_ROW = {
    "broker.info": "facts for programs; `broker overview`, `broker settings` and `whoami` show what people ask for",
    "broker.checks": "`doctor` asks it where it may",
    "broker.metrics": "counters for programs; `broker overview` and `top` show figures",
    "user.allowed": "`user check` without a user",
    "queue.remove": "`message rm` removes by sequence and by id",
    **dict.fromkeys(("dead.fetch", "dead.offsets", "dead.redrive"), OF_READERS),
    **dict.fromkeys(("group.advance", "group.commit", "group.enter", "group.fetch", "group.plan"), OF_READERS),
    **dict.fromkeys(("group.reject", "group.split"), OF_READERS),
    **dict.fromkeys((f"transaction.{verb}" for verb in ("abort", "commit", "forget", "last")), OF_COMMITS),
}
"""Operations that no command needs, and why."""


def commands() -> Iterator[tuple[str, Any]]:
    """Words and function of every command with a --url."""
    for word, verb in admin.VERBS.items():
        found = getattr(import_module(verb.module), verb.name)
        inner = [(word, found)]
        if isinstance(found, typer.Typer):
            infos = [info for info in found.registered_commands if info.callback is not None]
            inner = [(f"{word} {info.name or info.callback.__name__}", info.callback) for info in infos]
        yield from ((words, command) for words, command in inner if "url" in inspect.signature(command).parameters)


@pytest.mark.parametrize(("words", "command"), [pytest.param(*found, id=found[0]) for found in commands()])
def test_a_command_names_every_operation_that_it_calls(words: str, command: Any) -> None:
    called = set(OPERATION.findall(inspect.getsource(inspect.unwrap(command))))
    assert {name for name in called if (words, name) not in NOT_REQUIRED} <= set(REQUESTS[words])


def test_every_row_is_a_command() -> None:
    assert set(REQUESTS) == {words for words, _ in commands()}


def test_every_operation_has_a_command_or_a_reason() -> None:
    used = {operation for needed in REQUESTS.values() for operation in needed}
    assert set(OPERATIONS) - used == set(WITHOUT_A_ROW)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("queue purge", "Permissions on a broker with authentication: `inspect` on the queue, `purge` on the queue."),
        ("dlq export", "Permissions on a broker with authentication: `inspect` on the queue."),
        ("audit ls", "On a broker with authentication this requires a superuser."),
        ("top", ""),
        ("backup", "On a broker with authentication this requires a superuser."),
        ("queue ls", ""),
        ("doctor", ""),
    ],
)
def test_the_sentence(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert required(words) == sentence
    assert run_app(admin.app, "vibemq-admin", [*words.split(), "--help"]) == 0
    assert sentence in " ".join(capsys.readouterr().out.split())
