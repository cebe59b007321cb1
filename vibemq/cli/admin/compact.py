"""`vibemq-admin compact`: unused disk space goes back to the system."""

from pathlib import Path
from typing import Annotated

import typer

from vibemq.cli.admin.backup import folder_bytes
from vibemq.cli.admin.offline import opened
from vibemq.cli.flags import DataDir, Json, Storage
from vibemq.cli.output import Output, bytes_text
from vibemq.cli.progress import tracked

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print how much would be freed, and free nothing. The store is opened and closed, as by a broker: what a "
        "killed broker left in the journal is written to the store.",
    ),
]


def compact(data_dir: DataDir, storage: Storage = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Rewrite the store of a stopped broker to free the space of settled messages."""
    out = Output(json=json)
    freed = _could_free(data_dir, storage) if dry_run else _free(data_dir, storage, out)
    verb = "could be freed" if dry_run else "freed"
    out.emit({"freed_bytes": freed, "dry_run": dry_run}, f"{data_dir}: {bytes_text(freed)} {verb}")


def _free(data_dir: Path, storage: str | None, out: Output) -> int:
    # Measured outside: an open store has files that are not there before and afterwards.
    before = folder_bytes(data_dir)
    with opened(data_dir, storage) as provider, tracked("compact", out.notes, silent=out.json) as progress:
        provider.compact(progress)
    return max(0, before - folder_bytes(data_dir))


def _could_free(data_dir: Path, storage: str | None) -> int:
    # Closing writes what is left of the journal to the store. Only then is it known what the store has to keep.
    with opened(data_dir, storage):
        pass
    with opened(data_dir, storage) as provider:
        stats = provider.stats()
        kept = folder_bytes(data_dir) - stats.journal_bytes - stats.reclaimable_bytes
    return max(0, folder_bytes(data_dir) - kept)
