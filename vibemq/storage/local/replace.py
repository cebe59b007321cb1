"""Putting a finished copy in the place of a data directory, so that a kill at any step leaves one of the two there.

    data                       the directory
    data.restoring             the copy, while it is made; UNFINISHED is in it until it is complete and flushed; the
                               restore holds the folder itself with flock(2), from before that until it has its place
    data.replacing             only where two names cannot be exchanged: names what is on its way to another name

Where `data` is a mount point, or the folder that it is in cannot be written, `fill.py` fills it in place.

Linux exchanges two names in one step (renameat2, RENAME_EXCHANGE). Where the file system cannot, the note
`data.replacing` is written first, and whoever opens the directory next goes by what it says: the copy is to become
`data`, or another folder is what the copy was, and becomes it again.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from vibemq.errors import RestoreUnfinished
from vibemq.storage.local.modes import private_file
from vibemq.storage.local.names import has_name, open_locked
from vibemq.storage.local.store_file import fsync_file, fsync_folder, make_folder

_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""Of file systems that lock no folders."""
UNFINISHED = "unfinished"
_AT_FDCWD = -100
_EXCHANGE = 2
_NOT_POSSIBLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV)


def real_place(data_dir: Path) -> Path:
    """The folder itself where the data directory is a symbolic link, or `.` or `..`, which are no names: names change
    places beside the folder."""
    if data_dir.name in ("", "..") or data_dir.is_symlink():
        # `resolve` of pathlib makes an error that is not the system's of links that lead to each other.
        return Path(os.path.realpath(data_dir))
    return data_dir


def beside(data_dir: Path, suffix: str) -> Path:
    """A name in the same folder, also for `/`, which has none itself."""
    data_dir = real_place(data_dir)
    return data_dir.parent / f"{data_dir.name}{suffix}"


def copy_of(data_dir: Path) -> Path:
    return beside(data_dir, ".restoring")


