"""Groups of verbs that are imported when they are used: help lists names and summaries without loading any."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from vibemq.cli.flags import connecting


class Verb(NamedTuple):
    """Where a verb lives. `name` is a function there, or a Typer application: a group of verbs."""

    module: str
    name: str
    summary: str
    """The first sentence of its help, for the list."""


def no_words(command: str) -> str:
    return ""


class LazyGroup(TyperGroup):
    """Holds stand-ins, which know their names and summaries, until a command line names one."""

    verbs: ClassVar[Mapping[str, Verb]] = {}
    required: ClassVar[Callable[[str], str]] = no_words

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.verbs)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in self.verbs:
            self.commands[args[0]] = loaded(args[0], self.verbs[args[0]], type(self).required)
        return super().resolve_command(ctx, args)


class ExplainedCommand(TyperCommand):
    """Says at the end of its help what it requires of the user. What knows that is imported for the help alone."""

    required: ClassVar[Callable[[str], str]] = no_words

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _, _, words = ctx.command_path.partition(" ")
        sentence = type(self).required(words)
        if sentence and sentence not in (self.help or ""):
            self.help = f"{self.help}\n\n{sentence}" if self.help else sentence
        super().format_help(ctx, formatter)


def group(
    name: str, common: Callable[..., None], verbs: Mapping[str, Verb], required: Callable[[str], str] = no_words
) -> typer.Typer:
    """The application `name`; the docstring of `common` is its help.

    Args:
        required: what a command requires of the user, as a sentence for its help; "" = nothing.
    """
    kind = type("Verbs", (LazyGroup,), {"verbs": verbs, "required": staticmethod(required)})
    app = typer.Typer(name=name, cls=kind, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(common)
    for word, verb in verbs.items():
        app.command(word, help=verb.summary)(_stand_in)
    return app


def loaded(word: str, verb: Verb, required: Callable[[str], str] = no_words) -> Any:
    """The command itself, with the options that every verb with a --url has."""
    found = getattr(import_module(verb.module), verb.name)
    kind = type("Explained", (ExplainedCommand,), {"required": staticmethod(required)})
    # Typer makes a group of an application with a callback, however few verbs it has.
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(_stand_in)
    if isinstance(found, typer.Typer):
        for info in found.registered_commands:
            assert info.callback is not None
            info.callback, info.cls = connecting(info.callback), kind
        app.add_typer(found, name=word)
    else:
        app.command(word, cls=kind)(connecting(found))
    made: Any = typer.main.get_command(app)
    return made.commands[word]


def _stand_in() -> None:
    """Never called."""
