"""One process owns a data directory.

    lock         held with flock(2) while the store is open; the kernel lets go when the process ends, however it ends
    owner.json   {"pid", "host", "boot_id", "since"}: who holds it, for the sentence a second broker is refused with

An owner holds the lock exclusively; what only reads the directory shares it with others that only read, and is not
named. The lock alone decides; the owner file only explains, and a process that was killed leaves it behind. flock works
between containers that share a volume, where process ids mean nothing. A lock is of a file and not of its name, and a
restore replaces the directory: whoever gets the lock makes sure that the file still has its name. An owner looks again
now and then, because nobody is kept from moving or deleting what is open.
"""

import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vibemq.errors import StorageFailed, StorageLocked
from vibemq.storage.local.fill import refuse_unfinished
from vibemq.storage.local.modes import private_file
from vibemq.storage.local.names import has_name
from vibemq.storage.local.replace import finish_replacing, refuse_interrupted
from vibemq.storage.local.store_file import make_folder

logger = logging.getLogger(__name__)

LOCK_NAME = "lock"
OWNER_NAME = "owner.json"
YOUNG_S = 3600
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

_SOME_READER = "a command that only reads it, such as `vibemq-admin check` or a dry run"
_SOME_PROCESS = "another process, perhaps an offline command such as `vibemq-admin repair`"


