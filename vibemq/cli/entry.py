"""Runs a Typer application and turns whatever ends it into an exit code and one sentence."""

import logging
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer

from vibemq.cli.exits import CommandFailed, ExitCode, Usage, exit_code_of, root_of, tell
from vibemq.errors import VibeMQError


def run_app(app: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Errors outside the family and the system's pass through: bugs."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # What a person must know is in the error; `serve` and `sub --follow` set up logs of their own.
    logging.getLogger("vibemq").addHandler(logging.NullHandler())
    try:
        result = typer.main.get_command(app).main(args=words, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BaseException as raised:
        if isinstance(raised, SystemExit | GeneratorExit):
            raise
        error = _as_ours(root_of(raised))
        if isinstance(error, KeyboardInterrupt):
            # In a group, beside what it interrupted.
            return ExitCode.INTERRUPTED
        if isinstance(error, BrokenPipeError):
            return _reader_left()
        if error is None:
            raise
        # The exit code says it to a script, whoever reads stderr.
        with suppress(OSError):
            tell(error, json=wants_json(words), stream=sys.stderr)
        return exit_code_of(error)
    return result if isinstance(result, int) else ExitCode.OK


_NO_THREAD = "can't start new thread"
"""Python's words for it, which have no class of their own."""


def _reader_left() -> ExitCode:
    """The reader of our output has left (`| head`): nobody is there to be told, not even at interpreter exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.FAILED


def wants_json(words: Sequence[str]) -> bool:
    """Whether `--json` was asked for; looked up in the raw words, so that usage errors obey it too."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _as_ours(error: BaseException) -> BaseException | None:
    if isinstance(error, VibeMQError | OSError | KeyboardInterrupt):
        return error
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return CommandFailed(
            "the system lets this user or service begin no more threads; raise the limit (`TasksMax=` of a systemd "
            "unit, `--pids-limit` of a container, `ulimit -u`), or end other processes"
        )
    # Typer's usage errors, by their two verbs: the class that owns them has moved between its versions.
    explain = getattr(error, "format_message", None)
    if explain is None or not hasattr(error, "exit_code"):
        return None
    context = getattr(error, "ctx", None)
    help_hint = f" (try: {context.command_path} --help)" if context is not None else ""
    sentence = (explain() or "a command is missing").rstrip(".")
    if meant := _meant(sentence, context):
        sentence = _GUESS.split(sentence, maxsplit=1)[0] + meant
    return Usage(sentence + help_hint)


_GUESS = re.compile(r"\. Did you mean | \(Possible options")
"""Typer's, which knows only what is spelt alike."""
_UNKNOWN = re.compile(r"No such command '([\w-]+)'")
_PROGRAMS = {"vibemq": "vibemq.cli.main", "vibemq-admin": "vibemq.cli.admin.main"}
_DELETE, _CHANGE, _PUB, _SUB = ("rm", "revoke", "purge"), ("change", "set", "edit"), ("pub",), ("sub",)
_OTHER_WORDS: dict[str, tuple[str, ...]] = {
    "add": ("create",),
    "alter": _CHANGE,
    "consume": _SUB,
    "create": ("add",),
    "delete": _DELETE,
    "describe": ("info", "show"),
    "drop": _DELETE,
    "edit": _CHANGE,
    "empty": ("purge",),
    "get": ("info", "show"),
    "info": ("show",),
    "list": ("ls",),
    "modify": _CHANGE,
    "new": ("create", "add"),
    "produce": _PUB,
    "publish": _PUB,
    "receive": _SUB,
    "redrive": ("replay",),
    "remove": _DELETE,
    "retry": ("replay",),
    "rm": _DELETE,
    "run": ("serve",),
    "send": _PUB,
    "show": ("info",),
    "start": ("serve",),
    "subscribe": _SUB,
    "update": _CHANGE,
}
"""What other brokers and programs call a command, and its names here."""


def _meant(sentence: str, context: Any) -> str:
    """What may have been meant by a command that there is not; empty when nothing is known: Typer may have a guess."""
    if sentence.startswith("No such option: "):
        return _option_meant(sentence.removeprefix("No such option: ").split(" ")[0], context)
    unknown = _UNKNOWN.search(sentence)
    if unknown is None or context is None:
        return ""
    word, here = unknown[1], getattr(context.command, "commands", {})
    names = _OTHER_WORDS.get(word, ())
    for name in names:
        if name in here:
            return f"; write {context.command_path} {name}"
    if context.parent is None:
        for program, module in _PROGRAMS.items():
            for name in (word, *names):
                if name in import_module(module).VERBS:
                    return f"; write {program} {name}"
    return ""


def _option_meant(option: str, context: Any) -> str:
    """As `_meant`, of an option."""
    path = context.command_path if context is not None else ""
    if path in ("vibemq pub", "vibemq request") and not option.startswith("--"):
        return "; a message that begins with - stands behind --"
    if path == "vibemq-admin queue change" and option in ("--mode", "--retention"):
        return "; it cannot be changed: create another queue, and move the messages with `queue move`"
    return ""
