"""`vibemq-admin migrate`: brings a store of an older VibeMQ to the layout of this one."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from vibemq.cli.exits import NotFound
from vibemq.cli.flags import DataDir, DryRun, Json, Yes
from vibemq.cli.output import Output, count_text, table
from vibemq.cli.progress import tracked
from vibemq.storage import migrate as migrations
from vibemq.storage.migrate import MigrationStep, Status


class MigrationAction(StrEnum):
    STATUS = "status"
    APPLY = "apply"


def migrate(
    data_dir: DataDir,
    action: Annotated[MigrationAction, typer.Argument(help="Show the store's version, or apply the pending steps.")] = (
        MigrationAction.STATUS
    ),
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Show the store's version and the pending steps, or apply them. To go back, restore a backup."""
    if not data_dir.is_dir():
        raise NotFound(f"there is no data directory {data_dir}")
    out = Output(json=json)
    found = migrations.status(data_dir)
    if action is MigrationAction.APPLY and dry_run and found.pending:
        migrations.refuse_missing(data_dir)
    if action is MigrationAction.STATUS or dry_run or not found.pending:
        answer = _as_object(found, applied=[])
        out.emit({**answer, "dry_run": True} if dry_run else answer, _text(found))
        if not json and found.pending:
            out.note(f"copy the directory first: cp -a {data_dir} COPY")
            out.note(f"apply: vibemq-admin migrate apply --data-dir {data_dir}")
        return
    out.confirm(
        f"Apply {count_text(len(found.pending), 'step')} to {data_dir}? Going back needs a copy.",
        yes=yes,
    )
    with tracked("migrated", out, silent=json) as progress:
        applied = migrations.migrate(data_dir, progress)
    found = migrations.status(data_dir)
    out.emit(
        _as_object(found, applied),
        f"applied {count_text(len(applied), 'step')}; the store is version {found.version} now",
    )


def _as_object(found: Status, applied: list[MigrationStep]) -> dict[str, Any]:
    return {
        "provider": found.provider,
        "version": found.version,
        "latest": found.latest,
        "pending": [_step(step) for step in found.pending],
        "applied": [_step(step) for step in applied],
    }


def _step(step: MigrationStep) -> dict[str, Any]:
    return {"number": step.number, "name": step.name, "summary": step.summary}


def _text(found: Status) -> Any:
    if not found.pending:
        return f"{found.provider} store, version {found.version}: nothing to do"
    rows = [(f"{step.number:04}", step.name, step.summary) for step in found.pending]
    title = f"{found.provider} store, version {found.version} of {found.latest}; pending:"
    return table(("step", "name", "what it does"), rows, title=title)
