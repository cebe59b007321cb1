"""Putting a finished copy in the place of a data directory, so that a kill at any step leaves one of the two there.

    data                       the directory
    data.restoring             the copy, while it is made; UNFINISHED is in it until it is complete and flushed
    data.replacing             only where two names cannot be exchanged: says that the copy is to become `data`

    data/restoring             in place of data.restoring, where `data` is a mount point or the folder that it is in
                               cannot be written, and nothing is in it: the copy, whose content is moved up when it is
                               complete

Linux exchanges two names in one step (renameat2, RENAME_EXCHANGE). Where the file system cannot, the note
`data.replacing` is written first, and whoever opens the directory next completes what it says.
"""

import ctypes
import errno
import os
import re
import shutil
import sys
from pathlib import Path

from vibemq.errors import StorageError
from vibemq.storage.local.modes import private_file
from vibemq.storage.local.store_file import fsync_file, fsync_folder, make_folder

UNFINISHED = "unfinished"
WITHIN = "restoring"
_OF_FILE_SYSTEM = "lost+found"
"""In the root of some file systems, and nobody's content."""
_AT_FDCWD = -100
_EXCHANGE = 2
_NOT_POSSIBLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV)


def copy_of(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.restoring")


def is_empty(data_dir: Path) -> bool:
    """Whether nothing is there that a restore would replace: what an interrupted one has left within does not count."""
    return not data_dir.exists() or (data_dir / WITHIN).exists() or not _content(data_dir)


def _content(data_dir: Path) -> list[Path]:
    return [path for path in data_dir.iterdir() if path.name != _OF_FILE_SYSTEM]


def has_fixed_place(data_dir: Path) -> bool:
    """Whether the directory cannot change places with another one beside it."""
    return data_dir.is_dir() and (_is_mount_point(data_dir) or not os.access(data_dir.parent, os.W_OK))


def _is_mount_point(folder: Path) -> bool:
    """Also where another part of the same file system is mounted, of which only Linux's table of mounts knows."""
    if os.path.ismount(folder):
        return True
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return False
    place = os.fsencode(folder.resolve())
    return any(_ESCAPED.sub(_unescaped, line.split(b" ")[4]) == place for line in mounts)


_ESCAPED = re.compile(rb"\\([0-7]{3})")
"""Blanks, tabs, line ends and backslashes in the names of mount points."""


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])


def begin_copy_within(data_dir: Path) -> Path:
    """As `begin_copy`, of an empty directory with a fixed place. No broker starts in it until `end_copy_within`."""
    if (data_dir / WITHIN).exists():
        for path in _content(data_dir):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    copy = data_dir / WITHIN
    copy.mkdir(mode=0o700)
    fsync_folder(data_dir)
    return copy


def end_copy_within(data_dir: Path) -> None:
    """Move the complete copy up. Interrupted, it is begun anew with the next restore."""
    copy = data_dir / WITHIN
    flush_tree(copy)
    for path in sorted(copy.iterdir()):
        os.rename(path, data_dir / path.name)
    fsync_folder(copy)
    fsync_folder(data_dir)
    copy.rmdir()
    fsync_folder(data_dir)


def discard_copy_within(data_dir: Path) -> None:
    """Remove a copy of which nothing has been moved up."""
    if (data_dir / WITHIN).exists() and _content(data_dir) == [data_dir / WITHIN]:
        shutil.rmtree(data_dir / WITHIN)


def begin_copy(data_dir: Path, aside: Path) -> Path:
    """Make the empty folder for the copy, and those above it that are missing, as a broker's start does.

    What an earlier, interrupted restore had finished is moved to `aside`.

    Raises:
        OSError: names the folder that the data directory is in, not the copy, of which nobody has heard.
    """
    copy = copy_of(data_dir)
    make_folder(data_dir.parent)
    finish_replacing(data_dir)
    if copy.exists() and (copy / UNFINISHED).exists():
        shutil.rmtree(copy)
    elif copy.exists():
        # Complete, so it may be what stood in `data_dir` before an earlier restore.
        os.rename(copy, unused(aside))
    try:
        copy.mkdir(mode=0o700)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(data_dir.parent)) from error
    private_file(copy / UNFINISHED, b"")
    return copy


def discard_copy(data_dir: Path) -> None:
    """Remove a copy that is not complete; no other."""
    copy = copy_of(data_dir)
    if (copy / UNFINISHED).exists():
        shutil.rmtree(copy)


def replace(data_dir: Path, aside: Path) -> None:
    """Put the copy in the place of `data_dir`, which nobody uses; what was there, if anything, is in `aside` then."""
    copy = copy_of(data_dir)
    flush_tree(copy)
    (copy / UNFINISHED).unlink()
    fsync_folder(copy)
    if not data_dir.exists() or not any(data_dir.iterdir()):
        os.rename(copy, data_dir)
    elif _exchange(copy, data_dir):
        fsync_folder(data_dir.parent)
        os.rename(copy, unused(aside))
    else:
        private_file(_note(data_dir), os.fsencode(copy.name))
        fsync_folder(data_dir.parent)
        os.rename(data_dir, unused(aside))
        fsync_folder(data_dir.parent)
        finish_replacing(data_dir)
    fsync_folder(data_dir.parent)


def finish_replacing(data_dir: Path) -> None:
    """Complete a replacement that was interrupted between its two renames; nothing when there is none."""
    note, copy = _note(data_dir), copy_of(data_dir)
    if not note.exists():
        return
    if not data_dir.exists() and copy.exists():
        os.rename(copy, data_dir)
        fsync_folder(data_dir.parent)
    note.unlink()
    fsync_folder(data_dir.parent)


def refuse_interrupted(data_dir: Path) -> None:
    """Raise StorageError for a directory that is missing, or empty, because a restore was interrupted."""
    finish_replacing(data_dir)
    refuse_half_restored(data_dir)


def refuse_half_restored(data_dir: Path) -> None:
    """As `refuse_interrupted`, and change nothing."""
    if (data_dir / WITHIN).exists():
        raise StorageError(
            f"a restore into {data_dir} was interrupted; run `vibemq-admin restore` again, or remove what is in the "
            "folder to begin with an empty store"
        )
    copy = copy_of(data_dir)
    if copy.exists() and not (data_dir.exists() and any(data_dir.iterdir())):
        raise StorageError(
            f"a restore into {data_dir} was interrupted, and {copy} is what it left; run `vibemq-admin restore` again, "
            f"or remove {copy} to begin with an empty store"
        )


def _note(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.replacing")


def _exchange(one: Path, other: Path) -> bool:
    """Let two names change places in one step. False where that is not possible."""
    sys.audit("vibemq.exchange", str(one), str(other))
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_POSSIBLE:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def unused(place: Path) -> Path:
    """The name, with a number when it is taken."""
    names = (place, *(place.with_name(f"{place.name}-{number}") for number in range(2, 1000)))
    return next(name for name in names if not name.exists())


def flush_tree(folder: Path) -> None:
    """Make a folder with all that is in it, or a file, durable."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            fsync_folder(path)
        else:
            fsync_file(path)
