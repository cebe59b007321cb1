"""`vibemq-admin compact`: unused disk space goes back to the system."""

from vibemq.cli.admin.offline import opened
from vibemq.cli.flags import DataDir, DryRun, Json, Storage
from vibemq.cli.output import Output, bytes_text
from vibemq.cli.progress import tracked


def compact(data_dir: DataDir, storage: Storage = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Rewrite the store of a stopped broker to free the space of settled messages."""
    out = Output(json=json)
    with opened(data_dir, storage) as provider:
        if dry_run:
            freed = provider.stats().reclaimable_bytes
        else:
            with tracked("compact", out.notes, silent=json) as progress:
                freed = provider.compact(progress)
    verb = "could be freed" if dry_run else "freed"
    out.emit({"freed_bytes": freed, "dry_run": dry_run}, f"{data_dir}: {bytes_text(freed)} {verb}")
