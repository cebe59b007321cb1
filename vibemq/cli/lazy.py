"""Groups of verbs that are imported when they are used: help lists names and summaries without loading any."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup

from vibemq.cli.flags import connecting


class Verb(NamedTuple):
    """Where a verb lives. `name` is a function there, or a Typer application: a group of verbs."""

    module: str
    name: str
    summary: str
    """The first sentence of its help, for the list."""


class LazyGroup(TyperGroup):
    """Holds stand-ins, which know their names and summaries, until a command line names one."""

    verbs: ClassVar[Mapping[str, Verb]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.verbs)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in self.verbs:
            self.commands[args[0]] = loaded(args[0], self.verbs[args[0]])
        return super().resolve_command(ctx, args)


def group(name: str, common: Callable[..., None], verbs: Mapping[str, Verb]) -> typer.Typer:
    """The application `name`; the docstring of `common` is its help."""
    kind = type("Verbs", (LazyGroup,), {"verbs": verbs})
    app = typer.Typer(name=name, cls=kind, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(common)
    for word, verb in verbs.items():
        app.command(word, help=verb.summary)(_stand_in)
    return app


def loaded(word: str, verb: Verb) -> Any:
    """The command itself, with the options that every verb with a --url has."""
    found = getattr(import_module(verb.module), verb.name)
    # Typer makes a group of an application with a callback, however few verbs it has.
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(_stand_in)
    if isinstance(found, typer.Typer):
        for info in found.registered_commands:
            assert info.callback is not None
            name = info.name or info.callback.__name__
            info.callback = explained(connecting(info.callback), f"{word} {name}")
        app.add_typer(found, name=word)
    else:
        app.command(word)(explained(connecting(found), word))
    made: Any = typer.main.get_command(app)
    return made.commands[word]


def explained(command: Callable[..., Any], words: str) -> Callable[..., Any]:
    """A command that talks to a broker, with help that says what it requires of the user."""
    if "url" not in inspect.signature(command).parameters:
        return command
    # Help of a whole program imports no verb, nor what this needs.
    from vibemq.cli.admin.permissions import required

    text = inspect.getdoc(command) or ""
    sentence = required(words)
    if sentence and sentence not in text:
        command.__doc__ = f"{text}\n\n{sentence}"
    return command


def _stand_in() -> None:
    """Never called."""
