"""One process owns a data directory: a lock that dies with its holder, and a note of who that is.

`flock` needs no cleaning up after a crash. It does not reach over a network, which is one reason why remote file
systems are refused; the other is that LMDB's map does not work on them.
"""

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from vibemq.errors import StorageError, StorageLocked

OWNER_LOCK = "lock"
OWNER_FILE = "owner.json"
WRITER_LOCK = "checkpointer.lock"
"""Held by the checkpointer: a broker that was killed may leave one behind for a moment."""

REMOTE_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "glusterfs", "afs", "fuse")


class DirectoryLock:
    """An exclusive lock on one file of a folder. Not inherited by child processes."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._path = folder / name
        self._descriptor: int | None = None

    def acquire(self, *, wait_s: float = 0.0) -> None:
        """Take the lock, trying for `wait_s`.

        Raises:
            StorageLocked: somebody else holds it; the sentence names the data directory's owner.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                os.close(descriptor)
                raise StorageLocked(
                    f"data directory {self._folder} is in use by {describe_owner(self._folder)}"
                ) from None
            self._descriptor = descriptor
            return

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def write_owner(folder: Path) -> None:
    """Note this process as the owner; call it while holding the lock."""
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "boot_id": _boot_id(), "since": int(time.time())}
    (folder / OWNER_FILE).write_text(json.dumps(owner) + "\n")


def describe_owner(folder: Path) -> str:
    """The owner in words, as far as its note can be read."""
    try:
        owner: dict[str, Any] = json.loads((folder / OWNER_FILE).read_text())
        return f"process {owner['pid']} on host {owner['host']}; stop it first, or choose another --data-dir"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process; stop it first, or choose another --data-dir"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def refuse_remote(folder: Path) -> None:
    """Raise StorageError when the folder is on a network or user-space file system."""
    kind = file_system(folder)
    if kind.partition(".")[0] in REMOTE_FILE_SYSTEMS:
        raise StorageError(
            f"data directory {folder} is on a {kind} file system, where neither locks nor memory maps can be trusted; "
            "choose a local disk, or set allow_remote_file_system if you know better"
        )


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`, "" when /proc does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    path = folder.resolve()
    best, kind = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4].encode().decode("unicode_escape"))
        if (path == mount or mount in path.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), right.split()[0]
    return kind
