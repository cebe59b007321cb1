"""`vibemq-admin import`: the messages of a .NET VibeMQ move in."""

import time
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from vibemq.cli.admin.offline import looked_at, made, plugin_of
from vibemq.cli.exits import ExitCode, NotFound
from vibemq.cli.flags import DataDir, DryRun, Json, Storage
from vibemq.cli.output import Output, count_text
from vibemq.cli.progress import Tracker, tracked
from vibemq.model.stored import StoredState
from vibemq.storage.importers.dotnet import ImportReport, check_source, import_dotnet
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.local.store_file import read_store_info

BAD_ROWS_SHOWN = 20


def import_file(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The SQLite file of the .NET VibeMQ; it is not changed.")
    ],
    data_dir: DataDir,
    storage: Storage = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted import.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import queues, messages and dead letters of a .NET VibeMQ into a new or existing data directory.

    A row that cannot be read is printed and skipped (exit code 6).
    """
    if not file.is_file():
        raise NotFound(f"there is no file {file}")
    out = Output(json=json)
    with tracked("imported", out, silent=json) as progress:
        report = _import(file, data_dir, storage, progress, resume=resume, dry_run=dry_run)
    out.emit({**asdict(report), "dry_run": dry_run}, _text(report, dry_run=dry_run))
    if report.bad:
        raise typer.Exit(ExitCode.PARTLY)


def _import(
    file: Path, data_dir: Path, storage: str | None, progress: Tracker, *, resume: bool, dry_run: bool
) -> ImportReport:
    info = read_store_info(data_dir) if data_dir.is_dir() else None
    name = storage or (info.provider if info is not None else "lmdb")
    provider = made(plugin_of(name), data_dir)
    arguments: dict[str, Any] = {
        "incarnation": lambda: uuid.uuid4().hex,
        "now": int(time.time() * 1000),
        "resume": resume,
        "dry_run": dry_run,
        "progress": progress,
    }
    if not dry_run:
        if info is None:
            # Opening makes a store, and that is not for a file that was named by mistake.
            check_source(file)
        return _import_into(provider, file, arguments)
    if info is None:
        # Opening would make a store; a dry run against none is one against an empty one.
        return import_dotnet(file, provider, StoredState(), **arguments)
    with looked_at(data_dir, name) as store:
        return import_dotnet(file, provider, store.state, **arguments)


def _import_into(provider: IStorageProvider, file: Path, arguments: dict[str, Any]) -> ImportReport:
    state = provider.open()
    try:
        report = import_dotnet(file, provider, state, **arguments)
        provider.sync()
        return report
    finally:
        provider.close()


def _text(report: ImportReport, *, dry_run: bool) -> str:
    verb = "would be imported" if dry_run else "imported"
    lines = [
        f"{verb}: {count_text(report.queues, 'queue')}, {count_text(report.messages, 'message')}, "
        f"{count_text(report.dead_letters, 'dead letter')}"
        + (f"; {report.skipped:,} were there already" if report.skipped else "")
    ]
    lines += [f"left out: {row.table} {row.key}: {row.why}" for row in report.bad[:BAD_ROWS_SHOWN]]
    if len(report.bad) > BAD_ROWS_SHOWN:
        lines.append(f"… and {len(report.bad) - BAD_ROWS_SHOWN:,} more; --json names all of them")
    return "\n".join(lines)
