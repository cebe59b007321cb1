"""Options that mean the same on every verb."""

from pathlib import Path
from typing import Annotated

import typer

from vibemq.cli.values import duration_ms, seconds, size_bytes

DEFAULT_URL = "vibemq://localhost:2925"
DEFAULT_TIMEOUT = 10.0

Json = Annotated[
    bool, typer.Option("--json", help="Machine-readable output: one JSON object, or one per line for lists.")
]
Url = Annotated[
    str,
    typer.Option("--url", envvar="VIBEMQ_URL", help=r"Broker to talk to: vibemq://\[user:password@]host\[:port]."),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", parser=seconds, metavar="DURATION", help="How long to wait for an answer (10s, 500ms)."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
DataDir = Annotated[
    Path,
    typer.Option("--data-dir", envvar="VIBEMQ_DATA_DIR", metavar="DIR", help="The broker's data directory."),
]
Storage = Annotated[
    str | None,
    typer.Option("--storage", metavar="NAME", help="Storage provider; by default the one that the directory holds."),
]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]


def duration_option(name: str, text: str) -> object:
    """A `--name DURATION` option whose value arrives in milliseconds."""
    return typer.Option(name, parser=duration_ms, metavar="DURATION", help=text)


def size_option(name: str, text: str) -> object:
    """A `--name SIZE` option whose value arrives in bytes."""
    return typer.Option(name, parser=size_bytes, metavar="SIZE", help=text)
