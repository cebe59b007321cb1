"""`vibemq`: the verbs, one file each."""

import sys
from typing import Annotated

import typer

from vibemq._version import __version__
from vibemq.cli.bench import bench
from vibemq.cli.demo.command import demo
from vibemq.cli.entry import run_app
from vibemq.cli.ping import ping
from vibemq.cli.pub import pub
from vibemq.cli.serve import serve
from vibemq.cli.sub import sub

app = typer.Typer(
    name="vibemq",
    help="A durable queue service in one small process. To operate one: vibemq-admin.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for verb in (serve, pub, sub, ping, bench, demo):
    app.command()(verb)


def version_wanted(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=version_wanted, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def common(version: Version = False) -> None:
    """A durable queue service in one small process. To operate one: vibemq-admin."""


def run() -> None:
    """Entry point of the script `vibemq`."""
    sys.exit(run_app(app, "vibemq"))