class DirectoryLock:
    """Exclusive ownership of a data directory, or a share in reading it; not reentrant."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: int | None = None
        self._to_look = False
        """Taken by `acquire_to_look`."""
        self._made = False
        """The lock's file was made for it, and goes with it."""
        self._unseen = False
        """The latest look was refused."""

    @property
    def held(self) -> bool:
        return self._file is not None

    def acquire(self) -> None:
        """Make the folder if it is missing, and take it. Nothing else in it is touched: it may turn out to be no store.

        Raises:
            StorageLocked: names the pid and host of the owner.
            RestoreUnfinished: a restore was interrupted before anything stood there, or is under way.
        """
        file = None
        while file is None:
            finish_replacing(self._data_dir)
            _refuse_half_restored(self._data_dir)
            make_folder(self._data_dir)
            file = self._lock_file(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
        try:
            # A restore looks for the lock's file after it has made its mark: one of the two sees the other.
            refuse_unfinished(self._data_dir)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        self._write_owner()

    def acquire_to_look(self) -> None:
        """Keep owners out of a directory that is only read. Nothing in it is written, and no owner is named.

        Others may look at the same time. A missing lock's file is made, and removed afterwards unless another one
        looks by then. Where it cannot be made, on a read-only file system, no
        broker could make it either: nothing is held then.

        Raises:
            StorageLocked: names the pid and host of the owner.
            StorageError: a restore was interrupted before anything stood there.
        """
        file = None
        self._to_look = True
        while file is None:
            _refuse_half_restored(self._data_dir)
            try:
                # A shared lock is all that NFS gives for a file that is open for reading.
                file = self._lock_file(os.O_RDONLY, fcntl.LOCK_SH)
            except FileNotFoundError:
                try:
                    # For writing, because the lock becomes exclusive before the file is removed.
                    file = self._lock_file(os.O_RDWR | os.O_CREAT | os.O_EXCL, fcntl.LOCK_SH)
                except FileExistsError:
                    continue
                except OSError as error:
                    if error.errno not in _READ_ONLY:
                        raise
                    return
                self._made = True
        self._file = file

    def require_name(self) -> None:
        """Of an owner, now and then: it would write, and confirm, what no later owner finds.

        Raises:
            StorageFailed: another file, or none, has the name of the lock's.
        """
        if self._file is None:
            return
        path = self._data_dir / LOCK_NAME
        try:
            ours = has_name(self._file, path)
        except OSError as error:
            # Nobody may look there for now. That says nothing of whose it is, and the upkeep goes on.
            if not self._unseen:
                logger.warning("cannot see whether %s is still ours: %s", path, error.strerror)
            self._unseen = True
            return
        self._unseen = False
        if not ours:
            raise StorageFailed(
                f"the data directory {self._data_dir} is not the one any more that was opened: it, or the file "
                f"{LOCK_NAME} in it, was moved, replaced or deleted while the broker had it open; put the directory "
                f"back where it was, or see who has deleted {LOCK_NAME}, then restart the process"
            )
        _keep_young(self._file)

    def _lock_file(self, flags: int, kind: int) -> int | None:
        """The descriptor of the lock's file, locked. None: another file has its name by now, so the lock is of a
        directory that was replaced meanwhile; take it anew.

        Raises:
            StorageLocked: names the pid and host of the owner.
        """
        path = self._data_dir / LOCK_NAME
        file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            locked = _lock_now(file, kind)
            if has_name(file, path):
                if locked:
                    return file
                raise self._refusal(file, kind)
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        return None

    def _refusal(self, file: int, kind: int) -> StorageLocked:
        # Whoever shares the lock is no owner, and what the owner file says is of a process that has ended.
        shared = kind == fcntl.LOCK_EX and _lock_now(file, fcntl.LOCK_SH)
        user = _SOME_READER if shared else describe_owner(self._data_dir)
        return StorageLocked(
            f"the data directory {self._data_dir} is in use by {user}; "
            "stop that process first, or choose another data directory"
        )

    def release(self) -> None:
        """Idempotent."""
        if self._file is None:
            return
        try:
            self._remove_names(self._file)
        except OSError as error:
            # The lock alone decides; the store is closed, and whoever opens it next writes these files anew.
            logger.warning("left %s as it is, with the names of an owner that has ended: %s", self._data_dir, error)
        finally:
            os.close(self._file)
            self._file = None
            self._to_look = self._made = False

    def _remove_names(self, file: int) -> None:
        # What is in a directory that has taken the place of ours is another owner's.
        if not has_name(file, self._data_dir / LOCK_NAME):
            return
        if not self._to_look:
            (self._data_dir / OWNER_NAME).unlink(missing_ok=True)
        # Others that look have locked the same file: without its name it would not keep an owner out.
        if self._made and _lock_now(file, fcntl.LOCK_EX):
            (self._data_dir / LOCK_NAME).unlink()

    def _write_owner(self) -> None:
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot_id": boot_id(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        # Nothing depends on it surviving a power cut, and a full disk must not keep a broker from starting.
        try:
            private_file(self._data_dir / OWNER_NAME, json.dumps(owner).encode(), flush=False)
        except OSError:
            return


@contextmanager
def looking_at(data_dir: Path) -> Iterator[None]:
    """Keep owners out while the block runs, as `DirectoryLock.acquire_to_look`."""
    lock = DirectoryLock(data_dir)
    lock.acquire_to_look()
    try:
        yield
    finally:
        lock.release()


def is_owned(data_dir: Path) -> bool:
    """Whether a process has the directory open as its owner; a restore's mark in it is no reason to refuse."""
    try:
        file = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock_now(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _keep_young(file: int) -> None:
    """Cleaners of temporary folders remove what is old, and nothing else touches the lock's file."""
    if time.time() - os.fstat(file).st_mtime > YOUNG_S:
        # Where it cannot be touched it cannot be removed either.
        with suppress(OSError):
            os.utime(file)


def _refuse_half_restored(data_dir: Path) -> None:
    refuse_unfinished(data_dir)
    refuse_interrupted(data_dir)


def _lock_now(file: int, kind: int) -> bool:
    """Lock an open file, or change the lock that it has. False: another process has it; what it had may be lost."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def describe_owner(data_dir: Path) -> str:
    """Who holds the exclusive lock, as far as the owner file can be believed: a killed process leaves its own behind,
    and the next owner writes the file only after it has the lock.

    Of a process on another host, or in another container, nothing can be known but that file.
    """
    try:
        owner = json.loads((data_dir / OWNER_NAME).read_text())
        text = f"process {owner['pid']} on host {owner['host']} (since {owner['since']})"
        here = owner["host"] == socket.gethostname()
        believed = not here or (owner["boot_id"] == boot_id() and _is_alive(owner["pid"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return _SOME_PROCESS
    return text if believed else _SOME_PROCESS


def _is_alive(pid: int) -> bool:
    # Numbers below 1 name groups of processes.
    if pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> str:
    """Tells one run of the kernel from the next; empty where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
