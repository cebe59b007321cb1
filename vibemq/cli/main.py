"""`vibemq`: the verbs, one file each. Only the one that is asked for is imported: a broker needs neither the client nor
what draws tables and bars, which would be a tenth of its memory."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from vibemq._version import __version__
from vibemq.cli.entry import run_app

_VERBS = {
    "serve": "vibemq.cli.serve",
    "pub": "vibemq.cli.pub",
    "sub": "vibemq.cli.sub",
    "ping": "vibemq.cli.ping",
    "bench": "vibemq.cli.bench",
    "demo": "vibemq.cli.demo.command",
}


def version_wanted(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=version_wanted, is_eager=True, help="Print the version and exit.")
]


def common(version: Version = False) -> None:
    """A durable queue service in one small process. To operate one: vibemq-admin."""


def application(words: Sequence[str]) -> typer.Typer:
    """What can carry out this command line: with one verb if it names one, else with all, for help and hints."""
    app = typer.Typer(name="vibemq", no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(common)
    for verb in words[:1] if words and words[0] in _VERBS else _VERBS:
        app.command()(getattr(import_module(_VERBS[verb]), verb))
    return app


def run() -> None:
    """Entry point of the script `vibemq`."""
    sys.exit(run_app(application(sys.argv[1:]), "vibemq"))
