"""`vibemq-admin backup` and `restore`."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from vibemq.cli.admin.check import find_problems, sentence
from vibemq.cli.admin.offline import looked_at, opened, provider_name, refuse_unless_empty
from vibemq.cli.exits import CommandFailed, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DataDir, DryRun, Json, Storage, Yes, data_dir_option, timeout_option
from vibemq.cli.online import ask
from vibemq.cli.output import Output, bytes_text
from vibemq.cli.progress import tracked
from vibemq.storage.local.backup_folder import refuse_inside
from vibemq.storage.local.fill import OF_NO_STORE, FillInPlace, content, must_be_filled
from vibemq.storage.local.lock import LOCK_NAME, DirectoryLock, is_owned, looking_at
from vibemq.storage.local.replace import Replacement, beside, finish_replacing, real_place
from vibemq.storage.timeline import mark_restored

BACKUP_TIMEOUT = 3600.0


def backup(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder for the copy.")],
    data_dir: Annotated[Path | None, data_dir_option("Data directory of a stopped broker.")] = None,
    storage: Storage = None,
    url: Annotated[
        str | None,
        typer.Option("--url", envvar="VIBEMQ_URL", help="A running broker; the folder is created on its machine."),
    ] = None,
    timeout: Annotated[float, timeout_option("1h")] = BACKUP_TIMEOUT,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Write a consistent copy of the store: of a running broker with --url, of a stopped one with --data-dir.

    The copy is itself a data directory that a broker can be started on.
    """
    out = Output(json=json)
    if data_dir is None and url is None:
        raise Usage("name the broker: --url of a running one, or --data-dir of a stopped one")
    if data_dir is not None:
        refuse_inside(target, data_dir)
        refuse_unless_empty(target)
        size = _back_up_offline(target, data_dir, storage, out, dry_run=dry_run)
        # Reserved disk space and settled messages of the journal are not copied.
        told = f"at most {bytes_text(size)} would be copied" if dry_run else f"{bytes_text(size)} copied"
        value = {"target": str(target), "bytes": size, "dry_run": dry_run, "online": False}
        out.emit(value, f"{data_dir}: {told} to {target}")
        return
    assert url is not None
    if dry_run:
        ask(url, DEFAULT_TIMEOUT, "storage.backup", target=str(target.absolute()), dry_run=True)
    else:
        out.note("the broker is copying …")
        ask(url, timeout, "storage.backup", target=str(target.absolute()))
    verb = "would be written" if dry_run else "written"
    value = {"target": str(target.absolute()), "dry_run": dry_run, "online": True}
    out.emit(value, f"backup {verb} to {target.absolute()} on the broker's machine")


def _back_up_offline(target: Path, data_dir: Path, storage: str | None, out: Output, *, dry_run: bool) -> int:
    if dry_run:
        with looked_at(data_dir, storage):
            pass
        # Measured outside: a look may have files of its own.
        return folder_bytes(data_dir)
    with opened(data_dir, storage) as provider, tracked("backup", out, silent=out.json) as progress:
        provider.backup(target, progress)
    return folder_bytes(target)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="The backup.")],
    data_dir: DataDir,
    storage: Storage = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Check a backup, then replace a data directory with it. The previous content is renamed, not deleted.

    Readers that keep their positions outside the broker, such as Spark streams, have to start over.
    """
    out = Output(json=json)
    name = provider_name(source, storage, is_backup=True)
    data_dir = real_place(data_dir)
    if Path(os.path.realpath(data_dir)).is_relative_to(os.path.realpath(source)):
        raise Usage(f"the data directory {data_dir} is in the backup {source}; choose a folder outside it")
    aside = beside(data_dir, f".before-restore-{time.strftime('%Y%m%d-%H%M%S')}")
    fills = must_be_filled(data_dir)
    if fills:
        _refuse_content(data_dir)
    if dry_run:
        _check_only(source, data_dir, name)
        value = {"data_dir": str(data_dir), "moved_aside": str(aside) if content(data_dir) else None, "dry_run": True}
        out.emit(value, f"{source} is sound, would be restored to {data_dir}")
        return
    if fills:
        moved_aside = earlier_copy = None
        with _copying(FillInPlace(data_dir), source, name, out):
            _refuse_a_broker(data_dir)
    else:
        replacement = _exchange(source, data_dir, aside, name, out, yes=yes)
        moved_aside, earlier_copy = replacement.moved_aside, replacement.earlier_copy
    value = {"data_dir": str(data_dir), "moved_aside": _text(moved_aside), "earlier_copy": _text(earlier_copy)}
    told = f"; the previous content is in {moved_aside}" if moved_aside else ""
    if earlier_copy:
        told += f"; what an interrupted restore had left is in {earlier_copy}, remove it if it is not needed"
    out.emit({**value, "dry_run": False}, f"{source} is sound, restored to {data_dir}{told}")


def _text(place: Path | None) -> str | None:
    return None if place is None else str(place)


@contextmanager
def _copying(place: FillInPlace | Replacement, source: Path, storage: str, out: Output) -> Iterator[None]:
    """Copy the backup and check the copy; the block may still refuse; then the copy is put in its place."""
    copy = place.begin()
    try:
        with _at_rest(source):
            _copy_and_check(source, copy, storage, out)
        mark_restored(copy)
        yield
        place.finish()
    finally:
        place.discard()


def _exchange(source: Path, data_dir: Path, aside: Path, storage: str, out: Output, *, yes: bool) -> Replacement:
    """The replacement that was made: it knows what is aside now."""
    replacement = Replacement(data_dir, aside)
    finish_replacing(data_dir)
    occupied = bool(content(data_dir))
    with _kept_from_brokers(data_dir) as lock:
        if occupied:
            out.confirm(f"{data_dir} is not empty. Move it to {aside} and put the backup in its place?", yes=yes)
        with _copying(replacement, source, storage, out):
            _take(lock, data_dir, occupied=occupied)
    return replacement


def _refuse_content(data_dir: Path) -> None:
    """Raise CommandFailed for a directory that can only be filled and has something in it."""
    if content(data_dir):
        raise CommandFailed(
            f"{data_dir} is not empty, and it cannot be exchanged for another folder, because it is a mount point or "
            f"{data_dir.parent} cannot be written; restore into a new folder in it, such as {data_dir / 'restored'}, "
            "and start the broker with that data_dir, or move its content away and restore again",
            code="NOT_EMPTY",
        )


def _refuse_a_broker(data_dir: Path) -> None:
    """Raise CommandFailed when one has begun to use the directory before the restore had made its mark there."""
    if is_owned(data_dir) or content(data_dir):
        raise CommandFailed(f"a broker has begun to use {data_dir}; stop it and restore again", code="NOT_EMPTY")


def _check_only(source: Path, data_dir: Path, storage: str) -> None:
    """Raise what a restore would: the backup is damaged, or a broker has the directory. Nothing is changed."""
    with _at_rest(data_dir):
        _refuse_damaged(source, source, storage)


def _at_rest(folder: Path) -> AbstractContextManager[None]:
    """Keeps brokers out of it, as far as one may have been in it: a backup has no lock's file, and gets none."""
    return looking_at(folder) if LOCK_NAME in {path.name for path in content(folder)} else nullcontext()


