"""`vibemq`: the verbs, one file each. Only the one that is asked for is imported: a broker needs neither the client nor
what draws tables and bars, which would be a tenth of its memory, and help needs none of them."""

from typing import Annotated

import typer

from vibemq import cli
from vibemq._version import __version__
from vibemq.cli.entry import run_app
from vibemq.cli.lazy import Verb, group

VERBS = {
    "serve": Verb("vibemq.cli.serve", "serve", "Run a broker until SIGTERM or Ctrl-C."),
    "pub": Verb(
        "vibemq.cli.pub",
        "pub",
        "Publish messages and wait until the broker has confirmed them. Bodies are sent unchanged.",
    ),
    "sub": Verb(
        "vibemq.cli.sub",
        "sub",
        "Print messages as they arrive, one per line, and acknowledge each batch after printing it.",
    ),
    "request": Verb(
        "vibemq.cli.pub",
        "request",
        "Publish one message, wait until a consumer replies to it, and print the reply.",
    ),
    "console": Verb("vibemq.cli.console.opening", "console", "Open the broker's console in a browser."),
    "ping": Verb("vibemq.cli.ping", "ping", "Measure the round-trip time to the broker."),
    "bench": Verb("vibemq.cli.bench", "bench", "Publish, consume and acknowledge messages, and print the rates."),
    "demo": Verb(
        "vibemq.demos.flights.command",
        "demo",
        "Send 336,776 flights through a broker, kill it with kill -9 in the middle, and check that none is lost.",
    ),
}


def version_wanted(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=version_wanted, is_eager=True, help="Print the version and exit.")
]


def common(version: Version = False) -> None:
    """A durable queue service in one small process. To operate a broker, use vibemq-admin."""


app = group("vibemq", common, VERBS)


def main() -> int:
    return run_app(app, "vibemq")


def run() -> None:
    """Entry point of scripts that were installed before `vibemq.cli:run` was."""
    cli.run()
