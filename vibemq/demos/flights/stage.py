"""The temporary folder and the exit code of a demo."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from vibemq.cli.child import ended_as_by_ctrl_c
from vibemq.cli.exits import ExitCode
from vibemq.cli.output import Output


@contextmanager
def stage(out: Output, *, keep: bool) -> Iterator[tuple[Path, list[str]]]:
    """A new folder, and a list for the problems that are found: with any in it, the exit code is 1 in the end. Whatever
    ends the demo, its child processes are ended, too."""
    # A short name: sockets of Spark have to fit into 108 characters.
    folder = Path(tempfile.mkdtemp(prefix="vmq-demo-"))
    problems: list[str] = []
    try:
        with ended_as_by_ctrl_c():
            yield folder, problems
    finally:
        if keep:
            out.note(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if problems:
        raise typer.Exit(ExitCode.FAILED)
