"""`vibemq-admin check` and `repair`: is the store sound, and saving what is."""

from pathlib import Path
from typing import Annotated

import typer

from vibemq.cli.admin.offline import as_plain, looked_at, plugin_of, provider_name, settings_of
from vibemq.cli.exits import CommandFailed, ExitCode
from vibemq.cli.flags import DataDir, DryRun, Json, Storage, Yes
from vibemq.cli.output import Output, bytes_text, count_text
from vibemq.errors import StorageDamaged
from vibemq.storage.interface import Problem, StorageStats

SHORT_PART = 10
"""A disk is nearly full when less than one byte in so many is free."""
WORTH_BYTES = 1 << 20


def check(
    data_dir: DataDir,
    storage: Storage = None,
    repair_wanted: Annotated[
        bool, typer.Option("--repair", help="Repair the store afterwards, like `repair`.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Check the whole store of a stopped broker and print each problem. Exit code 1 if there is one.

    No file is changed, so a directory that cannot be written can be checked.
    """
    out = Output(json=json)
    problems = find_problems(data_dir, storage, out)
    if problems and repair_wanted:
        _tell(out, problems)
        _repair(data_dir, storage, out, yes=yes)
        return
    out.emit({"ok": not problems, "problems": [as_plain(p) for p in problems]}, _summary(data_dir, problems))
    if problems:
        raise typer.Exit(ExitCode.FAILED)


def repair(
    data_dir: DataDir, storage: Storage = None, yes: Yes = False, dry_run: DryRun = False, json: Json = False
) -> None:
    """Repair a damaged store: keep all valid data and list the rest. Make a copy of the directory first."""
    out = Output(json=json)
    problems = find_problems(data_dir, storage)
    if dry_run:
        out.emit({"dry_run": True, "problems": [as_plain(p) for p in problems]}, _summary(data_dir, problems))
    elif not problems:
        out.emit({"repaired": True, "not_saved": [], "left": []}, f"{data_dir}: sound; nothing was changed")
    else:
        _repair(data_dir, storage, out, yes=yes)


def _repair(data_dir: Path, storage: str | None, out: Output, *, yes: bool) -> None:
    name = provider_name(data_dir, storage)
    plugin = plugin_of(name)
    if plugin.repair is None:
        raise CommandFailed(f"the {name} provider cannot repair; restore a backup with `vibemq-admin restore`")
    out.confirm(f"Repair {data_dir}? What cannot be read is removed from it.", yes=yes)
    unsaved = plugin.repair(data_dir, settings_of(plugin, data_dir))
    left = find_problems(data_dir, storage)
    value = {"repaired": not left, "not_saved": [as_plain(p) for p in unsaved], "left": [as_plain(p) for p in left]}
    lines = [f"not saved: {sentence(problem)}" for problem in unsaved]
    lines.append(f"{data_dir}: sound now" if not left else f"{count_text(len(left), 'problem')} left")
    out.emit(value, "\n".join(lines))
    if left:
        raise typer.Exit(ExitCode.FAILED)


def find_problems(data_dir: Path, storage: str | None, out: Output | None = None) -> list[Problem]:
    """All findings; damage that keeps the store from opening is one of them.

    Args:
        out: gets a note when the store is short of room.
    """
    try:
        with looked_at(data_dir, storage) as store:
            note = _note_of_room(store.stats)
            if out is not None and note:
                out.note(note, style="yellow")
            return store.check()
    except StorageDamaged as damage:
        return [Problem(str(damage), damage.path, damage.offset, repairable=_can_repair(data_dir, storage))]


def _note_of_room(stats: StorageStats) -> str:
    """Why a broker on this store would refuse messages although nothing is damaged; empty when it would not."""
    free, total, unused = stats.disk_free_bytes, stats.disk_total_bytes, stats.reclaimable_bytes
    wasteful = unused > max(stats.store_bytes // 2, WORTH_BYTES)
    if not stats.full and not (wasteful and free < total // SHORT_PART):
        return ""
    text = f"the disk is nearly full: {bytes_text(free)} of {bytes_text(total)} are free"
    if stats.full:
        text = f"messages are refused: {stats.full}"
    hint = f"; {bytes_text(unused)} of the store are unused: run `vibemq-admin compact`" if wasteful else ""
    return f"! {text}{hint}"


def sentence(problem: Problem) -> str:
    place = problem.path if problem.offset is None else f"{problem.path} at offset {problem.offset}"
    messages = f", queue {problem.queue} messages {problem.first_sequence} to {problem.last_sequence}"
    where = f" ({place}{messages if problem.queue else ''})" if problem.path not in problem.what else ""
    return f"{problem.what}{where}"


def _can_repair(data_dir: Path, storage: str | None) -> bool:
    return plugin_of(provider_name(data_dir, storage)).repair is not None


def _summary(data_dir: Path, problems: list[Problem]) -> str:
    if not problems:
        return f"{data_dir}: sound"
    lines = [f"✗ {sentence(problem)}" for problem in problems]
    repairable = any(problem.repairable for problem in problems)
    hint = "vibemq-admin check --repair saves what is valid" if repairable else "restore a backup"
    return "\n".join([*lines, f"{data_dir}: {count_text(len(problems), 'problem')}; {hint}"])


def _tell(out: Output, problems: list[Problem]) -> None:
    for problem in problems:
        out.note(f"✗ {sentence(problem)}", style="red")
