"""One writer of the LMDB store at a time, beside the lock of the whole data directory (`vibemq.storage.local.lock`).

The checkpointer holds it. A broker that was killed may leave its checkpointer behind for a moment; the next broker
waits for that one to end before it reads the store.
"""

import fcntl
import os
import time
from pathlib import Path

from vibemq.errors import StorageLocked
from vibemq.storage.local.names import open_locked

WRITER_LOCK = "checkpointer.lock"
LEFTOVER_WAIT_S = 30.0
"""How long a killed broker's checkpointer may take to notice. It ends at once unless the disk hangs."""
_STEP_S = 0.02


def wait_for_writer(store: Path, *, wait_s: float) -> None:
    """Wait until the checkpointer of a killed broker has ended; nothing is written. Raises StorageLocked.

    The caller has the lock of the directory, so that no other one begins.
    """
    path = store / WRITER_LOCK
    if path.exists():
        # Shared, because that is all a file which can only be read may be locked with on NFS.
        os.close(_locked(path, os.O_RDONLY, fcntl.LOCK_SH, wait_s=wait_s))


class WriterLock:
    """Not inherited by child processes; ends with its process."""

    def __init__(self, store: Path) -> None:
        self._path = store / WRITER_LOCK
        self._file: int | None = None

    def acquire(self, *, wait_s: float) -> None:
        """Take the lock, trying for `wait_s`. Raises StorageLocked."""
        # On NFS an exclusive lock needs a file that is open for writing.
        self._file = _locked(self._path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX, wait_s=wait_s)

    def release(self) -> None:
        """Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _locked(path: Path, flags: int, kind: int, *, wait_s: float) -> int:
    """The descriptor of the locked file. Raises StorageLocked."""
    deadline = time.monotonic() + wait_s
    while (file := open_locked(path, flags, kind)) is None:
        if time.monotonic() > deadline:
            raise StorageLocked(f"the checkpointer of an earlier broker still holds {path}; wait or end it")
        time.sleep(_STEP_S)
    return file
