"""The command `doctor`: runs every check and prints its result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from vibemq.cli.admin.doctor import broker, disk, machine
from vibemq.cli.admin.doctor.finding import BROKER, Finding, Level
from vibemq.cli.exits import ExitCode, plain
from vibemq.cli.flags import DEFAULT_URL, Json, data_dir_option, timeout_option
from vibemq.cli.output import Output

STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
SHORT_TIMEOUT = 3.0


def doctor(
    data_dir: Annotated[
        Path | None, data_dir_option("Also check this data directory.", variable="VIBEMQ_DATA_DIR")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", envvar="VIBEMQ_URL", help="Also check this broker.")] = None,
    timeout: Annotated[float, timeout_option("3s")] = SHORT_TIMEOUT,
    json: Json = False,
) -> None:
    """Check this machine and a broker, and print a remedy for each problem. Exit code 1 if a check fails."""
    found = list(findings(data_dir, url, timeout))
    failed = any(finding.level is Level.FAIL for finding in found)
    Output(json=json).emit(
        {"ok": not failed, "checks": [finding.as_object() for finding in found]}, Group(*map(_line, found))
    )
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def findings(data_dir: Path | None, url: str | None, timeout: float) -> Iterator[Finding]:
    yield machine.python()
    yield machine.python_build()
    yield machine.lmdb_library()
    yield machine.speed_packages()
    yield machine.open_files()
    yield machine.clock()
    folder, named = data_dir or Path(), data_dir is not None
    yield disk.access(folder, named=named)
    yield disk.file_system(folder)
    yield disk.free_space(folder)
    yield disk.inodes(folder)
    yield disk.flush(folder, named=named)
    if data_dir is not None:
        yield broker.owner(data_dir)
    yield from broker.broker(url or DEFAULT_URL, timeout, asked_for=url is not None)


def _line(finding: Finding) -> Text:
    name = f"broker, {finding.check}" if finding.by == BROKER else finding.check
    line = Text.assemble((f"{finding.level:<5}", STYLES[finding.level]), (f"{name}: ", "bold"), plain(finding.text))
    if finding.remedy:
        line.append(f"\n      → {plain(finding.remedy)}", style="dim")
    return line
