"""A file of real blocks kept for the day the disk is full.

LMDB writes new pages even to delete, so a full disk would stop the drain that could empty it. Giving the ballast up
frees enough for settlements and checkpoints; publishes stay refused until it could be taken back.
"""

import os
from pathlib import Path

BALLAST_FILE = "ballast"


class Ballast:
    """Owned by the process that owns the data directory."""

    def __init__(self, folder: Path, size: int) -> None:
        self._path = folder / BALLAST_FILE
        self._size = size

    @property
    def held(self) -> bool:
        """Whether the blocks are really there."""
        try:
            return self._path.stat().st_blocks * 512 >= self._size
        except FileNotFoundError:
            return False

    def take(self, *, free_bytes: int) -> bool:
        """Reserve the blocks when the disk has room for them twice over; return whether they are held.

        Never raises for lack of space: a broker must be able to start on a full disk.
        """
        if self._size == 0 or self.held:
            return self.held
        if free_bytes < 2 * self._size:
            return False
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
        return True

    def release(self) -> int:
        """Give the blocks back to the disk; return how many bytes that were."""
        if not self.held:
            return 0
        self._path.unlink()
        return self._size