class Replacement:
    """A restore whose finished copy takes the place of the data directory in one step."""

    def __init__(self, data_dir: Path, aside: Path) -> None:
        """
        Args:
            aside: the name that what is in the directory gets, with a number when it is taken.
        """
        self._data_dir = data_dir
        self._copy = copy_of(data_dir)
        self._aside = aside
        self.moved_aside: Path | None = None
        """What was in the directory, once the copy is in its place; None: nothing was."""
        self.earlier_copy: Path | None = None
        """What an earlier, interrupted restore had finished, moved aside too; None: nothing."""
        self._refused = False
        """An earlier restore was interrupted, so no broker starts in the directory before one has succeeded."""
        self._held: int | None = None
        """The folder of the copy. Its mark is gone before it has its place, and the folder takes the lock along. None
        also where the file system locks no folders."""
        self._is_mine = False
        """The copy is of this restore."""

    def begin(self) -> Path:
        """Make the empty folder for the copy, and those above it that are missing, as a broker's start does.

        What an earlier, interrupted restore had finished is moved aside.

        Raises:
            OSError: names the folder that the data directory is in, not the copy, of which nobody has heard.
            RestoreUnfinished: another restore into the directory is under way; nothing is changed.
        """
        make_folder(self._data_dir.parent)
        finish_replacing(self._data_dir)
        self._refused = is_interrupted(self._data_dir)
        try:
            self._take_copy()
        except BaseException:
            self._let_go()
            raise
        return self._copy

    def _take_copy(self) -> None:
        if not os.path.lexists(self._copy):
            self._make(self._copy)
            return
        if self._copy.is_dir() and not self._copy.is_symlink():
            self._held = self._hold(self._copy)
        if self._is_unfinished():
            self._is_mine = True
            self._empty()
        else:
            # Complete, so it may be what stood in the directory before an earlier restore.
            earlier = unused(self._aside)
            held, self._held = self._held, None
            try:
                self._make(earlier)
                _change_places(earlier, self._copy, _note(self._data_dir))
            finally:
                if held is not None:
                    os.close(held)
            self.earlier_copy = earlier

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise under_way(self._data_dir) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._data_dir.parent)) from error
        try:
            self._held = self._hold(folder)
            self._is_mine = True
            private_file(folder / UNFINISHED, b"")
        except RestoreUnfinished:
            raise  # Another restore has taken it for one that was left behind.
        except BaseException:
            # An empty folder would keep brokers away.
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _hold(self, folder: Path) -> int | None:
        try:
            held = open_locked(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None
            raise
        if held is None:
            raise under_way(self._data_dir)
        return held

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def discard(self) -> None:
        """Remove a copy that is not complete, and let go of it; no other. What refused a broker's start before `begin`
        still does."""
        try:
            has_gone = self._held is not None and not has_name(self._held, self._copy)
            if self._is_mine and not has_gone and self._is_unfinished():
                self._remove()
        finally:
            self._let_go()

    def _remove(self) -> None:
        if self.earlier_copy is not None:
            place, self.earlier_copy = self.earlier_copy, None
            _change_places(place, self._copy, _note(self._data_dir))
            shutil.rmtree(place)
        elif self._refused:
            self._empty()
        else:
            shutil.rmtree(self._copy)

    def _is_unfinished(self) -> bool:
        return not self._copy.is_symlink() and (self._copy / UNFINISHED).exists()

    def _empty(self) -> None:
        """All but the mark, which keeps brokers away."""
        for path in self._copy.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != UNFINISHED:
                path.unlink()

    def finish(self) -> None:
        """Put the copy in the place of the directory, which nobody uses; what was there, if anything, is aside then."""
        data_dir, copy = self._data_dir, self._copy
        flush_tree(copy)
        (copy / UNFINISHED).unlink()
        fsync_folder(copy)
        if not data_dir.exists() or not any(data_dir.iterdir()):
            os.rename(copy, data_dir)
        else:
            # It has the name of the copy for a moment, and another restore is not to take it for one. Whoever holds it
            # now is no restore.
            old = None
            with suppress(RestoreUnfinished):
                old = self._hold(data_dir)
            try:
                self._put_in_place_of_old()
            finally:
                if old is not None:
                    os.close(old)
        fsync_folder(data_dir.parent)
        self._is_mine = False
        self._let_go()

    def _put_in_place_of_old(self) -> None:
        data_dir, copy = self._data_dir, self._copy
        if _exchange(copy, data_dir):
            fsync_folder(data_dir.parent)
            self.moved_aside = self._move_aside(copy)
            return
        _write_note(_note(data_dir), copy.name)
        self.moved_aside = self._move_aside(data_dir)
        fsync_folder(data_dir.parent)
        # A broker that was refused meanwhile may have taken the note away.
        _put_in_place(copy, data_dir)
        _note(data_dir).unlink(missing_ok=True)

    def _move_aside(self, folder: Path) -> Path:
        place = unused(self._aside)
        os.rename(folder, place)
        return place


def under_way(data_dir: Path) -> RestoreUnfinished:
    """What a restore is refused with while another one fills the same place."""
    return RestoreUnfinished(
        f"another restore into {data_dir} is under way; wait for its end, or stop it and restore again"
    )


def finish_replacing(data_dir: Path) -> None:
    """Complete a replacement that was interrupted between its renames, or undo what came before it; nothing when there
    is none."""
    data_dir = real_place(data_dir)
    note, copy = _note(data_dir), copy_of(data_dir)
    if not note.exists():
        return
    name = os.fsdecode(note.read_bytes())
    if name == copy.name:
        _put_in_place(copy, data_dir)
    elif not copy.exists() and name in os.listdir(copy.parent):
        os.rename(copy.with_name(name), copy)
        fsync_folder(copy.parent)
    note.unlink(missing_ok=True)
    fsync_folder(data_dir.parent)


def _put_in_place(copy: Path, data_dir: Path) -> None:
    if not data_dir.exists() and copy.exists():
        os.rename(copy, data_dir)
        fsync_folder(data_dir.parent)


def refuse_interrupted(data_dir: Path) -> None:
    """Raise RestoreUnfinished for a directory that is missing, or empty, because a restore was interrupted."""
    if is_interrupted(data_dir):
        copy = copy_of(data_dir)
        raise RestoreUnfinished(
            f"a restore into {data_dir} was interrupted, and {copy} is what it left; run `vibemq-admin restore` again, "
            f"or remove {copy} to begin with an empty store"
        )


def is_interrupted(data_dir: Path) -> bool:
    return copy_of(data_dir).exists() and not (data_dir.exists() and any(data_dir.iterdir()))


def _note(data_dir: Path) -> Path:
    return beside(data_dir, ".replacing")


def _write_note(note: Path, name: str) -> None:
    private_file(note, os.fsencode(name))
    fsync_folder(note.parent)


def _change_places(one: Path, copy: Path, note: Path) -> None:
    """A folder and the copy, with a third name where that cannot be done in one step. Without a copy a broker would
    begin with an empty store, so the note says which folder that is meanwhile."""
    if not _exchange(one, copy):
        between = unused(one)
        _write_note(note, between.name)
        os.rename(copy, between)
        os.rename(one, copy)
        os.rename(between, one)
        fsync_folder(one.parent)
        note.unlink()
    fsync_folder(one.parent)


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
