"""`vibemq-admin compact`: unused disk space goes back to the system."""

from pathlib import Path

from vibemq.cli.admin.backup import folder_bytes
from vibemq.cli.admin.offline import looked_at, opened
from vibemq.cli.flags import DataDir, DryRun, Json, Storage
from vibemq.cli.output import Output, bytes_text
from vibemq.cli.progress import tracked


def compact(data_dir: DataDir, storage: Storage = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Rewrite the store of a stopped broker to free the space of settled messages."""
    out = Output(json=json)
    if dry_run:
        freed, unapplied = _could_free(data_dir, storage)
        value = {"freed_bytes": freed, "dry_run": True, "unapplied_bytes": unapplied}
        out.emit(value, f"{data_dir}: {bytes_text(freed)} could be freed{_uncertain(unapplied)}")
        return
    freed = _free(data_dir, storage, out)
    out.emit({"freed_bytes": freed, "dry_run": False}, f"{data_dir}: {bytes_text(freed)} freed")


def _free(data_dir: Path, storage: str | None, out: Output) -> int:
    # Measured outside: an open store has files that are not there before and afterwards.
    before = folder_bytes(data_dir)
    with opened(data_dir, storage) as provider, tracked("compact", out, silent=out.json) as progress:
        provider.compact(progress)
    return max(0, before - folder_bytes(data_dir))


def _could_free(data_dir: Path, storage: str | None) -> tuple[int, int]:
    """(bytes that can be freed at least, bytes of the journal that are not in the store yet)."""
    with looked_at(data_dir, storage) as store:
        stats = store.stats
    return max(0, stats.reclaimable_bytes + stats.journal_bytes - stats.unapplied_bytes), stats.unapplied_bytes


def _uncertain(unapplied: int) -> str:
    if not unapplied:
        return ""
    return (
        f" at least; a broker that was killed left {bytes_text(unapplied)} in the journal, and how much of that is "
        "settled is known when it is in the store: `compact` moves it there, and so do a start and a stop of the broker"
    )
