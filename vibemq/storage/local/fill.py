"""Filling an empty data directory that cannot change places with a finished copy beside it.

    data/.vibemq-restore/copy/        the copy, whose content is moved up when it is complete
    data/.vibemq-restore/unfinished   held with flock(2) by the restore; while it is there, no store is opened in `data`
    data/.vibemq-restore/moved-up     the names that the restore moves, written before it moves the first

Only a folder with that file in it is an unfinished restore, and the next restore removes nothing but what is named
here: somebody else's files in the directory stay, and are a reason to refuse.
"""

import fcntl
import os
import shutil
from pathlib import Path

from vibemq.errors import RestoreUnfinished
from vibemq.storage.local.modes import private_file
from vibemq.storage.local.mounts import is_mount_point
from vibemq.storage.local.names import open_locked
from vibemq.storage.local.replace import UNFINISHED, flush_tree, under_way
from vibemq.storage.local.store_file import fsync_folder

FOLDER_NAME = ".vibemq-restore"
OF_NO_STORE = (FOLDER_NAME, "lost+found")
"""What may be in the root of a mounted directory, or of a backup, and is no part of a store."""
_COPY = "copy"
_MOVED_UP = "moved-up"
_OF_FILE_SYSTEM = "lost+found"
"""In the root of some file systems, and nobody's content."""
_OF_THE_LOCK = ("lock", "owner.json")
"""What a broker leaves that was refused because a restore is unfinished."""


def must_be_filled(data_dir: Path) -> bool:
    """Whether a restore into the directory has to fill it: it cannot change places with another one beside it, or an
    unfinished restore has begun to fill it, perhaps in a container in which it was a mount point."""
    fixed = data_dir.is_dir() and (is_mount_point(data_dir) or not os.access(data_dir.parent, os.W_OK))
    return fixed or is_unfinished(data_dir)


def is_unfinished(data_dir: Path) -> bool:
    folder = data_dir / FOLDER_NAME
    return not folder.is_symlink() and (folder / UNFINISHED).exists()


def content(data_dir: Path) -> list[Path]:
    """What a restore into the directory would have to replace; not what an unfinished one has left there."""
    if not data_dir.exists():
        return []
    left = _left_by_restore(data_dir)
    return [path for path in data_dir.iterdir() if path.name != _OF_FILE_SYSTEM and path not in left]


def _left_by_restore(data_dir: Path) -> list[Path]:
    folder = data_dir / FOLDER_NAME
    if is_unfinished(data_dir):
        return [folder, *(data_dir / name for name in (*_OF_THE_LOCK, *_moved_up(folder)))]
    # A restore that was killed at its first step or before its last one.
    return [folder] if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()) else []


def _moved_up(folder: Path) -> list[str]:
    try:
        names = os.fsdecode((folder / _MOVED_UP).read_bytes()).split("\0")
    except FileNotFoundError:
        return []
    # Each name ends with a zero byte: the last part is empty, or a name that a power cut has cut off.
    return [name for name in names[:-1] if name and name not in (".", "..") and "/" not in name]


def refuse_unfinished(data_dir: Path) -> None:
    """Raise RestoreUnfinished for a directory that a restore has not filled to the end."""
    if is_unfinished(data_dir):
        raise RestoreUnfinished(
            f"a restore into {data_dir} is under way or was interrupted; run `vibemq-admin restore` again, or remove "
            "what is in the folder to begin with an empty store"
        )


class FillInPlace:
    """A restore into an empty directory with a fixed place. No store is opened in it between `begin` and `finish`."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._folder = data_dir / FOLDER_NAME
        self._copy = self._folder / _COPY
        self._mark: int | None = None
        self._refused = False
        """An earlier restore was interrupted, so no broker starts in the directory before one has succeeded."""

    def begin(self) -> Path:
        """Remove what an interrupted restore has left, and make the empty folder for the copy.

        Raises:
            RestoreUnfinished: another restore into the directory is under way; nothing is changed.
        """
        self._refused = is_unfinished(self._data_dir)
        if self._refused:
            self._hold()
            # What was moved up is known by a file in the folder, which goes last.
            for path in _left_by_restore(self._data_dir):
                if path != self._folder:
                    _remove(path)
            fsync_folder(self._data_dir)
            for path in self._folder.iterdir():
                if path.name != UNFINISHED:
                    _remove(path)
        else:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            private_file(self._folder / UNFINISHED, b"")
            self._hold()
        self._copy.mkdir(mode=0o700)
        fsync_folder(self._folder)
        fsync_folder(self._data_dir)
        return self._copy

    def _hold(self) -> None:
        self._mark = open_locked(self._folder / UNFINISHED, os.O_RDWR, fcntl.LOCK_EX)
        if self._mark is None:
            raise under_way(self._data_dir)

    def finish(self) -> None:
        """Move the complete copy up. Interrupted, it is begun anew with the next restore.

        Raises:
            RestoreUnfinished: something has one of its names by now; nothing is moved.
        """
        names = sorted(path.name for path in self._copy.iterdir())
        self._refuse_taken(names)
        private_file(self._folder / _MOVED_UP, b"".join(os.fsencode(name) + b"\0" for name in names))
        flush_tree(self._folder)
        for name in names:
            os.rename(self._copy / name, self._data_dir / name)
        fsync_folder(self._copy)
        fsync_folder(self._data_dir)
        (self._folder / UNFINISHED).unlink()
        fsync_folder(self._folder)
        shutil.rmtree(self._folder)
        fsync_folder(self._data_dir)

    def _refuse_taken(self, names: list[str]) -> None:
        # A rename replaces a file without a word.
        for name in names:
            if name not in _OF_THE_LOCK and os.path.lexists(self._data_dir / name):
                raise RestoreUnfinished(
                    f"{self._data_dir / name} is there since the restore began; look what it is and restore again"
                )

    def discard(self) -> None:
        """Remove a copy that is not complete, and let go of it; no other. What refused a broker's start before `begin`
        still does."""
        if self._mark is None:
            return
        if is_unfinished(self._data_dir) and not _moved_up(self._folder):
            shutil.rmtree(self._copy if self._refused else self._folder)
        os.close(self._mark)
        self._mark = None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