@contextmanager
def _kept_from_brokers(data_dir: Path) -> Iterator[DirectoryLock]:
    """The lock of the directory, held from the start if its file is there; only then can a broker have it open.

    The file is not made before it is needed: the folder may be no store, and the restore may be declined or refused.

    Raises:
        StorageLocked: a broker has the directory open.
    """
    lock = DirectoryLock(data_dir)
    if (data_dir / LOCK_NAME).exists():
        lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


def _take(lock: DirectoryLock, data_dir: Path, *, occupied: bool) -> None:
    """Hold the lock before the directory is replaced: a broker may have started in it since the restore began.

    An empty directory is not locked: `replace` fails if anything is in it by then, and moves nothing.

    Raises:
        StorageLocked: a broker has the directory open.
        CommandFailed: it was empty, so nobody was asked whether its content may be moved.
    """
    if lock.held or not content(data_dir):
        return
    if occupied or (data_dir / LOCK_NAME).exists():
        lock.acquire()
    if not occupied:
        raise CommandFailed(
            f"{data_dir} was empty when the restore began, and is not any more; look what is in it and restore again",
            code="NOT_EMPTY",
        )


def _copy_and_check(source: Path, copy: Path, storage: str, out: Output) -> None:
    paths = sorted(_parts_of(source))
    total, done = sum(path.stat().st_size for path in paths if path.is_file()), 0
    with tracked("restore", out, silent=out.json) as progress:
        for path in paths:
            place = copy / path.relative_to(source)
            if path.is_dir():
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                continue
            shutil.copy2(path, place)
            done += path.stat().st_size
            progress(done, total)
    _refuse_damaged(copy, source, storage)


def _parts_of(source: Path) -> Iterator[Path]:
    """Folders and files of a store; one of its folders may be a symbolic link to where it is."""
    for name, folders, files in os.walk(source, onerror=_refuse_unread, followlinks=True):
        if Path(name) == source:
            folders[:], files[:] = ([part for part in parts if part not in OF_NO_STORE] for parts in (folders, files))
        else:
            folders[:] = [part for part in folders if not Path(name, part).is_symlink()]
        yield from (Path(name, part) for part in (*folders, *files))


def _refuse_unread(error: OSError) -> None:
    """A folder that cannot be read is not one without files."""
    raise error


def _refuse_damaged(folder: Path, source: Path, storage: str) -> None:
    """Check the backup, or the copy of it in `folder`."""
    problems = find_problems(folder, storage)
    if problems:
        # The copy is removed again; the same damage is in the backup.
        told = sentence(problems[0]).replace(str(folder), str(source))
        raise CommandFailed(f"the backup {source} is damaged: {told}", code="STORAGE_DAMAGED")


def folder_bytes(folder: Path) -> int:
    """Bytes on disk: sparse files count for what they take."""
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
